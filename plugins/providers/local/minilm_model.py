"""all-MiniLM-L6-v2 (Apache-2.0), quantised to 8 bits: an English sentence model of 384 dimensions, run by onnxruntime.

The weights are another package's, and only its file is used; the tokenizer is shipped here, since that package has none.
This module imports what is heavy, and is imported by the thread that uses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from plugins.api.services import Purpose

# Part of an extra: whoever checks types need not have them.
np: Any = import_module("numpy")
onnxruntime: Any = import_module("onnxruntime")
tokenizers: Any = import_module("tokenizers")

LONGEST = 256
"""Word pieces that the model reads at once, the two at the ends among them; a longer text is read in parts."""

TOKENIZER = Path(__file__).parent / "minilm" / "tokenizer.json"


class MiniLM:
    """The loaded model. `embed` blocks, and holds one processor thread."""

    def __init__(self, weights: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_cpu_mem_arena = False  # what the longest text once needed would be held for ever
        self._session = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
        self._tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def embed(self, texts: Sequence[str], purpose: Purpose = "note") -> list[list[float]]:
        """A vector of length 1 for each text: the mean over its word pieces. One by one: texts of different lengths in one
        batch would cost what the longest costs."""
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> list[float]:
        whole = text.encode("utf-8", "replace").decode()  # half of a pair is no character
        begin, *pieces, end = self._tokenizer.encode(whole).ids
        parts = [[begin, *part, end] for part in _parts(pieces)]
        mean = np.mean([self._mean(part) for part in parts], axis=0)
        vector: list[float] = (mean / max(float(np.linalg.norm(mean)), 1e-9)).tolist()
        return vector

    def _mean(self, part: Sequence[int]) -> Any:
        pieces = np.array([part], dtype=np.int64)
        given = {"input_ids": pieces, "attention_mask": np.ones_like(pieces), "token_type_ids": np.zeros_like(pieces)}
        return self._session.run(None, given)[0][0].mean(axis=0)


def _parts(pieces: Sequence[int]) -> list[Sequence[int]]:
    """The pieces in as few parts as can be read, all of about the same length."""
    count = max(1, math.ceil(len(pieces) / (LONGEST - 2)))
    return [pieces[at * len(pieces) // count : (at + 1) * len(pieces) // count] for at in range(count)]
