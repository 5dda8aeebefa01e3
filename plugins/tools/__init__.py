"""The built-in file tools.

edit          The `edit` tool
file_changes  Changes of workspace files by tools
file_target   Atomic writes below an open directory
read          The `read` tool
seen_files    The lines of each file that a session has read
write         The `write` tool
"""
