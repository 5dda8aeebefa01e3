"""The index: its SQLite file, and the indexer that keeps it up to date.

backend_lifecycle  Where the index rests now
batching           Texts in portions that whoever makes vectors takes
index_file         The file of the index, open twice
index_stats        What the index's file holds, counted from outside
indexer            Keeps the index up to date behind everything else
integrity          Whether what stands in the index's file is what was written there, and what can be saved of it
                   where it is not.
keywords           The chunks of the backend `sqlite`, by their words
source_changes     What changed in the sources since a backend was told of them, and telling it.
sqlite_backend     The backend `sqlite`, which is always there
tables             The tables of the memory index
vectors            The vectors of the chunks, searched
"""
