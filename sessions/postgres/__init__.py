"""The PostgreSQL store: the logs of a gateway as rows of a database, with the same bytes as journals.

It needs psycopg (`exuvia[postgres]`), which is imported only when such a store is opened.

advisory_lock   Turns of processes that append to the same log
connections     Connections with deadlines, and what must hold for each of them
group_commit    The thread that commits the lines of all logs, several logs in one statement
membership      This process among the gateways of a database: beats, and the declaration of deaths
postgres_store  The store: opening, creating, copying and removing logs
row_claims      The claims of one gateway among several
row_leases      The leases of one gateway
row_lines       Reading the lines of a log
schema          The tables, and the migrations that create them
server_check    An examination of the server
session_rows    The catalog's row of each session
"""
