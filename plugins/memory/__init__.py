"""The memory: notes and conversations, indexed and searched.

backends/          Backends for the index other than SQLite.
index/             The index: its SQLite file, and the indexer that keeps it up to date.
index_errors       What a search of the memory may raise.
memory             The memory of one workspace, as the gateway and its tools use it.
memory_tools       What the model may do with the memory
note_audit         What is wrong with the notes
recall             What of a search is worth a place behind a person's message.
recall_usage       What of the memory was used
remember_requests  What a message asks to be remembered, told by how it begins or ends, for models that have no tool
                   to write it down.
search/            Search: candidates, fusion and ranking.
sources/           The sources of the index: notes, extra notes and session transcripts.
"""
