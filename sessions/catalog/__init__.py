"""The catalog: an index of sessions, checkpoints and receipts, which can be rebuilt from the journals.

catalog           The catalog
catalog_file      The catalog at rest
checksums         A seal
durability_check  How far each session was acknowledged, by the catalog at rest
lineage           Which sessions a key had, and which of them is the current one
opening           Opening a session
receipt_batches   Receipts at rest
receipts          Receipts
scan              A survey
sqlite            The one copy of SQLite that this process uses.
"""
