"""The index is updated in the background: a search does not wait for it, and says what is missing and why."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from plugins.api.memory.chunks import Chunk
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.api.memory.source import Listing, Reading, WatchedFolders
from plugins.memory.index.embedder import PLAIN
from plugins.memory.search.diagnostics import nothing_found, remarks_on
from plugins.memory.sources import watcher
from plugins.memory.sources.notes import ExtraNotes
from plugins.memory.sources.watcher import Watcher
from plugins.support.errors import BadRequest, ProviderError, Unreachable
from plugins.support.untrusted import SENTENCE
from sessions.catalog.sqlite import connect_readonly
from tests.memory.places import FakeSource, Place, citations
from tests.open_files import watched_inodes
from tests.waiting import DEADLINE, VirtualTime, until


class Slow(FakeSource):
    """A source with many documents, each of which is read when somebody lets it."""

    name = "slow"

    def __init__(self, documents: int) -> None:
        self.stamps = {f"slow/{number:03d}": "1" for number in range(documents)}
        self.may = threading.Event()

    def list_documents(self, known: Mapping[str, str]) -> Listing:
        return Listing(stamps=self.stamps)

    def read(self, path: str, state: str) -> Reading | None:
        self.may.wait(20)
        return Reading(chunks=[Chunk(path=path, first=1, last=1, headings=(), text=f"slowly {path}")])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# --- a search does not wait -------------------------------------------------------------------------------------------


async def test_a_search_answers_while_much_is_being_indexed_and_says_so(place: Place) -> None:
    place.put("MEMORY.md", "the door code is 4711\n")
    slow = Slow(0)
    async with place.memory("none", slow) as memory:
        await memory.search("door", EVERYTHING)
        slow.stamps = Slow(200).stamps
        found = await memory.search("door", EVERYTHING)
        assert [hit.citation for hit in found.hits] == ["MEMORY.md#L1-L1"]
        assert found.remarks == ("The index is behind: 200 notes of 201 not indexed yet.",)
        slow.may.set()
        await until(lambda: memory.state.pending == 0 and memory.state.chunks == 201)
        assert len((await memory.search("slowly", EVERYTHING, results=50)).hits) == 50


async def test_a_search_waits_no_longer_than_its_patience_for_what_just_changed(place: Place) -> None:
    place.put("MEMORY.md", "the door code is 4711\n")
    slow = Slow(0)
    async with place.memory("none", slow) as memory:
        await memory.search("door", EVERYTHING)
        slow.stamps = Slow(1).stamps
        found = await memory.search("door", EVERYTHING, patience=0.05)
        assert [hit.citation for hit in found.hits] == ["MEMORY.md#L1-L1"]
        slow.may.set()
        assert (await memory.search("slowly", EVERYTHING)).hits


async def test_the_watcher_is_imported_after_a_search_that_runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(1)
    async with place.memory("none", slow) as memory:
        started: list[bool] = []

        async def run() -> None:
            started.append(searching.done())

        monkeypatch.setattr(memory._watcher, "run", run)
        searching = asyncio.create_task(memory.search("slowly", EVERYTHING, patience=DEADLINE))
        await until(lambda: memory.state.pending)
        watching = asyncio.create_task(memory.watch())
        await asyncio.wait({watching}, timeout=0.01)
        assert not started
        slow.may.set()
        assert (await searching).hits
        await watching
        assert started == [True]


async def test_nothing_is_opened_before_there_is_something_to_index(place: Place) -> None:
    async with place.memory() as memory:
        found = await memory.search("door", EVERYTHING, patience=DEADLINE)
        assert (found.hits, found.remarks) == ((), ("There are no notes.",))
        assert not place.file.exists()
        place.put("MEMORY.md", "the door code is 4711\n")
        found = await memory.search("door", EVERYTHING, patience=DEADLINE)
        assert [hit.citation for hit in found.hits] == ["MEMORY.md#L1-L1"]
    (place.workspace / "MEMORY.md").unlink()
    async with place.memory() as memory:  # what an earlier process has indexed is removed
        await memory.refresh(DEADLINE)
        assert memory.state.chunks == 0
    with contextlib.closing(connect_readonly(place.file)) as index:
        assert index.execute("SELECT count(*) FROM documents").fetchone() == (0,)


# --- nothing without a reason -----------------------------------------------------------------------------------------


async def test_finding_nothing_has_its_reason(place: Place) -> None:
    async with place.memory() as memory:
        assert (await memory.search("door", EVERYTHING)).remarks == ("There are no notes.",)
        place.put("MEMORY.md", "the door code is 4711\n")
        assert (await memory.search("zebra", EVERYTHING, patience=DEADLINE)).remarks == ("Nothing matches in 1 note.",)
        memory._indexer.report(documents=4, by_source={"notes": 1, "sessions": 3})
        assert nothing_found(memory.state, EVERYTHING) == "Nothing matches in 1 note and 3 sessions."
        memory._indexer.report(documents=3, by_source={"sessions": 3}, pending=2)
        assert nothing_found(memory.state, EVERYTHING) == "Nothing matches in 3 sessions."
        (behind,) = remarks_on(memory.state, EVERYTHING, by_vectors=False, missed="", by_words=True)
        assert behind == "The index is behind: 2 documents of 3 not indexed yet."
        mine = Scope(owners=frozenset(), private=True, sender="ana")
        assert (await memory.search("door", mine)).remarks == ("Nothing by that source, sender or time matches in 1 note.",)


async def test_a_further_path_that_is_missing_is_said(place: Place) -> None:
    async with place.memory("none", ExtraNotes(place.workspace, lambda: ["gone"])) as memory:
        assert (await memory.search("door", EVERYTHING)).remarks[0] == "memory.extra_paths: gone does not exist."


async def test_vectors_alone_are_searched_where_words_are_switched_off(place: Place) -> None:
    place.put("MEMORY.md", "# A\n\ndoor\n\n# B\n\nwindow\n")
    async with place.memory("counted", keywords=False) as memory:
        await memory.update(lambda _: None)
        found = await memory.search("a glass window", EVERYTHING)
        assert [hit.ranked.candidate.keywords for hit in found.hits] == [0.0, 0.0]
        assert [hit.citation for hit in found.hits][:1] == ["MEMORY.md#L7-L7"], "the vectors of the tests are last letters"
        place.provider.fails = True
        found = await memory.search("window", EVERYTHING)
        assert found.remarks[0] == "Nothing was compared, since keyword search is off: The server is away."


async def test_a_provider_that_failed_is_asked_again_and_its_reason_is_said(place: Place) -> None:
    place.put("MEMORY.md", "the door code is 4711\n")
    place.provider.fails = True
    async with place.memory("counted") as memory:
        await memory.search("door", EVERYTHING)
        await until(lambda: bool(memory.state.vector_problem))
        (remark,) = remarks_on(memory.state, EVERYTHING, by_vectors=True, missed="", by_words=True)
        assert remark.endswith("1 of 1 chunk have no vector yet and are found by keywords only. The server is away.")
        place.provider.fails = False
        await memory.search("door", EVERYTHING)
        await until(lambda: memory.state.unembedded == 0)
        assert (await memory.search("door", EVERYTHING)).remarks == ()


async def test_a_text_that_is_too_long_is_embedded_in_pieces_and_keeps_no_other_from_having_a_vector(place: Place) -> None:
    for number in range(4):
        place.put(f"memory/{number}.md", f"note number {number}\n")
    place.put("memory/long.md", "a long line of many words " * 30 + "\n")
    place.provider.longest = 400
    async with place.memory("counted") as memory:
        await memory.update(lambda _: None)
        assert (memory.state.chunks, memory.state.unembedded, memory.state.vector_problem) == (5, 0, "")
    assert max(map(len, place.provider.texts)) <= 400
    assert "".join(place.provider.texts).count("many words") == 30


async def test_a_text_that_is_too_long_in_any_piece_is_left_aside_and_the_reason_is_said(place: Place) -> None:
    place.put("memory/short.md", "tea\n")
    place.put("memory/long.md", "a long line of many words " * 30 + "\n")
    place.provider.longest = 30
    async with place.memory("counted") as memory:
        await memory.update(lambda _: None)
        assert (memory.state.chunks, memory.state.unembedded) == (2, 1)
        assert memory.state.vector_problem.startswith("1 text cannot be embedded, the last one because: A text of ")


async def test_no_provider_is_given_more_or_longer_texts_than_the_configuration_says(place: Place) -> None:
    for number in range(5):
        place.put(f"memory/{number}.md", f"note number {number}\n")
    place.put("memory/long.md", "a long line of many words " * 30 + "\n")
    async with place.memory("counted", batch_size=2, max_input_length=100) as memory:
        await memory.update(lambda _: None)
        assert memory.state.unembedded == 0
    assert max(place.provider.at_once) == 2
    assert max(map(len, place.provider.texts)) <= 100


# --- watching ---------------------------------------------------------------------------------------------------------


async def test_what_is_written_is_indexed_without_a_search(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "QUIET_SECONDS", 0.05)
    (place.workspace / "memory").rmdir()
    async with place.memory("counted") as memory:
        watch = asyncio.create_task(memory.watch())
        await until(lambda: memory.state.checked_at is not None)
        (place.workspace / "memory").mkdir()
        place.put("memory/a.md", "the door code is 4711\n")
        await until(lambda: memory.state.chunks == 1 and memory.state.unembedded == 0)
        place.put("memory/a.md", "# One\n\nthe door\n\n# Two\n\nthe window\n")
        await until(lambda: memory.state.chunks == 2 and memory.state.unembedded == 0)
        (place.workspace / "memory/a.md").unlink()
        await until(lambda: memory.state.documents == 0 and memory.state.chunks == 0)
        watch.cancel()
        await asyncio.wait({watch})


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_links_below_the_notes_are_not_watched_and_each_new_folder_is(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A link to the root would have the event loop blocked until each folder of the machine is watched."""
    monkeypatch.setattr(watcher, "QUIET_SECONDS", 0.05)
    for number in range(50):
        (tmp_path / "elsewhere" / str(number)).mkdir(parents=True)
    (place.workspace / "memory" / "linked").symlink_to(tmp_path / "elsewhere")
    before = len(watched_inodes())
    async with place.memory("counted") as memory:
        watch = asyncio.create_task(memory.watch())
        await until(lambda: len(watched_inodes()) - before == 2)  # the workspace and `memory`
        for folder in ("memory/v1.2", "memory/new", "memory/new/below"):
            (place.workspace / folder).mkdir()
            place.put(f"{folder}/a.md", "the door code is 4711\n")
        await until(lambda: memory.state.documents == 3 and len(watched_inodes()) - before == 5)
        shutil.rmtree(place.workspace / "memory/new")
        (place.workspace / "memory/new").mkdir()
        place.put("memory/new/b.md", "the window\n")
        await until(lambda: memory.state.documents == 2 and len(watched_inodes()) - before == 4)
        place.put("memory/new/b.md", "the window\n\n# Two\n\nthe roof\n")
        await until(lambda: memory.state.chunks == 3)
        watch.cancel()
        await asyncio.wait({watch})


async def test_a_search_relies_on_the_watching_only_where_there_are_many_documents(place: Place) -> None:
    place.put("MEMORY.md", "the door code is 4711\n")
    async with place.memory() as memory:
        assert await citations(memory, "door")
        memory._watcher.fault = ""
        place.put("MEMORY.md", "the window\n")
        assert await citations(memory, "window"), "few notes are looked at in no time"
        memory._indexer.report(documents=10_000)
        place.put("MEMORY.md", "the roof\n")
        assert not await citations(memory, "roof")
        memory._watcher.fault = "the system has no more watches"
        assert await citations(memory, "roof")


async def test_a_watching_that_fails_says_why(tmp_path: Path) -> None:
    watch = Watcher(lambda: WatchedFolders(flat=frozenset({tmp_path / "nowhere"})), lambda: None)
    running = asyncio.create_task(watch.run())
    await until(lambda: watch.fault.startswith("FileNotFoundError"))
    running.cancel()
    await asyncio.wait({running})


async def test_much_news_at_once_is_one_piece_of_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "QUIET_SECONDS", 0.5)
    told: list[None] = []
    watch = Watcher(WatchedFolders, lambda: told.append(None))
    with VirtualTime():
        running = asyncio.create_task(watch._pass_on())
        for _ in range(10):
            watch._reported.set()
            await asyncio.sleep(0.01)
        assert not told
        await asyncio.sleep(10)
        running.cancel()
        await asyncio.wait({running})
    assert len(told) == 1


async def test_what_came_in_many_parts_is_searched_as_one(place: Place) -> None:
    slow = Slow(200)
    slow.may.set()
    async with place.memory("none", slow) as memory:
        for number in range(3):
            slow.stamps = dict.fromkeys(slow.stamps, str(number))
            await memory.update(lambda _: None)
    with contextlib.closing(connect_readonly(place.file)) as db:
        assert db.execute("SELECT count(DISTINCT segid) FROM words_idx").fetchone() == (1,)


# --- errors of third parties ------------------------------------------------------------------------------------------

HUGE = "first line\nsecond \x1b[31m line " + "x" * 1_000_000


class Broken(Slow):
    """A source whose listing fails with a long message."""

    def list_documents(self, known: Mapping[str, str]) -> Listing:
        raise RuntimeError(HUGE)


async def test_an_unexpected_error_of_a_source_is_logged_and_shown_as_one_bounded_line(place: Place) -> None:
    with capture_logs() as logs:
        async with place.memory("none", Broken(0)) as memory:
            await memory.refresh()
            await until(lambda: bool(memory.state.problem))
    assert_is_bounded(memory.state.problem.removeprefix("RuntimeError: "))
    logged = [line for line in logs if line["event"] == "memory_not_looked_at"]
    assert logged[0] == {"event": "memory_not_looked_at", "log_level": "error", "reason": memory.state.problem}


async def test_an_unexpected_error_of_a_provider_is_logged_and_shown_as_one_bounded_line(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(texts: object, purpose: object) -> Sequence[Sequence[float]]:
        raise RuntimeError(HUGE)

    monkeypatch.setattr(place.provider, "embed", crash)
    place.put("MEMORY.md", "the door code is 4711\n")
    with capture_logs() as logs:
        async with place.memory("counted") as memory:
            await memory.refresh()
            await until(lambda: bool(memory.state.vector_problem))
    assert_is_bounded(memory.state.vector_problem.removeprefix("RuntimeError: "))
    logged = [line for line in logs if line["event"] == "memory_not_embedded"]
    assert logged[0] == {"event": "memory_not_embedded", "log_level": "error", "reason": memory.state.vector_problem}


@pytest.mark.parametrize("failure", [Unreachable, BadRequest])
async def test_the_message_of_a_provider_is_logged_and_shown_as_one_bounded_line(
    place: Place, monkeypatch: pytest.MonkeyPatch, failure: type[ProviderError]
) -> None:
    async def refuse(texts: Sequence[str], purpose: object) -> Sequence[Sequence[float]]:
        if texts == [PLAIN]:
            return [[1.0] * 32]
        raise failure(HUGE)

    monkeypatch.setattr(place.provider, "embed", refuse)
    place.put("MEMORY.md", "the door code is 4711\n")
    with capture_logs() as logs:
        async with place.memory("counted") as memory:
            remarks = (await memory.search("door", EVERYTHING)).remarks
            await until(lambda: bool(memory.state.vector_problem))
            remarks += (await memory.search("door", EVERYTHING)).remarks
    assert any("first line second" in line.get("reason", "") for line in logs)
    for text in (memory.state.vector_problem, *remarks, *(line.get("reason", "") for line in logs)):
        assert len(text) <= 2 * SENTENCE
        assert "\n" not in text


def assert_is_bounded(message: str) -> None:
    assert message.startswith("first line second [31m line xx")
    assert len(message) <= SENTENCE
