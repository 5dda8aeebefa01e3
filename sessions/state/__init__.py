"""The state of a session, folded from its events: pure functions over immutable values.

calibration         Calibration of token estimates to a model
compaction          Compaction planning: when to shorten a conversation, and where to cut
compaction_cycle    The compaction cycle, folded from the log
context             The context of one request
edit_validation     Validation of proposed edits
pending_deliveries  Answers that are still to be delivered on channels of plugins
persistent_list     An immutable sequence with O(1) append
recall_message      The message that shows recalled passages to the model
reducer             The change that each event makes to a transcript
request_sizes       The size of a session's requests
transcript          The folded state of a session
truncation          Truncation of messages that are too large for the window
view                The messages that the model is shown
view_size           The size of a view in tokens, message by message
"""
