"""A fake conversation for testing commands: its state is set by the test, and it records what a command does to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec

from plugins.api.command import (
    CommandFailed,
    CommandHelp,
    CompactionEntry,
    ContextItem,
    ContextReport,
    FactsView,
    HistoryEntry,
    MemoryMatches,
    MemoryReport,
    NoteEntry,
    OfferedModels,
    PruningReport,
    QueueState,
)
from plugins.api.fact_values import NoSuchFact
from sessions.events.messages import Usage

COMPACTED = CompactionEntry(
    number=2,
    at="2026-11-21T12:00:00.000Z",
    why="asked for",
    messages=12,
    tokens_before=9_000,
    tokens_after=1_000,
    by="model_summary",
    summary="## Goals\n\n- Paint the sky.",
    kept=("src/a.py", "#12"),
    lost=("v1.2",),
    checks=("An identifier was missing.",),
)


class NoFacts:
    """A `FactsView` without facts."""

    async def listed(self, *_: object) -> list[object]:
        """Return no facts."""
        return []

    daily = listed

    async def clear(self) -> int:
        """Remove nothing."""
        return 0

    async def pin(self, *_: object, **__: object) -> object:
        """Raise NoSuchFact."""
        raise NoSuchFact("There is no such fact.")

    forget = history = pin


class StaticConversation:
    """A fake `ConversationView` for testing commands. `done` records the changes as tuples that begin with a word; the
    other attributes are the state, and may be set."""

    person = "owner"
    client = "terminal"
    channel = "websocket"
    key = "main"
    session = "20261121-031241-7k2m9q"

    def __init__(self, *, running: bool = False, said: Sequence[HistoryEntry] = ()) -> None:
        self.running = running
        self.said = said
        self.done: list[object] = []
        self.mode = "followup"
        self.is_verbose = False
        self.tokens: Mapping[str, Mapping[str, Usage]] = {}
        self.of_plugins: Mapping[str, Mapping[str, Usage]] = {}
        self.before = Usage()
        self.items: tuple[ContextItem, ...] = ()
        self.pruned = PruningReport()
        self.window: int | None = 1000
        self.counted: int | None = None
        self.reserve: int | None = None
        self.made: tuple[CompactionEntry, ...] = ()

    def commands(self) -> Sequence[CommandHelp]:
        """Return one command."""
        return [CommandHelp(name="status", usage="/status", summary="Say how it is.")]

    def status(self) -> str:
        """Return a fixed text."""
        return "all is well"

    def model(self) -> str:
        """Return a fixed sentence."""
        return "local:smollm2, because it is installed"

    def models(self) -> Sequence[str]:
        """Return two models."""
        return ["local:smollm2", "openai:gpt"]

    async def offered_models(self) -> Sequence[OfferedModels]:
        """Return the models of one provider."""
        return [OfferedModels(provider="openai", models=("gpt", "gpt-mini"))]

    async def choose_model(self, name: str | None) -> str:
        """Record the choice. Raise CommandFailed for the provider `nobody`."""
        self.done.append(("choose", name))
        if name == "nobody:x":
            raise CommandFailed("There is no provider nobody.")
        return f"{name or 'auto'}, because it was chosen"

    async def history(self, count: int, *, commands: bool = False) -> Sequence[HistoryEntry]:
        """Return the last entries of `said`."""
        self.done.append(("history", count, commands))
        return self.said[-count:]

    def queue(self) -> QueueState:
        """Return a queue with two waiting messages."""
        return QueueState(mode=self.mode, waiting=2, limit=20)

    async def choose_queue(self, mode: str | None) -> None:
        """Set `mode`."""
        self.mode = mode or "followup"

    def verbose(self) -> bool:
        """Return `is_verbose`."""
        return self.is_verbose

    async def choose_verbose(self, on: bool | None) -> None:
        """Set `is_verbose`."""
        self.is_verbose = bool(on)
        self.done.append(("verbose", on))

    def local(self, at: str) -> datetime:
        """Return the time in UTC."""
        return datetime.fromisoformat(at).astimezone(UTC)

    def spent(self) -> Mapping[str, Mapping[str, Usage]]:
        """Return `tokens`."""
        return self.tokens

    def spent_by_plugins(self) -> Mapping[str, Mapping[str, Usage]]:
        """Return `of_plugins`."""
        return self.of_plugins

    def inherited(self) -> Usage:
        """Return `before`."""
        return self.before

    async def context(self) -> ContextReport:
        """Return a report of `items`, `window`, `counted`, `reserve` and `pruned`."""
        return ContextReport(
            items=self.items, window=self.window, counted=self.counted, reserve=self.reserve, pruned=self.pruned
        )

    async def compact(self, focus: str) -> CompactionEntry:
        """Return `COMPACTED`. Raise CommandFailed for the focus `nothing`."""
        if focus == "nothing":
            raise CommandFailed("There is nothing to compact.")
        return msgspec.structs.replace(COMPACTED, noted=self.is_verbose)

    async def compactions(self, count: int) -> Sequence[CompactionEntry]:
        """Return the last entries of `made`."""
        return self.made[-count:]

    async def revert(self, number: int) -> int:
        """Record it."""
        self.done.append(("revert", number))
        return 12_345

    async def forget_lines(self, place: str) -> str:
        """Record it."""
        self.done.append(("forget", place))
        return "- old ``` line"

    async def distill(self) -> tuple[int, int]:
        """Return fixed numbers."""
        return 1200, 3

    @property
    def facts(self) -> FactsView:
        """A view without facts."""
        return cast("FactsView", NoFacts())

    async def message(self, session: str, seq: int) -> str:
        """Return an empty text."""
        return ""

    async def remember(self, text: str) -> str:
        """Record it."""
        self.done.append(("remember", text))
        return "MEMORY.md#L3-L3"

    async def memory(self) -> MemoryReport:
        """Return a small report."""
        note = NoteEntry(path="memory/2026-11-20.md", bytes=1_234, changed="2 h ago")
        return MemoryReport(notes=2, sessions=1, chunks=7, how="by words", latest=(note,), remarks=("It is behind.",))

    async def search_memory(self, query: str) -> MemoryMatches:
        """Return one result for `tea`, otherwise none."""
        self.done.append(("search", query))
        hits = (("MEMORY.md#L3-L4", "tea\n\nwithout milk"),) if query == "tea" else ()
        return MemoryMatches(hits=hits, remarks=() if hits else ("Nothing matches in 2 notes.",))

    async def excerpt(self, path: str, first: int, lines: int) -> str:
        """Return the two lines of the hit for `tea`, and "" elsewhere."""
        self.done.append(("excerpt", f"{path} {first} {lines}"))
        return "tea\nwithout milk" if path == "MEMORY.md" else ""

    def stop_turn(self) -> bool:
        """Return `running`."""
        return self.running

    async def start_anew(self) -> str:
        """Record it."""
        self.done.append("anew")
        return "20261121-031242-aaaaaa"
