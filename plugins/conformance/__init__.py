"""The test kit: tests that everybody who provides a thing can inherit, so that his does what the house relies on.

Plain pytest runs them; the house's own plugins run them too. Each check's docstring says how to mend what it finds.

What is inherited:

    chat_provider        a `ChatProvider`, in this process or behind a service; embedding_provider: the same for an
                         `EmbeddingProvider`
    tool, command        a `Tool`, a `Command`; channel: a `Channel`
    memory_backend       a `MemoryBackend`
    pruning_policy       a plugin with `propose_prunes`; compaction_policy: one with `plan_compaction`
    condensers           a `Summarizer`, a `Flush`

What stands in for the world:

    faults               a server that answers, and the ways in which an answer goes wrong
    openai_server        OpenAI's chat completions
    embedding_server     a service that makes vectors, by itself one like OpenAI's
    conversation         a conversation in which a command is typed
    recording            a service's real answers, recorded once and replayed

What the checks are made of:

    checks       a test that ends in time and says how to mend what failed
    furnishing   a `House` for a test; clock: one that is set
    strangers    a plugin as the house takes it in
    failing      what is asked of an error; awake: whether the event loop is let be
"""

import sys

KINDS = (
    "channel",
    "chat_provider",
    "command",
    "compaction_policy",
    "condensers",
    "embedding_provider",
    "failing",
    "memory_backend",
    "pruning_policy",
    "tool",
)
"""The modules whose checks speak for themselves."""

if (pytest := sys.modules.get("pytest")) is not None:
    # Authors see the values of a failed check, as in a test of their own.
    pytest.register_assert_rewrite(*(f"{__name__}.{kind}" for kind in KINDS))
