"""What is still known after compactions: sessions with planted things, cut where the gateway cuts, by each way to summarise.
Known from the view, and from the view and the day's notes, in which each summary is kept.

`decisions` are known where the choice stands beside what it is about, `corrections` where the new value does and the old one
not after it. Only what was said in messages that are no longer shown is asked for. A summary may have a tenth of the tokens
of all that has left, and never more than the gateway would give it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks.figures import Figure, figure
from benchmarks.planted import KINDS, Planted, session
from benchmarks.setting import Setting
from gateway.conversations.notes.day_notes import as_section
from plugins.api.compaction import CompactionInput, IdentifierPolicy, Summarizer
from plugins.api.plugin_services import ModelAnswer
from plugins.policies.extract import Extract
from plugins.policies.model_summary import ModelSummary
from plugins.policies.summary_sections import CONTEXT, DECISIONS, GOALS, IDENTIFIERS, format_sections
from sessions.events.messages import AssistantMessage, Message
from sessions.events.tokens import MESSAGE, estimate
from sessions.state.compaction import (
    Budget,
    CompactionPlan,
    Rules,
    Sizes,
    budget,
    compaction_trigger,
    plan,
    removed_messages,
)
from sessions.state.view import View

WINDOW = 32_000
HEAD = 1_500
"""Tokens of instructions and tools."""

AFTER = (1, 3, 5)
"""The compactions after which it is asked what is known."""

BAR = 90.0
SHARE = 10
"""A summary has at most one part in so many of the tokens that left."""


class Good:
    """A model that copies what matters: it finds in the record whatever was planted, and leaves out the rest."""

    def __init__(self, planted: list[Planted]) -> None:
        self._planted = planted

    async def __call__(self, *, system: str, text: str, limit: int) -> ModelAnswer:
        told: dict[str, list[str]] = {"identifiers": [], "decisions": [], "corrections": []}
        for each in self._planted:
            if each.sentence in text:
                told[each.kind].append(f"- {each.sentence}")
        sections = {IDENTIFIERS: told["identifiers"], DECISIONS: told["decisions"], CONTEXT: told["corrections"]}
        lines = {name: "\n".join(_latest(lines, limit // 4)) for name, lines in sections.items()}
        return ModelAnswer(text=format_sections({GOALS: "- To go on with what was asked."} | lines), model="scripted:good")


class Sloppy:
    """A model that says that there was something, and not what."""

    def __init__(self, planted: list[Planted]) -> None:
        del planted

    async def __call__(self, *, system: str, text: str, limit: int) -> ModelAnswer:
        vague = {GOALS: "- Several changes were discussed.", CONTEXT: "- Files, tickets and dates were named."}
        return ModelAnswer(text=format_sections(vague), model="scripted:sloppy")


class Useless:
    """A model that answers with an excuse."""

    def __init__(self, planted: list[Planted]) -> None:
        del planted

    async def __call__(self, *, system: str, text: str, limit: int) -> ModelAnswer:
        return ModelAnswer(text="Summary unavailable.", model="scripted:useless")


class _Way(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    by: Callable[[], Summarizer]
    model: Callable[[list[Planted]], Any]
    policy: IdentifierPolicy = "strict"


WAYS = (
    _Way(name="extract", by=Extract, model=Useless),
    _Way(name="no usable model, strict", by=ModelSummary, model=Useless),
    _Way(name="good model, strict", by=ModelSummary, model=Good),
    _Way(name="good model, off", by=ModelSummary, model=Good, policy="off"),
    _Way(name="sloppy model, strict", by=ModelSummary, model=Sloppy),
    _Way(name="sloppy model, off", by=ModelSummary, model=Sloppy, policy="off"),
)


def run(setting: Setting) -> list[Figure]:
    """`setting.runs` sessions for each way to summarise."""
    return [line for way in WAYS for line in _lines(way, [asyncio.run(_known(way, seed)) for seed in range(setting.runs)])]


def _lines(way: _Way, runs: list[dict[str, float]]) -> list[Figure]:
    lines = []
    for measure in runs[0]:
        samples = [known[measure] for known in runs]
        bar = 100 / SHARE if measure.startswith("tokens") else BAR
        lines.append(figure("compaction", f"{way.name}: {measure}", "%", samples, against="bar", reference=bar))
    return lines


async def _known(way: _Way, seed: int) -> dict[str, float]:
    """Percentages by what they are of, for one session."""
    simulated = _Simulated(way)
    for each in session(seed):
        await simulated.add(each.messages, each.planted)
        if simulated.compactions >= AFTER[-1]:
            return simulated.known
    raise AssertionError


class _Simulated:
    """A session whose view is cut whenever the gateway would."""

    def __init__(self, way: _Way) -> None:
        self._way = way
        self._summarizer = way.by()
        self._view, self._seq = View(), 0
        self._sizes: list[int] = []
        self._planted: list[tuple[int, Planted]] = []
        self._summary, self._left = "", 0
        self._notes = ""
        self.compactions = 0
        self.known: dict[str, float] = {}

    async def add(self, messages: tuple[Message, ...], planted: tuple[Planted, ...]) -> None:
        for message in messages:
            self._seq += 1
            self._view = self._view.grown(message, self._seq)
            self._sizes.append(_size(message))
        self._planted += ((self._seq, each) for each in planted)
        window, sizes = budget(WINDOW, Rules()), Sizes(head=HEAD, messages=tuple(self._sizes))
        if compaction_trigger(sizes.total, self._view, sizes, window, Rules()):
            await self._compact(window, sizes)

    async def _compact(self, window: Budget, sizes: Sizes) -> None:
        cut = plan(self._view, sizes, window, Rules(), below=window.flush_at)
        assert cut is not None
        going = tuple(removed_messages(self._view, cut))
        self._left += sum(map(_size, going))
        ask = self._way.model([each for _, each in self._planted])
        summary = await self._summarizer.summarize(self._leaving(going, cut), ask)
        self._summary = summary.text
        self._notes += as_section(f"Summary {self.compactions + 1} of main", summary.text) + "\n"
        self._view = self._view.cut(cut.keep_from, summary.text)
        self._sizes = [_size(message) for message in self._view.messages]
        self.compactions += 1
        if self.compactions in AFTER:
            self._ask_what_is_known(cut.keep_from)

    def _leaving(self, going: tuple[Message, ...], cut: CompactionPlan) -> CompactionInput:
        return CompactionInput(
            messages=going,
            kept=tuple(self._view.messages[cut.first :]),
            summary=self._summary,
            focus="",
            window=WINDOW,
            limit=min(cut.summary, self._left // SHARE),
            language="en",
            day="2026-11-21",
            identifier_policy=self._way.policy,
        )

    def _ask_what_is_known(self, keep_from: int) -> None:
        view = "\n".join(message.text for message in self._view.messages)
        places = {"": view, " and the notes": f"{self._notes}\n{view}"}
        gone = [each for seq, each in self._planted if seq < keep_from]
        for kind in KINDS:
            asked = [each for each in gone if each.kind == kind]
            for where, text in places.items():
                known = 100 * sum(each.is_known(text) for each in asked) / max(1, len(asked))
                self.known[f"{kind} in the view{where} after {self.compactions}"] = known
        self.known[f"tokens of what left after {self.compactions}"] = 100 * estimate(self._summary) / self._left


def _size(message: Message) -> int:
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return MESSAGE + estimate(message.text) + sum(estimate(call.arguments) + MESSAGE for call in calls)


def _latest(lines: list[str], room: int) -> list[str]:
    """As many of the latest lines as have room, in their order."""
    taken: list[str] = []
    for line in reversed(lines):
        room -= estimate(line) + 1
        if room < 0:
            break
        taken.append(line)
    return taken[::-1]
