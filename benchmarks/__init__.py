"""Benchmarks of the running gateway: `python -m benchmarks [name…]` prints one table in Markdown.

Three processes take part, on one machine: the gateway, as `python -m exuvia run` starts it; a fake model server, which
costs almost nothing; and the client, which is this program. They share the cores, so each figure says what the three
together reach, and the table names the processor time of each.

`start`, `memory`, `latency`, `throughput`, `restart`, `opening` and `pruning` each measure one thing, to be read alone.
`floor` is what a turn cannot be cheaper than. `gateway_process`, `model_server`, `echo_server`, `client` and
`websocket_client` are what they measure with, `figures` is what they return, `setting` how large they are, `journals` writes
the logs that they open, `process` reads what one uses. `pruned_session` is a session without a gateway, `compacted_session`
one that is compacted too, `agent_session` a recorded one, `fitted` that at several windows; `pruning_picture` draws it.

`tokens` says how far the estimate of a request lies from what its provider counts, with no process either.

`retrieval` looks for the turns that answer questions about months of conversation (`locomo`) in the real index, with vectors
that are kept (`kept_vectors`), and by weights that were fitted to the other conversations (`left_out`).

`searching` asks as fast as it can among thousands of notes.

`facts` has turns of `dialogues` looked through with a model that knows what they hold, and recalls among full stores.
`strangers` has plugins sleep, raise, leak tasks and flood the log, and measures how late the event loop is meanwhile.

`memory_month` holds months of conversation with a real gateway and checks what the final requests contain. `index` measures
an index of 100,000 chunks: disk, memory, first search.

`languages` is no measurement: it makes what is taken out of the multilingual model's vectors.

`compaction` asks what is still known after compactions of sessions in which things are `planted`; no process is started.

`long` plays thousands of turns (`long_session`) at small windows on a `stage`, and fails if one promise is broken;
`compacting` is what one flush and compaction cost there.
"""
