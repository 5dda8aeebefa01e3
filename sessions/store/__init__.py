"""The protocols of a store, the writers that number, fold and encode events, and reading and opening through the protocols.

blobs       The protocol of a store of attachments
catalog     The protocol of a catalog, and its rows
claims      Claims on conversations, where several gateways share a store
fork        Forks of sessions
header      The header of a session's log, and session ids
log_writer  The writer of any log
opening     Opening a session
protocols   Protocols of a store of logs: lines in, lines out
reading     Reading and verifying a log
receipts    The message ids that a key has received
recorder    The writer of a session's log
"""
