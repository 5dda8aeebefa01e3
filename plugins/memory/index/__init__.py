"""The index: its SQLite file, and the indexer that keeps it up to date.

backend_lifecycle  Choice and opening of the backend, with a fallback
batching           Batches of texts for embedding providers
index_file         The index's file, open for writing and for reading
index_stats        Statistics of the index's file, read from outside
indexer            The background indexer
integrity          Checksums of the index, and recovery of its vectors
keywords           Keyword search of the backend `sqlite`
source_changes     Detection and indexing of changed documents
sqlite_backend     The backend `sqlite`
tables             The tables of the index
vectors            Vector search of the backend `sqlite`
"""
