"""Values of the memory: chunks, scopes, sources and settings.

chunks          Chunks
memory_backend  Where the index rests
own_lines       A text without what the memory itself had given
scope           What a search may find
source          Where what can be found comes from
"""
