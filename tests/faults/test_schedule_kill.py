"""Kill -9 while a scheduled message is handed over: after the next start there is one message, with one answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.faults.gateway_process import gateway_process, journals
from tests.faults.test_approval_kill import install, until_dead
from tests.gateway.gateways import TOKEN
from tests.waiting import until

POINTS = (
    "appended:occurrence_due",
    "durable:occurrence_due",
    "appended:message_received",
    "durable:message_received",
    "appended:occurrence_handed",
)


def logged(home: Path) -> list[dict[str, Any]]:
    whole = (home / "schedules.jsonl").read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_there_is_one_message_with_one_answer(tmp_path: Path, point: str) -> None:
    home = tmp_path / "home"
    environment = install(tmp_path / "shelf", home)
    async with gateway_process(home, settings={**environment, "KILL_AT": point}) as gateway:
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as http:
            url = f"http://127.0.0.1:{gateway.port}/api/schedules"
            async with http.post(url, json={"text": "1s Drink.", "reminder": True}) as response:
                assert response.status == 200
        await until_dead(gateway)
    async with gateway_process(home, settings=environment) as gateway:
        await until(lambda: logged(home)[-1]["kind"] == "occurrence_handed")
        await until(lambda: any(line["kind"] == "turn_ended" for lines in journals(home) for line in lines))
        assert await gateway.stop() == 0
    (events,) = journals(home)
    (message,) = (line for line in events if line["kind"] == "message_received")
    (answer,) = (line for line in events if line["kind"] == "model_replied")
    assert message["text"].startswith("Reminder: Drink.")
    assert answer["text"] == message["text"]
    assert logged(home)[-1]["seq"] == message["seq"]
    kinds = [each["kind"] for each in logged(home)]
    assert kinds == ["schedule_set", "occurrence_due", "occurrence_handed"]
