"""Conversations and their turns.

switchboard, chat      which conversation a message belongs to; one key of one person
forks                  sessions beside another, which go on from a past moment of it
standings              how each session stands, told to the catalog: rows and checkpoints
conversation           the two coroutines that own one session
makings                what each is made of, and what the configuration says to it
typed_commands         what is typed after a slash, run and answered; a slow one keeps no other waiting
inbox                  what waits, and which of it is taken next: the queue modes
turn                   one turn, in a straight line
answering, tool_calls  one answer of a model within it; its calls of tools, each run once
pruning                before each call of a model: what it is shown less of
reverting              a compaction taken back
compacting             flush, then compact; with compaction_rules, condensing (flush and summary), asking (a model beside
                       the conversation), compaction_hooks (what plugins say of it)
appending              text that is appended to a note once and whole
day_notes, owed_notes  sections appended to the day's note, each once, whatever stops it meanwhile
scrubbing              events without the secrets that others repeat
live                   the answer that is being streamed
instructions           the text before every conversation; workspace_notes: AGENTS.md and SOUL.md; loaded_notes:
                       these, MEMORY.md and the days' notes in it
files, showing         a conversation's files on their way to models: what was refused; what is shown, read once
journal_news           when the memory is to look at the journals
recalling              what the memory has for a message, behind it
remembering            what a person wants remembered, written at once; heeding: for a model that has no tool to do it
offered_tools          which tools the model is offered now
"""
