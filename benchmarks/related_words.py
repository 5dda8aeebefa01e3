"""Compute the table of related English words that the search uses.

`python -m benchmarks.related_words` writes it into the package. Not a benchmark: it needs the bundled model and the package
`onnx`, which nothing else needs.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from plugins.memory.search.related_words import TABLE
from plugins.providers.local.installable_models import BUNDLED
from plugins.support.text.stemming import ENGLISH, idle

np: Any = import_module("numpy")  # an optional dependency, which need not be installed for type checks

FLOOR = 0.3
"""Cosine from which words are related; it becomes a closeness of 0, and 1 remains 1."""

MOST = 32
"""Related words of a word, the nearest."""

_EMBEDDINGS = "embeddings.word_embeddings.weight"


def main() -> None:
    """Write the table."""
    weights = BUNDLED.weights()
    if weights is None:
        sys.exit("The bundled model is not installed.")
    words, rows = _words(Path(import_module("plugins.providers.local").__path__[0]) / "minilm" / "tokenizer.json")
    TABLE.write_bytes(table_of(words, _embeddings(weights)[rows]))


def table_of(words: Sequence[str], vectors: Any) -> bytes:
    """Return the table of sorted words with a vector each; see `plugins.memory.search.related_words.TABLE`."""
    vectors = vectors - vectors.mean(0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    counts, related, closeness = bytearray(), bytearray(), bytearray()
    for at, vector in enumerate(vectors):
        cosines = vectors @ vector
        cosines[at] = 0.0
        nearest = [other for other in np.argsort(-cosines, kind="stable")[:MOST] if cosines[other] > FLOOR]
        counts.append(len(nearest))
        for other in nearest:
            related += struct.pack("<H", other)
            closeness.append(max(1, round(255 * float(cosines[other] - FLOOR) / (1 - FLOOR))))
    text = "\n".join(words).encode("ascii")
    return struct.pack("<II", len(words), len(text)) + text + bytes(counts) + bytes(related) + bytes(closeness)


def _words(tokenizer: Path) -> tuple[list[str], list[int]]:
    """Return the whole words of the model's vocabulary without stop words, sorted, and their rows."""
    vocabulary: dict[str, int] = import_module("json").loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"]
    stop_words = idle(ENGLISH)
    words = sorted(word for word in vocabulary if re.fullmatch("[a-z]{3,}", word) and word not in stop_words)
    return words, [vocabulary[word] for word in words]


def _embeddings(weights: Path) -> Any:
    """Return the word embeddings of the model, one row for each token."""
    onnx: Any = import_module("onnx")
    found = {each.name: each for each in onnx.load(str(weights)).graph.initializer if _EMBEDDINGS in each.name}
    quantized, scale = (
        next(onnx.numpy_helper.to_array(found[name]) for name in found if name.endswith(kind)) for kind in ("_q", "_scale")
    )
    return quantized.astype(np.float32) * scale


if __name__ == "__main__":
    main()
