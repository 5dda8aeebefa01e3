"""The file store: journals that are appended to, synced, repaired and verified.

append_file     An append-only file whose durable length is known exactly
committer       Threads that write and sync all open journals
fork            Forks of sessions
fsync           Durable writes on each platform
header          The header of a journal, and session ids
home_lock       The lock of a home
journal         The journal of a session, and the folder of all journals
line_reader     Reading whole lines, in bounded memory
reader          Reading a journal from any seq on, without an index
repair          Opening a journal for appending
reverse_reader  Reading lines from the last to the first
verify          Verification of a journal
"""
