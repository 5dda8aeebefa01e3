"""The web console.

channel_endpoints       JSON endpoints about who may speak on channels.
composer_endpoints      JSON endpoints for what a message can be sent to and contain.
config_endpoints        JSON endpoints for the configuration.
context_endpoints       JSON endpoints for the context of a person's sessions.
context_sizes           Reduces a journal to the size of each turn's request, by part.
context_turn            One turn's exact requests, and one compaction's before and after.
conversation_endpoints  JSON endpoints for whole conversations of a person, and for schedules.
gateway_endpoints       JSON endpoints for the gateway's health, and for the models that receive texts.
memory_endpoints        JSON endpoints for search, notes and facts.
notes_editor            Reads and writes notes with optimistic locking.
pages                   The console's static files and public routes.
share_endpoints         Read-only links to conversations.
signing_in              Sign-in with a token or a one-time link.
what_if_endpoints       Past requests sent again: to another model, or with other pruning.
workspace_files         The files of the workspace that a message may name, and the prompt templates.
"""
