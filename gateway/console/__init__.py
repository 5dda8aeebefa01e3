"""The web console: what a browser shows of the gateway to whom it let in. Its own half, in `static`, has a map in `app.js`.

routes                  what is open to everybody: the page and its files, and signing in
pages                   the files, from memory, under a strict policy of what a page may do
signing_in              a token or a one-time link becomes a cookie
context_sizes           what each request of a session held, part by part, folded from its journal
context_turn            one turn's exact requests, and one compaction's before and after
context_endpoints       both as JSON
memory_endpoints        the memory as JSON: search, notes, facts
notes                   notes that are written only over what was read
health_endpoints        how the gateway is, as JSON
recipients              where what is said is stored, and which models are sent it
endpoints               all of them, under their paths
"""
