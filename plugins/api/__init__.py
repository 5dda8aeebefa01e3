"""All that a plugin author imports: protocols, values and hooks.

channel          What brings messages from elsewhere and answers back there
chat             The API of chat providers.
command          The contract of commands
compaction       What plugins are told of a compaction, and what a decision about its cut is given
context          The context that a plugin is opened with
embedding        What turns texts into vectors
facts/           Values of the facts: facts, their events, errors and settings.
hookspecs        The hooks that a plugin may implement, each with its promise.
memory/          Values of the memory: chunks, scopes, sources and settings.
memory_settings  How the memory is searched
models           Values about models
pruning          What a decision about pruning is given
services         The services of the gateway that plugins may use
summarization    What a plugin may provide for compactions
tool             The API of tools.
"""
