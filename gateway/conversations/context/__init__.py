"""The context of a request: instructions, notes, pruning and compaction.

attachment_rendering  Turns attachments into what a provider can send.
compacting            Memory flush and compaction.
compaction_hooks      The compaction hooks of plugins.
compaction_rules      The configuration of compactions.
conversation_config   The configuration as conversations read it.
loaded_notes          The notes in a session's instructions.
pruning               Pruning before a model request.
reverting             Reverts a compaction.
session_models        The models of one session.
summarization         The model requests of a compaction cycle.
workspace_notes       The notes of the workspace in every request.
"""
