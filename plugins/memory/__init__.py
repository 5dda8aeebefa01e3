"""The memory: notes and conversations, indexed and searched.

backends/          Backends for the index other than SQLite
index/             The index: its SQLite file, and the indexer that keeps it up to date
memory             The memory of one workspace
memory_tools       The tools `memory_search` and `memory_get`
note_audit         Checks for duplicates, loops and secrets in the notes
recall             Selection of the search results that are added to a message
recall_usage       Which documents were recalled or read, according to the journals
remember_requests  Detection of requests to remember something, for models without tools
search/            Search: candidates, fusion and ranking
sources/           The sources of the index: notes, extra notes and session transcripts
"""
