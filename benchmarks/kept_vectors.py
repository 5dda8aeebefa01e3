"""The bundled embedding model, whose vectors are kept in a file: what one run embedded, the next does not embed again."""

from __future__ import annotations

import array
import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sessions.catalog.sqlite import connect_blocking

if TYPE_CHECKING:
    from plugins.providers.local.minilm_model import MiniLM


class KeptVectors:
    """Use as a context manager. `weights` are the model's, loaded by the first text whose vector is not kept in `file`."""

    def __init__(self, weights: Path, file: Path) -> None:
        self._weights = weights
        self._file = file
        self._db: Any = None
        self._model: MiniLM | None = None

    def __enter__(self) -> Self:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._db = connect_blocking(self._file, patience=60)
        self._db.execute("CREATE TABLE IF NOT EXISTS vectors (text TEXT PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._db.close()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of the texts, in their order."""
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> list[float]:
        name = hashlib.sha256(f"{self._weights.stat().st_size}\n{text}".encode()).hexdigest()
        kept = self._db.execute("SELECT vector FROM vectors WHERE text = ?", (name,)).fetchone()
        if kept:
            return array.array("f", kept[0]).tolist()
        if self._model is None:
            from plugins.providers.local.minilm_model import MiniLM  # noqa: PLC0415 - an extra, which is looked for first

            self._model = MiniLM(self._weights)
        (vector,) = self._model.embed([text])
        self._db.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (name, array.array("f", vector).tobytes()))
        return vector
