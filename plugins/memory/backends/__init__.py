"""Backends for the index other than SQLite.

chroma       The backend `chroma`
local        The backend `local`
postings     An inverted index ranked by bm25 like SQLite's FTS5
qmd          The backend `qmd`
qmd_process  The qmd process and its protocol
record_file  An append-only file of records
"""
