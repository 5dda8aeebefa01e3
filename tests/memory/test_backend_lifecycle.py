"""The configured backend is used, rebuilt after damage, and replaced by SQLite if it fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import pytest

from exuvia import hookimpl
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.api.memory_settings import EmbeddingKeys, MemoryKeys, SearchKeys
from plugins.api.plugin_services import IndexUnusable
from plugins.host.loading import load_plugins
from plugins.memory.backends.local import LocalBackend
from plugins.memory.index.backend_lifecycle import SingleThreadBackend
from plugins.memory.index.indexer import IndexRebuilt
from plugins.memory.memory import Memory
from plugins.memory.sources.notes import Notes
from plugins.support.untrusted import SENTENCE
from plugins.testing.memory_backend_checks import document
from tests.memory.places import TODAY, Place, citations
from tests.memory.without_fts5 import refuse_fts5

BUILT_IN = load_plugins(()).memory_backends()
HERE = ["sqlite", *(name for name, kind in BUILT_IN.items() if not kind.why_not())]

NOTES = {
    "MEMORY.md": "the door code is 4711\n",
    "memory/plans.md": "# Trip\n\nWe fly to Lisbon.\n\n# Tea\n\nAna likes tea.\n",
}
ANSWERS = {"door code": "MEMORY.md#L1-L1", "Lisbon": "memory/plans.md#L3-L3", "who likes tea": "memory/plans.md#L7-L7"}


class Missing(LocalBackend):
    name: ClassVar[str] = "missing"

    @classmethod
    def why_not(cls) -> str:
        return "its library is not installed"


class Stuck(LocalBackend):
    name: ClassVar[str] = "stuck"

    def __enter__(self) -> Self:
        raise RuntimeError("its server is away.")


class Fragile(LocalBackend):
    """Fails as often as it is told to."""

    name: ClassVar[str] = "fragile"
    failures: ClassVar[int] = 0

    def keywords(self, words: Sequence[str], limit: int, scope: Scope = EVERYTHING) -> dict[int, float]:
        if Fragile.failures:
            Fragile.failures -= 1
            raise KeyError("a page")
        return super().keywords(words, limit, scope)


class Rest:
    """A workspace with notes, whose index rests where `keys` says, which may change."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder)
        self.folder = folder
        self.keys = MemoryKeys(embedding=EmbeddingKeys(provider="counted"))
        for path, text in NOTES.items():
            self.place.put(path, text)

    def chosen(self, backend: str) -> Memory:
        self.keys = msgspec.structs.replace(self.keys, backend=backend)
        kinds: dict[str, Any] = {**BUILT_IN, **{kind.name: kind for kind in (Missing, Stuck, Fragile)}}
        return Memory(
            self.place.file,
            [Notes(self.place.workspace)],
            keys=lambda: self.keys,
            providers={"counted": self.place.provider},
            today=lambda: TODAY,
            backends=lambda: kinds,
        )


@pytest.fixture
def rest(tmp_path: Path) -> Rest:
    return Rest(tmp_path)


async def answers(memory: Memory) -> dict[str, str]:
    """The best answer to each question, once everything is indexed."""
    await memory.update(lambda _: None)
    return {question: (await citations(memory, question))[0] for question in ANSWERS}


@pytest.mark.parametrize("backend", HERE)
async def test_every_backend_gives_the_same_answers_also_after_edits_and_a_restart(rest: Rest, backend: str) -> None:
    async with rest.chosen(backend) as memory:
        assert await answers(memory) == ANSWERS
        assert (await memory.search("door", EVERYTHING)).remarks == ()
    async with rest.chosen(backend) as memory:
        assert await answers(memory) == ANSWERS
        assert len(rest.place.provider.texts) == 3, "nothing is embedded twice"
        rest.place.put("memory/plans.md", "We fly to Porto.\n")
        assert (await citations(memory, "Porto"))[0] == "memory/plans.md#L1-L1"
        (rest.place.workspace / "memory/plans.md").unlink()
        assert "memory/plans.md#L1-L1" not in await citations(memory, "Porto")
    kept = [path.name for path in rest.folder.iterdir() if path.name.startswith("memory.") and "-" not in path.name]
    assert kept == [f"memory.{backend}"]


@pytest.mark.parametrize("backend", [name for name in HERE if name != "sqlite"])  # its file has tests of its own
@pytest.mark.parametrize("harm", ["removed", "emptied", "cut", "overwritten"])
async def test_what_is_kept_may_be_harmed_at_any_time(rest: Rest, backend: str, harm: str) -> None:
    place = rest.folder / f"memory.{backend}"

    def do_harm() -> None:
        for file in [each for each in (place, *place.rglob("*")) if each.is_file()]:
            size = file.stat().st_size
            if harm == "emptied":
                file.write_bytes(b"")
            elif harm == "cut":
                file.write_bytes(file.read_bytes()[: size // 2])
            elif harm == "overwritten":
                file.write_bytes(file.read_bytes()[: size // 3] + b"no index" * (size // 8))
        if harm == "removed" and place.is_dir():
            shutil.rmtree(place)
        elif harm == "removed":
            place.unlink()

    async with rest.chosen(backend) as memory:
        assert await answers(memory) == ANSWERS
    do_harm()
    async with rest.chosen(backend) as memory:
        assert await answers(memory) == ANSWERS
        assert memory.problems() == []
    async with rest.chosen(backend) as memory:
        assert await answers(memory) == ANSWERS
        do_harm()
        assert await answers(memory) == ANSWERS
        assert memory.problems() == []
    async with rest.chosen(backend) as memory:
        assert await answers(memory) == ANSWERS


@pytest.mark.parametrize(
    ("backend", "why"),
    [
        ("missing", "its library is not installed"),
        ("stuck", "it fails, RuntimeError: its server is away"),
        ("gone", "no plugin provides it"),
    ],
)
async def test_where_the_chosen_one_cannot_be_used_sqlite_answers_and_says_so(rest: Rest, backend: str, why: str) -> None:
    async with rest.chosen(backend) as memory:
        assert await answers(memory) == ANSWERS
        said = f"The memory uses the backend sqlite, since {backend} cannot be used: {why}."
        assert memory.problems() == [said]
        assert (await memory.search("door", EVERYTHING)).remarks == (said,)


NO_FTS5 = "this Python's SQLite has no full-text search (FTS5)"


@pytest.mark.parametrize("backend", ["auto", "sqlite", "missing"])
async def test_where_sqlite_has_no_full_text_search_the_local_backend_answers_and_says_so(
    rest: Rest, backend: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse_fts5(monkeypatch)
    async with rest.chosen(backend) as memory:
        assert await answers(memory) == ANSWERS
        why = "its library is not installed" if backend == "missing" else NO_FTS5
        meant = "missing" if backend == "missing" else "sqlite"
        said = f"The memory uses the backend local, since {meant} cannot be used: {why}."
        assert memory.problems() == [said]
        assert (await memory.search("door", EVERYTHING)).remarks == (said,)
        rest.place.put("memory/new.md", "The cat is called Mia.\n")
        assert (await citations(memory, "cat"))[0] == "memory/new.md#L1-L1"
    assert (rest.folder / "memory.local").exists()
    assert not (rest.folder / "memory.sqlite").exists()
    (told,) = [line for line in capsys.readouterr().out.splitlines() if "memory_backend_unusable" in line]
    assert why in told


async def test_without_full_text_search_and_without_words_the_vectors_answer(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_fts5(monkeypatch)
    rest.keys = msgspec.structs.replace(rest.keys, search=SearchKeys(keywords=False))
    async with rest.chosen("auto") as memory:
        await memory.update(lambda _: None)
        found = await memory.search("Ana likes tea.", EVERYTHING)
        assert found.hits[0].citation == ANSWERS["who likes tea"]  # of the same last letter, which is what the vectors know
        assert found.hits[0].ranked.candidate.cosine == pytest.approx(1.0, abs=1e-3)


async def test_an_index_that_another_sqlite_made_is_left_as_it_is(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rest.chosen("auto") as memory:
        assert await answers(memory) == ANSWERS
    before = rest.place.file.read_bytes()
    with monkeypatch.context() as patch:
        refuse_fts5(patch)
        async with rest.chosen("auto") as memory:
            assert await answers(memory) == ANSWERS
    assert rest.place.file.read_bytes() == before
    async with rest.chosen("auto") as memory:
        assert await answers(memory) == ANSWERS
        assert memory.problems() == []


async def test_a_backend_that_fails_is_made_anew_once_and_left_at_the_second_time(rest: Rest) -> None:
    async with rest.chosen("fragile") as memory:
        assert await answers(memory) == ANSWERS
        Fragile.failures = 1
        assert (await citations(memory, "door code"))[0] == ANSWERS["door code"]
        assert memory.problems() == []
        Fragile.failures = 99
        assert (await citations(memory, "door code"))[0] == ANSWERS["door code"]
        assert memory.problems() == [
            "The memory uses the backend sqlite, since fragile cannot be used: it fails, KeyError: 'a page'."
        ]
        assert await answers(memory) == ANSWERS
    Fragile.failures = 0


async def test_the_index_moves_while_it_is_used_and_a_fault_is_forgotten_with_its_backend(rest: Rest) -> None:
    async with rest.chosen("missing") as memory:
        assert await answers(memory) == ANSWERS
        assert memory.problems()
        rest.keys = msgspec.structs.replace(rest.keys, backend="local")
        assert await answers(memory) == ANSWERS
        assert memory.problems() == []
        assert (rest.folder / "memory.local").exists()
        rest.place.put("memory/new.md", "The cat is called Mia.\n")
        rest.keys = msgspec.structs.replace(rest.keys, backend="auto")
        assert (await citations(memory, "cat"))[0] == "memory/new.md#L1-L1"


async def test_who_asks_a_backend_whose_place_was_taken_away_hears_that_all_is_lost(tmp_path: Path) -> None:
    alone = SingleThreadBackend(LocalBackend, tmp_path / "memory.local")
    await alone.write(lambda index: index.store([document("memory/a.md", "We fly to Lisbon.")]))
    assert await alone.read(lambda index: index.size()) == (1, 1)
    (tmp_path / "memory.local").unlink()
    with pytest.raises(IndexRebuilt):
        await alone.read(lambda index: index.size())
    assert await alone.read(lambda index: index.size()) == (0, 0)
    await alone.close()


async def test_an_error_of_the_disk_is_one_bounded_line_whatever_a_backend_writes_into_it(tmp_path: Path) -> None:
    def fail(_: object) -> None:
        raise OSError("first line\nsecond line " + "x" * 1_000_000)

    alone = SingleThreadBackend(LocalBackend, tmp_path / "memory.local")
    with pytest.raises(IndexUnusable) as raised:
        await alone.write(fail)
    await alone.close()
    assert str(raised.value).startswith("The memory index cannot be used: first line second line xx")
    assert len(str(raised.value)) < 2 * SENTENCE


def test_no_start_pays_for_backends_that_nobody_names() -> None:
    script = (
        "import sys; from plugins.host.loading import load_plugins; hooks = load_plugins(());"
        " assert 'plugins.memory.backends.local' not in sys.modules; print(*hooks.memory_backends())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "local chroma qmd\n"


class Plugin:
    """Offers what it is given."""

    def __init__(self, *offered: object) -> None:
        self._offered = list(offered)

    @hookimpl
    def register_memory_backends(self) -> Sequence[Any]:
        return self._offered


def test_a_plugin_brings_a_backend_and_what_is_none_is_refused_with_a_sentence() -> None:
    hooks = load_plugins(())
    taken = type("Taken", (LocalBackend,), {"name": "sqlite"})
    assert hooks.register("theirs", Plugin(Fragile, taken, LocalBackend, Place, "fragile"))
    assert list(hooks.memory_backends()) == ["local", "chroma", "qmd", "fragile"]
    begin, end = "Part of the plugin 'theirs' (register_memory_backends) is not used: ", "."
    reasons = [refusal.sentence.removeprefix(begin).removesuffix(end) for refusal in hooks.refused]
    assert reasons[:2] == ["'sqlite' is reserved", "the name 'local' is already used by 'builtin'"]
    assert reasons[2].startswith("Place is not a valid MemoryBackend: it lacks why_not, ")
    assert reasons[3] == "it returned str instead of a class"


def test_a_backend_that_lacks_any_method_is_refused() -> None:
    for method in ("optimize", "neighbours", "trim_cache"):
        hooks = load_plugins(())
        assert hooks.register("theirs", Plugin(type("Lacking", (LocalBackend,), {"name": "lacking", method: None})))
        assert list(hooks.memory_backends()) == ["local", "chroma", "qmd"]
        (refusal,) = hooks.refused
        assert refusal.sentence.endswith(f"Lacking is not a valid MemoryBackend: it lacks {method}.")
