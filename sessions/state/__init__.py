"""The state of a session, folded from its events: pure functions over immutable values.

calibration         `Calibration`
compaction          When a conversation must be shortened, and where it is cut.
compaction_cycle    A compaction's cycle, as the log tells it
context             One request's context
edit_validation     Which proposed edits become part of the log
pending_deliveries  Which answers are still to be delivered on the channels of plugins
persistent_list     `PersistentList`
recall_message      What was recalled, as the model is shown it
reducer             The fold
request_sizes       `RequestSizes`
transcript          The transcript
truncation          The oversize rule
view                The view
view_size           How large a view is in tokens, message by message
"""
