"""The protocols of a store, and the recorder that numbers, folds and encodes events.

protocols  Protocols of a store of logs: lines in, lines out
recorder   The writer of a session's log
"""
