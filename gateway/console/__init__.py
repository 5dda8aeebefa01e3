"""The web console: what a browser shows of the gateway to whom it let in.

context_sizes           what each request of a session held, part by part, folded from its journal
context_turn            one turn's exact requests, and one compaction's before and after
context_endpoints       both as JSON
memory_endpoints        the memory as JSON: search, notes, facts
notes                   notes that are written only over what was read
health_endpoints        how the gateway is, as JSON
endpoints               all of them, under their paths
"""
