"""The words of texts by their keys, ranked by qmd where it knows all of them, and by `Postings` until then."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from plugins.memory.backends.postings import Allowed, Postings, best
from plugins.memory.backends.qmd_process import SHARDS, Found, QmdFailed, QmdProcess

DEPTH = 100
"""How many texts qmd is asked for by each word, at least: it takes about half a millisecond for one."""

WORDS = 24
"""How many words qmd is asked for: each takes it milliseconds, and a message may have thousands."""

SECONDS = 10.0
"""How long an answer may take."""


class QmdWords(Postings):
    """Which texts have which words; `pieces` has their words by their keys, while they are here.

    Each text is a file in `folder`, under the digest of what is in it, and is derived: so is the whole folder. qmd reads
    what changed behind those who write. Only one process at a time has it do so; in others, and while it reads, these are
    `Postings` and nothing else. QmdFailed where it fails twice, also from nothing.
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
        self._reading = False
        self._failures = 0

    def open(self) -> None:
        """Take the folder, if no other process has it."""
        lock = os.open(self._folder.with_name("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            self._lock = lock

    def close(self) -> None:
        """End qmd, and leave the folder to others."""
        self._end()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def add(self, key: int, words: Iterable[str]) -> None:
        words = list(words)
        super().add(key, words)
        name = self._names[key] = _named(_text(words))
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
        """See `Postings`. qmd finds what has all words of a question: each is asked for by itself, and bm25 is their sum."""
        words = list(words)
        depth = max(DEPTH, limit)
        having = self._from_qmd(words, depth)
        if having is None:
            return super().ranked(words, limit, allowed)
        scores: dict[int, float] = {}
        for name, score in (each for some in having for each in some):
            for key in filter(allowed, self._keys.get(name, ())):
                scores[key] = scores.get(key, 0.0) + score
        if len(scores) < limit and any(len(some) == depth for some in having):
            return super().ranked(words, limit, allowed)  # what is best of all is not what this one may find
        return best(scores, limit)

    def _from_qmd(self, words: Sequence[str], depth: int) -> list[Found] | None:
        """What has each word, at most so many; None where qmd cannot say it now."""
        try:
            if not self._caught_up() or len(words) > WORDS:
                return None
            assert self._process is not None
            having = self._process.search([_coded(word) for word in words], depth, SECONDS)
        except QmdFailed as failed:
            self._fail(failed)
            return None
        self._failures = 0
        return having

    def caught_up(self) -> bool:
        """Whether qmd knows all that is here. If not, it is told what it lacks, which it then reads by itself."""
        try:
            return self._caught_up()
        except QmdFailed as failed:
            self._fail(failed)
            return False

    def _caught_up(self) -> bool:
        if self._lock is None:
            return False
        if self._process is None:
            shards = self._begin()
        elif self._reading and self._process.answer(0) is None:
            return False
        else:
            shards = self._write(self._changed)
        self._changed = set()
        self._reading = bool(shards)
        if self._process is not None and shards:
            self._process.update(sorted(shards))
        return not self._reading

    def _begin(self) -> set[str]:
        """Start it, over a folder in which exactly these texts are, whatever was there."""
        for shard in SHARDS:
            (self._folder / shard).mkdir(mode=0o700, parents=True, exist_ok=True)
        there = {path.stem for shard in SHARDS for path in (self._folder / shard).iterdir()}
        self._write(there | self._keys.keys())
        self._process = QmdProcess(self._folder.resolve())
        return set(SHARDS)

    def _write(self, names: Iterable[str]) -> set[str]:
        """Have the files of these texts as they should be. Returns the folders in which one is not as it was."""
        try:
            return {shard for name in names for shard in self._put(name)}
        except FileNotFoundError as gone:
            raise QmdFailed("its folder was taken away") from gone

    def _put(self, name: str) -> Iterator[str]:
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
    return " ".join(map(_coded, words))


def _coded(word: str) -> str:
    """A word that qmd finds as it is: it leaves out what is neither letter nor digit, such as the vowel signs of India."""
    return word if word.isalnum() else "u" + word.encode().hex()


def _named(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _shard(name: str) -> str:
    """The folder of a text; also of what does not belong here."""
    return next((shard for shard in SHARDS if shard[-1] == name[:1]), SHARDS[0])
