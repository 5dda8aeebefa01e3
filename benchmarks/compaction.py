"""The share of planted information that survives compactions, for each summarizer.

Sessions with planted identifiers, decisions and corrections are compacted by the gateway's rules. An item counts as
preserved if the view contains it, or the view together with the day's notes, which keep each summary. A decision must appear
in the same line as its subject; a correction too, and its old value must not follow. Only items of removed messages
count. A summary has at most a tenth of the tokens of all removed messages, and at most the gateway's limit.
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
"""Tokens of the instructions and tool definitions."""

AFTER = (1, 3, 5)
"""The numbers of compactions after which the preserved items are counted."""

BAR = 90.0
SHARE = 10
"""A summary has at most 1/SHARE of the removed tokens."""


class GoodModel:
    """A model whose summary contains exactly the planted sentences of its input."""

    def __init__(self, planted: list[Planted]) -> None:
        self._planted = planted

    async def __call__(self, *, system: str, text: str, limit: int) -> ModelAnswer:
        found: dict[str, list[str]] = {"identifiers": [], "decisions": [], "corrections": []}
        for each in self._planted:
            if each.sentence in text:
                found[each.kind].append(f"- {each.sentence}")
        sections = {IDENTIFIERS: found["identifiers"], DECISIONS: found["decisions"], CONTEXT: found["corrections"]}
        lines = {name: "\n".join(_latest(lines, limit // 4)) for name, lines in sections.items()}
        return ModelAnswer(text=format_sections({GOALS: "- Continue with the request."} | lines), model="scripted:good")


class VagueModel:
    """A model whose summary has valid sections without any detail."""

    def __init__(self, planted: list[Planted]) -> None:
        del planted

    async def __call__(self, *, system: str, text: str, limit: int) -> ModelAnswer:
        vague = {GOALS: "- Several changes were discussed.", CONTEXT: "- Files, tickets and dates were named."}
        return ModelAnswer(text=format_sections(vague), model="scripted:vague")


class UselessModel:
    """A model whose answer is not a summary."""

    def __init__(self, planted: list[Planted]) -> None:
        del planted

    async def __call__(self, *, system: str, text: str, limit: int) -> ModelAnswer:
        return ModelAnswer(text="Summary unavailable.", model="scripted:useless")


class _Summarization(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    summarizer: Callable[[], Summarizer]
    model: Callable[[list[Planted]], Any]
    policy: IdentifierPolicy = "strict"


SUMMARIZATIONS = (
    _Summarization(name="extract", summarizer=Extract, model=UselessModel),
    _Summarization(name="no usable model, strict", summarizer=ModelSummary, model=UselessModel),
    _Summarization(name="good model, strict", summarizer=ModelSummary, model=GoodModel),
    _Summarization(name="good model, off", summarizer=ModelSummary, model=GoodModel, policy="off"),
    _Summarization(name="vague model, strict", summarizer=ModelSummary, model=VagueModel),
    _Summarization(name="vague model, off", summarizer=ModelSummary, model=VagueModel, policy="off"),
)


def run(setting: Setting) -> list[Figure]:
    """Measure `setting.runs` sessions for each kind of summary."""
    return [
        each
        for kind in SUMMARIZATIONS
        for each in _figures(kind, [asyncio.run(_preserved(kind, seed)) for seed in range(setting.runs)])
    ]


def _figures(kind: _Summarization, runs: list[dict[str, float]]) -> list[Figure]:
    figures = []
    for measure in runs[0]:
        samples = [shares[measure] for shares in runs]
        bar = 100 / SHARE if measure.startswith("tokens") else BAR
        figures.append(figure("compaction", f"{kind.name}: {measure}", "%", samples, against="bar", reference=bar))
    return figures


async def _preserved(kind: _Summarization, seed: int) -> dict[str, float]:
    """Return the percentages for one session, by measure."""
    simulated = _SimulatedSession(kind)
    for each in session(seed):
        await simulated.add(each.messages, each.planted)
        if simulated.compactions >= AFTER[-1]:
            return simulated.shares
    raise AssertionError


class _SimulatedSession:
    """A session that is compacted whenever the gateway would compact it."""

    def __init__(self, kind: _Summarization) -> None:
        self._kind = kind
        self._summarizer = kind.summarizer()
        self._view, self._seq = View(), 0
        self._sizes: list[int] = []
        self._planted: list[tuple[int, Planted]] = []
        self._summary, self._removed = "", 0
        self._notes = ""
        self.compactions = 0
        self.shares: dict[str, float] = {}

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
        removed = tuple(removed_messages(self._view, cut))
        self._removed += sum(map(_size, removed))
        ask = self._kind.model([each for _, each in self._planted])
        summary = await self._summarizer.summarize(self._input(removed, cut), ask)
        self._summary = summary.text
        self._notes += as_section(f"Summary {self.compactions + 1} of main", summary.text) + "\n"
        self._view = self._view.cut(cut.keep_from, summary.text)
        self._sizes = [_size(message) for message in self._view.messages]
        self.compactions += 1
        if self.compactions in AFTER:
            self._count_preserved(cut.keep_from)

    def _input(self, removed: tuple[Message, ...], cut: CompactionPlan) -> CompactionInput:
        return CompactionInput(
            messages=removed,
            kept=tuple(self._view.messages[cut.first :]),
            summary=self._summary,
            focus="",
            window=WINDOW,
            limit=min(cut.summary, self._removed // SHARE),
            language="en",
            day="2026-11-21",
            identifier_policy=self._kind.policy,
        )

    def _count_preserved(self, keep_from: int) -> None:
        view = "\n".join(message.text for message in self._view.messages)
        places = {"": view, " and the notes": f"{self._notes}\n{view}"}
        removed = [each for seq, each in self._planted if seq < keep_from]
        for kind in KINDS:
            items = [each for each in removed if each.kind == kind]
            for where, text in places.items():
                share = 100 * sum(each.is_preserved(text) for each in items) / max(1, len(items))
                self.shares[f"{kind} in the view{where} after {self.compactions}"] = share
        self.shares[f"tokens of the removed after {self.compactions}"] = 100 * estimate(self._summary) / self._removed


def _size(message: Message) -> int:
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return MESSAGE + estimate(message.text) + sum(estimate(call.arguments) + MESSAGE for call in calls)


def _latest(lines: list[str], room: int) -> list[str]:
    """Return the latest lines that fit into `room` tokens, in their order."""
    taken: list[str] = []
    for line in reversed(lines):
        room -= estimate(line) + 1
        if room < 0:
            break
        taken.append(line)
    return taken[::-1]
