"""The catalog: an index of sessions, checkpoints and receipts, which can be rebuilt from the journals.

catalog           The catalog in memory, written in the background
catalog_file      The catalog's SQLite file
checksums         Checksums for stored values
durability_check  The acknowledged length of each session
lineage           The sessions of each key and their succession
opening           Opening a session
receipt_batches   Stored receipts
receipts          The message ids that a key has received
scan              A scan of a folder of journals
sqlite            The only copy of SQLite that this process uses
"""
