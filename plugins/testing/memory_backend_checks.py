"""Conformance checks for memory backends. Inherit the class in a test module, and set the backend:

    class TestMine(MemoryBackendConformance):
        backend = Mine

Override `opened` for a backend that needs a special environment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import ClassVar

from plugins.api.memory.chunks import Chunk, chunks_of
from plugins.api.memory.memory_backend import Document, Identity, MemoryBackend
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.api.memory.source import Reading
from plugins.support.text.words import indexed, sought
from plugins.testing.checks import plain_check

SMALL = Identity(provider="test", model="small", dimensions=2)
LARGE = Identity(provider="test", model="large", dimensions=3)

NOTES = {
    "memory/2026-11-19.md": "# Trip\n\nWe fly to Lisbon on Friday.\n\n# Door\n\nThe door code is 4711.\n",
    "memory/2026-11-20.md": "# Build\n\nIt failed with ECONNREFUSED in handleWebSocketReconnect.\n",
    "memory/tea.md": "Ana likes green tea, Bo likes black tea, and nobody likes tea with milk.\n",
    "memory/中文.md": "我们决定使用数据库分片\n",
    "memory/versicherung.md": "Die Krankenversicherungskarte liegt im Schrank.\n",
}
QUESTIONS = {
    "When do we fly to Lisbon?": "memory/2026-11-19.md",
    "door codes": "memory/2026-11-19.md",
    "econnrefused": "memory/2026-11-20.md",
    "Why does handleWebSocketReconnect fail?": "memory/2026-11-20.md",
    "who likes tea with milk": "memory/tea.md",
    "数据库为什么分片？": "memory/中文.md",
    "Wo ist die Versicherungskarte?": "memory/versicherung.md",
}


def document(path: str, text: str, stamp: str = "1") -> Document:
    """Return a note as the index reads it."""
    return Document(path=path, source="notes", stamp=stamp, reading=Reading(chunks=chunks_of(path, text)))


def said(number: int, text: str, owner: str = "ana") -> Chunk:
    """Return a passage of a conversation on that day of November 2026."""
    day = f"2026-11-{number:02d}"
    return Chunk(
        path="sessions/a.jsonl",
        first=number,
        last=number,
        headings=("Chat",),
        text=text,
        day=day,
        owner=owner,
        senders=(owner.title(), "Exuvia"),
        source="sessions",
    )


def talk(*chunks: Chunk, since: int = 1) -> Document:
    """Return a conversation of these passages, read from line `since` on."""
    reading = Reading(chunks=chunks, since=since, state=str(len(chunks)))
    return Document(path="sessions/a.jsonl", source="sessions", stamp=str(len(chunks)), reading=reading)


def found(index: MemoryBackend, question: str, scope: Scope = EVERYTHING) -> list[str]:
    """Return the texts that match the words of a question, best first."""
    keys = index.keywords(sought(question), 10, scope)
    assert list(keys.values()) == sorted(keys.values(), reverse=True), "best first"
    chunks = index.chunks(keys, scope)
    return [chunks[key].text for key in keys]


def near(index: MemoryBackend, vector: Sequence[float], scope: Scope = EVERYTHING) -> dict[str, float]:
    """Return the nearest texts with their cosines, rounded to two digits."""
    keys = index.nearest(SMALL, vector, 10, scope)
    chunks = index.chunks(keys, scope)
    return {chunks[key].text: round(cosine, 2) for key, cosine in keys.items()}


def embed(index: MemoryBackend, vectors: Mapping[str, Sequence[float]]) -> None:
    """Store these vectors for the chunks with these texts."""
    digests = {text.rpartition("\n")[2]: digest for digest, text in index.unembedded(SMALL, 99).items()}
    index.store_vectors(SMALL, {digests[text]: vector for text, vector in vectors.items()})


class MemoryBackendConformance:
    """Checks for a memory backend."""

    backend: ClassVar[type[MemoryBackend]]

    @contextlib.contextmanager
    def opened(self, folder: Path) -> Iterator[MemoryBackend]:
        """Open the backend in `folder`. When it is opened again, its contents are the same."""
        assert not self.backend.why_not()
        with self.backend(folder / f"memory.{self.backend.name}") as index:
            yield index

    def store(self, index: MemoryBackend, documents: Iterable[Document]) -> None:
        """Store documents as the gateway does, from a generator."""
        index.store(each for each in documents)

    # --- words --------------------------------------------------------------------------------------------------------

    @plain_check
    def test_keywords_find_notes(self, tmp_path: Path) -> None:
        """`keywords` receives words from `words.sought`: compare them with `words.indexed` of the embedded text of a
        chunk, which contains stems, parts of identifiers and character pairs of unspaced scripts. `size` counts
        documents and chunks."""
        with self.opened(tmp_path) as index:
            self.store(index, [document(path, text) for path, text in NOTES.items()])
            index.optimize()
            assert index.size() == (5, 6)
            for question, path in QUESTIONS.items():
                keys = index.keywords(sought(question), 5, EVERYTHING)
                best = index.chunks(keys, EVERYTHING)[next(iter(keys))]
                assert best.path == path, question

    @plain_check
    def test_rare_words_weigh_more(self, tmp_path: Path) -> None:
        """Weight a word by how few chunks contain it (bm25), and return at most `limit`. `word_counts` and `indexed_words`
        return casefolded words, `indexed_words` with spaces around each."""
        with self.opened(tmp_path) as index:
            notes = {f"memory/{number}.md": f"tea at {number}" for number in range(20)}
            self.store(index, [document(path, text) for path, text in {**notes, "memory/x.md": "milk at noon"}.items()])
            assert found(index, "tea milk")[0] == "milk at noon"
            assert len(index.keywords(["tea"], 7, EVERYTHING)) == 7, "no more than are asked for"
            assert index.word_counts(["tea", "milk", "teas", "none"]) == (21, {"tea": 20, "milk": 1, "teas": 20, "none": 0})
            (key,) = index.keywords(["milk"], 5, EVERYTHING)
            assert index.indexed_words([key, 999]) == {key: f" {indexed('memory/x milk at noon').casefold()} "}

    @plain_check
    def test_unknown_words_match_inside_words(self, tmp_path: Path) -> None:
        """A word that no chunk contains is searched inside other words; if it is nowhere, nothing is found."""
        with self.opened(tmp_path) as index:
            self.store(index, [document("memory/a.md", "the teapot is blue"), document("memory/b.md", "nothing")])
            assert found(index, "eapo") == ["the teapot is blue"]
            assert found(index, "xyzzy") == found(index, "?") == found(index, '"') == []

    @plain_check
    def test_words_are_not_query_syntax(self, tmp_path: Path) -> None:
        """A word is a value, never a part of a query: quote it, or bind it as a parameter. A word that cannot match must
        not prevent others from matching."""
        with self.opened(tmp_path) as index:
            self.store(index, [document("memory/a.md", "something")])
            for word in (
                '"',
                "'; DROP TABLE chunks; --",
                "a AND (b",
                "NEAR(x, 5)",
                "col:x*",
                "\0x",
                "-n",
                "--help",
                "😀",
                "{}",
            ):
                assert index.keywords([word, "something"], 5, EVERYTHING), word

    # --- documents ----------------------------------------------------------------------------------------------------

    @plain_check
    def test_documents_are_replaced_and_removed(self, tmp_path: Path) -> None:
        """`store` first removes the document's chunks from line `reading.since` on; `remove` removes all of them, and
        ignores unknown documents."""
        with self.opened(tmp_path) as index:
            self.store(index, [document("memory/a.md", "We fly to Lisbon."), document("memory/b.md", "Lisbon is far.")])
            self.store(index, [document("memory/a.md", "We fly to Porto.", "2")])
            assert (found(index, "Lisbon"), found(index, "Porto")) == (["Lisbon is far."], ["We fly to Porto."])
            assert index.known() == {"memory/a.md": ("2", ""), "memory/b.md": ("1", "")}
            index.remove(["memory/a.md", "memory/never.md"])
            assert (found(index, "Porto"), index.size(), list(index.known())) == ([], (1, 1), ["memory/b.md"])

    @plain_check
    def test_consecutive_chunks_have_consecutive_keys(self, tmp_path: Path) -> None:
        """Number the chunks of a document consecutively. `neighbours` returns only chunks of the same document."""
        with self.opened(tmp_path) as index:
            self.store(index, [document("memory/a.md", "# A\n\none\n\n# B\n\ntwo\n\n# C\n\nthree"), talk(said(1, "two"))])
            (key,) = index.keywords(["three"], 5, EVERYTHING)
            around = index.chunks([key - 2, key - 1, key, key + 99], EVERYTHING)
            assert [around[each].text for each in sorted(around)] == ["one", "two", "three"]
            assert index.neighbours([key, key + 99], 1) == {key - 1, key}, (
                "what follows in another document is not beside it"
            )
            assert index.neighbours([key - 2, key - 1], 2) == {key - 2, key - 1, key}

    @plain_check
    def test_a_grown_document_keeps_its_earlier_chunks(self, tmp_path: Path) -> None:
        """Chunks that begin before line `reading.since` are unchanged, with their keys."""
        with self.opened(tmp_path) as index:
            self.store(index, [talk(said(1, "no milk"), said(2, "no sugar"))])
            before = index.keywords(["milk"], 5, EVERYTHING)
            self.store(index, [talk(said(2, "two lumps"), said(3, "thanks"), since=2)])
            assert index.keywords(["milk"], 5, EVERYTHING).keys() == before.keys()
            assert (found(index, "sugar"), found(index, "lumps"), index.size()) == ([], ["two lumps"], (1, 3))
            assert index.known() == {"sessions/a.jsonl": ("2", "2")}

    @plain_check
    def test_chunks_are_stored_unchanged(self, tmp_path: Path) -> None:
        """Store every field of a chunk, and return it unchanged, whatever characters it contains."""
        chunk = Chunk(
            path="sessions/a.jsonl",
            first=2,
            last=3,
            headings=("a", 'b "c"'),
            text="line\nline\u2028😀\t'x'",
            day="2026-11-01",
            owner="ana",
            senders=("Ana", "Bo"),
            private=True,
            source="sessions",
        )
        with self.opened(tmp_path) as index:
            self.store(index, [talk(chunk)])
        with self.opened(tmp_path) as index:
            (key,) = index.keywords(["line"], 5, EVERYTHING)
            assert index.chunks([key], EVERYTHING) == {key: chunk}

    @plain_check
    def test_every_method_respects_the_scope(self, tmp_path: Path) -> None:
        """Apply `scope.admits(chunk)` (or `scope.condition()` in SQL) in `keywords`, `nearest` and `chunks`: other
        chunks belong to somebody else."""
        of_bo = Document(
            path="sessions/b.jsonl", source="sessions", stamp="1", reading=Reading(chunks=[said(9, "tea at nine", "bo")])
        )
        main = Document(
            path="MEMORY.md", source="notes", stamp="1", reading=Reading(chunks=chunks_of("MEMORY.md", "tea", private=True))
        )
        scopes = {
            Scope(owners=frozenset({"ana"}), private=True): {"tea at five", "tea", "tea for all"},
            Scope(owners=frozenset(), private=False): {"tea for all"},
            Scope(owners=frozenset({"ana"}), private=True, everybodys=False): {"tea at five"},
            Scope(owners=None, private=True, sources=frozenset({"sessions"})): {"tea at five", "tea at nine"},
            Scope(owners=None, private=True, sources=frozenset()): set(),
            Scope(owners=None, private=True, sender="BO"): {"tea at nine"},
            Scope(owners=None, private=True, since=date(2026, 11, 9)): {"tea at nine", "tea for all"},
            Scope(owners=None, private=True, until=date(2026, 11, 8)): {"tea at five"},
            Scope(owners=frozenset({"ana"}), private=True, shown=("sessions/a.jsonl", 5)): {"tea", "tea for all"},
        }
        with self.opened(tmp_path) as index:
            self.store(index, [talk(said(5, "tea at five")), of_bo, main, document("memory/2026-11-20.md", "tea for all")])
            embed(index, dict.fromkeys(("tea at five", "tea at nine", "tea", "tea for all"), (1.0, 0.0)))
            for scope, expected in scopes.items():
                assert set(found(index, "tea", scope)) == expected == near(index, [1, 0], scope).keys(), scope
                assert {chunk.text for chunk in index.chunks(range(1, 9), scope).values()} == expected, scope

    @plain_check
    def test_the_scope_applies_before_the_limit(self, tmp_path: Path) -> None:
        """Filter by the scope first, then limit: the best of all chunks may all be outside of the scope."""
        scope = Scope(owners=frozenset({"ana"}), private=True)
        others = [said(number % 28 + 1, f"tea {number}", "bo") for number in range(300)]
        crowd = Document(path="sessions/b.jsonl", source="sessions", stamp="1", reading=Reading(chunks=others))
        with self.opened(tmp_path) as index:
            self.store(index, [crowd, talk(said(1, "my tea"), said(2, "no tea"))])
            index.store_vectors(SMALL, dict.fromkeys(index.unembedded(SMALL, 999), (1.0, 0.0)))
            assert len(index.keywords(["tea"], 2, scope)) == len(index.nearest(SMALL, [1, 0], 2, scope)) == 2

    # --- vectors ------------------------------------------------------------------------------------------------------

    @plain_check
    def test_nearest_chunks_come_first(self, tmp_path: Path) -> None:
        """The score of `nearest` is the cosine, whatever the lengths of the vectors. `cosines` returns the same for
        given keys, and omits those without a vector."""
        with self.opened(tmp_path) as index:
            assert index.searches_vectors
            self.store(index, [document("memory/a.md", "# A\n\neast\n\n# B\n\nnorth\n\n# C\n\nbetween\n\n# D\n\nunknown")])
            embed(index, {"east": [2, 0], "north": [0, 5], "between": [3, 3]})
            assert near(index, [9, 0]) == {"east": 1.0, "between": 0.71, "north": 0.0}
            assert list(near(index, [9, 0])) == ["east", "between", "north"]
            assert len(index.nearest(SMALL, [1, 0], 2, EVERYTHING)) == 2
            keys = {chunk.text: key for key, chunk in index.chunks(range(1, 9), EVERYTHING).items()}
            cosines = index.cosines(SMALL, [0, 1], [keys["north"], keys["between"], keys["unknown"]])
            assert {key: round(cosine, 2) for key, cosine in cosines.items()} == {keys["north"]: 1.0, keys["between"]: 0.71}

    @plain_check
    def test_vectors_of_different_models_are_separate(self, tmp_path: Path) -> None:
        """Store vectors under their whole identity, and raise ValueError for a vector of another length. Dimensions of 0
        mean the last ones used with that model."""
        with self.opened(tmp_path) as index:
            self.store(index, [document("memory/a.md", "# A\n\none\n\n# B\n\ntwo")])
            embed(index, {"one": [1, 0], "two": [0, 1]})
            two = next(digest for digest, text in index.unembedded(LARGE, 9).items() if text.endswith("two"))
            index.store_vectors(LARGE, {two: [0, 0, 1]})
            assert near(index, [1, 0]) == {"one": 1.0, "two": 0.0}
            assert len(index.nearest(LARGE, [0, 0, 1], 9, EVERYTHING)) == 1
            assert (index.count_unembedded(SMALL), index.count_unembedded(LARGE)) == (0, 1)
            assert index.count_unembedded(Identity(provider="test", model="large", dimensions=0)) == 1
            assert index.count_unembedded(Identity(provider="test", model="other", dimensions=0)) == 2
            try:
                index.store_vectors(SMALL, {two: [1, 2, 3]})
            except ValueError:
                return
            raise AssertionError("a vector of another length was kept")

    @plain_check
    def test_unembedded_returns_texts_without_a_vector(self, tmp_path: Path) -> None:
        """`unembedded` returns digests without a vector of that identity, the newest first. Vectors belong to digests,
        not to keys: a chunk that returns has its vector again."""
        with self.opened(tmp_path) as index:
            self.store(index, [document("memory/a.md", "# A\n\none\n\n# B\n\ntwo")])
            assert list(index.unembedded(SMALL, 9).values()) == ["memory/a > B\ntwo", "memory/a > A\none"], (
                "the newest first"
            )
            assert len(index.unembedded(SMALL, 1)) == 1
            embed(index, {"one": [1, 0], "two": [0, 1]})
            assert index.unembedded(SMALL, 9) == {}
            self.store(index, [document("memory/a.md", "# A\n\none\n\n# B\n\nthree", "2")])
            assert list(index.unembedded(SMALL, 9).values()) == ["memory/a > B\nthree"]
            self.store(index, [document("memory/a.md", "# A\n\none\n\n# B\n\ntwo", "3")])
            assert near(index, [0, 1]) == {"two": 1.0, "one": 0.0}, "what comes back has its vector"

    # --- the place ----------------------------------------------------------------------------------------------------

    @plain_check
    def test_everything_survives_a_restart(self, tmp_path: Path) -> None:
        """When `store`, `remove` and `store_vectors` return, their changes are on disk."""
        with self.opened(tmp_path) as index:
            self.store(index, [document(path, text) for path, text in NOTES.items()])
            self.store(index, [document("memory/tea.md", "Nobody likes tea.", "2")])
            index.remove(["memory/中文.md"])
            embed(index, {"Nobody likes tea.": [1, 0]})
            before = ({word: found(index, word) for word in QUESTIONS}, index.known(), index.size(), near(index, [1, 1]))
        with self.opened(tmp_path) as index:
            after = ({word: found(index, word) for word in QUESTIONS}, index.known(), index.size(), near(index, [1, 1]))
            assert after == before
            self.store(index, [document("memory/new.md", "something new")])
            assert found(index, "new") == ["something new"]

    @plain_check
    def test_two_processes_may_use_it(self, tmp_path: Path) -> None:
        """Another process may write. Detect changes of the files, or lock them."""
        with self.opened(tmp_path) as one:
            self.store(one, [document("memory/a.md", "We fly to Lisbon.")])
            with self.opened(tmp_path) as other:
                assert found(other, "Lisbon") == ["We fly to Lisbon."]
                self.store(other, [document("memory/a.md", "We fly to Porto.", "2")])
                assert found(other, "Porto") == ["We fly to Porto."]
            self.store(one, [document("memory/a.md", "We fly to Porto.", "2")])
            assert found(one, "Porto") == ["We fly to Porto."]
        with self.opened(tmp_path) as again:
            assert (found(again, "Lisbon"), found(again, "Porto")) == ([], ["We fly to Porto."])

    @plain_check
    def test_files_are_private(self, tmp_path: Path) -> None:
        """Create files with the mode 0600 and folders with 0700."""
        with self.opened(tmp_path) as index:
            self.store(index, [document(path, text) for path, text in NOTES.items()])
            place = tmp_path / f"memory.{self.backend.name}"
            assert place.stat().st_mode & 0o077 == 0
