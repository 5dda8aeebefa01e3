"""The bundled embedding model with a cache of vectors on disk."""

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


class CachedVectors:
    """An embedding model with a cache in `file`, used as a context manager. `weights` are loaded at the first cache miss."""

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
        """Return the vectors of the texts, in the same order."""
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> list[float]:
        key = hashlib.sha256(f"{self._weights.stat().st_size}\n{text}".encode()).hexdigest()
        row = self._db.execute("SELECT vector FROM vectors WHERE text = ?", (key,)).fetchone()
        if row:
            return array.array("f", row[0]).tolist()
        if self._model is None:
            from plugins.providers.local.minilm_model import MiniLM  # noqa: PLC0415 - an optional dependency

            self._model = MiniLM(self._weights)
        (vector,) = self._model.embed([text])
        self._db.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?)", (key, array.array("f", vector).tobytes()))
        return vector
