"""The note of a day: sections are appended once, whole, beside people's own edits."""

from __future__ import annotations

import asyncio
import errno
import os
from datetime import date
from pathlib import Path

import pytest

from gateway.conversations.notes.appending import NoteNotWritten
from gateway.conversations.notes.day_notes import DayNotes, as_section, day_note, digest_of
from plugins.tools import file_target

PATH = day_note(date(2026, 11, 21))
SECOND = "memory/2026-11-21-2.md"
TEXT = "## 12:00 main\n\n- The sky is green."


def note(tmp_path: Path) -> Path:
    return tmp_path / PATH


# Failure 9: the guard is the mark.
async def test_a_section_is_appended_once_with_its_mark(tmp_path: Path) -> None:
    notes = DayNotes(tmp_path)
    for _ in range(3):
        await notes.append(PATH, TEXT, digest_of(TEXT))
    assert note(tmp_path).read_text() == f"{TEXT}\n\n<!-- exuvia {digest_of(TEXT)} -->\n"
    assert note(tmp_path).stat().st_mode & 0o777 == 0o600
    assert note(tmp_path).parent.stat().st_mode & 0o777 == 0o700


async def test_a_persons_text_is_kept_and_separated_by_an_empty_line(tmp_path: Path) -> None:
    note(tmp_path).parent.mkdir()
    note(tmp_path).write_text("Call Ana.")
    await DayNotes(tmp_path).append(PATH, TEXT, "d1")
    await DayNotes(tmp_path).append(PATH, "- More.", "d2")
    assert note(tmp_path).read_text() == f"Call Ana.\n\n{TEXT}\n\n<!-- exuvia d1 -->\n\n- More.\n\n<!-- exuvia d2 -->\n"


@pytest.mark.parametrize("length", [16, 25, len(TEXT), len(TEXT) + 10])
async def test_a_section_cut_short_by_a_power_failure_is_completed(length: int, tmp_path: Path) -> None:
    notes = DayNotes(tmp_path)
    await notes.append(PATH, TEXT, "d1")
    whole = note(tmp_path).read_text()
    note(tmp_path).write_text("Before.\n\n" + whole[:length])
    await notes.append(PATH, TEXT, "d1")
    assert note(tmp_path).read_text() == "Before.\n\n" + whole


async def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    notes = DayNotes(tmp_path)
    await notes.append(PATH, "- First.", "first")
    done: list[int] = []

    async def append(number: int) -> None:
        while True:
            try:
                await notes.append(PATH, f"- Item {number}.", f"n{number}")
            except NoteNotWritten:
                continue
            done.append(number)
            return

    await asyncio.gather(*(append(number) for number in range(20)))
    text = note(tmp_path).read_text()
    assert all(text.count(f"- Item {number}.\n") == 1 for number in range(20))


async def test_only_the_new_lines_of_a_summary_are_written_without_empty_headings(tmp_path: Path) -> None:
    notes = DayNotes(tmp_path)
    await notes.append(PATH, TEXT, "d1")
    progress = "## Progress\n\n### Done\n\n(none)\n\n### Blocked\n\n- Paint."
    summary = f"## Goals\n\n- the SKY  is green.\n\n{progress}\n\n## Next Steps\n\n(none)"
    await notes.append(PATH, as_section("Summary 1 of main", summary), "d2", new_only=True)
    added = note(tmp_path).read_text().partition("<!-- exuvia d1 -->\n\n")[2]
    assert added == "## Summary 1 of main\n\n### Progress\n\n#### Blocked\n\n- Paint.\n\n<!-- exuvia d2 -->\n"


async def test_if_nothing_is_new_only_the_mark_is_added(tmp_path: Path) -> None:
    notes = DayNotes(tmp_path)
    await notes.append(PATH, TEXT, "d1")
    await notes.append(PATH, as_section("Summary 1", "## Goals\n\n- The sky is green."), "d2", new_only=True)
    assert note(tmp_path).read_text().endswith("<!-- exuvia d1 -->\n\n<!-- exuvia d2 -->\n")


@pytest.mark.parametrize("kind", ["link", "hard link", "folder", "pipe", "twin"])
async def test_a_note_that_is_no_regular_file_is_left_alone_and_the_day_continues_in_a_second_file(
    kind: str, tmp_path: Path
) -> None:
    target = note(tmp_path)
    target.parent.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    match kind:
        case "link":
            target.symlink_to(elsewhere)
        case "hard link":
            target.hardlink_to(elsewhere)
        case "folder":
            target.mkdir()
        case "pipe":
            os.mkfifo(target)
        case _:
            target.with_name("2026-11-21.MD").write_text("other")
    for _ in range(2):
        assert await DayNotes(tmp_path).append(PATH, TEXT, "d1") == SECOND
    assert elsewhere.read_text() == "mine"
    assert (tmp_path / SECOND).read_text() == f"{TEXT}\n\n<!-- exuvia d1 -->\n"


async def test_a_day_with_a_second_file_continues_there_and_writes_nothing_twice(tmp_path: Path) -> None:
    await DayNotes(tmp_path).append(PATH, TEXT, "d1")
    (tmp_path / SECOND).write_text("- By hand.\n")
    assert await DayNotes(tmp_path).append(PATH, TEXT, "d1") == PATH
    news = as_section("Summary 1", "## Goals\n\n- The sky is green.\n- The sea is blue.")
    assert await DayNotes(tmp_path).append(PATH, news, "d2", new_only=True) == SECOND
    assert (tmp_path / SECOND).read_text() == (
        "- By hand.\n\n## Summary 1\n\n### Goals\n\n- The sea is blue.\n\n<!-- exuvia d2 -->\n"
    )


async def test_a_note_that_is_locked_is_left_alone_and_a_folder_that_is_locked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(tmp_path).parent.mkdir()
    note(tmp_path).write_text("locked\n")

    def locked(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(file_target.FileTarget, "append", locked)
    assert await DayNotes(tmp_path).append(PATH, TEXT, "d1") == SECOND
    monkeypatch.setattr(file_target.FileTarget, "replace", locked)
    with pytest.raises(NoteNotWritten, match=r"^memory/2026-11-22\.md cannot be written: Permission denied\.$"):
        await DayNotes(tmp_path).append(day_note(date(2026, 11, 22)), TEXT, "d1")


async def test_a_file_that_keeps_changing_is_left_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note(tmp_path).parent.mkdir()
    note(tmp_path).write_text("busy\n")

    def changed(*_: object) -> None:
        raise file_target.FileChanged

    monkeypatch.setattr(file_target.FileTarget, "append", changed)
    with pytest.raises(NoteNotWritten, match="keeps changing; try again"):
        await DayNotes(tmp_path).append(PATH, TEXT, "d1")
