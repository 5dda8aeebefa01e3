"""The context of a request: instructions, notes, pruning and compaction.

attachment_rendering  Showing
compacting            Flush, then compact
compaction_hooks      What plugins have to say of one session's compactions; how some of them fail goes into the
                      log.
compaction_rules      What the configuration says of compactions, one attempt at one, and how long none is tried
                      after too many failures.
instructions          The text that stands before every conversation
loaded_notes          The notes that stand in a session's instructions
pruning               Pruning before a model's call
reverting             Taking a compaction back
summarization         What a cycle asks of a model
workspace_notes       The notes of the workspace that stand in every request
"""
