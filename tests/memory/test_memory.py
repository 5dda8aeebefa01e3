"""Notes, found again: by words in every script, by meaning, after an edit, and after the index was taken away."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from exuvia import ToolFailed
from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.memory_backend import Identity
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.api.memory.source import Listing, Reading
from plugins.api.memory_settings import EmbeddingKeys, MemoryKeys
from plugins.memory.index.indexer import refresh
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.memory import Memory
from plugins.memory.memory_tools import MemoryGet, MemorySearch
from plugins.memory.sources.notes import LARGEST, Notes, stamp_of
from plugins.testing.contexts import in_memory_services
from sessions.catalog.sqlite import connect_readonly, in_memory, load_vectors
from tests.memory.places import TODAY, Place, citations
from tests.plugins.workspaces import call, context
from tests.waiting import until

EXACT = [
    ("handleWebSocketReconnect drops the frame", "Why does handleWebSocketReconnect fail?"),
    ("The build failed with ECONNREFUSED", "econnrefused"),
    ("He filed RFC-9110-bis about it", "what did he say about RFC-9110-bis?"),
    ("我们决定使用数据库分片", "数据库为什么分片？"),
    ("来週の会議は東京で開きます", "東京の会議はいつですか"),
    ("회의는 부산에서 열립니다", "부산 회의"),
    ("الاجتماع في القاهرة يوم الأحد", "متى الاجتماع في القاهرة؟"),
    ("Die Krankenversicherungskarte liegt im Schrank", "Wo ist die Versicherungskarte?"),
    ("Grandma said to die of laughter", "who wanted to die?"),
]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(("note", "question"), EXACT)
async def test_exact_words_are_found_in_every_script(place: Place, note: str, question: str) -> None:
    place.put("memory/2026-11-20.md", f"# Day\n\n{note}\n")
    place.put("MEMORY.md", "# Noise\n\nThe house is green, the cat sleeps.\n")
    async with place.memory() as memory:
        assert (await citations(memory, question))[:1] == ["memory/2026-11-20.md#L3-L3"]


@pytest.mark.parametrize(
    "question", ['"', "'; DROP TABLE notes; --", "a AND (b", "NEAR(x, 5)", "col:x*", "\0", "  ", "^-+", "😀"]
)
async def test_no_question_is_taken_for_a_query(place: Place, question: str) -> None:
    place.put("MEMORY.md", "something\n")
    async with place.memory() as memory:
        await memory.search(question, EVERYTHING)
        assert await citations(memory, "something") == ["MEMORY.md#L1-L1"]


async def test_an_edit_is_found_at_once_and_a_removed_note_is_gone(place: Place) -> None:
    place.put("memory/plans.md", "We fly to Lisbon.\n")
    async with place.memory() as memory:
        assert await citations(memory, "Lisbon") == ["memory/plans.md#L1-L1"]
        place.put("memory/plans.md", "Cancelled.\n\nWe fly to Porto instead.\n")
        assert await citations(memory, "Lisbon") == []
        assert await citations(memory, "Porto") == ["memory/plans.md#L1-L3"]
        (place.workspace / "memory/plans.md").unlink()
        assert (await memory.search("Porto", EVERYTHING)).remarks == ("There are no notes.",)


async def test_a_link_is_no_note_and_no_note_is_ever_changed(place: Place, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("the secret of the house\n")
    (place.workspace / "memory/link.md").symlink_to(tmp_path / "secret.md")
    place.put("MEMORY.md", "nothing\r\nhere")
    before = place.stamp("MEMORY.md")
    async with place.memory() as memory:
        assert await citations(memory, "secret") == []
    assert place.stamp("MEMORY.md") == before


async def test_the_index_may_be_deleted_or_harmed_at_any_time(place: Place) -> None:
    place.put("MEMORY.md", "the door code is 4711\n")
    async with place.memory() as memory:
        first = await citations(memory, "door code")
        place.file.unlink()
        assert await citations(memory, "door code") == first
        await until(place.file.exists)  # else everything that is indexed from now on would be lost
    place.file.write_bytes(b"no database at all" * 1000)
    async with place.memory() as memory:
        assert await citations(memory, "door code") == first == ["MEMORY.md#L1-L1"]


# --- vectors ----------------------------------------------------------------------------------------------------------


def test_sqlite_vec_itself_is_used_where_it_can_be_loaded() -> None:
    connection = in_memory()
    assert load_vectors(connection), "on this platform it can"
    assert connection.execute("SELECT vec_version()").fetchone()[0].startswith("v0.")
    connection.close()


async def test_of_vectors_that_no_note_needs_the_last_are_kept_and_no_more(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(1_000_000))
    monkeypatch.setattr("plugins.memory.index.sqlite_backend.time.time", lambda: next(seconds))

    async def write(*texts: str) -> list[str]:
        """Write a note with each text in turn, and return what is embedded."""
        place.provider.texts.clear()
        for text in texts:
            place.put("memory/a.md", text)
            await memory.update(lambda _: None)
        return [text.removeprefix("memory/a\n") for text in place.provider.texts]

    async with place.memory("counted", cache=2) as memory:
        assert await write("one", "two", "three", "four") == ["one", "two", "three", "four"]
        assert await write("three", "four", "two") == [], "the last two, and what the note says"
        assert await write("one") == ["one"], "used longest ago, and too many"
        assert await citations(memory, "one") == ["memory/a.md#L1-L1"]
    with contextlib.closing(connect_readonly(place.file)) as db:
        assert db.execute("SELECT count(*) FROM embeddings").fetchone() == (3,)


async def test_what_vectors_are_made_of_is_counted_by_what_it_is_for(place: Place) -> None:
    counts: dict[tuple[str, str], int] = {}

    def counted(purpose: str, provider: EmbeddingProvider, tokens: int) -> None:
        name = purpose, provider.model() or ""
        counts[name] = counts.get(name, 0) + tokens

    place.put("memory/a.md", "the door code is 4711\n")
    async with place.memory("counted", counted=counted) as memory:
        await memory.update(lambda _: None)
        assert await citations(memory, "door code")
        assert counts.keys() == {("note", "letters"), ("query", "letters")}
        assert counts["note", "letters"] > counts["query", "letters"] > 0


async def test_what_was_embedded_is_not_embedded_again(place: Place) -> None:
    place.put("memory/a.md", "# One\n\nfirst\n\n# Two\n\nsecond\n")
    async with place.memory("counted") as memory:
        state = await memory.update(lambda _: None)
        assert (state.documents, state.chunks, state.unembedded) == (1, 2, 0)
        assert len(place.provider.texts) == 2
        place.put("memory/a.md", "# One\n\nfirst\n\n# Two\n\nsecond, changed\n")
        await memory.update(lambda _: None)
        assert place.provider.texts[2:] == ["memory/a > Two\nsecond, changed"]
    async with place.memory("counted") as memory:
        place.put("memory/a.md", "# Two\n\nsecond\n")
        await memory.update(lambda _: None)
        assert len(place.provider.texts) == 3


async def test_a_search_does_not_wait_for_vectors_and_says_that_they_are_missing(place: Place) -> None:
    place.put("MEMORY.md", "the door code is 4711\n")
    async with place.memory("counted") as memory:
        found = await memory.search("door", EVERYTHING)
        assert [hit.citation for hit in found.hits] == ["MEMORY.md#L1-L1"]
        assert "behind" in found.remarks[0]
        await memory.update(lambda _: None)
        found = await memory.search("door", EVERYTHING)
        assert found.remarks == ()
        assert found.hits[0].ranked.candidate.cosine is not None


async def test_words_answer_while_the_provider_is_away(place: Place) -> None:
    place.put("MEMORY.md", "the door code is 4711\n")
    place.provider.fails = True
    async with place.memory("counted") as memory:
        found = await memory.search("door", EVERYTHING)
        assert [hit.citation for hit in found.hits] == ["MEMORY.md#L1-L1"]
        assert found.remarks[0] == "Only keywords were compared: The server is away."


def test_vectors_of_different_models_are_separate(place: Place) -> None:
    place.put("MEMORY.md", "# A\n\none\n\n# B\n\ntwo\n")
    small, large = (Identity(provider="p", model="m", dimensions=size) for size in (2, 3))
    with MemoryIndex(place.file) as index:
        refresh(index, [Notes(place.workspace)])
        one, two = sorted(index.unembedded(small, 9).items(), key=lambda each: each[1])
        index.store_vectors(small, {one[0]: [1, 0], two[0]: [0, 1]})
        index.store_vectors(large, {two[0]: [0, 0, 1]})
        assert index.nearest(small, [1, 0], 5) == pytest.approx({1: 1.0, 2: 0.0})
        assert index.nearest(large, [0, 0, 1], 5) == pytest.approx({2: 1.0})
        assert index.cosines(large, [0, 0, 1], {1, 2}) == pytest.approx({2: 1.0})
        assert (index.count_unembedded(small), index.count_unembedded(large)) == (0, 1)
        with pytest.raises(ValueError, match="3 dimensions instead of 2"):
            index.store_vectors(small, {one[0]: [1, 2, 3]})


# --- the tools --------------------------------------------------------------------------------------------------------


async def test_the_model_finds_a_note_and_reads_around_it(place: Place) -> None:
    place.put("memory/2026-11-20.md", "# Ana\n\nLikes tea.\nLikes rain.\n")
    async with place.memory() as memory:
        rules = msgspec.structs.replace(context(place.workspace), services=in_memory_services(memory=memory))
        answer = msgspec.json.decode((await MemorySearch(rules).run({"query": "tea"}, call())).text)
        assert [(each["citation"], each["headings"]) for each in answer["results"]] == [
            ("memory/2026-11-20.md#L3-L4", ["Ana"])
        ]
        get = MemoryGet(rules)
        read = await get.run({"path": "memory/2026-11-20.md", "start": 4, "lines": 1}, call())
        assert msgspec.json.decode(read.text) == {"text": "Likes rain.", "path": "memory/2026-11-20.md"}


async def test_a_missing_note_is_empty_and_an_invalid_path_is_enoent(place: Place) -> None:
    async with place.memory() as memory:
        get = MemoryGet(msgspec.structs.replace(context(place.workspace), services=in_memory_services(memory=memory)))
        missing = await get.run({"path": "memory/2026-01-01.md"}, call())
        assert msgspec.json.decode(missing.text) == {"text": "", "path": "memory/2026-01-01.md"}
        for path in ("../secret.md", "/etc/passwd", "memory/../../x.md", "AGENTS.md", "memory/x.txt", "memory/a\0.md"):
            with pytest.raises(ToolFailed, match="ENOENT"):
                await get.run({"path": path}, call())


class NotesOfNobody(Notes):
    """The source as it was before notes had owners."""

    def list_documents(self, known: Mapping[str, str]) -> Listing:
        there = super().list_documents(known).stamps
        return Listing(stamps={path: stamp_of(self._workspace / path)[0] for path in there})

    def read(self, path: str, state: str) -> Reading | None:
        reading = super().read(path, state)
        assert reading is not None
        return Reading(chunks=[msgspec.structs.replace(chunk, owner="") for chunk in reading.chunks])


async def test_a_note_that_was_indexed_as_everybodys_is_given_to_its_owner_alone_and_is_read_again(place: Place) -> None:
    place.put("MEMORY.md", "the door code is 4711\n")
    ana, owner = (Scope(owners=frozenset({person}), private=True) for person in ("ana", "owner"))
    keys = MemoryKeys(embedding=EmbeddingKeys(provider="none"))
    old = Memory(place.file, [NotesOfNobody(place.workspace)], keys=lambda: keys, providers={}, today=lambda: TODAY)
    async with old as memory:
        assert len((await memory.search("door code", owner)).hits) == 1
        assert (await memory.search("door code", ana)).hits == ()
    async with place.memory() as memory:
        assert len((await memory.search("door code", owner)).hits) == 1
    with MemoryIndex(place.file) as index:
        assert {chunk.owner for chunk in index.chunks(range(9)).values()} == {"owner"}


async def test_a_note_that_is_not_indexed_is_named_to_those_who_may_read_it(place: Place) -> None:
    place.put("MEMORY.md", "x" * (LARGEST + 1))
    (place.workspace / "people" / "ana").mkdir(parents=True)
    place.put("people/ana/MEMORY.md", "x" * (LARGEST + 1))
    place.put("plan.txt", "the plan")
    (place.workspace / "memory" / "twin.md").hardlink_to(place.workspace / "plan.txt")
    async with place.memory() as memory:
        told = {
            person: (await memory.search("tea", Scope(owners=frozenset({person}), private=True))).remarks
            for person in ("ana", "bo")
        }
        told["owner"] = (await memory.search("tea", EVERYTHING)).remarks
    large = "is larger than 4 MiB and is not indexed."
    unread = "1 note could not be read"
    assert told["ana"][:-1] == (f"people/ana/MEMORY.md {large}", f"{unread}.")
    assert told["bo"][:-1] == (f"{unread}.",)
    named = f"{unread}, the first is memory/twin.md."
    assert told["owner"][:-1] == (f"MEMORY.md {large}", f"people/ana/MEMORY.md {large}", named)
