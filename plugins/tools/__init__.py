"""The built-in file tools.

edit          The `edit` tool
file_changes  One change of one file by a tool
file_target   A place in the workspace where a file may be written
read          The `read` tool
seen_files    What a session has seen of each file, so that nothing is overwritten that it does not know.
write         The `write` tool
"""
