"""The protocols of a store, and the writers that number, fold and encode events.

log_writer  The writer of any log
protocols   Protocols of a store of logs: lines in, lines out
recorder    The writer of a session's log
"""
