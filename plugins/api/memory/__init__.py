"""Memory: chunks, scopes, sources and backends.

chunks          Splitting documents into chunks.
memory_backend  The protocol of memory backends, which store the index.
own_lines       Removing recalled text from documents before they are indexed.
scope           The scope of a search.
source          The protocol of document sources.
"""
