"""The memory: notes and conversations, indexed and searched.

backends/          Backends for the index other than SQLite
index/             The index: its SQLite file, and the indexer that keeps it up to date
memory             The memory of one workspace
memory_tools       The tools `memory_search` and `memory_get`
note_audit         The audit of the notes: duplicates, loops, secrets, and notes nobody uses
recall             Selection of the search results that are added to a message
remember_requests  Detection of requests to remember something, for models without tools
search/            Search: candidates, fusion and ranking
sources/           The sources of the index: notes, extra notes and session transcripts
"""
