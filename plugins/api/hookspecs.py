"""The hooks that a plugin may implement, each with its promise.

Registration hooks are plain functions, called once at the start. They return classes, and must be free: no network, no
files, no heavy imports (import those when the class is opened).

Decisions are plain functions too, called inside a turn. They compute from what they are given, keep nothing and change
nothing. A stranger's runs in a thread; one that has not returned in two seconds is not asked again, nor is one that failed
three times in a row.

Notices are async functions, called one by one. They are told what happens and return nothing. Each has five seconds, then
it is stopped and counts as failed; one that fails three times in a row is told nothing more. Tasks that one leaves behind
are cancelled and count as a failure. One that blocks instead of awaiting holds up everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
import pluggy

from plugins.api.channel import Channel
from plugins.api.chat import ChatProvider
from plugins.api.command import Command
from plugins.api.compaction import AfterCompaction, BeforeCompaction, CompactionBudget, CompactionContext
from plugins.api.context import PluginContext
from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.pruning import PruningBudget, PruningContext
from plugins.api.summarization import MemoryFlush, Summarizer
from plugins.api.tool import Tool
from sessions.events.events import Trigger, TurnOutcome
from sessions.events.pruning import Edit

GROUP = "exuvia"
"""The name of the markers and of the entry-point group."""

hookspec = pluggy.HookspecMarker(GROUP)

hookimpl = pluggy.HookimplMarker(GROUP)


class EndedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is over: whose and which session's, its number there, how it ended, after how long, and why it failed, as
    the code and the sentence of its `turn_ended` ("" where it did not)."""

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
    """Return the classes of the chat providers that this plugin adds. Their names must be new."""
    raise AssertionError


@hookspec
def register_embedding_providers() -> Sequence[type[EmbeddingProvider]]:
    """Return the classes of the embedding providers that this plugin adds. Their names must be new;
    `memory.embedding.provider` names the one in use."""
    raise AssertionError


@hookspec
def register_memory_backends() -> Sequence[type[MemoryBackend]]:
    """Return the classes of the memory backends that this plugin adds. Their names must be new; `memory.backend` names the
    one in use. Unlike the others it is called when one is first named, not at the start."""
    raise AssertionError


@hookspec
def register_tools() -> Sequence[type[Tool]]:
    """Return the classes of the tools that this plugin adds. Their names must be new."""
    raise AssertionError


@hookspec
def register_commands() -> Sequence[type[Command]]:
    """Return the classes of the chat commands that this plugin adds. Their names must be new."""
    raise AssertionError


@hookspec
def register_channels() -> Sequence[type[Channel]]:
    """Return the classes of the channels that this plugin adds. Their names must be new; `plugins.senders` says who speaks
    on them."""
    raise AssertionError


@hookspec
def propose_prunes(context: PruningContext, budget: PruningBudget, now: datetime) -> Sequence[Edit]:
    """Return which tool results the next request should show less of: `Trim` and `Clear` edits, asked for before each call
    of a model. Each names its result by `context.sources[index]`. What all plugins propose is done, the stronger of two
    edits of one result; an edit stays for ever, and one that is in force already need not be proposed again."""
    raise AssertionError


@hookspec
def register_summarizers() -> Sequence[type[Summarizer]]:
    """Return the classes of the summarizers that this plugin adds; `compaction.summarizer` names the one in use. Each is
    made without arguments."""
    raise AssertionError


@hookspec
def register_flushes() -> Sequence[type[MemoryFlush]]:
    """Return the classes of the flushes that this plugin adds; `compaction.memory_flush.by` names the one in use. Each is
    made without arguments."""
    raise AssertionError


@hookspec
def plan_compaction(context: CompactionContext, budget: CompactionBudget, trigger: Trigger) -> int | None:
    """Return from which seq on everything stays in the view, one of `context.cuts`; what stands before it is flushed and
    summarised. None leaves the decision to the next plugin, and at last to the gateway's own figures: the first answer
    counts. Another seq than those of `context.cuts` is a failure, and counts as None.

    It is asked when a compaction begins and when its flush comes early; the compaction then cuts where the flush ended,
    without asking again, if that still makes enough room."""
    raise AssertionError


@hookspec
async def before_compaction(compaction: BeforeCompaction) -> None:
    """Hear that a compaction begins: before its flush and its summary are asked for. It may still be abandoned."""
    raise AssertionError


@hookspec
async def after_compaction(compaction: AfterCompaction) -> None:
    """Hear that a compaction was made and stands in the log. One that was abandoned is not told of."""
    raise AssertionError


@hookspec
async def gateway_started(context: PluginContext) -> None:
    """Hear that the gateway is about to serve: everything is open, and nothing has come in. `context` is the plugin's own;
    its
    `settings` are what `[plugins.NAME]` says. Tasks that are begun here may go on; whoever begins one ends it in
    `gateway_stopping`. A plugin that is loaded again while its author works on it hears it again."""
    raise AssertionError


@hookspec
async def gateway_stopping() -> None:
    """Hear that the gateway ends: no turn runs any more. All plugins together have ten seconds."""
    raise AssertionError


@hookspec
async def turn_ended(turn: EndedTurn) -> None:
    """Hear that a turn is over. Told behind it, one turn after the other: nobody waits for what a plugin does here. Those of
    a gateway that ends at the same moment may be told to nobody."""
    raise AssertionError
