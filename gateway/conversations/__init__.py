"""Conversations: open sessions and their turns.

channels/  Channels of plugins: messages in, replies out.
commands/  The conversation as slash commands see it.
context/   The context of a request: instructions, notes, pruning and compaction.
facts/     The extraction and distillation of facts.
notes/     Notes that the gateway writes into the workspace.
routing/   The routing of messages to sessions, and the lifetime of open sessions.
turn/      One turn: from the received messages to the durable answer.
"""
