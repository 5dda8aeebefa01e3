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
