"""Memory: chunks, scopes, sources and backends.

chunks          Splitting documents into chunks, without text that was recalled into them.
memory_backend  The protocol of memory backends, which store the index.
scope           The scope of a search.
source          The protocol of document sources.
"""
