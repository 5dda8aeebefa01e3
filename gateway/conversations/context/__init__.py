"""The context of a request: instructions, notes, pruning and compaction.

compacting           Memory flush, compaction, and the reverting of a compaction.
compaction_attempt   One attempt to compact, and the hooks of plugins.
conversation_config  The configuration as conversations read it.
loaded_notes         The notes in a session's instructions.
pruning              Pruning before a model request.
request_attachments  The attachments in model requests.
session_models       The models of one session.
session_settings     The settings of one session that a person may change.
summarization        The model requests of a compaction cycle.
"""
