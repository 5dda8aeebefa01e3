"""The catalog: an index of sessions, checkpoints and receipts, which can be rebuilt from the logs.

catalog_file      The catalog's SQLite file, with checksums of its values
checkpoints       Checkpoints as bytes
durability_check  The acknowledged length of each session
lineage           The sessions of each key and their succession
postgres_catalog  The catalog in PostgreSQL, which several gateways share
receipt_batches   Stored receipts
row_repair        The catalog's rows in a database compared with the logs
scan              A scan of all logs
sqlite            The only copy of SQLite that this process uses
sqlite_catalog    The catalog in memory, written in the background
"""
