"""Conversations: open sessions and their turns.

approvals/      Approvals of tool calls: the policy, the gate, and the remembered rules.
channels/       The channels: keeps them open, takes their messages, and delivers answers to them.
commands/       The conversation as slash commands see it.
context/        The context of a request: instructions, notes, pruning and compaction.
deletion/       The deletion of conversations.
erasure/        The erasure of messages, sessions and persons, with everything that came of them.
facts/          The extraction and distillation of facts.
imports/        The import of what other programs hold.
notes/          Notes that the gateway writes into the workspace.
routing/        The routing of messages to sessions, and the lifetime of open sessions.
schedules/      Messages that the gateway puts into a conversation at set times.
search/         Full-text search over the messages of conversations.
shares          Read-only links to conversations.
turn/           One turn: from the received messages to the durable answer.
what_if         Past requests sent again, changed, to compare the answers.
"""
