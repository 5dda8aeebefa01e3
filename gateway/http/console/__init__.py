"""The web console.

context_endpoints  JSON endpoints for the context of a person's sessions.
context_sizes      Reduces a journal to the size of each turn's request, by part.
context_turn       One turn's exact requests, and one compaction's before and after.
health_endpoints   JSON endpoint for the gateway's health, for its owner.
memory_endpoints   JSON endpoints for search, notes and facts.
notes_editor       Reads and writes notes with optimistic locking.
pages              The console's static files.
recipients         JSON endpoint for the models that receive texts.
routes             The console's public routes.
signing_in         Sign-in with a token or a one-time link.
"""
