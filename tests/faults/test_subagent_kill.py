"""Kill -9 at each step of a subagent and its parent: after the next start there is one result, with one answer."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from tests.faults.gateway_process import gateway_process, journals
from tests.faults.test_approval_kill import install, until_dead
from tests.waiting import until

POINTS = (
    "appended:child_started",
    "durable:child_started",
    "appended:session_opened@2",
    "durable:session_opened@2",
    "appended:message_received@2",
    "durable:message_received@2",
    "appended:turn_started",
    "appended:model_replied",
    "appended:turn_ended",
    "durable:turn_ended",
    "appended:message_received@3",
    "durable:message_received@3",
    "appended:child_ended",
    "durable:child_ended",
)
"""After `@` the count of that kind: the second session and message are the child's, the third message is the result."""


TOOL_POINTS = ("durable:tool_called", "appended:child_started", "durable:child_started", "appended:tool_returned")
"""Those of a model that starts a subagent by the tool: its call runs again, and the subagent is the same one."""

SCRIPT = [
    {"text": "", "calls": [{"tool": "spawn", "arguments": {"task": "Count the books."}}]},  # refused in the subagent
    {"text": "Seven."},
    {"text": "There are seven."},
]


@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_there_is_one_result_with_one_answer(tmp_path: Path, point: str) -> None:
    home = tmp_path / "home"
    environment = install(tmp_path / "shelf", home)
    killed = {**environment, "KILL_AT": point}
    async with gateway_process(home, settings=killed) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        await client.send("/spawn Count the books.")
        await until_dead(gateway)
    async with gateway_process(home, settings=environment) as gateway:
        await until(lambda: any(line["kind"] == "child_ended" for lines in journals(home) for line in lines))
        await until(lambda: sum(line["kind"] == "turn_ended" for lines in journals(home) for line in lines) == 2)
        assert await gateway.stop() == 0
    parent, child = sorted(journals(home), key=lambda events: ".sub." in events[0]["key"])
    assert [line["text"] for line in child if line["kind"] == "message_received"] == ["Count the books."]
    (result,) = [line for line in parent if line["kind"] == "message_received" and line["id"].startswith("child:")]
    (end,) = [line for line in parent if line["kind"] == "child_ended"]
    assert result["id"] == f"child:{child[0]['session']}:{end['seq']}"
    assert len([line for line in parent if line["kind"] == "child_started"]) == 1
    assert len([line for line in parent if line["kind"] == "turn_ended"]) == 1


@pytest.mark.parametrize("point", TOOL_POINTS)
async def test_after_a_kill_the_call_of_a_model_has_started_one_subagent(tmp_path: Path, point: str) -> None:
    home = tmp_path / "home"
    allowed = {"EXUVIA__APPROVALS__DEFAULT": '"allow"', "EXUVIA__TOOLS__SPAWN__ENABLED": "true"}
    environment = {**install(tmp_path / "shelf", home), **allowed}
    killed = {**environment, "KILL_AT": point}
    async with gateway_process(home, script=SCRIPT, settings=killed) as gateway, aiohttp.ClientSession() as http:
        client = await gateway.connect(http)
        await client.send("How many books are there?")
        await until_dead(gateway)
    async with gateway_process(home, script=SCRIPT, settings=environment) as gateway:
        await until(lambda: any(line.get("text") == "There are seven." for lines in journals(home) for line in lines))
        await until(lambda: any(line["kind"] == "child_ended" for lines in journals(home) for line in lines))
        assert await gateway.stop() == 0
    parent, child = sorted(journals(home), key=lambda events: ".sub." in events[0]["key"])
    assert [line["text"] for line in child if line["kind"] == "message_received"] == ["Count the books."]
    assert len([line for line in parent if line["kind"] == "child_started"]) == 1
    (result,) = [line for line in parent if line["kind"] == "message_received" and line["id"].startswith("child:")]
    assert "Seven." in result["text"]
    (returned,) = [line for line in parent if line["kind"] == "tool_returned"]
    assert (returned["outcome"], child[0]["key"] in returned["output"]) == ("returned", True)
