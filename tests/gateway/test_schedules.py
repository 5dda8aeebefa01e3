"""Schedules: what people write, when it is due, and that each occurrence is handed over once or recorded as missed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from gateway.cli.main import cli
from gateway.cli.sessions import schedule_commands
from gateway.conversations.channels import channel_runner
from gateway.conversations.routing.chat import Chat
from gateway.conversations.schedules import recurrence, scheduler
from gateway.conversations.schedules import schedules as schedules_module
from gateway.conversations.schedules.calendar import calendar_of
from gateway.conversations.schedules.parsing import parse_rule
from gateway.conversations.schedules.recurrence import (
    Cron,
    Every,
    Once,
    Rule,
    described,
    occurrences,
    stamp_seconds,
    zone_named,
)
from gateway.conversations.schedules.scheduler import AT_ONCE, Scheduler, missed_and_due
from gateway.conversations.schedules.schedules import (
    WINDOW_SECONDS,
    Known,
    OccurrenceDue,
    OccurrenceHanded,
    OccurrenceMissed,
    Schedule,
    ScheduleEvent,
    SchedulePaused,
    ScheduleRefused,
    ScheduleRemoved,
    ScheduleResumed,
    Schedules,
    ScheduleSet,
    SchedulesUnusable,
    compacted_lines,
    fold_schedule,
)
from plugins.api.command import CommandFailed, ConversationView, ScheduleEntry
from plugins.commands.schedule_commands import Remind, ScheduleCommand
from plugins.testing.command_checks import CommandConformance, FixedSchedules, StaticConversation
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from sessions.postgres.connections import Database
from sessions.postgres.group_commit import GroupCommitter
from sessions.postgres.postgres_store import PostgresStore
from sessions.store import lazy_log
from sessions.store.reading import StoredLog
from tests.gateway.elsewhere import LINES, Elsewhere
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.servers.postgres_server import postgres_server
from tests.shelf import Shelf
from tests.waiting import DEADLINE, VirtualTime, deadline, until

WINDOW = timedelta(seconds=WINDOW_SECONDS)
BERLIN = "Europe/Berlin"
NOW = datetime(2026, 11, 24, 10, 30, 15, tzinfo=UTC)  # 11:30:15 in Berlin, a Tuesday


class TestRemind(CommandConformance):
    command = Remind
    argument = "10m Drink."


class TestSchedule(CommandConformance):
    command = ScheduleCommand
    argument = "every 2d Water the plants."


# --- what people write ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rule", "rest"),
    [
        ("10m Drink", Once("2026-11-24T10:40:15Z"), "Drink"),
        ("in 2h30m Drink", Once("2026-11-24T13:00:15Z"), "Drink"),
        ("in 2 hours 30 minutes  Drink water", Once("2026-11-24T13:00:15Z"), "Drink water"),
        ("10 minutes 5 apples", Once("2026-11-24T10:40:15Z"), "5 apples"),
        ("3 days Go", Once("2026-11-27T10:30:15Z"), "Go"),
        ("18:00 Call", Once("2026-11-24T17:00:00Z"), "Call"),
        ("at 9:05 Call", Once("2026-11-25T08:05:00Z"), "Call"),
        ("tomorrow 9:00 Call", Once("2026-11-25T08:00:00Z"), "Call"),
        ("Tomorrow at 09:00 Call", Once("2026-11-25T08:00:00Z"), "Call"),
        ("2026-12-24 18:00 Sing", Once("2026-12-24T17:00:00Z"), "Sing"),
        ("2027-06-01T18:00 Sing", Once("2027-06-01T16:00:00Z"), "Sing"),
        ("every 2h Drink", Every(7200, "2026-11-24T10:30:15Z"), "Drink"),
        ("every 1 day Drink", Every(86_400, "2026-11-24T10:30:15Z"), "Drink"),
        ("0 9 * * 1-5 Mails", Cron("0 9 * * 1-5", BERLIN), "Mails"),
        ("cron */15  8-18 * * MON-FRI Mails", Cron("*/15 8-18 * * MON-FRI", BERLIN), "Mails"),
        ("every day at 9:00 Mails", Cron("0 9 * * *", BERLIN), "Mails"),
        ("Every Weekday 17:05 Mails", Cron("5 17 * * 1-5", BERLIN), "Mails"),
        ("every Monday, wednesday and friday 08:30 Run", Cron("30 8 * * 1,3,5", BERLIN), "Run"),
        ("every weekend 10:00", Cron("0 10 * * 0,6", BERLIN), ""),
        ("every sunday,day 10:00 Rest", Cron("0 10 * * *", BERLIN), "Rest"),
    ],
)
def test_a_time_is_read_and_the_text_after_it(text: str, rule: Rule, rest: str) -> None:
    assert parse_rule(text, NOW, BERLIN) == (rule, rest)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Begin with a time"),
        ("Drink in 10m", "Begin with a time"),
        ("10 apples", "Begin with a time"),
        ("every 30s Drink", "at least one minute"),
        ("every day Drink", "at least one minute"),
        ("every day at 9 Drink", "or days and a time"),
        ("every monday 24:00 Drink", "no such time: 24:00"),
        ("every monday 9:60 Drink", "no such time: 9:60"),
        ("25:00 Drink", "no such time"),
        ("2026-02-30 10:00 Drink", "no such time"),
        ("2026-11-24 10:00 Drink", "in the past"),
        ("today 10:00 Drink", "in the past"),
        (f"{'0,' * 200}0 9 * * 1-5 Mails", "Begin with a time"),
        ("0 0 30 2 * Never", "Begin with a time|never comes"),
        ("99999 days Drink", "ten years"),
        ("999999999w999999999w999999999w Drink", "ten years"),
    ],
)
def test_what_is_no_time_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ScheduleRefused, match=sentence):
        parse_rule(text, NOW, BERLIN)


@given(st.text(alphabet="0123456789 :-*/,mhdwsineveryatTo", max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        rule, _ = parse_rule(text, NOW, BERLIN)
    except ScheduleRefused:
        return
    assert described(rule)


# --- when it is due ---------------------------------------------------------------------------------------------------


def times(rule: Rule, after: str, count: int) -> list[str]:
    return [stamp_seconds(due) for due in islice(occurrences(rule, datetime.fromisoformat(after)), count)]


def test_a_time_of_day_within_the_hour_that_is_repeated_is_the_next_one() -> None:
    second = datetime(2026, 10, 25, 1, 15, tzinfo=UTC)  # 02:15 in Berlin, for the second time
    assert parse_rule("02:50 Tea", second, BERLIN) == (Once("2026-10-25T01:50:00Z"), "Tea")
    assert parse_rule("today 02:50 Tea", second, BERLIN) == (Once("2026-10-25T01:50:00Z"), "Tea")
    assert parse_rule("02:10 Tea", second, BERLIN) == (Once("2026-10-26T01:10:00Z"), "Tea")
    first = second - timedelta(hours=1)
    assert parse_rule("02:50 Tea", first, BERLIN) == (Once("2026-10-25T00:50:00Z"), "Tea")


def test_daylight_saving_skips_nothing_and_repeats_nothing() -> None:
    half_past_two = Cron("30 2 * * *", BERLIN)
    assert times(half_past_two, "2026-10-24T12:00:00Z", 2) == ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    assert times(half_past_two, "2026-10-25T00:45:00Z", 1) == ["2026-10-26T01:30:00Z"]  # the second 02:45
    assert times(half_past_two, "2027-03-27T12:00:00Z", 2) == ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]
    hourly = times(Cron("0 * * * *", BERLIN), "2026-10-24T22:30:00Z", 5)
    assert hourly == [f"2026-10-{24 + (23 + n) // 24}T{(23 + n) % 24:02}:00:00Z" for n in range(5)]


@given(
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 */2 * * *", "15 1-3 * * 0", "0 0 1 * *"]),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]),
    st.integers(0, 2 * 365 * 24 * 60),
)
@settings(max_examples=60, deadline=None)
def test_the_times_of_a_cron_line_ascend_and_do_not_depend_on_where_one_begins(line: str, zone: str, minutes: int) -> None:
    rule, start = Cron(line, zone), datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    due = list(islice(occurrences(rule, start), 12))
    assert all(earlier < later for earlier, later in pairwise([start, *due]))
    for number, moment in enumerate(due[:-1]):
        assert next(occurrences(rule, moment)) == due[number + 1]


# --- once or missed ---------------------------------------------------------------------------------------------------


class Simulation:
    """A schedule, its durable log, and the messages that its conversation has: a crash loses what was not recorded."""

    def __init__(self, rule: Rule, began: datetime, policy: Any, *, reminder: bool) -> None:
        self.known: Known = {}
        self.now = began
        self.messages: dict[str, int] = {}
        self.missed: list[OccurrenceMissed] = []
        made = ScheduleSet(
            schedule="s", person="owner", client="c", key="main", text="Do.", rule=rule, missed=policy, reminder=reminder
        )
        self.append(made)

    def append(self, event: ScheduleEvent) -> None:
        at = stamp_seconds(self.now)
        self.known = fold_schedule(self.known, event, seq=0, at=at, turn=None, size=0)

    def round(self, crash: int) -> None:
        """Do what the scheduler does; stop after a number of steps."""
        for schedule in list(self.known.values()):
            events = missed_and_due(schedule, self.now)
            for event in events:
                if (crash := crash - 1) < 0:
                    return
                self.append(event)
                if isinstance(event, OccurrenceMissed):
                    self.missed.append(event)
            for due in (*schedule.due, *(each for each in events if isinstance(each, OccurrenceDue))):
                self.messages.setdefault(due.due, len(self.messages))  # the receipts recognise a repetition
                if (crash := crash - 1) < 0:
                    return
                self.append(OccurrenceHanded(schedule="s", due=due.due, session="x", seq=self.messages[due.due]))


CASES = int(os.environ.get("EXUVIA_TESTS_SCHEDULES", "300"))
"""The generated stories of schedules; 10,000 take some minutes."""

ZONES = (BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca", "America/Santiago", "UTC")
LINES_OF_CRON = ("*/10 * * * *", "30 2 * * *", "0 9 * * 1-5", "15 1-3 * * *", "59 23 L * *", "0 0 1 * *", "30 0,1,2,3 * * 0")
BEGINNINGS = (
    "2026-10-24T20:00:00Z",
    "2027-03-27T22:00:00Z",
    "2026-11-01T03:00:00Z",
    "2026-10-03T12:00:00Z",
    "2026-12-31T23:30:00Z",
)
"""Before changes of daylight saving in Europe, America and Australia, and before the year ends."""


def rules_from(beginning: str) -> st.SearchStrategy[Rule]:
    """Rules that are set at a time."""
    start = datetime.fromisoformat(beginning)
    return st.one_of(
        st.builds(Every, st.sampled_from([60, 90, 3600, 86_400]), st.just(beginning)),
        st.builds(Cron, st.sampled_from(LINES_OF_CRON), st.sampled_from(ZONES)),
        st.builds(Once, st.integers(1, 400_000).map(lambda seconds: stamp_seconds(start + timedelta(seconds=seconds)))),
    )


RULES = rules_from(BEGINNINGS[0])


@given(
    st.sampled_from(BEGINNINGS).flatmap(lambda beginning: st.tuples(st.just(beginning), rules_from(beginning))),
    st.sampled_from(["once", "skip", "all"]),
    st.booleans(),
    st.lists(
        st.tuples(st.sampled_from([-7200, 1, 20, 59, 61, 600, 4000, 90_000, 259_200]), st.integers(0, 12)),
        min_size=1,
        max_size=12,
    ),
)
@settings(max_examples=CASES, deadline=None)
def test_each_occurrence_becomes_one_message_or_is_recorded_as_missed(
    beginning_and_rule: tuple[str, Rule], policy: str, reminder: bool, steps: list[tuple[int, int]]
) -> None:
    beginning, rule = beginning_and_rule
    began = datetime.fromisoformat(beginning)
    simulation = Simulation(rule, began, policy, reminder=reminder)
    latest = began
    for seconds, crash in steps:
        simulation.now += timedelta(seconds=seconds)
        latest = max(latest, simulation.now)
        simulation.round(crash)
    simulation.round(10_000)
    simulation.now = latest
    simulation.round(10_000)
    expected = []
    for due in occurrences(rule, began):
        if due > latest:
            break
        expected.append(stamp_seconds(due))
    spans = [(missed.first, missed.last) for missed in simulation.missed]
    lost = [due for due in expected if any(first <= due <= last for first, last in spans)]
    assert sorted([*simulation.messages, *lost]) == expected
    assert sum(missed.count for missed in simulation.missed) == len(lost)
    if isinstance(rule, Once) and latest >= datetime.fromisoformat(rule.at):
        assert simulation.known == {}


@pytest.mark.parametrize(
    ("policy", "reminder", "late", "handed"),
    [
        ("once", False, WINDOW - timedelta(minutes=1), 1),
        ("once", False, WINDOW + timedelta(minutes=1), 0),
        ("once", True, timedelta(days=3), 1),
        ("skip", True, timedelta(minutes=2), 0),
        ("skip", False, timedelta(seconds=30), 1),
        ("all", False, timedelta(days=40), AT_ONCE),
    ],
)
def test_what_was_missed_is_handed_over_as_the_policy_says(
    policy: str, reminder: bool, late: timedelta, handed: int
) -> None:
    began = datetime(2026, 11, 24, 10, tzinfo=UTC)
    simulation = Simulation(Every(86_400, stamp_seconds(began)), began, policy, reminder=reminder)
    simulation.now = began + timedelta(days=50) + late % timedelta(days=1)
    if late >= timedelta(days=1):
        simulation.now = began + timedelta(days=50, hours=23)
    simulation.round(10_000)
    assert len(simulation.messages) == handed
    assert sum(each.count for each in simulation.missed) == 50 - handed


@pytest.mark.parametrize("rule", [Once("2026-11-24T10:30:16Z"), Every(60, "2026-11-24T10:30:15Z")])
def test_what_was_due_while_it_was_recorded_is_handed_over(rule: Rule) -> None:
    simulation = Simulation(rule, NOW + timedelta(seconds=70), "once", reminder=True)
    simulation.round(10)
    assert len(simulation.messages) == 1


class Looking:
    """A clock that passes with the event loop, and the schedules that a `Scheduler` looks at by it."""

    shared = False

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.began = asyncio.get_running_loop().time()
        self.looks = 0
        made = [
            ScheduleSet(schedule=f"{n}", person="owner", client="c", key="main", text="Do.", rule=rule)
            for n, rule in enumerate(rules)
        ]
        self.schedules = {
            each.schedule: Schedule(made=each, at=stamp_seconds(NOW), last=stamp_seconds(NOW)) for each in made
        }

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() - self.began

    def on_change(self, watcher: Any) -> None:
        pass

    async def known(self) -> Known:
        self.looks += 1
        return self.schedules

    async def compact(self) -> None:
        pass


async def test_what_is_not_due_is_not_computed_again_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[datetime] = []

    def counted(rule: Rule, after: datetime) -> Iterator[datetime]:
        computed.append(after)
        return occurrences(rule, after)

    monkeypatch.setattr(recurrence, "occurrences", counted)
    monkeypatch.setattr(scheduler, "occurrences", counted)
    rules = [Cron(f"{n % 60} {n // 60} 1 1 *", BERLIN) for n in range(1000)]
    with VirtualTime():
        looking: Any = Looking(rules)
        async with Scheduler(looking, looking, looking, lambda _: True) as running:
            running.start()
            await asyncio.sleep(3600)
    assert looking.looks > 180 * 1000
    assert len(computed) == 1000


@pytest.mark.parametrize("failing", ["known", "compact"])
async def test_a_look_at_the_schedules_that_fails_unexpectedly_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    ends, done = list[int](), getattr(Looking, failing)

    async def fail_twice(self: Looking) -> Any:
        ends.append(1)
        if len(ends) < 3:
            raise RuntimeError("can't start new thread")
        return await done(self)

    monkeypatch.setattr(Looking, failing, fail_twice)
    with VirtualTime(), capture_logs() as logs:
        looking: Any = Looking([Cron("0 0 1 1 *", BERLIN)])
        async with Scheduler(looking, looking, looking, lambda _: True) as running:
            running.start()
            await asyncio.sleep(60)
    assert len(ends) > 3
    failed = [(each["kind"], each["reason"]) for each in logs if each["event"] == "schedules_failed"]
    assert failed == [("RuntimeError", "can't start new thread")] * 2


# --- in a gateway -----------------------------------------------------------------------------------------------------


def logged(home: Path) -> list[dict[str, Any]]:
    path = home / "schedules.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


async def test_a_reminder_comes_once_into_the_conversation_and_is_answered(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        assert (await client.command("/remind 1s Drink *water*.")).startswith("Set for ")
        received = await client.until(
            lambda f: f["type"] == "event" and f["event"].get("text") == "Reminder: Drink *water*."
        )
        assert received["event"]["kind"] == "message_received"
        assert received["event"]["sender"] == "owner"
        await client.until_event("turn_ended")
        await until(lambda: logged(tmp_path)[-1]["kind"] == "occurrence_handed")
        assert logged(tmp_path)[-1]["seq"] == received["event"]["seq"]
        assert "Nothing is scheduled" in await client.command("/schedule")


async def test_the_words_of_the_text_need_no_quotes_on_the_command_line(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        added = ["schedule", "add", "10m", "Call", "Ana", "--home", str(tmp_path)]
        result = await asyncio.to_thread(CliRunner().invoke, cli, added, env={"EXUVIA_TOKEN": TOKEN})
        assert (result.exit_code, result.output[:4]) == (0, "Set:"), result.output
        assert "Call Ana" in await client.command("/schedule")


async def test_what_a_stop_interrupted_is_handed_over_by_the_next_start_and_not_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Schedules.record

    async def lost(self: Schedules, events: Sequence[Any]) -> None:
        if any(isinstance(event, OccurrenceHanded) for event in events):
            raise SchedulesUnusable("The power failed.")
        await record(self, events)

    monkeypatch.setattr(Schedules, "record", lost)
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.command("/remind 1s Drink.")
        await client.until(lambda f: f["type"] == "event" and f["event"].get("text") == "Reminder: Drink.")
        await client.until_event("turn_ended")
    monkeypatch.undo()
    assert [each["kind"] for each in logged(tmp_path)] == ["schedule_set", "occurrence_due"]
    async with gateway(tmp_path) as running:
        await until(lambda: logged(tmp_path)[-1]["kind"] == "occurrence_handed")
        (events,) = running.journals().values()
        (message,) = [each for each in events if each.get("text") == "Reminder: Drink." and "sender" in each]
        assert logged(tmp_path)[-1]["seq"] == message["seq"]


async def test_a_conversation_that_takes_no_messages_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, go_on = Chat.receive, asyncio.Event()

    async def held(self: Chat, message: Any, typed: Any) -> Any:
        if self.key == "held" and typed is None:
            await go_on.wait()
        if self.key == "broken" and typed is None and not go_on.is_set():
            raise ZeroDivisionError("It failed.")
        return await receive(self, message, typed)

    monkeypatch.setattr(Chat, "receive", held)
    monkeypatch.setattr(scheduler, "HAND_OVER_SECONDS", 3.0)
    monkeypatch.setattr(scheduler, "RETRY_SECONDS", (600.0,))
    async with gateway(tmp_path) as running:
        client = await running.connect()
        for key in ("held", "broken", "main"):
            await client.command("/remind 1s Drink.", session=key)
        await client.until_event("turn_ended")
        handed = [each for each in logged(tmp_path) if each["kind"] == "occurrence_handed"]
        assert len(handed) == 1
        go_on.set()
        await client.command("/remind 1s Eat.")  # a change: another look
        await until(lambda: [each["kind"] for each in logged(tmp_path)].count("occurrence_handed") == 4)


async def test_what_is_removed_while_another_is_handed_over_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, reached, go_on = Chat.receive, asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def held(self: Chat, message: Any, typed: Any) -> Any:
        if self.key == "slow" and typed is None:
            reached.release()
            await go_on.acquire()
        return await receive(self, message, typed)

    monkeypatch.setattr(Chat, "receive", held)
    monkeypatch.setattr(scheduler, "HAND_OVER_SECONDS", DEADLINE)
    async with gateway(tmp_path) as running:
        client = await running.connect()
        for key in ("slow", "slow", "main", "main"):
            await client.command("/schedule every 1h Look.", session=key)
        first, second, removed, last = [each["schedule"] for each in logged(tmp_path)]
        await client.command(f"/schedule run {first}")
        async with deadline():
            await reached.acquire()
        await client.command(f"/schedule run {second}")
        await client.command(f"/schedule run {removed}")
        go_on.release()
        async with deadline():
            await reached.acquire()  # the second and the one after it are due in this round
        await client.command(f"/schedule remove {removed}")
        await client.command(f"/schedule run {last}")
        go_on.release()
        await until(lambda: (logged(tmp_path)[-1]["kind"], logged(tmp_path)[-1]["schedule"]) == ("occurrence_handed", last))
        handed = [each["schedule"] for each in logged(tmp_path) if each["kind"] == "occurrence_handed"]
        assert handed == [first, second, last]


async def test_a_schedule_is_removed_and_run_out_of_turn(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        assert "Set for " in await client.command("/schedule every 2h Look at the mails.")
        (made,) = [each for each in logged(tmp_path) if each["kind"] == "schedule_set"]
        id_ = made["schedule"]
        assert await client.command(f"/schedule run {id_}") == f"`{id_}` runs now."
        await client.until(lambda f: f["type"] == "event" and f["event"].get("text") == "Look at the mails.")
        await client.until_event("turn_ended")
        await until(lambda: logged(tmp_path)[-1]["kind"] == "occurrence_handed")
        assert await client.command(f"/schedule run {id_}") == f"`{id_}` runs now."  # within the same second
        await client.until(lambda f: f["type"] == "event" and f["event"].get("text") == "Look at the mails.")
        await client.until_event("turn_ended")
        assert "Removed" in await client.command(f"/schedule remove {id_}")
        assert "You have no schedule" in await client.command(f"/schedule remove {id_}")
        assert "Begin with a time" in await client.command("/remind me")
        assert "A command cannot be scheduled" in await client.command("/schedule 1h /compact")
        assert "Write the text" in await client.command("/remind 10m")


# --- own words --------------------------------------------------------------------------------------------------------

WEEKDAYS = '```json\n{"time": "0 9 * * 1-5", "text": "Read the mails."}\n```'


async def test_the_model_proposes_a_rule_for_own_words_which_counts_once_it_is_confirmed(tmp_path: Path) -> None:
    script = [{"text": WEEKDAYS, "purpose": "schedule"}, {"text": "Hello."}]
    async with gateway(tmp_path, script=script, settings={"agent.timezone": BERLIN}) as running:
        client = await running.connect()
        shown = await client.command("/schedule every weekday at nine read the mails")
        assert "At 09:00 on Monday through Friday (`cron 0 9 * * 1-5 (Europe/Berlin)`)" in shown
        assert shown.count(" 09:00") == 4  # the rule and three times
        assert "Read the mails." in shown
        assert logged(tmp_path) == []
        assert "nothing to confirm" in await client.command("/schedule ok", session="other")
        assert "Set for" in await client.command("/schedule ok")
        (made,) = logged(tmp_path)
        assert (made["text"], made["rule"]["line"]) == ("Read the mails.", "0 9 * * 1-5")
        assert "nothing to confirm" in await client.command("/schedule ok")


@pytest.mark.parametrize(
    "answer",
    [
        "I do not know.",
        "{}",
        '{"time": "soon", "text": "Read."}',
        '{"time": "10m", "text": ""}',
        '{"time": "10m Read.", "text": "Read."}',
        '{"time": "0 0 30 2 *", "text": "Read."}',
        "[" * 100_000,
    ],
)
async def test_what_the_model_does_not_understand_either_gets_the_sentence_with_examples(
    tmp_path: Path, answer: str
) -> None:
    script = [{"text": answer, "purpose": "schedule"}, {"text": "Hello."}]
    async with gateway(tmp_path, script=script) as running:
        client = await running.connect()
        assert "Begin with a time: `10m`" in await client.command("/remind soon, to read")
        assert "nothing to confirm" in await client.command("/schedule ok")


async def test_a_proposal_that_would_be_a_command_is_refused(tmp_path: Path) -> None:
    script = [{"text": '{"time": "10m", "text": "/approve"}', "purpose": "schedule"}, {"text": "Hello."}]
    async with gateway(tmp_path, script=script) as running:
        client = await running.connect()
        assert "A command cannot be scheduled" in await client.command("/remind soon, to approve")


# --- options ----------------------------------------------------------------------------------------------------------


async def shown(running: Gateway, **body: Any) -> dict[str, Any]:
    """Set a schedule over HTTP, and return what is shown of it, or the error."""
    url, headers = f"{running.url}/api/schedules", {"Authorization": f"Bearer {TOKEN}"}
    async with running.http.post(url, json=body, headers=headers) as response:
        made: dict[str, Any] = await response.json()
        if response.status != 200:
            return made
    async with running.http.get(f"{url}/{made['id']}", headers=headers) as response:
        full: dict[str, Any] = await response.json()
        return full


async def test_a_schedule_is_shown_with_its_options_and_its_next_times(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        made = await shown(running, text="0 9 * * 1-5 Look.", zone="Asia/Tokyo", missed="all", within="2h", session="work")
        assert (made["zone"], made["missed_policy"], made["within"], made["key"]) == ("Asia/Tokyo", "all", 7200, "work")
        assert made["words"] == "At 09:00 on Monday through Friday"
        assert len(made["upcoming"]) == 5
        assert all(each.endswith("T00:00:00Z") for each in made["upcoming"])
        assert made["upcoming"][0] == made["next"]
        client = await running.connect()
        text = await client.command(f"/schedule show {made['id']}")
        assert "At 09:00 on Monday through Friday" in text
        assert "the newest 20 come late" in text
        home = ("--home", str(tmp_path))
        result = await asyncio.to_thread(
            CliRunner().invoke, cli, ["schedule", "show", made["id"], *home], env={"EXUVIA_TOKEN": TOKEN}
        )
        assert "09:00 JST" in result.output, result.output
        assert "You have no schedule" in await client.command("/schedule show nothing")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"zone": "Mars/Base"}, "no time zone"),
        ({"zone": "../etc/passwd"}, "no time zone"),
        ({"missed": "never"}, "once"),
        ({"within": "1s"}, "one minute"),
        ({"within": "2 apples"}, "one minute"),
        ({"to": "pigeon:1"}, "no channel"),
        ({"to": "telegram"}, "no channel"),
    ],
)
async def test_options_that_do_not_exist_set_nothing(tmp_path: Path, options: dict[str, str], sentence: str) -> None:
    async with gateway(tmp_path) as running:
        assert sentence in str(await shown(running, text="every 2h Look.", **options))
        assert logged(tmp_path) == []


async def test_options_stand_before_the_time_in_a_chat(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        assert "Set for" in await client.command("/schedule --missed=skip —session work 0 9 * * * Look.")
        made = logged(tmp_path)[-1]
        assert (made["missed"], made["key"], made["text"]) == ("skip", "work", "Look.")
        assert "Begin with a time" in await client.command("/schedule --colour red 10m Look.")


async def test_times_are_in_the_zone_of_their_person(tmp_path: Path) -> None:
    ben = "the-token-of-ben-is-long-enough"
    people = {"people.ben.token": ben, "people.ben.timezone": "Asia/Tokyo", "agent.timezone": "UTC"}
    async with gateway(tmp_path, settings=people) as running:
        owner, guest = await running.connect(), await running.connect(ben)
        assert " 09:00 (cron 0 9 * * * (UTC))" in await owner.command("/schedule 0 9 * * * Look.")
        assert " 09:00 (cron 0 9 * * * (Asia/Tokyo))" in await guest.command("/schedule 0 9 * * * Look.")
        assert " 09:00." in await guest.command("/remind 09:00 Look.")
        assert logged(tmp_path)[-1]["rule"]["at"].endswith("T00:00:00Z")


async def test_what_is_paused_is_not_due_until_it_is_resumed(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.command("/remind 1s Drink.")
        id_ = logged(tmp_path)[-1]["schedule"]
        assert "is paused" in await client.command(f"/schedule pause {id_}")
        assert "paused" in await client.command("/schedule")
        assert "is resumed" in await client.command(f"/schedule resume {id_}")
        await client.until(lambda f: f["type"] == "event" and "Drink." in f["event"].get("text", ""))
        kinds = ["schedule_set", "schedule_paused", "schedule_resumed", "occurrence_due", "occurrence_handed"]
        await until(lambda: [each["kind"] for each in logged(tmp_path)] == kinds)


def test_a_pause_is_not_made_up_for() -> None:
    simulation = Simulation(Every(3600, stamp_seconds(NOW)), NOW, "all", reminder=False)
    simulation.append(SchedulePaused(schedule="s", by="owner"))
    simulation.now += timedelta(hours=5, minutes=30)
    simulation.round(100)
    assert simulation.known["s"].next() is None
    simulation.append(ScheduleResumed(schedule="s", by="owner"))
    simulation.round(100)
    assert (simulation.messages, simulation.missed) == ({}, [])
    simulation.now += timedelta(minutes=30)
    simulation.round(100)
    assert list(simulation.messages) == [stamp_seconds(NOW + timedelta(hours=6))]


async def test_answers_go_to_the_chat_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_lines", "lines", LINES)
    monkeypatch.setattr(channel_runner, "PAUSES", (0.05,))
    service = Elsewhere()
    await service.open()
    ben = "the-token-of-ben-is-long-enough"
    senders = '[plugins]\nallow = ["lines"]\nsenders = { "lines:ana" = "owner", "lines:ben" = "ben" }\n'
    file = f"{senders}[plugins.lines]\nport = {service.port}\n"
    settings = {"agent.model": "scripted:echo", "people.ben.token": ben}
    async with gateway(tmp_path / "home", file=file, settings=settings) as running:
        client, guest = await running.connect(), await running.connect(ben)
        assert "Set for" in await client.command("/remind --to lines:cellar 1s Drink.")
        assert (await service.until_heard(room="cellar"))["text"] == "Reminder: Drink."
        made = logged(tmp_path / "home")[0]
        assert (made["chat"], made["key"], made["reply_to"]) == ("group", "lines:cellar", "cellar")
        assert "Only the owner" in await guest.command("/remind --to lines:cellar 1s Eat.")
        assert "Set for" in await guest.command("/remind --to lines:ben 1s Eat.")
        assert (await service.until_heard(room="ben"))["text"] == "Reminder: Eat."
        await service.say("/remind --session main 1s Leave.", id_="9", room="kitchen", group=True)
        assert "for this group" in (await service.until_heard(room="kitchen"))["text"]
    service.close()


async def test_a_command_that_a_crash_repeats_sets_one_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Remind.run

    async def twice(self: Remind, argument: str, conversation: ConversationView) -> str:
        assert await run(self, argument, conversation) == await run(self, argument, conversation)
        return "Both."

    monkeypatch.setattr(Remind, "run", twice)
    async with gateway(tmp_path) as running:
        client = await running.connect()
        assert await client.command("/remind 18:00 Drink.") == "Both."
        assert await client.command("/remind 18:00 Drink.") == "Both."
        assert [each["kind"] for each in logged(tmp_path)] == ["schedule_set"] * 2


COMMAND = ScheduleSet(
    schedule="", person="owner", client="c", key="main", text="Drink.", rule=Once("2026-11-24T18:00:00Z"), message="1"
)


@contextlib.asynccontextmanager
async def two_gateways(home: Path) -> AsyncIterator[tuple[Schedules, Schedules]]:
    """The schedules of two gateways that share a database."""
    url = postgres_server().database()
    with Database(url) as database:
        async with GroupCommitter(database) as committer:
            stores = [PostgresStore(database, "home", home, committer, shared=True) for _ in range(2)]
            async with Schedules(stores[0], lambda: NOW) as here, Schedules(stores[1], lambda: NOW) as there:
                yield here, there
    postgres_server().drop(url)


async def test_a_command_that_another_gateway_has_run_meanwhile_sets_one_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_gateways(tmp_path) as (here, there):
        monkeypatch.setattr(lazy_log, "FRESH_SECONDS", DEADLINE)
        assert await here.known() == {}
        made = await there.set(COMMAND)
        assert await here.set(COMMAND) == made
        monkeypatch.setattr(schedules_module, "PER_PERSON", 2)
        await there.set(replace(COMMAND, message="2"))
        with pytest.raises(ScheduleRefused, match="2 schedules already"):
            await here.set(replace(COMMAND, message="3"))
        assert len(await here.known()) == 2


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_schedule_of_which_only_the_confirmation_is_lost_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stored: bool
) -> None:
    append = GroupCommitter._append

    def cut(*given: Any) -> set[int]:
        monkeypatch.setattr(GroupCommitter, "_append", append)
        if is_stored:
            append(*given)
        raise psycopg.OperationalError("the connection was lost")

    async with two_gateways(tmp_path) as (here, there):
        wanted = replace(COMMAND, message="")
        first = await here.set(wanted)
        monkeypatch.setattr(GroupCommitter, "_append", cut)
        if is_stored:
            second = await here.set(wanted)
            assert await there.known() == {each.id: each for each in (first, second)}
        else:
            with pytest.raises(SchedulesUnusable, match="the connection was lost"):
                await here.set(wanted)
            assert await there.known() == {first.id: first}


async def test_the_schedules_of_a_person_are_their_own() -> None:
    known = fold_schedule(
        {},
        ScheduleSet(schedule="s", person="ana", client="c", key="main", text="x", rule=Every(60, stamp_seconds(NOW))),
        seq=1,
        at=stamp_seconds(NOW),
        turn=None,
        size=1,
    )
    assert known["s"].made.person == "ana"
    removed = ScheduleRemoved(schedule="s", by="ana")
    assert fold_schedule(known, removed, seq=2, at="", turn=None, size=1) == {}


async def test_the_commands_say_what_is_wrong() -> None:
    view = StaticConversation()
    with pytest.raises(CommandFailed, match="lists the ids"):
        await ScheduleCommand().run("remove", view)
    assert "`abc123` every 2 d, next" in await ScheduleCommand().run("", view)
    assert await ScheduleCommand().run("remove abc123", view) == "Removed `abc123`: `Water ´´´ the plants.`."


async def test_a_reminder_that_was_set_on_a_channel_arrives_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_lines", "lines", LINES)
    monkeypatch.setattr(channel_runner, "PAUSES", (0.05,))
    service = Elsewhere()
    await service.open()
    senders = '[plugins]\nallow = ["lines"]\nsenders = { "lines:ana" = "owner" }\n'
    file = f"{senders}[plugins.lines]\nport = {service.port}\n"
    async with gateway(tmp_path / "home", file=file, settings={"agent.model": "scripted:echo"}):
        await service.say("/schedule every 1h A secret.", id_="1", room="cellar")
        secret = (await service.until_heard(room="cellar"))["text"].split("/schedule remove ")[1].split()[0].strip("`")
        await service.say("/remind 1s Drink.", id_="2", room="kitchen", thread="tea", group=True)
        assert "Set for" in (await service.until_heard(room="kitchen"))["text"]
        answer = await service.until_heard(room="kitchen", text="Reminder: Drink.")
        assert answer["thread"] == "tea"
        for number, command in enumerate(("", f" remove {secret}", f" run {secret}")):
            await service.say(f"/schedule{command}", id_=f"3{number}", room="kitchen", group=True)
            answer = await service.until_heard(room="kitchen")
            assert "secret" not in answer["text"]
            assert ("Nothing is scheduled" if not command else "not set in this group") in answer["text"]
        await service.say("/schedule", id_="4", room="cellar")
        assert "A secret." in (await service.until_heard(room="cellar"))["text"]
        assert len([each for each in await service.rest() if each["text"] == "Reminder: Drink."]) == 1
    service.close()


async def test_nobody_sees_runs_or_removes_the_schedules_of_another(tmp_path: Path) -> None:
    ben = "the-token-of-ben-is-long-enough"
    async with gateway(tmp_path, settings={"people.ben.token": ben}) as running:
        owner, guest = await running.connect(), await running.connect(ben)
        await owner.command("/schedule every 1h A secret.")
        id_ = logged(tmp_path)[0]["schedule"]
        url, headers = f"{running.url}/api/schedules", {"Authorization": f"Bearer {ben}"}
        for command in ("", f" remove {id_}", f" run {id_}"):
            answer = await guest.command(f"/schedule{command}")
            assert "secret" not in answer
            assert ("You have no schedule" if command else "Nothing is scheduled") in answer
        async with running.http.get(url, headers=headers) as response:
            assert await response.json() == []
        for method, place in (("DELETE", f"{url}/{id_}"), ("POST", f"{url}/{id_}/run")):
            async with running.http.request(method, place, headers=headers) as response:
                assert response.status == 422
                assert "secret" not in await response.text()
        assert [each["kind"] for each in logged(tmp_path)] == ["schedule_set"]
    async with gateway(tmp_path, settings={"people.ben.token": ben}) as running:
        guest = await running.connect(ben)
        await guest.command("/remind 1h Drink.")
        guests = logged(tmp_path)[-1]["schedule"]
        await guest.command(f"/schedule run {guests}")
        await until(lambda: logged(tmp_path)[-1]["kind"] == "occurrence_handed")
    removed = logged(tmp_path)[-1]["session"]
    assert json.loads((tmp_path / "sessions" / f"{removed}.jsonl").read_bytes().splitlines()[0])["person"] == "ben"


async def test_what_is_due_for_a_person_who_was_removed_is_recorded_as_missed(tmp_path: Path) -> None:
    ben = "the-token-of-ben-is-long-enough"
    async with gateway(tmp_path, settings={"people.ben.token": ben}) as running:
        guest = await running.connect(ben)
        await guest.command("/remind 1s Drink.", session="other")
    async with gateway(tmp_path) as running:
        await until(lambda: logged(tmp_path)[-1]["kind"] in ("occurrence_missed", "occurrence_handed"))
        assert len(running.journals()) == 1


async def test_hostile_texts_stay_on_their_line(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "`**x**`\n- `aaaaaa` [a](http://evil)\u202egnp.exe\x1b[2J\x00\u2028\u200b"
    entry = ScheduleEntry(
        id="abc123",
        text=hostile,
        rule="once",
        next="2026-11-24T17:00:00Z",
        key="k\u202e`",
        reminder=False,
        handed=0,
        missed=0,
    )
    monkeypatch.setattr(FixedSchedules, "ENTRY", entry)
    listed, heartbeat = (await ScheduleCommand().run("", StaticConversation())).splitlines()
    assert heartbeat.startswith("- heartbeat every 30 min")
    assert listed.isprintable()
    assert listed.count("`") == 6  # the id, the conversation and the text, each whole
    line = schedule_commands._line(entry)
    assert line.isprintable()


async def test_a_deletion_says_that_schedules_remain(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.command("/schedule every 1h Look.")
        await client.command("/schedule every 1h Listen.", session="other")
        await client.say("delete", id="d", session="main")
        deleted = await client.until_type("deleted", id="d")
        assert deleted["remains"][0] == "1 schedule with messages for it; `/schedule` lists them."


# --- the calendar -----------------------------------------------------------------------------------------------------


def scheduled(rule: Rule, id_: str = "s", last: str = "2026-10-01T00:00:00Z", *, paused: bool = False) -> Schedule:
    made = ScheduleSet(schedule=id_, person="owner", client="c", key="main", text="Do.", rule=rule)
    return Schedule(made=made, at=last, last=last, paused=paused)


def test_a_calendar_has_what_is_due_on_each_day_of_its_zone() -> None:
    daily, dense = scheduled(Cron("30 23 * * *", "UTC"), "a"), scheduled(Every(60, "2026-10-01T00:00:00Z"), "b")
    days = calendar_of([dense, daily], date(2026, 10, 24), 3, zone_named(BERLIN))
    assert [each.day for each in days] == ["2026-10-24", "2026-10-25", "2026-10-26"]
    # 23:30 UTC is 01:30 of the next day in Berlin before the change of the clock, and 00:30 after it
    assert [(each.id, each.time, each.more) for each in days[1].due] == [
        ("b", "00:00", False),
        ("b", "00:01", False),
        ("b", "00:02", True),
        ("a", "01:30", False),
    ]
    assert [each.time for each in days[2].due if each.id == "a"] == ["00:30"]


def test_a_calendar_has_no_past_and_nothing_that_is_paused() -> None:
    done = scheduled(Cron("0 9 * * *", "UTC"), last="2026-10-25T09:00:00Z")
    paused = scheduled(Cron("0 9 * * *", "UTC"), "p", paused=True)
    days = calendar_of([done, paused], date(2026, 10, 1), 28, UTC)
    assert [each.day for each in days] == ["2026-10-26", "2026-10-27", "2026-10-28"]
    assert all(len(each.due) == 1 for each in days)


async def test_the_calendar_of_a_person_is_asked_for_by_its_days(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"agent.timezone": BERLIN}) as running:
        made = await shown(running, text="2027-02-03 09:00 Look.")
        url, headers = f"{running.url}/api/schedules/calendar", {"Authorization": f"Bearer {TOKEN}"}
        async with running.http.get(f"{url}?from=2027-02-01&days=28", headers=headers) as response:
            found = await response.json()
        assert found["zone"] == BERLIN
        entry = {"id": made["id"], "at": "2027-02-03T08:00:00Z", "time": "09:00", "more": False}
        assert found["days"] == [{"day": "2027-02-03", "due": [entry]}]
        for query in ("from=yesterday", "days=0", "days=1000", "days=x", "from=9999-12-31"):
            async with running.http.get(f"{url}?{query}", headers=headers) as response:
                assert response.status == 400, query


# --- the compaction of the log ----------------------------------------------------------------------------------------


@given(
    RULES,
    st.sampled_from(["once", "skip", "all"]),
    st.lists(st.tuples(st.sampled_from([1, 61, 600, 4000, 90_000]), st.integers(0, 12)), max_size=8),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_a_compacted_log_has_the_same_state(rule: Rule, policy: str, steps: list[tuple[int, int]], paused: bool) -> None:
    simulation = Simulation(rule, datetime(2026, 10, 24, 20, 0, tzinfo=UTC), policy, reminder=False)
    for seconds, crash in steps:
        simulation.now += timedelta(seconds=seconds)
        simulation.round(crash)
    if paused:
        simulation.append(SchedulePaused(schedule="s", by="owner"))
    folded: Known = {}
    for number, line in enumerate(compacted_lines(simulation.known), start=1):
        event = msgspec.json.decode(line, type=ScheduleEvent)
        folded = fold_schedule(folded, event, seq=number, at=json.loads(line)["at"], turn=None, size=len(line))
    again = {id_: replace(each, made=replace(each.made, handed=0)) for id_, each in folded.items()}
    assert again == {id_: replace(each, made=replace(each.made, handed=0)) for id_, each in simulation.known.items()}


def test_a_reminder_that_waits_stays_in_a_compacted_log() -> None:
    simulation = Simulation(Once("2026-10-24T20:00:01Z"), datetime(2026, 10, 24, 20, 0, tzinfo=UTC), "once", reminder=True)
    simulation.now += timedelta(seconds=1)
    simulation.round(1)
    assert simulation.known["s"].due
    folded: Known = {}
    for number, line in enumerate(compacted_lines(simulation.known), start=1):
        event = msgspec.json.decode(line, type=ScheduleEvent)
        folded = fold_schedule(folded, event, seq=number, at=json.loads(line)["at"], turn=None, size=len(line))
    assert folded == simulation.known


async def test_the_long_log_of_several_gateways_is_compacted_by_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules_module, "LONG_LOG", 20)
    url = postgres_server().database()
    with Database(url) as database:
        async with GroupCommitter(database) as committer:
            stores = [PostgresStore(database, "home", tmp_path, committer, shared=True) for _ in range(2)]
            async with Schedules(stores[0], lambda: NOW) as here, Schedules(stores[1], lambda: NOW) as there:
                made = ScheduleSet(
                    schedule="", person="owner", client="c", key="main", text="Do.", rule=Every(60, stamp_seconds(NOW))
                )
                first, second = await here.set(made), await there.set(made)
                for minute in range(1, 15):
                    due = stamp_seconds(NOW + timedelta(minutes=minute))
                    handed = OccurrenceHanded(schedule=first.id, due=due, session="s", seq=minute)
                    await here.record([OccurrenceDue(schedule=first.id, due=due, text="Do."), handed])
                await there.remove("owner", second.id)
                monkeypatch.setattr(lazy_log, "FRESH_SECONDS", 0.0)
                before = (await here.known())[first.id]
                await here.compact()
                assert here._log.length == 2
                third = await there.set(made)
                assert set(await here.known()) == set(await there.known()) == {first.id, third.id}
                after = (await there.known())[first.id]
                assert (after.handed, after.last) == (before.handed, before.last) == (14, due)
                assert StoredLog(stores[0], "schedules").verify().events == here._log.length
    postgres_server().drop(url)


async def test_a_long_log_is_compacted_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules_module, "LONG_LOG", 20)
    monkeypatch.setattr(schedules_module, "PER_SCHEDULE", 2)
    path = tmp_path / "schedules.jsonl"

    async def opened(committer: Committer) -> Schedules:
        return Schedules(Journals(tmp_path, tmp_path / "quarantine", committer), lambda: NOW)

    async with Committer() as committer, await opened(committer) as schedules:
        made = ScheduleSet(
            schedule="", person="owner", client="c", key="main", text="Do.", rule=Every(60, stamp_seconds(NOW))
        )
        kept, removed = await schedules.set(made), await schedules.set(made)
        for minute in range(1, 30):
            due = stamp_seconds(NOW + timedelta(minutes=minute))
            await schedules.record([OccurrenceDue(schedule=kept.id, due=due, text="Do.")])
            await schedules.record([OccurrenceHanded(schedule=kept.id, due=due, session="s", seq=minute)])
        await schedules.remove("owner", removed.id)
        before = await schedules.known()
        await schedules.compact()
        assert len(path.read_bytes().splitlines()) == 2
        assert (await schedules.known())[kept.id].last == before[kept.id].last
        await schedules.compact()
        await schedules.record([OccurrenceDue(schedule=kept.id, due=stamp_seconds(NOW + timedelta(hours=1)), text="Do.")])
    async with Committer() as committer, await opened(committer) as schedules:
        (again,) = (await schedules.known()).values()
        assert (again.handed, again.due[0].due) == (29, stamp_seconds(NOW + timedelta(hours=1)))
        assert again.at == before[kept.id].at
