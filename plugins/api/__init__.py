"""The plugin API: the protocols, values and hooks that a plugin author imports.

channel          Channels: services whose messages become conversations.
chat             Chat providers, their requests and replies.
command          Slash commands, and the conversation as a command sees it.
compaction       Values for compaction hooks, summarizers and memory flushes.
context          The context passed to a plugin when it is created.
embedding        Embedding providers.
fact_values      Facts, the validation of their fields, and their errors.
hookspecs        The hooks that a plugin can implement.
memory/          Memory: chunks, scopes, sources and backends.
memory_settings  The `[memory]` section of the configuration.
models           Model limits, and the model lists that servers report.
plugin_services  Services of the gateway: asking a model, embedding texts, a log, memory and facts.
pruning          Values for pruning hooks.
tool             Tools.
transcription    Transcription: chat providers that turn speech into text.
"""
