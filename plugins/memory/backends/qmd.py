"""The backend `qmd`: its words are searched by qmd (a program for Node), the rest is as in `local`.

qmd is given the words of chunks, and none of its models is used: vectors are the house's own here too. What qmd does not
know yet is found as `local` finds it.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from plugins.memory.backends.local import LocalBackend
from plugins.memory.backends.qmd_process import QmdMissing, installed
from plugins.memory.backends.qmd_words import QmdWords


class QmdBackend(LocalBackend):
    """See `MemoryBackend`."""

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
        self._words: QmdWords = QmdWords(place / "words", self._pieces)

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

    def settle(self) -> None:
        self._words.caught_up()

    def caught_up(self) -> bool:
        """Whether qmd knows all that is here; it is told what it lacks."""
        return self._words.caught_up()
