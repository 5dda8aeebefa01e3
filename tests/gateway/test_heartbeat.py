"""The heartbeat: when it beats, what it says, what is skipped, and what its empty answers leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.conversations.channels import channel_runner
from gateway.conversations.routing.switchboard import Switchboard
from gateway.conversations.schedules import heartbeat
from gateway.conversations.schedules.heartbeat import Heartbeats, next_beat
from gateway.conversations.schedules.recurrence import zone_named
from gateway.support.clock import SystemClock
from gateway.support.home import Home
from plugins.policies.silent_reply import SilenceFilter, is_silent
from sessions.store.leases import SoleLeases
from tests.gateway.elsewhere import LINES, Elsewhere
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.shelf import Shelf
from tests.waiting import VirtualTime, deadline

BERLIN = zone_named("Europe/Berlin")


def beats(every: float, active: str, after: str, count: int) -> list[str]:
    moment, found = datetime.fromisoformat(after), list[str]()
    for _ in range(count):
        moment = next_beat(every, active, moment, BERLIN)
        found.append(f"{moment.astimezone(BERLIN):%m-%d %H:%M}")
    return found


@pytest.mark.parametrize(
    ("every", "active", "after", "expected"),
    [
        (1800, "08:00-22:00", "2026-06-01T05:10:00Z", ["06-01 08:00", "06-01 08:30"]),
        (1800, "08:00-22:00", "2026-06-01T19:30:00Z", ["06-02 08:00", "06-02 08:30"]),
        (7200, "22:00-02:00", "2026-06-01T20:30:00Z", ["06-02 00:00", "06-02 22:00"]),
        (86_400, "09:00-17:00", "2026-06-01T12:00:00Z", ["06-02 09:00", "06-03 09:00"]),
        (40_000, "00:00-24:00", "2026-06-01T00:00:00Z", ["06-01 11:06", "06-01 22:13"]),
        (3600, "01:00-05:00", "2026-10-24T22:30:00Z", ["10-25 01:00", "10-25 02:00", "10-25 02:00", "10-25 03:00"]),
        (3600, "01:00-05:00", "2026-03-28T23:30:00Z", ["03-29 01:00", "03-29 03:00", "03-29 04:00", "03-30 01:00"]),
    ],
)
def test_beats_count_from_the_beginning_of_the_active_hours(
    every: float, active: str, after: str, expected: list[str]
) -> None:
    assert beats(every, active, after, len(expected)) == expected


@given(
    st.integers(60, 200_000),
    st.tuples(st.integers(0, 1439), st.integers(0, 1440)),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]),
    st.integers(0, 3 * 366 * 1440),
)
@settings(max_examples=200, deadline=None)
def test_beats_ascend_and_do_not_depend_on_where_one_begins(
    every: int, hours: tuple[int, int], zone: str, minutes: int
) -> None:
    begin, end = hours
    active = f"{begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02}"
    moment, zoned = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes), zone_named(zone)
    found = [moment]
    for _ in range(6):
        found.append(next_beat(every, active, found[-1], zoned))
    assert all(earlier < later for earlier, later in pairwise(found))
    assert next_beat(every, active, found[2] - timedelta(seconds=1), zoned) == found[2]


@pytest.mark.parametrize("token", ["NO_REPLY", "HEARTBEAT_OK"])
def test_both_words_for_nothing_are_silent(token: str) -> None:
    for cut in range(len(token)):
        stream = SilenceFilter()
        shown = stream.feed("\n" + token[:cut]) + stream.feed(token[cut:] + " ")
        assert shown + stream.end() == ""
    assert is_silent(f" {token}\n")
    stream = SilenceFilter()
    assert stream.feed(token) + stream.feed(" but") + stream.end() == f"{token} but"


# --- in a gateway -----------------------------------------------------------------------------------------------------

DOOR = "# What to look after\n\n- Is the door shut?\n"


@pytest.fixture
def beat(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that lets a beat be due now. No other one is due on that day."""
    due: list[datetime] = []
    begin = heartbeat.Heartbeat._beat

    def next_due(every: float, active: str, after: datetime, zone: tzinfo) -> datetime:
        return due[0] if due else after + timedelta(days=1)

    async def begun(self: heartbeat.Heartbeat, *given: Any) -> Any:
        due.clear()
        return await begin(self, *given)

    monkeypatch.setattr(heartbeat, "next_beat", next_due)
    monkeypatch.setattr(heartbeat, "LONGEST_SLEEP", 0.05)
    monkeypatch.setattr(heartbeat.Heartbeat, "_beat", begun)
    return lambda: due.append(datetime.now(UTC))


def prepared(home: Path, text: str = DOOR) -> dict[str, Any]:
    """Write the list, and return the settings of a heartbeat."""
    (home / "workspace").mkdir(parents=True)
    (home / "workspace" / "HEARTBEAT.md").write_text(text)
    return {"heartbeat.every": "30m", "heartbeat.active": "08:00-22:00"}


async def reported(running: Gateway) -> Any:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with running.http.get(f"{running.url}/api/schedules/heartbeat", headers=headers) as response:
        return await response.json()


async def until_last(running: Gateway, outcome: str) -> Any:
    async with deadline():
        while (report := await reported(running))["last"] != outcome:
            await asyncio.sleep(0.05)
    return report


async def test_an_empty_answer_leaves_the_view_and_its_cost_is_shown(tmp_path: Path, beat: Callable[[], None]) -> None:
    configured = prepared(tmp_path)
    script = [{"text": "Hello."}, {"text": "HEARTBEAT_OK"}]
    prices = '[prices."scripted:script"]\ninput = 1000.0\noutput = 1000.0\n[approvals]\ndefault = "allow"\n'
    async with gateway(tmp_path, script=script, settings=configured, file=prices) as running:
        client = await running.connect()
        await client.chat("Hi.")
        (asked,) = [event for _, event in client.events() if event["kind"] == "turn_ended"]
        beat()
        asked_by_beat = await client.until(lambda f: f["type"] == "event" and f["event"].get("client") == "heartbeat")
        assert "- Is the door shut?" in asked_by_beat["event"]["text"]
        assert "HEARTBEAT_OK" in asked_by_beat["event"]["text"]
        ended = await client.until_event("turn_ended")
        assert (ended["outcome"], ended["dropped"]) == ("silent", True)
        await client.say("sessions", id="l")
        (row,) = (await client.until_type("sessions", id="l"))["sessions"]
        assert row["replied"] < ended["seq"], "nothing new for the person"
        assert row["used"] == asked["at"], "it keeps its place in lists"
        assert await client.chat("Well?") == ""  # the script counts the answers in the view: its second line comes again
        sent = [event for _, event in client.events() if event["kind"] == "request_sent"]
        assert [event["messages"] for event in sent] == [1, 3, 3]
        report = await until_last(running, "sent")
        assert (report["sent"], report["skipped"], report["key"]) == (1, 0, "main")
        assert report["cost"] > 0
        listed = await client.command("/schedule")
        assert "heartbeat every 30 min (08:00-22:00) in `main`, next " in listed
        assert " USD this month" in listed


@pytest.mark.parametrize(("room", "kind"), [("ana", "private"), ("lobby", "group")])
async def test_what_the_model_has_to_say_stays_and_is_delivered_and_a_chat_that_may_be_others_counts_as_a_group(
    tmp_path: Path, beat: Callable[[], None], monkeypatch: pytest.MonkeyPatch, room: str, kind: str
) -> None:
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_lines", "lines", LINES)
    monkeypatch.setattr(channel_runner, "PAUSES", (0.05,))
    service = Elsewhere()
    await service.open()
    home = tmp_path / "home"
    file = f'[plugins]\nallow = ["lines"]\nsenders = {{ "lines:ana" = "owner" }}\n[plugins.lines]\nport = {service.port}\n'
    configured = prepared(home) | {"heartbeat.to": f"lines:{room}"}
    async with gateway(home, script=[{"text": "The door is open."}], settings=configured, file=file) as running:
        beat()
        assert (await service.until_heard(room=room))["text"] == "The door is open."
        assert (await reported(running))["key"] == f"lines:{room}"
        (journal,) = running.journals().values()
        assert [event["chat"] for event in journal if event["kind"] == "message_received"] == [kind]
    service.close()


async def test_a_beat_is_skipped_while_its_conversation_is_busy(tmp_path: Path, beat: Callable[[], None]) -> None:
    configured = prepared(tmp_path)
    script = [{"text": "A long answer " * 50, "deltas": 100, "delay_ms": 300}]
    async with gateway(tmp_path, script=script, settings=configured) as running:
        client = await running.connect()
        await client.send("Tell me something long.")
        await client.until_event("turn_started")
        beat()
        report = await until_last(running, "busy")
        assert (report["sent"], report["skipped"]) == (0, 1)
        assert not any(event.get("client") == "heartbeat" for event in next(iter(running.journals().values())))


@pytest.mark.parametrize("text", ["", "# What to look after\n\n<!-- nothing -->\n"])
async def test_without_a_list_nothing_is_asked(tmp_path: Path, beat: Callable[[], None], text: str) -> None:
    configured = prepared(tmp_path, text)
    async with gateway(tmp_path, settings=configured) as running:
        beat()
        await until_last(running, "empty")
        assert running.journals() == {}


class SleepyClock:
    """A clock that passes with the event loop. `slept` is the time that it did not see, because the machine slept."""

    def __init__(self, began: datetime) -> None:
        self._began, self._loop = began, asyncio.get_running_loop()
        self._start = self._loop.time()
        self.slept = timedelta()

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self.monotonic()) + self.slept

    def monotonic(self) -> float:
        return self._loop.time() - self._start


async def test_the_beats_of_a_machine_that_slept_do_not_come_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    async def beat(self: heartbeat.Heartbeat, keys: Any, due: datetime) -> str:
        begun.append(f"{due:%H:%M}")
        return "sent"

    monkeypatch.setattr(heartbeat.Heartbeat, "_beat", beat)
    given = {"EXUVIA__HEARTBEAT__EVERY": "30m", "EXUVIA__HEARTBEAT__TIMEZONE": "UTC"}
    settings_now = Settings(load_config(None, environment=given, overrides={}))
    with VirtualTime():
        clock = SleepyClock(datetime(2026, 6, 1, 8, 40, tzinfo=UTC))
        async with Heartbeats(settings_now, clock, Home(tmp_path), lambda _: True) as beating:
            await beating.start(cast("Switchboard", object()))
            await asyncio.sleep(1500)
            assert begun == ["09:00"]
            clock.slept = timedelta(hours=8, minutes=30)  # 17 beats, until 17:35
            await asyncio.sleep(60)
            assert begun == ["09:00"]
            await asyncio.sleep(1800)
            assert begun == ["09:00", "18:00"]


async def test_a_beat_whose_list_cannot_be_read_is_not_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = list[int]()

    def no_thread(*_: Any) -> str:
        reads.append(1)
        if len(reads) == 1:
            raise RuntimeError("can't start new thread")
        return ""

    async def called(function: Callable[..., str], *given: Any) -> str:
        return function(*given)

    monkeypatch.setattr(heartbeat.Heartbeat, "_text", no_thread)
    monkeypatch.setattr(asyncio, "to_thread", called)  # a thread takes no virtual time
    given = {"EXUVIA__HEARTBEAT__EVERY": "30m", "EXUVIA__HEARTBEAT__TIMEZONE": "UTC"}
    settings_now = Settings(load_config(None, environment=given, overrides={}))
    with VirtualTime(), capture_logs() as logs:
        clock = SleepyClock(datetime(2026, 6, 1, 8, 40, tzinfo=UTC))
        async with Heartbeats(settings_now, clock, Home(tmp_path), lambda _: True) as beating:
            await beating.start(cast("Switchboard", object()))
            outcomes = list[str]()
            for _ in range(2):
                await asyncio.sleep(1800)
                report = beating.report()
                assert report is not None
                outcomes.append(report.last)
    assert outcomes == ["failed", "empty"]
    [failed] = [each for each in logs if each["event"] == "heartbeat_failed"]
    assert (failed["kind"], failed["reason"]) == ("RuntimeError", "can't start new thread")


def test_a_heartbeat_is_reported_before_the_start_has_come_to_it(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[heartbeat]\nevery = "1m"\n[agents.work.heartbeat]\nevery = "2m"\n[agents.other]\n')
    known = Settings(load_config(file, environment={}, overrides={}))
    beats = Heartbeats(known, SystemClock(), Home(tmp_path), lambda _: True)
    found = [beats.report(agent) for agent in ("main", "work", "other", "gone")]
    assert [report and (report.every, report.last) for report in found] == [(60, ""), (120, ""), None, None]


async def test_without_an_interval_there_is_no_heartbeat(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        assert not await reported(running)
        assert "heartbeat" not in await (await running.connect()).command("/schedule")


async def test_others_do_not_see_the_heartbeat(tmp_path: Path) -> None:
    ben = "the-token-of-ben-is-long-enough"
    configured = prepared(tmp_path) | {"people.ben.token": ben}
    async with gateway(tmp_path, settings=configured) as running:
        assert "heartbeat" not in await (await running.connect(ben)).command("/schedule")
        assert "heartbeat" in await (await running.connect()).command("/schedule")


async def test_each_agent_has_a_heartbeat_of_its_own_with_its_own_list(tmp_path: Path, beat: Callable[[], None]) -> None:
    workspace = tmp_path / "agents" / "work" / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "HEARTBEAT.md").write_text("- Are there orders?\n")
    file = '[agents.work.heartbeat]\nevery = "30m"\n[agents.other]\n'
    async with gateway(tmp_path, script=[{"text": "Two orders."}], file=file) as running:
        client = await running.connect()
        await client.say("configure", id="c", session="work", name="agent", value="work")
        assert "heartbeat every 30 min" in await client.command("/schedule", session="work")
        assert "heartbeat" not in await client.command("/schedule")
        beat()
        asked = await client.until(lambda f: f["type"] == "event" and f["event"].get("client") == "heartbeat")
        assert (asked["session"], "- Are there orders?" in asked["event"]["text"]) == ("work", True)
        await client.until_event("turn_ended")
        agents = {events[0]["key"]: events[0].get("agent") for events in running.journals().values()}
        assert agents == {"work": "work", "main": None}


class NamedLeases(SoleLeases):
    """Leases that are never had, and the names of those that were wanted."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def hold(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Note the name."""
        self.names.append(name)


async def test_each_heartbeat_has_a_lease_so_that_one_gateway_of_several_sends_it(tmp_path: Path) -> None:
    text = '[heartbeat]\nevery = "1m"\n[agents.work.heartbeat]\nevery = "1m"\n[agents.other]\n'
    (tmp_path / "config.toml").write_text(text)
    config = load_config(tmp_path / "config.toml", environment={}, overrides={})
    leases = NamedLeases()
    async with Heartbeats(Settings(config), SystemClock(), Home(tmp_path), lambda _: True, leases) as heartbeats:
        await heartbeats.start(cast("Switchboard", object()))
        async with deadline():
            while len(leases.names) < 2:
                await asyncio.sleep(0)
    assert leases.names == ["heartbeat", "heartbeat:work"]


@pytest.mark.parametrize("name", ["heartbeat", "child:main.sub.abcdef", "parent:main", "exuvia chat"])
async def test_no_client_passes_its_messages_off_as_the_gateways_own(tmp_path: Path, name: str) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.say("hello", protocol=1, client=name)
        await client.chat("one")
        headers = {"Authorization": f"Bearer {TOKEN}", "User-Agent": name, "X-Exuvia-Session": "main"}
        body = {"model": "exuvia", "messages": [{"role": "user", "content": "two"}]}
        async with g.http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.status == 200
        (journal,) = g.journals().values()
    stored = name if name == "exuvia chat" else f"client {name}"
    assert [event["client"] for event in journal if event["kind"] == "message_received"] == [stored, stored]
