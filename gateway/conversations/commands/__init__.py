"""The conversation as slash commands see it.

approval_view     The questions about tool calls as a command sees them.
command_context   The conversation of a command.
command_services  The services that all commands share.
context_report    The content of the next request, and a session's compactions.
memory_view       The memory as a command sees it.
pairing_view      Who may speak on channels, as a command sees and changes it.
schedule_view     The schedules of a person, as a command sees and changes them.
undo              Undoing changes of files by tools.
"""
