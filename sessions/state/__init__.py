"""The state of a session, folded from its events: pure functions over immutable values.

compaction        Compaction planning: when to shorten a conversation, and where to cut
compaction_cycle  The compaction cycle, folded from the log
context           The context of one request
edit_validation   Validation of proposed edits
persistent_list   An immutable sequence with O(1) append
reducer           The change that each event makes to a transcript
request_sizes     The size of a session's requests, calibrated to each model's tokenizer
transcript        The folded state of a session
truncation        Truncation of messages that are too large for the window
view              The messages that the model is shown
view_size         The size of a view in tokens, message by message
"""
