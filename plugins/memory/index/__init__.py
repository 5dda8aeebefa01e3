"""The index of the memory.

backend_lifecycle  Choice, opening and fallback of the backend
embedder           The background embedder: the vectors of chunks
index_file         The file of the backend `sqlite`, with its reading and writing threads
index_stats        Statistics of the index's file, read from outside
indexer            The background indexer: detection and indexing of changed documents
keywords           Keyword search in SQLite
sqlite_backend     The backend `sqlite`
tables             The tables of the index, their checksums, and recovery of vectors
vectors            Vector search in SQLite
"""
