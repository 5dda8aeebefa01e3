"""“Remember that my preferred language is Rust”, `/new`, “What is my favourite language?”, through a running gateway."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sessions.state.context import canonical
from tests.docs.view import request_by_the_page
from tests.gateway.gateways import Gateway, gateway
from tests.waiting import deadline

QUESTION = "What is my favourite language?"
BY_WORDS = {"memory.embedding.provider": "none"}


pytestmark = pytest.mark.usefixtures("unhurried_recall")


def asked(on: Gateway, journal: int) -> list[list[dict[str, Any]]]:
    """Return every request of a session, computed as docs/events.md describes; each is checked by its hash."""
    lines = list(on.journals().values())[journal]
    requests = []
    for place, line in enumerate(lines):
        if line["kind"] == "request_sent" and line["purpose"] == "answer":
            request = request_by_the_page(lines[:place])
            assert hashlib.sha256(canonical(request)).hexdigest() == line["sha256"]
            requests.append(request)
    return requests


async def test_what_a_model_with_tools_wrote_down_stands_in_the_next_sessions_request(tmp_path: Path) -> None:
    write = {"tool": "write", "arguments": {"path": "MEMORY.md", "content": "# Preferences\n\n- Preferred language: Rust\n"}}
    script: list[dict[str, Any]] = [{"text": "", "calls": [write]}, {"text": "Noted."}]
    async with gateway(tmp_path, script=script, settings=BY_WORDS) as on:
        client = await on.connect()
        await client.send("Remember that my preferred language is Rust")
        await client.until_event("turn_ended")
        await client.command("/new")
        await client.send(QUESTION)
        await client.until_event("turn_ended")
        head, *messages = asked(on, 1)[0]
    assert "- Preferred language: Rust" in head["instructions"]
    assert messages == [{"role": "user", "text": QUESTION, "attachments": []}]  # it stands there once


async def test_what_was_remembered_by_command_is_recalled_in_the_same_session_and_loaded_in_the_next(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=BY_WORDS) as on:
        client = await on.connect()
        await client.chat("Good evening")
        assert await client.command("/remember my preferred language is Rust") == "Remembered: `MEMORY.md#L1-L1`."
        assert await client.chat(QUESTION) == QUESTION
        assert "my preferred language is Rust" in asked(on, 0)[-1][-1]["text"]
        assert "**Memory**: 1 note," in await client.command("/memory")
        assert "`MEMORY.md#L1-L1` my preferred **language** is Rust" in await client.command("/memory language")
        await client.command("/new")
        await client.chat(QUESTION)
        assert "my preferred language is Rust" in asked(on, 1)[0][0]["instructions"]
        shown = await client.command("/context list")
    assert "Notes: `MEMORY.md`" in shown
    assert json.dumps(on.journals()).count("memory_recalled") == 1


async def test_a_result_is_opened_by_its_number_with_its_words_and_its_conversation(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=BY_WORDS) as on:
        client = await on.connect()
        assert (await client.command("/memory 1")).startswith("Nothing found.")
        await client.chat("The heron nests behind the boathouse.", session="birds")
        await client.command("/new", session="birds")  # what left the view is indexed
        await client.command("/remember kettles boil; `x` [a](https://b.example) kettle")
        async with deadline():
            while "(`birds`)" not in (listed := await client.command("/memory which herons nested at kettles")):
                await client.round_trips()
        places = re.findall(r"^\d\. `(sessions/\S+)`", listed, re.MULTILINE)
        number = listed[: listed.index("(`birds`)")].splitlines()[-1][0]
        opened = await client.command(f"/memory {number}")
        note = await client.command(f"/memory {listed[: listed.index('`MEMORY.md')].splitlines()[-1][0]}")
        await client.command("/memory 9 boathouses")
        assert "Nothing" not in await client.command("/memory 1")  # of the newer search
        others = await client.command("/memory 1", session="birds")
        refused = await client.command(f"/memory {number}", session="other")
    first, _, said, *_, last = opened.splitlines()
    assert first == f"`{places[0]}`"
    assert re.fullmatch(r"- \[\d+\] \S+ \S+ owner: The \*\*heron\*\* \*\*nests\*\* behind the boathouse\.", said)
    assert last == "In `birds`; `/switch birds` goes there in a terminal."
    assert note.startswith("`MEMORY.md#L1-L1`\n\n> ")
    assert "**kettles** boil; `x` [a](https://b.example) **kettle**" in note
    assert "behind" not in others + refused  # numbers belong to the conversation that searched


async def test_no_command_and_nothing_without_notes_is_looked_for(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings=BY_WORDS) as on:
        client = await on.connect()
        await client.chat(QUESTION)
        await client.command("/status")
        await client.chat(QUESTION)
    kinds = [line["kind"] for lines in on.journals().values() for line in lines]
    assert not {"memory_recalled", "plugin_failed"} & set(kinds)
