"""The conversation as slash commands see it.

command_context     The conversation of a command.
command_services    The services that all commands share.
compaction_entries  A session's compactions as people see them.
context_report      The content of the next request, for `/context`.
memory_report       The content of `/memory`.
memory_view         The memory as a command sees it.
"""
