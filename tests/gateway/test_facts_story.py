"""Facts through a running gateway: recalled, pinned, explained, forgotten; a damaged log stops nobody."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.memory.facts_commands import import_facts
from gateway.cli.options import Invocation
from gateway.support.home import Home
from tests.gateway.gateways import gateway

PORT = {"id": "11111111-port", "content": "The staging server listens on port 3000", "importance": 0.7}
DAILY = {"id": "22222222-tea", "content": "Somebody drinks oolong tea", "layer": "daily", "owner": "owner"}
BOBS = {"id": "33333333-bob", "content": "Bob's staging password hint is a fish", "owner": "bob"}
BY_WORDS = {"memory.embedding.provider": "none"}


pytestmark = pytest.mark.usefixtures("unhurried_recall")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return filled(tmp_path, PORT, DAILY, BOBS)


def filled(tmp_path: Path, *rows: Mapping[str, Any]) -> Path:
    """Create a home with these facts."""
    home, document = Home(tmp_path / "home"), tmp_path / "facts.json"
    home.make()
    document.write_text(json.dumps(rows))
    assert import_facts(Invocation(home, home.config, os.environ, io.StringIO()), document) == 0
    return home.root


def recalled(journals: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        hit for lines in journals.values() for line in lines if line["kind"] == "memory_recalled" for hit in line["hits"]
    ]


async def test_a_recalled_fact_is_added_to_the_message_and_counted_as_used(folder: Path) -> None:
    async with gateway(folder, settings=BY_WORDS) as on:
        client = await on.connect()
        await client.chat("On which port is the staging server?")
        await client.chat("And the port of the staging server is?")  # it stands there already
        why = await client.command("/why 11111111")
    (hit,) = recalled(on.journals())
    assert (hit["path"], hit["digest"], hit["lines"]) == ("facts.jsonl", PORT["id"], [2, 2])
    assert hit["text"] == PORT["content"]
    assert "- Last recalled 20" in why
    used = [json.loads(line) for line in (on.home / "facts.jsonl").read_text().splitlines()][-1]
    assert (used["kind"], used["ids"]) == ("facts_used", [PORT["id"]])


async def test_a_person_pins_explains_and_forgets_a_fact(folder: Path) -> None:
    async with gateway(folder, settings=BY_WORDS) as on:
        client = await on.connect()
        shown = "`11111111` The staging server listens on port 3000 (fact, 0.70"
        assert await client.command("/pin 1111") == f"Pinned: {shown}, pinned)"
        assert await client.command("/unpin 1111") == f"Unpinned: {shown})"
        assert await client.command("/forget 1111") == f"Forgotten: {shown})"
        assert await client.command("/forget 1111") == "There is no fact 1111."
        story = (await client.command("/why 1111")).splitlines()
        assert story[0] == f"{shown}) (deleted)"
        assert [re.sub(r"- \S+ \S+ ", "", line) for line in story[2:]] == [
            "Written by operator.",
            "Pinned by owner.",
            "Unpinned by owner.",
            "Forgotten by owner.",
        ]
        assert await client.command("/pin") == "Write /pin ID; /memory shows the ids."
        assert "**Today** (1 fact)\n- `22222222` Somebody drinks oolong tea" in await client.command("/memory")
        await client.chat("On which port is the staging server?")
    assert recalled(on.journals()) == []


async def test_an_edited_fact_is_shown_to_a_model_that_knows_its_old_text(folder: Path) -> None:
    async with gateway(folder, settings=BY_WORDS) as on:
        client = await on.connect()
        await client.chat("On which port is the staging server?")
        shown = "`11111111` The staging server listens on port 4000 (fact, 0.70)"
        told = await client.command("/edit 1111 The staging server  listens on port 4000")
        assert told == f"Edited: {shown}\n\nBefore: The staging server listens on port 3000"
        assert await client.command("/edit 1111") == "Write /edit ID TEXT; /memory shows the ids."
        assert await client.command("/edit 9999 x") == "There is no fact 9999."
        assert f"**Long-term** (1 fact)\n- {shown}" in await client.command("/memory")
        assert (
            (await client.command("/why 1111"))
            .splitlines()[-2]
            .endswith("Edited by owner. Before: “The staging server listens on port 3000”")
        )
        for _ in range(2):
            await client.chat("And the port of the staging server is?")
    first, second = recalled(on.journals())
    assert (first["text"], second["text"]) == (PORT["content"], "The staging server listens on port 4000")
    assert (second["digest"], second["lines"]) == (f"{PORT['id']}@4", [4, 4])
    lines = [json.loads(line) for line in (on.home / "facts.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["ids"]) for line in lines if line["kind"] == "facts_used"] == [
        ("facts_used", [PORT["id"]]),
        ("facts_used", [PORT["id"]]),
    ]


async def test_nobody_sees_edits_or_forgets_another_persons_facts(folder: Path) -> None:
    async with gateway(folder, settings=BY_WORDS) as on:
        client = await on.connect()
        await client.chat("What is the hint for the staging password?")
        for command in ("/why 3333", "/forget 3333", "/pin 3333", "/edit 3333 x"):
            assert await client.command(command) == "There is no fact 3333."
    assert all(hit["digest"] != BOBS["id"] for hit in recalled(on.journals()))


async def test_clear_asks_first_and_then_empties_the_daily_log_and_nothing_else(folder: Path) -> None:
    async with gateway(folder, settings=BY_WORDS) as on:
        client = await on.connect()
        asked = await client.command("/clear")
        assert asked == (
            "1 fact of the daily log would be deleted. Long-term facts and all notes are kept."
            " Type `/clear yes` to delete it. To start a new conversation instead, type `/new`."
        )
        assert "(deleted)" not in await client.command("/why 2222")
        assert "`/clear yes`" in await client.command("/clear 2222")
        assert "(deleted)" not in await client.command("/why 2222")
        assert await client.command("/clear yes") == "1 fact was deleted from the daily log."
        assert await client.command("/clear") == "The daily log is empty. To start a new conversation, type `/new`."
        assert "Cleared with the daily log by owner." in await client.command("/why 2222")
        assert "(deleted)" not in await client.command("/why 1111")


async def test_clear_keeps_what_is_pinned_and_says_so(folder: Path) -> None:
    async with gateway(folder, settings=BY_WORDS) as on:
        client = await on.connect()
        await client.command("/pin 2222")
        only_pins = "The daily log contains only 1 pinned fact. To start a new conversation, type `/new`."
        assert await client.command("/clear") == only_pins
        assert await client.command("/clear yes") == only_pins
        assert "(deleted)" not in await client.command("/why 2222")


async def test_distill_reports_that_shared_facts_are_distilled_automatically(tmp_path: Path) -> None:
    rows = [
        {"id": f"{number}7777777-day", "content": f"The office closes at {number}", "layer": "daily"} for number in (1, 2)
    ]
    async with gateway(await asyncio.to_thread(filled, tmp_path, *rows), settings=BY_WORDS) as on:
        client = await on.connect()
        assert await client.command("/distill") == (
            "The daily log has no new facts of yours; its 2 shared facts are distilled automatically."
        )


async def test_clear_reports_that_shared_facts_stay(tmp_path: Path) -> None:
    rows = [
        {"id": "77777777-day", "content": "The office closes at six", "layer": "daily"},
        {"id": "88888888-day", "content": "Somebody has a cat", "layer": "daily", "owner": "owner"},
    ]
    async with gateway(await asyncio.to_thread(filled, tmp_path, *rows), settings=BY_WORDS) as on:
        client = await on.connect()
        assert "1 fact of the daily log would be deleted. 1 shared fact is kept, and so are" in await client.command(
            "/clear"
        )
        gone = "1 fact was deleted from the daily log. 1 shared fact is kept."
        assert await client.command("/clear yes") == gone
        assert "contains only 1 shared fact." in await client.command("/clear")
        assert "(1 fact)\n- `77777777` The office closes at six" in await client.command("/memory")


async def test_forgetting_a_fact_keeps_a_pinned_one_that_it_was_made_of_and_says_so(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "44444444-day", "content": "Somebody drinks oolong tea", "layer": "daily", "owner": "owner", "pinned": True},
        {"id": "55555555-day", "content": "Somebody has a cat", "layer": "daily", "owner": "owner"},
        {
            "id": "66666666-long",
            "content": "Somebody drinks tea with a cat",
            "owner": "owner",
            "madeOf": ["44444444-day", "55555555-day"],
        },
    ]
    async with gateway(await asyncio.to_thread(filled, tmp_path, *rows), settings=BY_WORDS) as on:
        client = await on.connect()
        answer = await client.command("/forget 6666")
        assert answer.startswith("Forgotten: `66666666` Somebody drinks tea with a cat")
        assert "Still kept, because it is pinned: `44444444` Somebody drinks oolong tea" in answer
        assert "(deleted)" not in await client.command("/why 4444")
        assert "(deleted)" in await client.command("/why 5555")


async def test_lines_of_a_note_are_forgotten_by_their_citation_and_shown_once_more(folder: Path) -> None:
    async with gateway(folder, settings=BY_WORDS) as on:
        client = await on.connect()
        note = on.home / "workspace" / "MEMORY.md"
        note.write_bytes(b"# Kept\r\n\n- one\n- two\n- three")
        answer = await client.command("/forget MEMORY.md#L4-L5")
        assert answer == "Deleted from `MEMORY.md`:\n\n```\n- two\n- three\n```"
        assert note.read_bytes() == b"# Kept\r\n\n- one\n"
        assert await client.command("/forget MEMORY.md#L4") == "MEMORY.md has no lines 4 to 4; it has 3."
        assert "is not a citation" in await client.command("/forget ../config.toml#L1")
        assert await client.command("/forget memory/none.md#L1") == "There is no note memory/none.md."
        assert note.read_bytes() == b"# Kept\r\n\n- one\n"


async def test_a_damaged_log_of_facts_stops_no_turn_and_is_reported(folder: Path) -> None:
    facts = folder / "facts.jsonl"
    harmed = facts.read_bytes().replace(b"3000", b"4000")
    facts.write_bytes(harmed)
    async with gateway(folder, settings=BY_WORDS) as on:
        client = await on.connect()
        assert await client.chat("the port of the staging server") == "the port of the staging server"
        assert "unavailable because their log is damaged" in await client.command("/status")
        assert "unavailable because their log is damaged" in await client.command("/pin 1111")
    assert facts.read_bytes() == harmed
    assert {line["kind"] for lines in on.journals().values() for line in lines}.isdisjoint({"plugin_failed"})


async def test_status_reports_the_number_of_facts_and_why_none_are_extracted(folder: Path) -> None:
    async with gateway(folder, settings={**BY_WORDS, "memory.facts.auto_extract": False}) as on:
        client = await on.connect()
        assert "- Facts: not read yet" in await client.command("/status")
        await client.chat("On which port is the staging server?")
        await client.command("/pin 1111")
        status = await client.command("/status")
    assert "- Facts: 1 daily, 1 long-term, 1 pinned; no facts are extracted: memory.facts.auto_extract is false" in status
