"""Backends for the index other than SQLite.

chroma         The backend `chroma`
local          The backend `local`
postings       The words of texts by their keys, ranked by bm25 exactly as SQLite's FTS5 does it, with its `porter`
               stemmer.
qmd            The backend `qmd`
qmd_process    qmd in a process of its own
qmd_words      The words of texts by their keys, ranked by qmd where it knows all of them, and by `Postings` until
               then.
record_file    A file of records, one after the other, only ever appended to.
vector_matrix  Vectors by what was embedded, compared one by one
"""
