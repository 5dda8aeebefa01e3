"""Benchmarks of the running gateway. `python -m benchmarks [name…]` prints one table in Markdown.

Most of them run three processes on one machine: the gateway, started by `python -m exuvia run`; a fake model server; and the
client, which is this program. The processes share the cores, so a figure is the performance of all three together. The table
shows the processor time of each.

Benchmarks of the gateway process: `start`, `memory`, `latency`, `throughput`, `restart`. They use
`gateway_process`, `model_server`, `echo_server`, `client`, `websocket_client`, `journals` (generated logs) and `process`
(resource usage). `floor` measures the minimal cost of a turn. `console` measures the page in Chromium.

`backup` makes backups while clients send messages.

Benchmarks of components, without a gateway process:

- `appending`: the time to a commit, in files and in PostgreSQL.
- `opening`: opening a journal.
- `tokens`: the error of the token estimate.
- `pruning`: pruned sessions, generated or recorded (`pruned_session`, `compacted_session`, `agent_session`, `fitted`);
  `pruning_picture` plots them.
- `compaction`: the information that summaries preserve, in sessions with known content (`planted`).
- `long`, `compacting`: long sessions at small windows (`long_session`, `stage`), and the cost of one compaction.
- `retrieval`: the quality of search on the LoCoMo conversations (`locomo`), with cached vectors (`cached_vectors`), and with
  weights fitted to the other conversations (`cross_validation`); and questions without an answer (`unanswerable`).
- `kinds`: the default ranking beside the simpler fusions on several kinds of notes.
- `searching`, `index`: the speed of search, and the size of a large index.
- `sandbox`: the time that a command costs at each level of the sandbox.
- `skills`: the time that skills cost at the start, in each turn and for a search.
- `web`: the time and memory of reading a page of the web, and of looking for a URL in a conversation.
- `facts`: extraction and recall of facts in scripted conversations (`dialogues`).
- `budgets`: persons who spend at the same time while the gateway is killed, against the ledger.
- `misbehaving_plugins`: the responsiveness of the event loop while plugins sleep, raise, leak tasks and flood the log.
- `cluster`: several gateways on one PostgreSQL, in a package of its own.
- `many_sessions`: a database with a million sessions.
- `schedules`: looking at a thousand schedules, and a start after many past occurrences.
- `imports`: the memory and the time of an import of a gigabyte.
- `memory_month`: what the final requests contain after months of conversation.

`figures` holds the results, `setting` the sizes, `ports` the free ports of servers. `languages` and `related_words` are
not benchmarks: they generate the directions that are removed from the vectors of the multilingual model, and the table
of related English words.
"""
