"""A month of facts on a manual clock: the events of each day, and the result."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import msgspec

from gateway.config.agents import AgentKeys
from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.conversations.facts.fact_distillation import FactDistillation
from gateway.conversations.facts.fact_requests import FactPauses, FactRequests
from gateway.metrics.counters import Counters
from gateway.models.call import ModelCaller
from gateway.models.registry import ModelRegistry
from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.api.fact_values import Fact, FactDraft, FactOrigin
from plugins.api.models import ModelLimits
from plugins.facts.fact_events import FactsExtracted
from plugins.facts.facts import Facts
from plugins.facts.scoring import current_importance
from plugins.policies.languages.prompts import language
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from sessions.store.protocols import START, Log, Position

BEGAN = datetime(2026, 11, 1, 9, tzinfo=UTC)
SESSION = "20261101-090000-aaaaaa"
DAYS = 36
EACH_DAY = 2
"""Turns of a day, each of which leaves up to three facts."""

PINNED = "Ann is allergic to peanuts"
AGED = "The office door code was changed by Petra"
WORDS = tuple(
    a + b for a in ("bar", "cel", "dov", "fen", "gor", "hul", "jat") for b in ("mik", "nus", "pel", "ros", "tav", "wim")
)


class KeepingModel:
    """A model that keeps each new fact unchanged."""

    name: ClassVar[str] = "keeping"
    Settings: ClassVar[type] = msgspec.defstruct("Settings", [])

    def __init__(self) -> None:
        self.asked = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def default_model(self) -> str | None:
        return "all"

    def explain_default(self) -> str:
        return "a test says so"

    def limits(self, model: str) -> ModelLimits:
        return ModelLimits()

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        self.asked += 1
        said = request.context.messages[-1].text
        new = said[said.index(f"{language('en').facts.new}:") :].splitlines()
        contents = [line.partition(") ")[2] for line in new if ". (" in line]
        rows = [{"content": each, "type": "fact", "importance": importance(each), "tags": []} for each in contents]
        yield Reply(text=json.dumps({"facts": rows}), calls=(), stop="end", usage=None, model="all")


def importance(content: str) -> float:
    """Return the importance of a fact, always the same."""
    return 0.3 + random.Random(content).randrange(60) / 100


class Month:
    """A home with facts, whose clock moves only between steps; `restart` closes and reopens everything."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.at = BEGAN
        self.settings = Settings(load_config(None, environment={}, overrides={}))
        self.model = KeepingModel()
        self.facts: Facts
        self._stack = contextlib.AsyncExitStack()

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - BEGAN).total_seconds()

    async def start(self) -> None:
        committer = await self._stack.enter_async_context(Committer())
        journals = Journals(self.root, self.root / "quarantine", committer)

        async def opened(fold: Callable[[bytes], None]) -> tuple[Log, Position]:
            if not journals.path("facts").exists():
                return await journals.create("facts"), START
            return await journals.open("facts", fold=fold)

        facts = Facts(
            opened, keys=lambda: self.settings.current.memory.facts, workspace=lambda: self.root / "workspace", now=self.now
        )
        self.facts = await self._stack.enter_async_context(facts)
        models = ModelRegistry({"keeping": self.model}, AgentKeys(model="keeping:all"))
        asking = FactRequests(self.settings, models, ModelCaller(Counters()))
        pauses = FactPauses(self)
        self.distilling = FactDistillation(self.facts, asking, pauses, self.settings, self)

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def find(self, content: str) -> Fact:
        """Return the fact with this text; if there are several, the long-term one."""
        there = [fact for fact in (await self.facts.book()).facts.values() if fact.content == content]
        return max(there, key=lambda fact: fact.layer)


def steps() -> Iterator[tuple[float, str, Any]]:
    """Yield the steps of the month: the day, the action, and its argument."""
    draw = random.Random(11)
    yield 0.0, "write", PINNED
    yield 0.0, "pin", PINNED
    yield 0.0, "write", AGED
    turn = 0
    for day in range(DAYS):
        for part in range(EACH_DAY):
            turn += 1
            said = [" ".join(draw.sample(WORDS, 7)) for _ in range(draw.choice((3, 3, 3, 0)))]
            yield day + part / 4, "turn", (turn, said)
            yield day + part / 4, "turn", (turn, ["said a second time"])  # as after a stop
            yield day + part / 4 + 0.01, "distil", None
        yield day + 0.6, "recall", draw.choice(WORDS)


async def happen(month: Month, what: str, about: Any) -> None:
    """Run one step."""
    facts = month.facts
    match what:
        case "write":
            await facts.write([FactDraft(content=about, importance=0.3 if about == PINNED else 0.8)], "ann", owner="ann")
        case "pin":
            await facts.pin((await month.find(about)).id, "ann", owner="ann")
        case "turn":
            turn, said = about
            drafts = [FactDraft(content=each, importance=importance(each)) for each in said]
            event = FactsExtracted(session=SESSION, ordinal=turn, upto=turn * 9)
            await facts.extracted(event, drafts, owner="ann", origin=FactOrigin(session=SESSION, seq=turn * 9))
        case "distil":
            await month.distilling.distill_due()
        case "recall":
            found = await facts.recall(about, "ann")
            await facts.used([each.fact.id for each in found[:3]], FactOrigin(session=SESSION, seq=round(month.monotonic())))
        case _:
            raise AssertionError(what)


async def lived(root: Path, restarts: Sequence[int] = ()) -> Month:
    """Run the month, with a restart before each of these steps."""
    root.mkdir(exist_ok=True)
    month = Month(root)
    await month.start()
    for number, (day, what, about) in enumerate(steps()):
        if number in restarts:
            await month.restart()
        month.at = BEGAN + timedelta(days=day)
        await happen(month, what, about)
    return month


async def outcome(month: Month) -> list[Any]:
    """Return everything that is known afterwards, without the random ids."""
    book = await month.facts.book()
    rows: list[Any] = []
    for fact in book.facts.values():
        found = await month.facts.events_of(fact.id, None)
        told = [(each.at, type(each.event).__name__) for each in found.events]
        origin = fact.origin and fact.origin.seq
        rows.append((fact.content, fact.layer, fact.created, fact.used, fact.importance, fact.pinned, origin, told))
    return [rows, month.model.asked, [round(current_importance(fact, month.at), 6) for fact in book.facts.values()]]
