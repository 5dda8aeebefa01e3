"""The web console.

context_endpoints  The context of a person's sessions as JSON
context_sizes      What each turn's request held, part by part, and what was done to keep it small
context_turn       One turn's exact requests, and one compaction's before and after, as the console shows them.
health_endpoints   How the gateway is, as JSON, for its owner.
memory_endpoints   The memory as JSON
notes_editor       The notes of a workspace as a person edits them in a browser
pages              The console's files
recipients         Where what is said is stored, and to whom it is sent.
routes             What the console answers to everybody
signing_in         Signing in
"""
