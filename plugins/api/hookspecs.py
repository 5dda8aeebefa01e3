"""The hooks that a plugin can implement.

Registration hooks are plain functions that run once at startup and return classes. They must be fast: no network, no file
access and no heavy imports (import those when the class is instantiated).

Decision hooks are plain functions that run during a turn. They compute a result from their arguments and have no side
effects. Hooks of third-party plugins run in a thread. One that takes longer than two seconds, or fails three times in a
row, is disabled.

Notification hooks are async functions without a result, called one at a time. Each may take five seconds; then it is
cancelled, which counts as a failure. One that fails three times in a row is disabled. Tasks that it leaves running are
cancelled and count as a failure. A hook that blocks instead of awaiting blocks the whole gateway.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
import pluggy

from plugins.api.channel import Channel
from plugins.api.chat import ChatProvider
from plugins.api.command import Command
from plugins.api.compaction import (
    AfterCompaction,
    BeforeCompaction,
    CompactionBudget,
    CompactionContext,
    MemoryFlush,
    Summarizer,
)
from plugins.api.context import PluginContext
from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.pruning import PruningBudget, PruningContext
from plugins.api.tool import Tool
from sessions.events.events import Trigger, TurnOutcome
from sessions.events.pruning import Edit

GROUP = "exuvia"
"""The name of the pluggy project and of the entry point group."""

hookspec = pluggy.HookspecMarker(GROUP)

hookimpl = pluggy.HookimplMarker(GROUP)


class EndedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A completed turn.

    Attributes:
        session: The session's id.
        person: The id of the person.
        key: The key of the conversation.
        turn: The number of the turn in its session.
        outcome: How the turn ended.
        millis: The duration in milliseconds.
        code: The error code of `turn_ended` if the turn failed, else "".
        sentence: The error message of `turn_ended` if the turn failed, else "".
    """

    session: str
    person: str
    key: str
    turn: int
    outcome: TurnOutcome
    millis: int
    code: str = ""
    sentence: str = ""


@hookspec
def register_chat_providers() -> Sequence[type[ChatProvider]]:
    """Return the chat provider classes of this plugin. Their names must be unique."""
    raise AssertionError


@hookspec
def register_embedding_providers() -> Sequence[type[EmbeddingProvider]]:
    """Return the embedding provider classes of this plugin. Their names must be unique.

    `memory.embedding.provider` selects one.
    """
    raise AssertionError


@hookspec
def register_memory_backends() -> Sequence[type[MemoryBackend]]:
    """Return the memory backend classes of this plugin. Their names must be unique.

    `memory.backend` selects one. Unlike other registration hooks, this one is called when a backend is first needed.
    """
    raise AssertionError


@hookspec
def register_tools() -> Sequence[type[Tool]]:
    """Return the tool classes of this plugin. Their names must be unique."""
    raise AssertionError


@hookspec
def register_commands() -> Sequence[type[Command]]:
    """Return the command classes of this plugin. Their names must be unique."""
    raise AssertionError


@hookspec
def register_channels() -> Sequence[type[Channel]]:
    """Return the channel classes of this plugin. Their names must be unique.

    `plugins.senders` maps the senders of a channel to people.
    """
    raise AssertionError


@hookspec
def propose_prunes(context: PruningContext, budget: PruningBudget, now: datetime) -> Sequence[Edit]:
    """Return `Trim` and `Clear` edits that shorten tool results in the next request. Called before each model request.

    An edit names its message by `context.sources[index]`. The edits of all plugins are combined; if two affect the same
    result, the stronger one applies. Edits are permanent, so one that is already in force need not be returned again.
    """
    raise AssertionError


@hookspec
def register_summarizers() -> Sequence[type[Summarizer]]:
    """Return the summarizer classes of this plugin. They are instantiated without arguments.

    `compaction.summarizer` selects one.
    """
    raise AssertionError


@hookspec
def register_flushes() -> Sequence[type[MemoryFlush]]:
    """Return the memory flush classes of this plugin. They are instantiated without arguments.

    `compaction.memory_flush.by` selects one.
    """
    raise AssertionError


@hookspec
def plan_compaction(context: CompactionContext, budget: CompactionBudget, trigger: Trigger) -> int | None:
    """Return the seq from which on all messages are kept, one of `context.cuts`, or None to not decide.

    Earlier messages are flushed to memory and summarized. The first plugin to return a seq decides; if none does, the
    gateway decides by its settings. A seq that is not in `context.cuts` counts as a failure and as None.

    Called when a compaction starts, and when a memory flush starts early. In the second case the compaction reuses the
    flush's cut without calling this hook again, if that still frees enough space.
    """
    raise AssertionError


@hookspec
async def before_compaction(compaction: BeforeCompaction) -> None:
    """React to the start of a compaction, before its memory flush and summary. It may still be abandoned."""
    raise AssertionError


@hookspec
async def after_compaction(compaction: AfterCompaction) -> None:
    """React to a completed compaction, once it is in the log. Not called for an abandoned one."""
    raise AssertionError


@hookspec
async def gateway_started(context: PluginContext) -> None:
    """React to the start of the gateway: everything is open, and no message has been accepted yet.

    Tasks started here may keep running; end them in `gateway_stopping`. Called again when the plugin is reloaded during
    development.

    Args:
        context: The plugin's own context. Its `settings` come from `[plugins.NAME]`.
    """
    raise AssertionError


@hookspec
async def gateway_stopping() -> None:
    """React to the shutdown of the gateway, after the last turn. All plugins together have ten seconds."""
    raise AssertionError


@hookspec
async def turn_ended(turn: EndedTurn) -> None:
    """React to the end of a turn. Turns do not wait for this hook; it is called for one turn after the other.

    Turns that end while the gateway shuts down may not be reported.
    """
    raise AssertionError
