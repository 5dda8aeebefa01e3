"""Pending sections of notes: one that cannot be written delays none of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from benchmarks.stage import Model, Stage, says
from gateway.conversations.notes.day_notes import FOLDER, DayNotes, PendingNotes, day_note, digest_of
from gateway.conversations.routing import switchboard
from plugins.tools.file_target import MAX_FILE_BYTES
from sessions.events.errors import StorageFailed
from sessions.events.events import MemoryFlushed, NoteAppended
from tests.gateway.gateways import TOKEN, Client, Gateway, gateway
from tests.stories import lines_of, opened
from tests.waiting import deadline, until

YESTERDAY, TODAY = day_note(date(2026, 11, 20)), day_note(date(2026, 11, 21))


@pytest.fixture
async def on(tmp_path: Path) -> Stage:
    (tmp_path / FOLDER).mkdir()
    return Stage(Model(says("hello")), workspace=tmp_path)


def owe(on: Stage, path: str, text: str) -> int:
    """Make a section of a note pending in the log; return the seq of the event."""
    number = len(on.log.written)
    return on.recorder.append(
        MemoryFlushed(compaction=1, outcome="written", covers_to=number, path=path, text=text, digest=digest_of(text)),
        urgent=True,
    )


def notes(on: Stage) -> PendingNotes:
    return on.compacting.notes


def appended(on: Stage) -> list[tuple[int, str]]:
    return [(event.of, event.path) for event in on.told(NoteAppended)]


async def test_a_section_is_appended_once_the_log_holds_it(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a note could contain what a lost end of the log takes back, and get it a second time afterwards."""
    append, durable = DayNotes.append, list[bool]()
    on.log.steps = 50

    async def note(self: DayNotes, *arguments: Any, **named: Any) -> str:
        durable.append(on.log.durable == on.log.end)
        return await append(self, *arguments, **named)

    monkeypatch.setattr(DayNotes, "append", note)
    owe(on, TODAY, "- One.")
    await notes(on).write()
    assert durable == [True]


async def test_pending_sections_are_written_once_however_many_write_them(on: Stage, tmp_path: Path) -> None:
    of = owe(on, TODAY, "- One.")
    await asyncio.gather(notes(on).write(), notes(on).write())
    assert appended(on) == [(of, TODAY)]


async def test_a_full_note_continues_in_a_second_file_and_the_next_days_note_is_written(on: Stage, tmp_path: Path) -> None:
    full = "- Something.\n" * 81_000  # 1.05 MB
    (tmp_path / YESTERDAY).write_text(full)
    of = [
        owe(on, YESTERDAY, "## 23:50 main\n\n- One."),
        owe(on, YESTERDAY, "## 23:58 main\n\n- Two."),
        owe(on, TODAY, "- Three."),
    ]
    await notes(on).write()
    second = "memory/2026-11-20-2.md"
    assert appended(on) == [(of[0], second), (of[1], second), (of[2], TODAY)]
    assert (notes(on).problem, on.recorder.transcript.cycle.owed) == ("", ())
    assert (tmp_path / YESTERDAY).read_text() == full
    assert [text in (tmp_path / second).read_text() for text in ("- One.", "- Two.")] == [True, True]


async def test_a_section_that_does_not_fit_begins_the_second_file(on: Stage, tmp_path: Path) -> None:
    """If it were appended, neither the tools nor the console could change the note any more."""
    (tmp_path / TODAY).write_text("x" * (MAX_FILE_BYTES - 20) + "\n")
    of = owe(on, TODAY, "## 12:00 main\n\n- The sky is green.")
    await notes(on).write()
    assert appended(on) == [(of, "memory/2026-11-21-2.md")]
    assert (tmp_path / TODAY).stat().st_size == MAX_FILE_BYTES - 19


async def test_a_section_that_cannot_be_written_stays_pending_and_delays_no_other(on: Stage, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / FOLDER / "linked").symlink_to(tmp_path / "elsewhere")
    broken = f"{FOLDER}/linked/2026-11-20.md"
    stuck = owe(on, broken, "- One."), owe(on, broken, "- Two.")
    of = owe(on, TODAY, "- Three.")
    with capture_logs() as logged:
        await notes(on).write()
    assert [line["event"] for line in logged] == ["note_not_written"], "what follows in the same note is not tried"
    assert appended(on) == [(of, TODAY)]
    assert tuple(owed.of for owed in on.recorder.transcript.cycle.owed) == stuck
    assert notes(on).problem == f"{broken}: Symbolic links are not followed."

    (tmp_path / FOLDER / "linked").unlink()
    await notes(on).write()
    assert (notes(on).problem, on.recorder.transcript.cycle.owed) == ("", ())
    assert (tmp_path / broken).read_text().index("- One.") < (tmp_path / broken).read_text().index("- Two.")


async def test_a_note_that_cannot_be_written_is_logged_once_for_each_cause(on: Stage, tmp_path: Path) -> None:
    """Ended sessions are opened again every minute, which retries."""
    shared = DayNotes(tmp_path)

    async def tried() -> list[str]:
        with capture_logs() as logged:
            await PendingNotes(on.recorder, shared).write()
        return [str(line["reason"]) for line in logged if line["event"] == "note_not_written"]

    owe(on, TODAY, "- One.")
    folder = tmp_path / FOLDER
    folder.rmdir()
    folder.write_text("a file in the folder's place")
    first = await tried()
    assert (len(first), await tried(), await tried()) == (1, [], [])
    folder.unlink()
    folder.symlink_to(tmp_path)
    other = await tried()
    assert (len(other), await tried()) == (1, [])
    assert other != first
    folder.unlink()
    folder.mkdir()
    assert await tried() == []
    owe(on, TODAY, "- Two.")
    (folder / Path(TODAY).name).unlink()
    folder.rmdir()
    folder.write_text("a file again")
    assert (await tried(), await tried()) == (first, [])


@pytest.mark.parametrize("failure", [StorageFailed("Input/output error."), RuntimeError("can't start new thread")])
async def test_an_unreadable_log_is_reported_and_its_section_stays_pending(
    on: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    of = owe(on, TODAY, "- One.")

    async def fail(*_: object, **__: object) -> list[bytes]:
        raise failure

    monkeypatch.setattr(on.log, "lines", fail)
    owed = PendingNotes(on.recorder, DayNotes(tmp_path))
    with capture_logs() as logged:
        owed.write_in_background()
        (task,) = owed._background
        await owed.close()
    assert task.exception() is None
    assert [(line["event"], line["reason"]) for line in logged] == [("note_not_written", str(failure))]
    assert owed.problem == str(failure)
    assert tuple(owed.of for owed in on.recorder.transcript.cycle.owed) == (of,)


async def test_a_pending_section_of_an_earlier_version_goes_into_the_persons_own_note(tmp_path: Path) -> None:
    lines = lines_of([opened(person="ana")])
    on = Stage(Model(says("hello")), workspace=tmp_path, lines=lines)
    of = owe(on, TODAY, "- Of Ana.")
    await notes(on).write()
    assert appended(on) == [(of, f"people/ana/{TODAY}")]
    assert not (tmp_path / TODAY).exists()


async def test_a_section_that_could_not_be_written_is_written_in_a_later_turn(tmp_path: Path) -> None:
    folder = tmp_path / "workspace" / FOLDER
    settings = {"agent.model": "scripted:echo", "compaction.summarizer": "extract", "compaction.keep_recent_tokens": 0}
    async with gateway(tmp_path, settings=settings) as running:
        client = await running.connect()
        for number in range(5):
            await client.chat(f"{number}: " + "The tide comes in twice a day. " * 40)
        folder.write_text("a file in the folder's place")
        await client.command("/compact")
        assert "cannot be written" in await client.command("/status")
        folder.unlink()
        await client.chat("Is it high tide?")
        await until(lambda: [event["kind"] for event in journal_of(running)].count("note_appended") == 2)
        assert "- Summary task: done\n" in await client.command("/status")
    assert [path.suffix for path in folder.iterdir()] == [".md"]
    owing = [event["seq"] for event in journal_of(running) if event["kind"] in ("memory_flushed", "context_compacted")]
    assert [event["of"] for event in journal_of(running) if event["kind"] == "note_appended"] == owing


def journal_of(on: Gateway) -> list[dict[str, Any]]:
    (events,) = on.journals().values()
    return events


async def conversations(running: Gateway) -> int:
    """Return how many conversations are in memory."""
    async with running.http.get(f"{running.url}/status.json", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
        return int((await answer.json())["conversations"])


FLUSHED = [{"purpose": "flush", "text": "- Tea is liked."}, {"text": "Noted."}]


@asynccontextmanager
async def ended_without_notes(folder: Path) -> AsyncIterator[tuple[Gateway, Client, str]]:
    """Run a gateway with an ended session whose notes cannot be written: a file has taken the place of `folder`."""
    folder.parent.mkdir(parents=True)
    folder.write_text("a file where the folder should be")
    async with gateway(folder.parents[1], script=FLUSHED) as running:
        client = await running.connect()
        await client.chat("I like tea.")
        (old,) = running.journals()
        await client.command("/new")
        yield running, client, old


async def test_a_session_closes_after_its_notes_are_written_with_no_event_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "workspace" / FOLDER
    async with ended_without_notes(folder) as (running, _, old):
        async with deadline():
            while await conversations(running) > 1:
                await asyncio.sleep(0.01)
        kinds = [event["kind"] for event in running.journals()[old]]
        assert kinds[-2:] == ["request_sent", "memory_flushed"]
    folder.unlink()

    async with gateway(tmp_path, script=FLUSHED) as running:
        client = await running.connect()
        await client.say("subscribe", session="main", session_id=old, after=len(kinds))
        await client.until_event("session_closed")
        assert [event["kind"] for event in running.journals()[old]] == [*kinds, "note_appended", "session_closed"]
        assert [event["kind"] for session, event in client.events() if session == old] == ["note_appended", "session_closed"]


async def test_notes_of_an_ended_session_are_retried_and_shown_in_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switchboard, "SWEEP_SECONDS", 0.05)
    folder = tmp_path / "workspace" / FOLDER
    async with ended_without_notes(folder) as (running, client, old):
        async with deadline():
            while "could not be written" not in (status := await client.command("/status")):
                await asyncio.sleep(0.01)
        assert f"The note {FOLDER}/" in status
        folder.unlink()
        await until(lambda: running.journals()[old][-1]["kind"] == "session_closed")
        assert [event["kind"] for event in running.journals()[old]].count("request_sent") == 2, "nobody is asked again"
        assert "could not be written" not in await client.command("/status")
    assert "- Tea is liked." in "".join(path.read_text() for path in folder.iterdir())
