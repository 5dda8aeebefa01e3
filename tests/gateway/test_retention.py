"""Rules about how long conversations are kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.auth.people_log import PersonChanged
from gateway.config.keys import RetentionRule, load_config
from gateway.config.validation import Seconds
from gateway.support.clock import SystemClock
from gateway.support.errors import ConfigRefused
from gateway.wiring.daemon import resume_sessions
from gateway.wiring.retention import KeptConversation, Retention, due_conversations
from sessions.events.codec import FIRST, encode, encode_line
from sessions.events.errors import StorageFailed
from sessions.events.events import CommandAnswered, Event, Recorded, SettingChanged
from tests.gateway.gateways import gateway
from tests.gateway.test_backups import exuvia
from tests.gateway.test_cli_sessions import opened, said
from tests.waiting import until

NOW = datetime(2026, 11, 29, tzinfo=UTC)
DAY = 86400


def kept(key: str, used: str, *, pinned: bool = False, archived: bool = False) -> KeptConversation:
    return KeptConversation(person="owner", key=key, used=used, pinned=pinned, archived=archived)


def test_the_first_rule_that_matches_decides_and_pinned_ones_are_kept() -> None:
    rules = (
        RetentionRule(session="work-*", older_than=Seconds(300 * DAY), action="archive"),
        RetentionRule(session="*", older_than=Seconds(7 * DAY), action="delete"),
    )
    old, new = "2026-11-01T00:00:00.000Z", "2026-11-28T00:00:00.000Z"
    conversations = [
        kept("work-1", old), kept("a", old), kept("b", new), kept("c", old, pinned=True), kept("d", old, archived=True),
        kept("e", "2026-11-22T00:00:00.000Z"), kept("never", ""), kept("work-2", "2020-01-01T00:00:00.000Z", archived=True),
    ]  # fmt: skip
    due = due_conversations(rules, conversations, NOW)
    assert [(each.key, each.action) for each in due] == [("a", "delete"), ("d", "delete"), ("e", "delete")]


@pytest.mark.parametrize("age", ["0s", "59m"])
def test_a_rule_needs_an_age_of_an_hour_at_least(tmp_path: Path, age: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[retention]\nrules = [{{ session = "*", older_than = "{age}", action = "delete" }}]\n')
    with pytest.raises(ConfigRefused, match=r"retention\.rules"):
        load_config(file, environment={}, overrides={})


def write_old(journal: Path, events: Sequence[Event]) -> None:
    """Write a journal of the year 2020."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    previous = FIRST
    with journal.open("wb") as file:
        for seq, event in enumerate(events, 1):
            recorded = Recorded(seq=seq, at="2020-11-20T09:00:00.000Z", turn=None, event=event)
            line, previous = encode(recorded, previous)
            file.write(line)


class Unreadable:
    """Conversations of which those of `ana` cannot be listed."""

    def __init__(self) -> None:
        self.sessions = self
        self.asked: list[str] = []
        self.resumed = 0

    async def current_sessions(self, person: str) -> list[Any]:
        self.asked.append(person)
        if person == "ana":
            raise StorageFailed("The database does not answer.")
        return []

    async def resume_all(self) -> None:
        self.resumed += 1
        if self.resumed < 3:
            raise StorageFailed("The database does not answer.")


async def test_a_database_that_does_not_answer_ends_neither_the_rules_nor_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.wiring.retention.EVERY_SECONDS", 0.0)
    monkeypatch.setattr("gateway.wiring.daemon.RESUME_SECONDS", 0.0)
    unreadable: Any = Unreadable()
    rules = (RetentionRule(session="*", older_than=Seconds(DAY), action="delete"),)
    running = asyncio.create_task(Retention(unreadable, rules, lambda: ["ana", "ben"], SystemClock()).run())
    await until(lambda: unreadable.asked[:4] == ["ana", "ben", "ana", "ben"])
    running.cancel()
    await resume_sessions(unreadable)
    assert unreadable.resumed == 3


async def test_an_unexpected_failure_ends_neither_the_rules_nor_what_is_due_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.wiring.retention.EVERY_SECONDS", 0.0)
    asked = list[str]()

    class Failing:
        """Conversations of which those of `ana` cannot be listed, and the others cannot be opened, for want of a thread."""

        def __init__(self) -> None:
            self.sessions = self

        async def current_sessions(self, person: str) -> list[Any]:
            if person == "ana":
                raise RuntimeError("can't start new thread")
            return [SimpleNamespace(person=person, key=key, used="2020-01-01T00:00:00Z") for key in ("one", "two")]

        async def chat(self, person: str, key: str, *, create: bool) -> None:
            asked.append(key)
            raise RuntimeError("can't start new thread")

    failing: Any = Failing()
    rules = (RetentionRule(session="*", older_than=Seconds(DAY), action="delete"),)
    with capture_logs() as logs:
        running = asyncio.create_task(Retention(failing, rules, lambda: ["ana", "ben"], SystemClock()).run())
        await until(lambda: asked[:4] == ["one", "two", "one", "two"])
        running.cancel()
    failed = [(each["kind"], each.get("key")) for each in logs if each["event"] == "retention_not_applied"]
    assert failed[:3] == [("RuntimeError", None), ("RuntimeError", "one"), ("RuntimeError", "two")]


RULES = """
[retention]
rules = [
  { session = "main", older_than = "7d", action = "archive" },
  { session = "scratch*", older_than = "7d", action = "delete" },
]
"""


async def test_a_running_gateway_applies_the_rules_and_the_command_only_lists(tmp_path: Path) -> None:
    home = tmp_path / "home"
    ids = {key: f"20201120-09000{number}-aaaaaa" for number, key in enumerate(("main", "scratch-1", "scratch-2", "other"))}
    for key, session in ids.items():
        pinned = [SettingChanged(name="pinned", value="true", by="owner")] if key == "scratch-2" else []
        answered = CommandAnswered(answers=2, answer="owner", failed=False)
        write_old(home / f"sessions/{session}.jsonl", [opened(session, key), said("/whoami"), answered, *pinned])
    of_ana = "20201120-090009-aaaaaa"
    events: list[Event] = [
        opened(of_ana, "scratch-9", person="ana"),
        said("/whoami"),
        CommandAnswered(answers=2, answer="x", failed=False),
    ]
    write_old(home / f"sessions/{of_ana}.jsonl", events)
    added = PersonChanged(person="ana", act="added", by="owner", name="Ana", token="0" * 64)
    line, _ = encode_line(1, "2020-11-20T09:00:00.000Z", None, added, FIRST)
    (home / "people.jsonl").write_bytes(line)
    (home / "config.toml").write_text(RULES)
    listed = exuvia("sessions", "retention", "--home", home, "--json")
    assert listed.returncode == 0, listed.stderr
    assert [(each["key"], each["action"]) for each in json.loads(listed.stdout)] == [
        ("main", "archive"),
        ("scratch-1", "delete"),
        ("scratch-9", "delete"),
    ]
    async with gateway(home, file='[agent]\nmodel = "scripted:echo"\n' + RULES) as running:
        client = await running.connect()
        await until(lambda: not (home / f"sessions/{ids['scratch-1']}.jsonl").exists())
        await until(lambda: not (home / f"sessions/{of_ana}.jsonl").exists())
        await until(lambda: b"session_archived" in (home / f"sessions/{ids['main']}.jsonl").read_bytes())
        await client.chat("still there?", session="other")
    assert (home / f"sessions/{ids['scratch-2']}.jsonl").exists()
