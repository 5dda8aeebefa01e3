"""One run: persons talk to a cluster while faults happen, then everything is stopped and checked."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg

from benchmarks.cluster import effect_tool, persons
from benchmarks.cluster.checker import check
from benchmarks.cluster.faults import Fault, Faults
from benchmarks.cluster.gateways import Cluster
from benchmarks.cluster.history import AUDIT, History, SessionLog, read_logs
from benchmarks.cluster.persons import Person, Unanswered, Watcher

_CALL = {"text": "", "calls": [{"tool": effect_tool.NAME, "arguments": {}}]}
STORY: list[dict[str, Any]] = [
    {"text": "A short answer."},
    _CALL,
    {"text": "It is done.", "deltas": 2, "delay_ms": 5},
    {"text": "An answer that takes a while to write, word by word.", "deltas": 10, "delay_ms": 50},
    _CALL,
    {"text": "Done, and told slowly.", "deltas": 20, "delay_ms": 100},
]
"""Replies of the scripted model, for four turns: two call the unrepeatable tool, and one takes two seconds."""


def script(turns: int) -> list[dict[str, Any]]:
    """Return a script for that many turns."""
    return STORY * (turns // 4 + 2)


PATIENCE = 1.5
"""How many times as long as planned a run may take, unless its plan says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of a run. Faults are spread evenly over `seconds`, in which `messages` are sent by `persons`; two persons
    share a key. `kinds` are the kinds of faults, in turn. After `patience` times the seconds nothing more is sent."""

    messages: int
    seconds: float
    persons: int
    faults: int
    kinds: Sequence[str]
    seed: int = 1
    patience: float = PATIENCE


@dataclass(kw_only=True)
class Outcome:
    """The findings and figures of a run. `takeovers` are the seconds from a fault to the resumption of each turn that was
    running, `slowest` the most of them with the fault, `recoveries` those from a promotion to the next answer.
    `refused` counts the codes of errors, `closed` the reasons for which connections ended, `unreached` those for
    which none came about. `deaths` are the incarnations that ended, `late` counts what one wrote when it was dead, by
    store and kind."""

    findings: list[str]
    logs: list[SessionLog]
    history: History
    faults: list[Fault]
    messages: int
    seconds: float
    takeovers: list[float] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "none")
    recoveries: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    unreached: Counter[str] = field(default_factory=Counter)
    deaths: int = 0
    late: Counter[tuple[str, str]] = field(default_factory=Counter)


def collect(history: History, cluster: Cluster) -> list[SessionLog]:
    """Read what a cluster that was stopped has left, and add the tool's effects to the history. Blocks."""
    history.effects = effect_tool.effects(cluster.effects)
    return list(read_logs(cluster.url))


def prepare(url: str) -> None:
    """Record who appends in which epoch, from now on. The gateways have created their tables. Blocks."""
    with psycopg.connect(
        url, autocommit=True, options="-c search_path=exuvia", target_session_attrs="read-write"
    ) as connection:
        connection.execute(AUDIT)


class Run:
    """A run of a plan on a cluster that has started."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self.history = History()
        self.faults = Faults(cluster, random.Random(plan.seed))
        self._cluster = cluster
        self._plan = plan
        self._ends = math.inf
        ports = [gateway.door.port for gateway in cluster.gateways]
        self._persons = [
            Person(f"p{n}", f"k{n // 2}", ports, self.history, random.Random(plan.seed * 1000 + n))
            for n in range(plan.persons)
        ]
        self._watchers = [
            Watcher(f"w{n}", f"k{n}", ports, self.history, random.Random(plan.seed * 2000 + n))
            for n in range((plan.persons + 1) // 2)
        ]

    async def run(self) -> Outcome:
        """Run the plan, stop the gateways, and check what is left."""
        await asyncio.to_thread(prepare, self._cluster.url)
        begun = time.monotonic()
        self._ends = begun + self._plan.seconds * self._plan.patience
        watching = [asyncio.create_task(watcher.watch()) for watcher in self._watchers]
        try:
            async with asyncio.TaskGroup() as group:
                for person in self._persons:
                    group.create_task(self._talk(person, begun))
                group.create_task(self._make_faults(begun))
            await self._watchers_have_seen_all()
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
        seconds = time.monotonic() - begun
        codes = await self._cluster.stop()
        self.history.findings += [f"stopped: a gateway ended with {code}" for code in codes if code]
        logs = await asyncio.to_thread(collect, self.history, self._cluster)
        return self._outcome(logs, seconds)

    def cut(self) -> None:
        """Send nothing more and make no further faults. What was sent is waited for and checked."""
        self._ends = 0.0

    @property
    def progress(self) -> str:
        """How far the run is."""
        answered = sum(len(person.answered) for person in self._persons)
        return f"{answered} answered, {len(self.faults.made)} faults, {len(self.history.findings)} findings of clients"

    async def _talk(self, person: Person, begun: float) -> None:
        count = self._plan.messages // self._plan.persons
        for number in range(count):
            due = begun + self._plan.seconds * number / count
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if time.monotonic() > self._ends:
                return
            try:
                await person.say(number, f"Message {number} of {person.reader.name}.")
            except Unanswered as failure:
                self.history.findings.append(str(failure))
                return

    async def _watchers_have_seen_all(self) -> None:
        """Wait until each watcher has seen what the persons of its key have seen."""
        for watcher in self._watchers:
            readers = [person.reader for person in self._persons if person.reader.key == watcher.key]
            session, seq = max((reader.session, reader.seq) for reader in readers)
            try:
                async with asyncio.timeout(persons.LIMIT_SECONDS):
                    await watcher.until_seen(session, seq)
            except TimeoutError:
                seen = f"{watcher.seq} of {watcher.session or 'no session'}"
                self.history.findings.append(f"unheard: {watcher.name} saw {seen}, and {seq} of {session} was there")

    async def _make_faults(self, begun: float) -> None:
        plan = self._plan
        for number in range(plan.faults):
            due = begun + plan.seconds * (number + 0.5) / plan.faults
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if time.monotonic() > self._ends:
                return
            kind = plan.kinds[number % len(plan.kinds)]
            try:
                await self.faults.make(kind)
            except Exception as failure:
                self.history.findings.append(f"broken: fault {number + 1}, {kind}, was not repaired: {failure!r}")
                return

    def _outcome(self, logs: list[SessionLog], seconds: float) -> Outcome:
        ends = [event["outcome"] for log in logs for event in log.events if event["kind"] == "turn_ended"]
        answers = [at for person in self._persons for at, _ in person.answered]
        outcome = Outcome(
            findings=check(self.history, logs),
            logs=logs,
            history=self.history,
            faults=self.faults.made,
            messages=len(answers),
            seconds=seconds,
            outcomes=Counter(ends),
        )
        for reader in [person.reader for person in self._persons] + list(self._watchers):
            outcome.closed.update(reader.closed)
            outcome.unreached.update(reader.unreached)
        outcome.refused.update(each.outcome for each in self.history.attempts if each.outcome not in (None, "accepted"))
        resumed = [
            datetime.fromisoformat(event["at"]).timestamp()
            for log in logs
            for event in log.events
            if event["kind"] == "turn_resumed"
        ]
        for fault, upto in zip(self.faults.made, [*(each.at for each in self.faults.made[1:]), math.inf], strict=True):
            if fault.kind in ("kill", "freeze", "link"):
                taken = [at - fault.at for at in resumed if fault.at < at < upto]
                outcome.takeovers += taken
                lasted = f"{fault.kind} of {fault.of}, {fault.ended - fault.began:.1f} s"
                outcome.slowest = max([outcome.slowest, *((seconds, lasted) for seconds in taken)])
            elif fault.kind == "failover":
                with suppress(ValueError):
                    outcome.recoveries.append(min(at for at in answers if at > fault.promoted) - fault.promoted)
        return outcome
