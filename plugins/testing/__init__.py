"""The test kit: pytest classes that plugin authors inherit, and what their tests need. The built-in plugins use it too.

Classes to inherit; the docstring of each check explains how to fix a failure:

    chat_provider_checks       a chat provider, in this process or behind a service
    embedding_provider_checks  an embedding provider, in this process or behind a service
    tool_checks                a `Tool`
    command_checks             a `Command`; and `StaticConversation`, in which it can be tested
    channel_checks             a `Channel`
    memory_backend_checks      a `MemoryBackend`
    policy_checks              a plugin with `propose_prunes` or `plan_compaction`
    summarization_checks       a `Summarizer` or `MemoryFlush`
    transcription_checks       a chat provider that transcribes

For use in tests:

    checks                The decorator `check`, and assertions about errors and the event loop.
    contexts              Plugin and provider contexts, `PluginServices` in memory, and a manual clock.
    recording             Recording and replaying the responses of a real service.
    servers/              Fake servers that can simulate failures.
    templates/            Templates for new plugins.
"""

import sys

MODULES = (
    "channel_checks",
    "chat_provider_checks",
    "checks",
    "command_checks",
    "embedding_provider_checks",
    "memory_backend_checks",
    "policy_checks",
    "summarization_checks",
    "tool_checks",
    "transcription_checks",
)
"""The modules with checks."""

if (pytest := sys.modules.get("pytest")) is not None:
    # pytest shows the values in failed assertions of these modules, as in a test module.
    pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in MODULES))
