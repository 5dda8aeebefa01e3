"""Where what is found comes from: notes elsewhere, sources that grow, and who may find what."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest

from plugins.api.memory.chunks import Chunk
from plugins.api.memory.memory_backend import Identity
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.api.memory.source import Listing, Reading
from plugins.memory.index.indexer import refresh
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.sources.notes import ExtraNotes, Notes
from tests.memory.places import FakeSource

ANA = Scope(owners=frozenset({"ana"}), private=True)
MODEL = Identity(provider="p", model="m", dimensions=8)


class Spoken(FakeSource):
    """A source with two persons' conversations of two lines each, which can grow; it tells from where it was read."""

    name = "sessions"

    def __init__(self) -> None:
        self.said = {"sessions/a.jsonl": ["ana", "tea at five", "no milk"], "sessions/b.jsonl": ["bo", "tea at six", "rain"]}
        self.read_from: list[tuple[str, int]] = []

    def list_documents(self, known: Mapping[str, str]) -> Listing:
        return Listing(stamps={path: str(len(lines)) for path, lines in self.said.items()})

    def read(self, path: str, state: str) -> Reading | None:
        owner, *lines = self.said[path]
        since = int(state or 1)
        self.read_from.append((path, since))
        chunks = [
            Chunk(
                path=path,
                first=number,
                last=number,
                headings=(),
                text=line,
                day=f"2026-11-{number:02d}",
                owner=owner,
                senders=(owner.title(),),
            )
            for number, line in enumerate(lines, 1)
            if number >= since
        ]
        return Reading(chunks=chunks, since=since, state=str(len(lines) + 1))


def write(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def found(index: MemoryIndex, scope: Scope, word: str) -> set[str]:
    """Return the texts found in a scope by a word; a search by vectors must find the same."""
    chunks = {chunk.text for chunk in index.chunks(index.keywords([word], 99, scope)).values()}
    near = {chunk.text for chunk in index.chunks(index.nearest(MODEL, [1] * 8, 99, scope)).values()}
    assert chunks == {text for text in near if word in text}
    return chunks


def embed_all(index: MemoryIndex) -> None:
    index.store_vectors(MODEL, {key: [1.0, *([0.5] * 7)] for key in index.unembedded(MODEL, 999)})


# --- extra_paths ------------------------------------------------------------------------------------------------------


def test_markdown_at_further_paths_is_found_and_links_are_not_followed(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    write(workspace / "docs" / "deep" / "plan.md", "the plan")
    write(workspace / "docs" / "plan.txt", "no Markdown")
    write(workspace / "docs" / ".hidden" / "x.md", "hidden")
    write(workspace / "memory" / "day.md", "a note")
    alone = write(tmp_path / "alone.md", "one\ntwo\nthree")
    (workspace / "docs" / "link.md").symlink_to(write(tmp_path / "secret.md", "secret"))
    (tmp_path / "linked").symlink_to(tmp_path)
    extra = ExtraNotes(workspace, lambda: ["docs", "memory", str(alone), str(tmp_path / "linked"), "nowhere"])

    there = extra.list_documents({})
    assert set(there.stamps) == {"docs/deep/plan.md", alone.as_posix()}, "the notes in memory/ are the other source's"
    assert there.remarks == (
        f"memory.extra_paths: {tmp_path / 'linked'} is a symbolic link, which is not followed.",
        "memory.extra_paths: nowhere does not exist.",
    )
    reading = extra.read("docs/deep/plan.md", "")
    assert reading
    assert [chunk.text for chunk in reading.chunks] == ["the plan"]
    assert extra.excerpt(alone.as_posix(), 2, 1, ANA) == "two"


@pytest.mark.parametrize("path", ["docs/../secret.md", "docs/link.md", "docs/.hidden/x.md", "docs/gone.md"])
def test_nothing_else_is_read_through_further_paths(tmp_path: Path, path: str) -> None:
    workspace = tmp_path / "workspace"
    write(workspace / "docs" / ".hidden" / "x.md", "secret")
    write(workspace / "secret.md", "secret")
    (workspace / "docs" / "link.md").symlink_to(workspace / "secret.md")
    extra = ExtraNotes(workspace, lambda: ["docs"])
    assert extra.read(path, "") is None
    assert not extra.excerpt(path, 1, 9, ANA)


def test_memory_md_is_read_in_private_chats_only(tmp_path: Path) -> None:
    write(tmp_path / "MEMORY.md", "mine")
    write(tmp_path / "people" / "ana" / "MEMORY.md", "hers")
    notes = Notes(tmp_path)
    for path, person, text in (("MEMORY.md", "owner", "mine"), ("people/ana/MEMORY.md", "ana", "hers")):
        assert notes.excerpt(path, 1, 9, Scope(owners=frozenset({person}), private=True)) == text
        assert notes.excerpt(path, 1, 9, Scope(owners=frozenset({person}), private=False)) == ""


def test_each_persons_notes_are_theirs_alone_and_what_is_shared_is_everybodys(tmp_path: Path) -> None:
    whose = {
        "MEMORY.md": "owner",
        "memory/2026-11-20.md": "owner",
        "people/ana/MEMORY.md": "ana",
        "people/ana/memory/deep/tea.md": "ana",
        "people/bo/memory/tea.md": "bo",
        "shared/house/handbook.md": "",
    }
    others = ["todo.md", "people/MEMORY.md", "people/ana/draft.md", "people/ana/shared/x.md", "people/Ana/MEMORY.md"]
    others += ["people/ana b/MEMORY.md", "people/.ana/MEMORY.md", "shared/.hidden/x.md", "people/ana/memory/.x.md"]
    for path in (*whose, *others):
        write(tmp_path / path, f"tea in {path}")
    (tmp_path / "people" / "eve").symlink_to(tmp_path / "people" / "ana")
    notes = Notes(tmp_path)
    assert set(notes.list_documents({}).stamps) == set(whose)
    for path, person in whose.items():
        reading = notes.read(path, "")
        assert reading
        assert [(chunk.owner, chunk.private) for chunk in reading.chunks] == [(person, path.endswith("MEMORY.md"))]
    for person in ("owner", "ana", "bo", "eve"):
        scope = Scope(owners=frozenset({person}), private=True)
        shown = {path for path in (*whose, *others, "people/eve/MEMORY.md") if notes.excerpt(path, 1, 9, scope)}
        assert shown == {path for path, owner in whose.items() if owner in ("", person)}


def test_what_is_one_persons_own_is_no_further_path_of_everybody(tmp_path: Path) -> None:
    write(tmp_path / "people" / "ana" / "draft.md", "hers")
    write(tmp_path / "people" / "guests.md", "a list of the owner's")
    extra = ExtraNotes(tmp_path, lambda: ["people", "people/ana"])
    assert set(extra.list_documents({}).stamps) == {"people/guests.md"}
    assert extra.excerpt("people/ana/draft.md", 1, 9, ANA) is None


# --- the scope --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (EVERYTHING, {"tea at five", "tea at six", "tea is mine", "tea for all"}),
        (ANA, {"tea at five", "tea for all"}),
        (Scope(owners=frozenset({"owner"}), private=True), {"tea is mine", "tea for all"}),
        (Scope(owners=frozenset({"owner"}), private=False), {"tea for all"}),
        (Scope(owners=frozenset(), private=False), {"tea for all"}),
        (Scope(owners=None, private=True, sources=frozenset({"notes"})), {"tea is mine", "tea for all"}),
        (Scope(owners=None, private=True, sources=frozenset()), set()),
        (Scope(owners=None, private=True, sender="BO"), {"tea at six"}),
        (Scope(owners=None, private=True, since=date(2026, 11, 1)), {"tea at five", "tea at six", "tea for all"}),
        (Scope(owners=None, private=True, until=date(2026, 11, 1)), {"tea at five", "tea at six"}),
        (Scope(owners=None, private=True, shown=("sessions/a.jsonl", 1)), {"tea at six", "tea is mine", "tea for all"}),
        (
            Scope(owners=frozenset({"ana"}), private=True, shown=("sessions/a.jsonl", 2)),
            {"tea at five", "tea for all"},
        ),
    ],
)
def test_a_scope_limits_both_legs_before_anything_is_ranked(tmp_path: Path, scope: Scope, expected: set[str]) -> None:
    write(tmp_path / "MEMORY.md", "tea is mine")
    write(tmp_path / "shared" / "2026-11-20.md", "tea for all")
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        refresh(index, [Notes(tmp_path), Spoken()])
        embed_all(index)
        assert found(index, scope, "tea") == expected
        # What stands beside a hit is not let in with it.
        assert {chunk.text for chunk in index.chunks(range(9), scope).values() if "tea" in chunk.text} == expected


def test_a_narrow_scope_still_gives_as_many_as_are_asked_for(tmp_path: Path) -> None:
    spoken = Spoken()
    spoken.said["sessions/b.jsonl"] = ["bo", *[f"tea {number}" for number in range(200)]]
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        refresh(index, [spoken])
        embed_all(index)
        assert len(index.nearest(MODEL, [1] * 8, 2, ANA)) == 2
        assert len(index.keywords(["tea", "milk"], 2, ANA)) == 2


def test_a_word_that_only_others_have_is_still_looked_for_inside_of_words(tmp_path: Path) -> None:
    spoken = Spoken()
    spoken.said["sessions/a.jsonl"] = ["ana", "a teapot"]
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        refresh(index, [spoken])
        assert {chunk.text for chunk in index.chunks(index.keywords(["tea"], 9, ANA)).values()} == {"a teapot"}


# --- the index and its sources ----------------------------------------------------------------------------------------


def test_a_document_that_grows_is_read_on_from_where_it_was_read_to(tmp_path: Path) -> None:
    spoken = Spoken()
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        refresh(index, [spoken])
        kept = index.keywords(["milk"], 9)
        spoken.said["sessions/a.jsonl"] += ["sugar then"]
        assert refresh(index, [spoken]).read == ("sessions/a.jsonl",)
        assert spoken.read_from[-1] == ("sessions/a.jsonl", 3)
        assert index.keywords(["milk"], 9).keys() == kept.keys(), "what was read before stays as it is"
        assert len(index.keywords(["sugar"], 9)) == 1


def test_a_source_that_is_switched_off_is_forgotten(tmp_path: Path) -> None:
    write(tmp_path / "MEMORY.md", "tea is mine")
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        refresh(index, [Notes(tmp_path), Spoken()])
        refresh(index, [Notes(tmp_path)])
        assert index.size() == (1, 1)
        embed_all(index)
        assert found(index, EVERYTHING, "tea") == {"tea is mine"}


def test_a_chunk_comes_back_as_it_was_taken_in(tmp_path: Path) -> None:
    chunk = Chunk(
        path="x", first=2, last=3, headings=("a", "b"), text="t", day="2026-11-01", owner="ana", senders=("Ana", "Bo")
    )

    class One(Spoken):
        def list_documents(self, known: Mapping[str, str]) -> Listing:
            return Listing(stamps={"x": "1"})

        def read(self, path: str, state: str) -> Reading | None:
            return Reading(chunks=[chunk])

    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        refresh(index, [One()])
        (back,) = index.chunks([1]).values()
        assert back == Chunk(**{**{name: getattr(chunk, name) for name in chunk.__struct_fields__}, "source": "sessions"})
