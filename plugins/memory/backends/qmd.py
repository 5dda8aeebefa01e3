"""The backend `qmd`, which searches words with qmd (a Node program); the rest is as in `local`.

qmd gets the words of chunks; none of its models is used. What qmd has not indexed yet is found as in `local`.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from plugins.memory.backends.local import LocalBackend
from plugins.memory.backends.qmd_process import QmdMissing, installed
from plugins.memory.backends.qmd_words import QmdWords


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

    def optimize(self) -> None:
        self._words.caught_up()

    def caught_up(self) -> bool:
        """Return True if qmd has indexed everything; otherwise have it index the rest."""
        return self._words.caught_up()
