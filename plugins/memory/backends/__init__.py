"""Where the index may rest besides SQLite. What each can do is said by `plugins.memory.backend`.

local          one file and this process's own memory; nothing else is needed
record_file    that file: checked records, one after the other
postings       the words of texts, ranked as SQLite ranks them
vectors        vectors by what was embedded, compared one by one
chroma         `local` with its vectors in Chroma
qmd            `local` with its words searched by qmd
qmd_words      the words of texts, given to qmd as files and ranked by it
qmd_process    qmd in a process of its own: where it is, how it is asked (qmd.mjs answers)
"""
