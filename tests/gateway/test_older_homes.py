"""Homes that earlier versions wrote (`homes/DATE`, by the code of that day) are verified, used, backed up and restored."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.backup.backup_folder import back_up
from gateway.backup.restoring import new_home, unpack_folder
from gateway.conversations.facts.fact_store import read_facts
from gateway.support.home import Home
from gateway.support.storage import fact_logs, session_logs
from sessions.events.events import MessageReceived
from sessions.store.reading import StoredLog
from tests.gateway.gateways import gateway

HOMES = sorted((Path(__file__).parent / "homes").iterdir())


def texts(home: Home) -> list[str]:
    """Return the texts of the messages in the only session, whose sums are verified."""
    [(session, _)] = session_logs(home).listed()
    log = StoredLog(session_logs(home), session)
    log.verify()
    return [each.event.text for each in log.events() if isinstance(each.event, MessageReceived)]


def now() -> datetime:
    return datetime(2036, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("written", HOMES, ids=lambda path: path.name)
async def test_a_home_of_an_earlier_version_is_used_and_restored(tmp_path: Path, written: Path) -> None:
    home, again = Home(tmp_path / "home"), Home(tmp_path / "again")
    shutil.copytree(written, home.root)
    before = texts(home)
    assert before[0] == "My boat is called Marlin."
    async with gateway(home.root, settings={"memory.embedding.provider": "none"}) as running:
        client = await running.connect()
        await client.chat("And now?")
    assert texts(home) == [*before, "And now?"]
    read_facts(fact_logs(home))
    back_up(home, tmp_path / "backup", now, with_secrets=False)
    with new_home(again) as draft:
        unpack_folder(tmp_path / "backup", draft)
    assert texts(again) == [*before, "And now?"]
    assert "The harbour is Vigo" in (again.root / "workspace/MEMORY.md").read_text()
