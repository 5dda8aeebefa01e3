"""The file store: journals that are appended to, synced, repaired and verified.

append_file     One file that grows at its end, and whose durable length is known exactly.
committer       The committer
fork            Forking
fsync           The disk's own promises, where the platforms differ
header          Whose a journal is
home_lock       The lock of a home
journal         A session's journal
line_reader     Whole lines out of a file of any size, in bounded memory.
reader          Reading a journal from any seq on, without an index
repair          Opening a journal for appending
reverse_reader  The lines of a journal from the last to the first, in bounded memory.
verify          Is a journal what was written? Its chain is read line by line, and its end is judged
"""
