"""The model's tool `schedule`: a person approves exactly what is set."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.conversations.schedules.schedule_tool import ScheduleTool, ScheduleTools
from gateway.conversations.schedules.schedules import Schedules
from plugins.api.tool import ApprovalRequest, ToolContext
from plugins.support.errors import ToolFailed
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from tests.gateway.gateways import gateway
from tests.gateway.test_schedules import logged

NOW = datetime(2026, 11, 24, 10, 30, 15, tzinfo=UTC)
ASKING = {"approvals.default": "ask", "agent.timezone": "Europe/Berlin"}


def call_of(**arguments: Any) -> dict[str, Any]:
    return {"calls": [{"tool": "schedule", "arguments": arguments}]}


def settings_of(**variables: str) -> Settings:
    return Settings(load_config(None, environment={"EXUVIA__AGENT__TIMEZONE": '"Europe/Berlin"', **variables}, overrides={}))


def context(number: int = 0, **more: Any) -> ToolContext:
    return ToolContext(
        session="s", person="owner", turn=1, call=f"s/4/{number}", chat="main", began="2026-11-24T10:30:15.000Z", **more
    )


@asynccontextmanager
async def opened(home: Path, now: Callable[[], datetime] = lambda: NOW) -> AsyncIterator[Schedules]:
    async with Committer() as committer, Schedules(Journals(home, home / "quarantine", committer), now) as schedules:
        yield schedules


async def question(tool: ScheduleTool, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest:
    asked = await tool.approval(arguments, call)
    assert asked is not None
    return asked


async def test_a_person_is_shown_what_is_set_before_it_counts(tmp_path: Path) -> None:
    script = [call_of(action="set", time="0 9 * * 1-5", text="Read the mails."), {"text": "Done."}]
    async with gateway(tmp_path, script=script, settings=ASKING) as running:
        client = await running.connect()
        await client.send("Every weekday at nine, read the mails.")
        asked = await client.until_event("approval_asked")
        assert asked["what"] == "Give the assistant a task: At 09:00 on Monday through Friday"
        lines = asked["detail"].splitlines()
        assert lines[0] == "Read the mails."
        assert "Rule: cron 0 9 * * 1-5 (Europe/Berlin)" in lines
        assert "Time zone: Europe/Berlin" in lines
        assert next(line for line in lines if line.startswith("Next: ")).count(" 09:00") == 3
        assert asked["choices"] == ["once"]
        assert logged(tmp_path) == []
        await client.say("approve", id="y", session="main", approval=asked["approval"], decision="approve", scope="once")
        returned = await client.until_event("tool_returned")
        assert returned["outcome"] == "returned"
        (made,) = logged(tmp_path)
        assert (made["text"], made["key"], made["rule"]["zone"]) == ("Read the mails.", "main", "Europe/Berlin")
        await client.until_event("turn_ended")
        assert "Read the mails." in await client.command("/schedule")


async def test_what_a_person_denies_is_not_set(tmp_path: Path) -> None:
    script = [call_of(action="set", time="10m", text="Drink.", reminder=True), {"text": "Well then."}]
    async with gateway(tmp_path, script=script, settings=ASKING) as running:
        client = await running.connect()
        await client.send("Remind me to drink in ten minutes.")
        asked = await client.until_event("approval_asked")
        assert asked["what"].startswith("Remind you: 20")
        await client.say("approve", id="n", session="main", approval=asked["approval"], decision="deny", scope="once")
        await client.until_event("turn_ended")
        assert logged(tmp_path) == []


async def test_a_reminder_that_the_model_set_comes_once(tmp_path: Path) -> None:
    script = [call_of(action="set", time="1s", text="Drink.", reminder=True), {"text": "Done."}, {"text": "Drink!"}]
    async with gateway(tmp_path, script=script) as running:
        client = await running.connect()
        await client.send("Remind me to drink in a second.")
        await client.until(lambda f: f["type"] == "event" and f["event"].get("text", "").startswith("Reminder: Drink."))
        await client.until(lambda f: f["type"] == "event" and f["event"].get("text") == "Drink!")


async def test_what_is_asked_about_does_not_depend_on_when_it_is_asked(tmp_path: Path) -> None:
    clock = [NOW]
    async with opened(tmp_path, lambda: clock[0]) as schedules:
        tool = ScheduleTool(schedules, settings_of(), lambda: clock[0])
        wanted = {"action": "set", "time": "in 10m", "text": "Drink.", "reminder": True}
        before = await question(tool, wanted, context())
        clock[0] = NOW.replace(hour=23)
        assert await question(tool, wanted, context()) == before
        assert before.what == "Remind you: 2026-11-24 11:40"
        await tool.run(wanted, context())
        await tool.run(wanted, context())  # after a crash
        (made,) = await schedules.of_person("owner")
        assert stamp_of(made.next()) == "2026-11-24T10:40"


def stamp_of(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}" if moment else ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"action": "set", "time": "nine", "text": "Drink."}, "Begin with a time"),
        ({"action": "set", "time": "10m Drink.", "text": "Drink."}, "pass the text as `text`"),
        ({"action": "set", "time": "10m"}, "Write the text"),
        ({"action": "set", "time": "10m", "text": "Drink.", "zone": "Mars/Base"}, "no time zone"),
        ({"action": "remove", "id": "nothing"}, "no schedule"),
        ({"action": "rest"}, "action"),
    ],
)
async def test_a_call_that_would_fail_is_refused_without_a_question(
    tmp_path: Path, arguments: dict[str, Any], sentence: str
) -> None:
    async with opened(tmp_path) as schedules:
        tool = ScheduleTool(schedules, settings_of(), lambda: NOW)
        with pytest.raises(ToolFailed, match=sentence):
            await tool.approval(arguments, context())
        with pytest.raises(ToolFailed, match=sentence):
            await tool.run(arguments, context())


async def test_a_command_cannot_be_scheduled_by_the_model(tmp_path: Path) -> None:
    async with opened(tmp_path) as schedules:
        tool = ScheduleTool(schedules, settings_of(), lambda: NOW)
        with pytest.raises(ToolFailed, match="A command cannot be scheduled"):
            await tool.run({"action": "set", "time": "10m", "text": "/approve"}, context())


async def test_a_group_sees_and_removes_only_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as schedules:
        tool = ScheduleTool(schedules, settings_of(), lambda: NOW)
        await tool.run({"action": "set", "time": "every 2h", "text": "A secret."}, context())
        (secret,) = await schedules.of_person("owner")
        group = context(1, group=True, channel="lines", reply_to="kitchen", thread="tea")
        group_call = ToolContext(**{**{f: getattr(group, f) for f in group.__struct_fields__}, "chat": "lines:kitchen"})
        assert (await tool.run({"action": "list"}, group_call)).text == "Nothing is scheduled."
        with pytest.raises(ToolFailed, match="not in this group"):
            await tool.approval({"action": "remove", "id": secret.id}, group_call)
        await tool.run({"action": "set", "time": "every 2h", "text": "Tea."}, group_call)
        made = (await schedules.of_person("owner"))[1].made
        assert (made.channel, made.chat, made.reply_to, made.thread) == ("lines", "group", "kitchen", "tea")
        assert await tool.approval({"action": "list"}, group_call) is None
        removed = await tool.run({"action": "remove", "id": secret.id}, context())
        assert removed.text.startswith(f"Removed: {secret.id}: every 2 h")


async def test_the_tool_is_offered_as_configured(tmp_path: Path) -> None:
    async with opened(tmp_path) as schedules:
        assert set(ScheduleTools(schedules, settings_of(), lambda: NOW).tools()) == {"schedule"}
        off = settings_of(EXUVIA__TOOLS__SCHEDULE__ENABLED="false")
        assert ScheduleTools(schedules, off, lambda: NOW).tools() == {}
