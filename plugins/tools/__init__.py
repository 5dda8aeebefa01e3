"""The built-in tools: those for files, those that run commands, and those for the web.

edit          The `edit` tool
execution     The tools that run commands
file_changes  Changes of workspace files by tools, and the lines that each session has read
file_diff     The difference of two versions of a file
file_restore  Restoring a file that a tool changed
file_target   Atomic writes below an open directory
read          The `read` tool
web           Reading and searching the web
write         The `write` tool
"""
