"""What was written down is found again: the notes of the workspace, by their words and by their meaning.

sources         the contract of where what is found comes from
scope           what a search may find
notes           the notes of the workspace: the owner's, each person's, those that are shared
extra_notes     Markdown elsewhere, which the operator names
transcripts     what was said in the sessions; dialogue: the chunks of it; excerpts: reading it
markdown_files  files in a folder: which there are, and what stands in them
chunks          the pieces of a note that are found; own_lines: without what the memory itself had given
words           the words of a text, in every script
languages       stop words and stems
spelling        one way to write what is written in several
backend         the contract of where the index rests
backends/       where it may rest besides SQLite
resting         where it rests now
changes         what the index is to be told of the sources
tables          the index's file; derived from the notes
vectors         the chunks' vectors, searched by sqlite-vec or by numpy
index           the backend `sqlite`: the chunks in it; keywords: found by their words, which FTS5 holds
candidates      what is ranked, and by which rules
fusions         words and vectors put together, each way by its name; pure
measured        the way that is used: also what stands around a chunk, and what the question names; pure
strength        what the vectors of a model count
periods         the time that a question names; pure
judging         how good results are where the answers are known; pure
ranking         which candidates answer best: fusion, decay, diversity; pure
searching       one search: candidates, ranked
recall          what of a search stands behind a person's message; pure
asked_to_remember  what a message asks to be remembered
small_talk      what asks for nothing, and has nothing recalled for it
settings        `[memory]` of the configuration
soundness       whether the file is as it was written, and what can be saved of it
index_file      the index's file, open to write and to read, made anew where it was harmed
holdings        what is in the file, counted from outside
upkeep          what changed is read and embedded behind everything else
portioned       texts as many at once and as long as whoever makes vectors takes them
unembeddable    texts of which no vector can be made, set aside
watching        notices that notes changed
remarks         what a search says besides what it found; pure
memory          all of it, as the gateway and its tools use it
errors          what a search may raise
tools           `memory_search` and `memory_get`
auditing        what is wrong with the notes; with secret_patterns, what looks like a secret, and recalls, what was used
"""
