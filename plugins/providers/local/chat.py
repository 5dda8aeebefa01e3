"""The chat provider `local`: a model file on this machine, run in a subprocess.

By default it is the bundled model, which is so small that it only demonstrates a chat. The model is loaded by the first
request and unloaded when it is idle. Requests are answered one at a time, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import msgspec

from plugins.api.chat import ChatRequest, StreamPart
from plugins.api.context import ProviderContext
from plugins.api.models import LimitSource, ModelLimits
from plugins.providers.local import bundled_model as local_model
from plugins.support.errors import BadRequest, NoSuchModel, SettingsRefused, Unreachable

if TYPE_CHECKING:
    from plugins.providers.local.process import Worker


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.local]`.

    `model_path` is any chat model as a GGUF file, instead of the bundled one. The memory for the whole `context_window`
    (tokens) is allocated at once, and reading that much takes the bundled model most of a minute. `threads` defaults to one
    less than the number of processors, at most four.
    """

    model_path: str | None = None
    context_window: Annotated[int, msgspec.Meta(ge=512, le=1_048_576)] = 4096
    threads: Annotated[int, msgspec.Meta(ge=1, le=512)] | None = None
    idle_unload_seconds: Annotated[float, msgspec.Meta(ge=0)] = 300.0


class LocalProvider:
    """The `ChatProvider` for local models. One subprocess serves all sessions."""

    name: ClassVar[str] = "local"
    Settings: ClassVar[type] = LocalSettings

    def __init__(self, context: ProviderContext) -> None:
        settings: LocalSettings = context.settings
        self._settings = settings
        self._environment = context.environment
        self._model, self._path = _select_model(settings.model_path)
        self._installed = local_model.runtime_installed()
        self._lock = asyncio.Lock()
        self._worker: Worker | None = None
        self._unload_timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cancel_unload()
        if self._worker:
            await self._worker.end()

    def default_model(self) -> str | None:
        """Return the model's name if its file and the runtime library are there."""
        return self._model if self._installed and self._path else None

    def explain_default(self) -> str:
        """Return what is there or missing, as the end of a sentence."""
        if not self._installed or (self._path is None and self._settings.model_path is None):
            return f"no local model is installed ({local_model.HOW_TO_INSTALL})"
        if self._path is None:
            return f"providers.local.model_path is not a file: {self._settings.model_path}"
        if self._settings.model_path:
            return "providers.local.model_path is set"
        return "it is installed here and needs no key; it is a small demonstration model"

    def limits(self, model: str) -> ModelLimits:
        """Return the configured window; nothing for other models."""
        window = self._settings.context_window if model == self._model else None
        source: LimitSource | None = None if window is None else "configuration"
        return ModelLimits(window=window, window_from=source, small=self._settings.model_path is None)

    def address(self, model: str) -> str:
        """Return an empty address: requests do not leave this machine."""
        return ""

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        """Answer after all earlier requests; implements `ChatProvider.stream`."""
        from plugins.providers.local import reply as local_reply  # noqa: PLC0415 - not needed at start

        if request.options.require_tool:
            raise BadRequest("Local models do not support tool calls.")
        if request.model != self._model:
            raise NoSuchModel(f"There is no local model {request.model!r}; available: {self._model!r}.")
        async with self._lock:
            self._cancel_unload()
            try:
                async with aclosing(local_reply.answer(await self._loaded(), request)) as answer:
                    async for part in answer:
                        yield part
            finally:
                self._schedule_unload()

    async def _loaded(self) -> Worker:
        from plugins.providers.local import reply as local_reply  # noqa: PLC0415 - as above

        if self._worker and self._worker.alive:
            return self._worker
        if self._worker:
            await self._worker.end()
            self._worker = None
        if self._path is None or not self._installed:
            raise Unreachable(f"The local model cannot be used: {self.explain_default()}.")
        settings = self._settings
        self._worker = await local_reply.start_worker(
            self._path, window=settings.context_window, threads=settings.threads, environment=self._environment
        )
        return self._worker

    def _schedule_unload(self) -> None:
        if self._worker:
            self._unload_timer = asyncio.get_running_loop().call_later(self._settings.idle_unload_seconds, self._worker.kill)

    def _cancel_unload(self) -> None:
        if self._unload_timer:
            self._unload_timer.cancel()


def _select_model(model_path: str | None) -> tuple[str, Path | None]:
    """Return the model's name and its file; None if that is missing."""
    if model_path is None:
        return local_model.BUNDLED_NAME, local_model.bundled_model()
    path = Path(model_path).expanduser()
    if not path.is_absolute():
        raise SettingsRefused(f"providers.local.model_path must begin with `/` or `~`: {model_path}")
    return path.stem.lower(), path if path.is_file() else None
