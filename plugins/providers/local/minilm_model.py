"""all-MiniLM-L6-v2 (Apache-2.0), quantised to 8 bits: an English sentence model of 384 dimensions, run by onnxruntime.

The weights are a file of another package; the tokenizer is shipped here, since that package has none. The heavy imports are
in this module, which is imported by the thread that uses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from plugins.api.plugin_services import Purpose

# From an optional extra, so that type checking does not require them.
np: Any = import_module("numpy")
onnxruntime: Any = import_module("onnxruntime")
tokenizers: Any = import_module("tokenizers")

MAX_PIECES = 256
"""Maximum word pieces that are embedded at once, including the two special ones; longer texts are split."""

TOKENIZER = Path(__file__).parent / "minilm" / "tokenizer.json"


class MiniLM:
    """The loaded model. `embed` blocks one processor thread."""

    def __init__(self, weights: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_cpu_mem_arena = False  # else the memory for the longest text is never freed
        self._session = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
        self._tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def embed(self, texts: Sequence[str], purpose: Purpose = "note") -> list[list[float]]:
        """Return a vector of length 1 for each text: the mean over its word pieces. Texts are embedded one by one, since in
        a batch each would cost as much as the longest."""
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> list[float]:
        valid = text.encode("utf-8", "replace").decode()  # lone surrogates cannot be encoded
        begin, *pieces, end = self._tokenizer.encode(valid).ids
        parts = [[begin, *part, end] for part in _parts(pieces)]
        mean = np.mean([self._mean(part) for part in parts], axis=0)
        vector: list[float] = (mean / max(float(np.linalg.norm(mean)), 1e-9)).tolist()
        return vector

    def _mean(self, part: Sequence[int]) -> Any:
        pieces = np.array([part], dtype=np.int64)
        inputs = {"input_ids": pieces, "attention_mask": np.ones_like(pieces), "token_type_ids": np.zeros_like(pieces)}
        return self._session.run(None, inputs)[0][0].mean(axis=0)


def _parts(pieces: Sequence[int]) -> list[Sequence[int]]:
    """Split the pieces into as few parts as possible, of about equal length."""
    count = max(1, math.ceil(len(pieces) / (MAX_PIECES - 2)))
    return [pieces[at * len(pieces) // count : (at + 1) * len(pieces) // count] for at in range(count)]
