"""What the model may do.

workspace_files   `read`
write, edit       `write` and `edit`
changing          one change of one file, alone in its workspace; what both have in common
file_place        where a file may be written
beneath           opening what lies beneath a folder, and nothing else
seen_files        which version of each file a session has seen
"""
