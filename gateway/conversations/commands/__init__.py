"""What slash commands see of a conversation.

command_context     What a command sees of the conversation that it was typed in, and may do to it.
command_services    What all commands share.
compaction_entries  A session's compactions as people see them
context_report      What the next request would hold, part by part, for `/context`
memory_report       What `/memory` shows
memory_view         What a command sees of the memory, and may do to it
"""
