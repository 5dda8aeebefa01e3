"""The file store: journals that are appended to, synced and repaired.

append_file     An append-only file whose durable length is known exactly
committer       Threads that write and sync all open journals
file_lines      The lines of a journal, found by seq without an index
fsync           Durable writes on each platform
home_lock       The lock of a home
journal         The journal of a session
journal_folder  The folder of all journals, for reading
journals        The file store
repair          Opening a journal for appending
"""
