"""The backend `qmd`, which searches words with qmd (a Node program); the rest is as in `local`.

qmd gets the words of chunks; none of its models is used. What qmd has not indexed yet is found as in `local`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from plugins.memory.backends.local import LocalBackend
from plugins.memory.backends.postings import Allowed, Postings, best
from plugins.memory.backends.qmd_process import SHARDS, Found, QmdFailed, QmdMissing, QmdProcess, installed

MIN_RESULTS = 100
"""Minimum texts requested from qmd per word, about half a millisecond each."""

MAX_WORDS = 24
"""Maximum words per request, since each takes milliseconds."""

ANSWER_SECONDS = 10.0
"""Maximum seconds for an answer."""


class QmdBackend(LocalBackend):
    """A `MemoryBackend` that searches words with qmd."""

    name: ClassVar[str] = "qmd"

    @classmethod
    def why_not(cls) -> str:
        try:
            installed()
        except QmdMissing as missing:
            return str(missing)
        return ""

    def __init__(self, place: Path) -> None:
        super().__init__(place / "chunks")
        self._place = place
        self._words: QmdPostings = QmdPostings(place / "words", self._pieces)

    def __enter__(self) -> Self:
        self._place.mkdir(mode=0o700, exist_ok=True)
        self._words.open()
        try:
            return super().__enter__()
        except BaseException:
            self._words.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._words.close()
        super().__exit__(kind, error, trace)

    def optimize(self) -> None:
        self._words.sync()

    def sync(self) -> bool:
        """Return True if qmd has indexed everything; otherwise have it index the rest."""
        return self._words.sync()


class QmdPostings(Postings):
    """An inverted index ranked by qmd.

    Each text is a derived file in `folder`, named by its digest. qmd indexes changes in the background, in one process only;
    in other processes, and meanwhile, `Postings` ranks. Raises QmdFailed after the second failure in a row.
    """

    def __init__(self, folder: Path, pieces: Mapping[int, str]) -> None:
        super().__init__()
        self._folder = folder
        self._pieces = pieces
        self._names: dict[int, str] = {}
        self._keys: dict[str, set[int]] = {}
        self._changed: set[str] = set()
        self._lock: int | None = None
        self._process: QmdProcess | None = None
        self._indexing = False
        self._failures = 0

    def open(self) -> None:
        """Lock the folder, unless another process has it."""
        lock = os.open(self._folder.with_name("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            self._lock = lock

    def close(self) -> None:
        """End qmd and unlock the folder."""
        self._end()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def add(self, key: int, words: Iterable[str]) -> None:
        words = list(words)
        super().add(key, words)
        name = self._names[key] = _digest(_text(words))
        self._keys.setdefault(name, set()).add(key)
        self._changed.add(name)

    def drop(self, key: int, words: Iterable[str]) -> None:
        super().drop(key, words)
        name = self._names.pop(key)
        self._keys[name].discard(key)
        if not self._keys[name]:
            del self._keys[name]
        self._changed.add(name)

    def ranked(self, words: Iterable[str], limit: int, allowed: Allowed) -> dict[int, float]:
        """Rank as `Postings` does, by the sum of qmd's bm25 per word, since qmd itself only finds texts with all words."""
        words = list(words)
        depth = max(MIN_RESULTS, limit)
        having = self._query(words, depth)
        if having is None:
            return super().ranked(words, limit, allowed)
        scores: dict[int, float] = {}
        for name, score in (each for some in having for each in some):
            for key in filter(allowed, self._keys.get(name, ())):
                scores[key] = scores.get(key, 0.0) + score
        if len(scores) < limit and any(len(some) == depth for some in having):
            return super().ranked(words, limit, allowed)  # the best of all texts may not be allowed
        return best(scores, limit)

    def _query(self, words: Sequence[str], depth: int) -> list[Found] | None:
        """Return the texts per word, None if qmd cannot answer now."""
        try:
            if not self._sync() or len(words) > MAX_WORDS:
                return None
            assert self._process is not None
            having = self._process.search([_encode(word) for word in words], depth, ANSWER_SECONDS)
        except QmdFailed as failed:
            self._fail(failed)
            return None
        self._failures = 0
        return having

    def sync(self) -> bool:
        """Return True if qmd has indexed everything; otherwise have it index the rest."""
        try:
            return self._sync()
        except QmdFailed as failed:
            self._fail(failed)
            return False

    def _sync(self) -> bool:
        if self._lock is None:
            return False
        if self._process is None:
            shards = self._start()
        elif self._indexing and self._process.answer(0) is None:
            return False
        else:
            shards = self._write_texts(self._changed)
        self._changed = set()
        self._indexing = bool(shards)
        if self._process is not None and shards:
            self._process.update(sorted(shards))
        return not self._indexing

    def _start(self) -> set[str]:
        """Start qmd over a folder with exactly the current texts."""
        for shard in SHARDS:
            (self._folder / shard).mkdir(mode=0o700, parents=True, exist_ok=True)
        existing = {path.stem for shard in SHARDS for path in (self._folder / shard).iterdir()}
        self._write_texts(existing | self._keys.keys())
        self._process = QmdProcess(self._folder.resolve())
        return set(SHARDS)

    def _write_texts(self, names: Iterable[str]) -> set[str]:
        """Update the files of these texts and return the shards that changed."""
        try:
            return {shard for name in names for shard in self._write_text(name)}
        except FileNotFoundError as gone:
            raise QmdFailed("its folder was taken away") from gone

    def _write_text(self, name: str) -> Iterator[str]:
        shard = _shard(name)
        place = self._folder / shard / f"{name}.qmdwords"
        keys = self._keys.get(name)
        if keys:
            text = _text(self._pieces[min(keys)].split()).encode()
            if not place.exists() or place.read_bytes() != text:
                place.write_bytes(text)
                yield shard
        elif place.exists():
            place.unlink()
            yield shard

    def _fail(self, failed: QmdFailed) -> None:
        self._end()
        self._failures += 1
        if self._failures > 1:
            raise failed
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


def _text(words: Iterable[str]) -> str:
    return " ".join(map(_encode, words))


def _encode(word: str) -> str:
    """Encode words that qmd would split: it ignores characters other than letters and digits, such as Indic vowel signs."""
    return word if word.isalnum() else "u" + word.encode().hex()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _shard(name: str) -> str:
    """Return the shard of a text, also for unexpected names."""
    return next((shard for shard in SHARDS if shard[-1] == name[:1]), SHARDS[0])
