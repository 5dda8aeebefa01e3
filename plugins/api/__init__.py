"""The plugin API: the protocols, values and hooks that a plugin author imports.

channel          Channels: services whose messages become conversations.
chat             Chat providers, their requests and replies.
command          Slash commands, and the conversation as a command sees it.
compaction       Values for compaction hooks.
context          The context passed to a plugin when it is created.
embedding        Embedding providers.
facts/           Facts: values, events, errors and settings.
hookspecs        The hooks that a plugin can implement.
memory/          Memory: chunks, scopes, sources and backends.
memory_settings  The `[memory]` section of the configuration.
models           Model limits, and the model lists that servers report.
pruning          Values for pruning hooks.
services         Services of the gateway: asking a model, embedding texts, a log, memory and facts.
summarization    Summarizers and memory flushes.
tool             Tools.
"""
