"""The notes in the instructions: read when they change, limited in size, kept while they cannot be read, and recorded."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path

import pytest

from benchmarks.stage import INSTRUCTIONS, Model, Stage, says
from gateway.conversations.context.conversation_config import standing_instructions
from gateway.conversations.context.loaded_notes import MOST_TOKENS, SHARE, TOKEN_BYTES, WorkspaceNotes
from plugins.languages.prompts import language
from sessions.events.events import InstructionsSet


async def test_notes_follow_the_instructions_of_every_request(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_text("You are kind.")
    (tmp_path / "AGENTS.md").write_text("Answer in rhymes.")
    stage = Stage(Model(says("hello")), workspace=tmp_path)
    async with stage.playing():
        await stage.say("hi")
    instructions = stage.model.requests[0].context.instructions
    assert instructions == f"{INSTRUCTIONS}\n\n# AGENTS.md\n\nAnswer in rhymes.\n\n# SOUL.md\n\nYou are kind."
    [told] = stage.told(InstructionsSet)
    assert [(note.path, note.digest) for note in told.notes] == [
        ("AGENTS.md", sha256(b"Answer in rhymes.").hexdigest()),
        ("SOUL.md", sha256(b"You are kind.").hexdigest()),
    ]


async def test_a_changed_note_applies_from_the_next_turn_and_an_unchanged_one_is_not_recorded_again(tmp_path: Path) -> None:
    note = tmp_path / "AGENTS.md"
    note.write_text("one")
    stage = Stage(Model(says("hello")), workspace=tmp_path)
    async with stage.playing():
        for number, text in enumerate(("one", "two", "two", None)):
            if text is None:
                note.unlink()
            else:
                note.write_text(text)
            await stage.say("hi", str(number))
    assert [[n.text for n in told.notes] for told in stage.told(InstructionsSet)] == [["one"], ["two"], []]


@pytest.mark.parametrize(("window", "tokens"), [(None, MOST_TOKENS), (10**6, MOST_TOKENS), (4096, 4096 // SHARE)])
async def test_a_long_note_is_cut_to_the_budget_of_the_model(tmp_path: Path, window: int | None, tokens: int) -> None:
    (tmp_path / "AGENTS.md").write_text("begin" + "x" * 100_000 + "end")
    [note] = await WorkspaceNotes(tmp_path).load(window)
    assert note.text.startswith("begin")
    assert note.text.endswith("end")
    assert "left out" in note.text
    assert tokens * TOKEN_BYTES <= len(note.text) <= tokens * TOKEN_BYTES + 60
    assert note.digest == sha256((tmp_path / "AGENTS.md").read_bytes()).hexdigest()


async def test_a_note_that_can_no_longer_be_read_stays_as_it_was(tmp_path: Path) -> None:
    notes, path = WorkspaceNotes(tmp_path), tmp_path / "AGENTS.md"
    path.write_text("orders")
    before = await notes.load(None)
    path.unlink()
    os.mkfifo(path)
    assert await notes.load(None) == before
    path.unlink()
    with path.open("wb") as file:
        file.truncate(2 * 1024 * 1024)
    assert await notes.load(None) == before
    path.unlink()
    assert await notes.load(None) == ()


async def test_binary_and_empty_notes_are_harmless(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_bytes(b"caf\xe9 \xff")
    (tmp_path / "SOUL.md").write_text(" \n")
    [note] = await WorkspaceNotes(tmp_path).load(None)
    assert note.text == "caf\ufffd \ufffd"


def test_the_date_is_given_in_the_configured_zone_and_language() -> None:
    late = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
    east = late.astimezone(timezone(timedelta(hours=8), "CST"))
    assert (
        standing_instructions(None, "en", late) == f"{language('en').instructions}\nToday is Saturday, 2026-11-21 (UTC).\n"
    )
    assert standing_instructions(None, "zh", east) == f"{language('zh').instructions}\n今天是 2026-11-22（CST）。\n"
    assert standing_instructions("Be brief.", "en", east).startswith("Be brief.\n\nToday is Sunday, 2026-11-22")
