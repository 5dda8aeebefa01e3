"""The protocols of a store, the writers that number, fold and encode events, and reading and opening through the protocols.

catalog     The protocol of a catalog, and of claims on conversations where several gateways share a store
cluster     The protocol of a gateway among those that share a store
fork        Forks of sessions
header      The header of a session's log, and session ids
lazy_log    A log that is opened when it is first needed
leases      The protocol of leases on what one gateway at a time does
log_writer  The writer of any log
protocols   Protocols of a store of logs (lines in, lines out) and of a store of attachments
queued_log  Logs whose lines wait in a queue until a committer's thread takes them
reading     Reading and verifying a log
rewriting   Rewriting a log on a person's order
receipts    The message ids that a key has received
recorder    Opening a session, and the writer of its log
"""
