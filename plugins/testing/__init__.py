"""The test kit: tests that everybody who provides a thing can inherit, so that his does what the house relies on.

Plain pytest runs them; the house's own plugins run them too. Each check's docstring says how to mend what it finds.

What a test module inherits:

    chat_provider_checks, embedding_provider_checks   a provider, in this process or behind a service
    tool_checks, command_checks, channel_checks       a `Tool`, a `Command`, a `Channel`
    memory_backend_checks                             a `MemoryBackend`
    pruning_checks, compaction_checks                 a plugin with `propose_prunes` or `plan_compaction`
    summarization_checks                              a `Summarizer`, a `MemoryFlush`

What a test is given:

    contexts              the context that a plugin is opened with, and a clock that a test sets
    static_conversation   a conversation in which a command is typed
    recording             the real responses of a service, recorded once and replayed
    servers/              fake servers that answer, and that fail in the ways in which servers fail

    checks                `check`, which makes a test of the kit, and assertions about errors and the event loop
"""

import sys

MODULES = (
    "channel_checks",
    "chat_provider_checks",
    "checks",
    "command_checks",
    "compaction_checks",
    "embedding_provider_checks",
    "memory_backend_checks",
    "pruning_checks",
    "summarization_checks",
    "tool_checks",
)
"""The modules whose checks speak for themselves."""

if (pytest := sys.modules.get("pytest")) is not None:
    # Authors see the values of a failed check, as in a test of their own.
    pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in MODULES))
