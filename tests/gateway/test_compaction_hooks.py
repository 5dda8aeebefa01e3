"""Plugins that choose the cut of a compaction or observe it, in whole turns and in the log."""

from __future__ import annotations

import asyncio
import re
import types
from pathlib import Path

import pytest

from benchmarks.stage import Model, Stage, says
from exuvia import AfterCompaction, BeforeCompaction, CompactionBudget, CompactionContext, hookimpl
from plugins.host.hooks import Hooks
from sessions.events.codec import decode
from sessions.events.events import (
    CompactionAbandoned,
    CompactionBegan,
    ContextCompacted,
    MemoryFlushed,
    PluginFailed,
    TurnStarted,
)
from tests.docs.test_documents import DOCS, block
from tests.gateway.gateways import gateway
from tests.gateway.test_compacting import RULES, Kit, answering, talk
from tests.shelf import Shelf


def staged(tmp_path: Path, *plugins: object, seconds: float = 0.05) -> Stage:
    hooks = Hooks(notification_seconds=seconds)
    hooks.register("kit", Kit())
    for plugin in plugins:
        assert hooks.register(type(plugin).__name__.lower(), plugin), hooks.refused
    (tmp_path / "workspace").mkdir(parents=True)
    return Stage(Model(answering(says("yes"))), hooks=hooks, workspace=tmp_path / "workspace", compaction=RULES)


class Latest:
    """Keeps as little as allowed, and records its arguments."""

    def __init__(self) -> None:
        self.given: list[tuple[CompactionContext, CompactionBudget, str]] = []

    @hookimpl
    def plan_compaction(self, context: CompactionContext, budget: CompactionBudget, trigger: str) -> int:
        self.given.append((context, budget, trigger))
        return context.cuts[-1]


class Silly:
    """Chooses an invalid cut."""

    @hookimpl
    def plan_compaction(self) -> int:
        return 1


class Hears:
    """Records its notifications."""

    def __init__(self) -> None:
        self.told: list[BeforeCompaction] = []

    @hookimpl
    async def before_compaction(self, compaction: BeforeCompaction) -> None:
        await asyncio.sleep(0)
        self.told.append(compaction)

    @hookimpl
    async def after_compaction(self, compaction: AfterCompaction) -> None:
        self.told.append(compaction)


class Hangs:
    """Never returns from a notification."""

    @hookimpl
    async def before_compaction(self) -> None:
        await asyncio.Event().wait()


async def test_a_plugin_chooses_the_cut_and_one_flush_covers_exactly_the_removed_messages(tmp_path: Path) -> None:
    latest = Latest()
    on = staged(tmp_path, latest)
    async with on.playing():
        await talk(on, 16)
    made = on.told(ContextCompacted)
    assert len(made) >= 2
    chosen = {context.cuts[-1] for context, _, _ in latest.given}
    assert {event.keep_from for event in made} <= chosen
    assert [event.covers_to + 1 for event in on.told(MemoryFlushed)] == [event.keep_from for event in made]
    assert on.told(PluginFailed) == []


async def test_a_plugin_is_given_the_view_and_every_allowed_cut(tmp_path: Path) -> None:
    latest = Latest()
    on = staged(tmp_path, latest)
    async with on.playing():
        await talk(on, 12)
    for context, budget, trigger in latest.given:
        assert trigger == "budget"
        assert (budget.window, budget.target) == (1000, 625)
        assert len(context.messages) == len(context.places) == len(context.sizes)
        assert set(context.cuts) < set(context.places)
        for cut in context.cuts:
            kept = sum(size for place, size in zip(context.places, context.sizes, strict=True) if place >= cut)
            assert context.head + kept < budget.target
    last = latest.given[-1][0]
    assert last.places[0] == 0
    assert "<summary>" in last.messages[0].text


async def test_an_invalid_cut_is_refused_and_the_thresholds_decide(tmp_path: Path) -> None:
    plain, silly = staged(tmp_path / "plain"), staged(tmp_path / "silly", Silly())
    for on in (plain, silly):
        async with on.playing():
            await talk(on, 12)
    (first, second, third) = silly.told(PluginFailed)
    assert first.sentence == "it returned 1, which is not in context.cuts"
    assert [failure.off for failure in (first, second, third)] == [False, False, True]
    cuts = [
        [(event.messages, event.tokens_before, event.tokens_after) for event in on.told(ContextCompacted)]
        for on in (plain, silly)
    ]
    assert cuts[0] == cuts[1] != []


async def test_plugins_are_notified_before_the_flush_and_after_the_compaction_is_recorded(tmp_path: Path) -> None:
    hears = Hears()
    on = staged(tmp_path, hears)
    async with on.playing():
        await talk(on, 12)
    made, began = on.told(ContextCompacted), on.told(CompactionBegan)
    assert len(made) >= 2
    assert [type(told) for told in hears.told] == [BeforeCompaction, AfterCompaction] * len(made)
    first, second = hears.told[:2]
    assert first == BeforeCompaction(
        session=on.recorder.transcript.session,
        person=on.recorder.transcript.person,
        key="main",
        compaction=1,
        trigger="budget",
        focus="",
        keep_from=began[0].keep_from,
        tokens_before=began[0].tokens_before,
    )
    assert isinstance(second, AfterCompaction)
    assert (second.summary, second.by, second.messages) == ("They talked.", "short", made[0].messages)
    assert (second.tokens_before, second.tokens_after) == (made[0].tokens_before, made[0].tokens_after)


async def test_a_person_s_wish_reaches_the_plugins(tmp_path: Path) -> None:
    hears = Hears()
    on = staged(tmp_path, hears)
    async with on.playing():
        await talk(on, 3)
        await on.compacting.compact_now("the colours", 1000)
    assert [(told.trigger, told.focus) for told in hears.told] == [("command", "the colours")] * 2


async def test_a_plugin_that_hangs_delays_a_compaction_only_up_to_its_timeout(tmp_path: Path) -> None:
    hears = Hears()
    on = staged(tmp_path, Hangs(), hears)
    async with on.playing():
        await talk(on, 20)
    failures = on.told(PluginFailed)
    assert [(failed.plugin, failed.hook, failed.off) for failed in failures] == [
        ("hangs", "before_compaction", False),
        ("hangs", "before_compaction", False),
        ("hangs", "before_compaction", True),
    ]
    assert len(on.told(ContextCompacted)) > 3
    assert len(hears.told) == 2 * len(on.told(ContextCompacted))
    assert on.told(CompactionAbandoned) == []


async def test_stopping_a_turn_while_a_plugin_is_notified_abandons_the_compaction(tmp_path: Path) -> None:
    class Waits:
        hold = True
        began = asyncio.Event()

        @hookimpl
        async def before_compaction(self) -> None:
            self.began.set()
            if self.hold:
                await asyncio.Event().wait()

    waits = Waits()
    on = staged(tmp_path, waits, seconds=60)
    async with on.playing():
        for turn in range(12):
            on.hear(f"{turn} " + "one two three four five six seven eight nine ten " * 13, f"t{turn}")
            await on.until(lambda: waits.began.is_set() or on.recorder.transcript.settled)
            if waits.began.is_set():
                break
        assert on.turn.cancel()
        await on.until_settled()
        waits.hold = False
        assert [event.reason for event in on.told(CompactionAbandoned)] == ["It was stopped."]
        await talk(on, 1)
    assert len(on.told(ContextCompacted)) == 1


async def test_the_documented_plugin_cuts_at_a_persons_message_and_notifies_somebody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = types.ModuleType("plugin")
    exec(block((DOCS / "compaction.md").read_text(encoding="utf-8"), "python"), plugin.__dict__)  # our own page
    on = staged(tmp_path, plugin)
    async with on.playing():
        await talk(on, 12)
    made = on.told(ContextCompacted)
    assert on.told(PluginFailed) == []
    assert all(isinstance(on.events[event.keep_from - 1], TurnStarted) for event in made)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("main: ")]  # not what is logged
    assert told == [f"main: {event.tokens_before} tokens became {event.tokens_after}" for event in made]


PLUGIN = """
from pathlib import Path

from exuvia import UserMessage, hookimpl

@hookimpl
def plan_compaction(context):
    people = [place for place, message in zip(context.places, context.messages) if isinstance(message, UserMessage)]
    return next((cut for cut in reversed(context.cuts) if cut in people), None)

@hookimpl
async def after_compaction(compaction):
    with Path({file!r}).open("a") as file:
        print(compaction.key, compaction.compaction, compaction.tokens_after < compaction.tokens_before, file=file)

@hookimpl
async def before_compaction(compaction):
    raise RuntimeError("too hot")
"""


async def test_in_a_real_gateway_an_installed_plugin_decides_and_is_notified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, told = Shelf(tmp_path, monkeypatch), tmp_path / "told.txt"
    shelf.install("cutting_package", "cutting", PLUGIN.format(file=str(told)))
    settings = {"plugins.allow": ["cutting"], "agent.context_window": 12_000, "compaction.summarizer": "extract"}
    home = tmp_path / "home"
    async with gateway(home, script=[{"text": "Yes."}] * 30, settings=settings) as running:
        client = await running.connect()
        for number in range(4):
            await client.chat(f"Look at file number {number}. " + "It has many words. " * 200)
        answer = await client.command("/compact")
        status = await client.command("/status")
    assert answer.startswith("**Compact Complete!**")
    assert re.search("Compactions: 1", status)
    assert told.read_text() == "main 1 True\n"
    (journal,) = (home / "sessions").iterdir()
    events = [decode(line).event for line in journal.read_bytes().splitlines(keepends=True)]
    assert [event.sentence for event in events if isinstance(event, PluginFailed)] == ["RuntimeError: too hot"]
    (made,) = [event for event in events if isinstance(event, ContextCompacted)]
    assert isinstance(events[made.keep_from - 1], TurnStarted)
