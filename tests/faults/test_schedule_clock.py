"""A real gateway whose clock libfaketime sets: over four changes of daylight saving, two hours back, three days ahead."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.conversations.schedules.recurrence import Cron, occurrences, stamp_seconds
from tests.faults.gateway_process import GatewayProcess, gateway_process, journals
from tests.gateway.gateways import TOKEN
from tests.waiting import until

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)

pytestmark = pytest.mark.skipif(LIBRARY is None, reason="the package faketime is not installed")

CHANGES = [
    ("Europe/Berlin", "30 2 * * *", "2026-10-25T00:30:00Z"),  # 02:30 comes twice
    ("Europe/Berlin", "30 2 * * *", "2027-03-28T01:00:00Z"),  # 02:30 is skipped
    ("America/New_York", "30 2 * * *", "2027-03-14T07:00:00Z"),  # 02:30 is skipped
    ("Australia/Lord_Howe", "45 1 * * *", "2027-04-03T14:45:00Z"),  # 01:45 comes twice, half an hour apart
]


class FakeClock:
    """The clock of a gateway process, which a file sets; it goes on from where it is set."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def set(self, to: datetime) -> None:
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{to.timestamp() - time.time():+.3f}\n")
        draft.rename(self._file)

    @property
    def settings(self) -> dict[str, str]:
        """The environment of the process."""
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }


def logged(home: Path) -> list[dict[str, Any]]:
    whole = (home / "schedules.jsonl").read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


class Scheduled:
    """The schedules of a gateway, over HTTP."""

    def __init__(self, home: Path, gateway: GatewayProcess, http: aiohttp.ClientSession) -> None:
        self._home = home
        self._http = http
        self._url = f"http://127.0.0.1:{gateway.port}/api/schedules"

    async def add(self, text: str, **options: str) -> str:
        async with self._http.post(self._url, json={"text": text, **options}) as response:
            assert response.status == 200, await response.text()
            return str((await response.json())["id"])

    async def look(self) -> None:
        """Return once the scheduler has looked at the clock as it is now: what is set then is handed over after all else."""
        asked = await self.add("1s Look.", session="looks")
        await until(lambda: any(e["kind"] == "occurrence_handed" and e["schedule"] == asked for e in logged(self._home)))

    def of(self, id_: str, kind: str) -> list[dict[str, Any]]:
        return [event for event in logged(self._home) if event["kind"] == kind and event["schedule"] == id_]


@pytest.mark.parametrize(("zone", "line", "due"), CHANGES)
async def test_each_occurrence_comes_once_however_the_clock_is_set(tmp_path: Path, zone: str, line: str, due: str) -> None:
    home, clock, first = tmp_path / "home", FakeClock(tmp_path / "clock"), datetime.fromisoformat(due)
    clock.set(first - timedelta(minutes=5))
    async with (
        gateway_process(home, settings=clock.settings) as gateway,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
    ):
        schedules = Scheduled(home, gateway, http)
        id_ = await schedules.add(f"{line} Do.", zone=zone)
        await schedules.look()
        assert schedules.of(id_, "occurrence_due") == []
        clock.set(first + timedelta(seconds=1))
        await schedules.look()
        for step in (timedelta(hours=1, seconds=5), -timedelta(hours=2), timedelta(minutes=40)):
            clock.set(first + step)
            await schedules.look()
        assert [event["due"] for event in schedules.of(id_, "occurrence_handed")] == [due]
        assert schedules.of(id_, "occurrence_missed") == []
        end = first + timedelta(days=3, minutes=10)
        clock.set(end)
        await schedules.look()
        passed = takewhile(lambda each: each <= end, occurrences(Cron(line, zone), first - timedelta(minutes=5)))
        expected = [stamp_seconds(each) for each in passed]
        handed = [event["due"] for event in schedules.of(id_, "occurrence_handed")]
        missed = sum(event["count"] for event in schedules.of(id_, "occurrence_missed"))
        assert (handed[0], len(handed) + missed, len(set(handed))) == (due, len(expected), len(handed))
        assert set(handed) <= set(expected)
        assert handed[-1] == expected[-1] or end - datetime.fromisoformat(expected[-1]) > timedelta(hours=1)
        assert await gateway.stop() == 0
    messages = [event for events in journals(home) for event in events if event.get("client") == f"schedule:{id_}"]
    assert len(messages) == len(handed)
