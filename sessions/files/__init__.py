"""The file store: journals that are appended to, synced and repaired.

append_file     An append-only file whose durable length is known exactly
committer       Threads that write and sync all open journals
fsync           Durable writes on each platform
home_lock       The lock of a home
journal_folder  The folder of all journals, for reading: lines are found by seq without an index
journals        The file store, and the journal of each session
repair          Opening a journal for appending
"""
