"""The chat provider `local`: a model file on this machine, run in a subprocess of its own.

Without settings it is the bundled model, so small that it only shows how a chat goes. The model is loaded by the first
request and leaves the memory when it is idle. Requests are answered one at a time, in the order they came.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Annotated, ClassVar, Self, assert_never

import msgspec

from plugins.chat import local_model
from plugins.chat.local_process import Broke, Done, Load, Piece, Refused, TooLong, Worker, WorkerGone, Working
from plugins.chat.local_prompt import chat_messages, sampling
from plugins.contracts import ChatProvider, ChatRequest, Delta, House, ModelLimits, Reply
from plugins.errors import BadRequest, ContextOverflow, SettingsRefused, StreamCut, Unreachable
from plugins.hookspecs import hookimpl
from sessions.messages import Usage

# As a file, without its folder in front of the modules' path (-P): `openai.py` lies there too.
COMMAND = (sys.executable, "-P", str(Path(__file__).with_name("local_worker.py")))


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form of `[providers.local]`.

    `model_path` is any chat model as a GGUF file, instead of the bundled one. The memory for all of `context_window`
    (tokens) is taken at once, and reading as much takes the bundled model most of a minute. `threads` is one less than
    the processors, at most four, when it is not set.
    """

    model_path: str | None = None
    context_window: Annotated[int, msgspec.Meta(ge=512, le=1_048_576)] = 4096
    threads: Annotated[int, msgspec.Meta(ge=1, le=512)] | None = None
    idle_unload_seconds: Annotated[float, msgspec.Meta(ge=0)] = 300.0


class LocalProvider:
    """See the module. One subprocess serves all sessions."""

    name: ClassVar[str] = "local"
    Settings: ClassVar[type] = LocalSettings

    def __init__(self, house: House) -> None:
        settings: LocalSettings = house.settings
        self._settings = settings
        self._environment = house.environment
        self._model, self._path = _chosen(settings.model_path)
        self._installed = local_model.runtime_installed()
        self._one_at_a_time = asyncio.Lock()
        self._worker: Worker | None = None
        self._rest: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stay_awake()
        if self._worker:
            await self._worker.end()

    def default_model(self) -> str | None:
        """The model's name when its file and the library that runs it are there."""
        return self._model if self._installed and self._path else None

    def why(self) -> str:
        """What is there or missing, as the end of a sentence."""
        if not self._installed or (self._path is None and self._settings.model_path is None):
            return f"no local model is installed ({local_model.HOW_TO_INSTALL})"
        if self._path is None:
            return f"providers.local.model_path names no file: {self._settings.model_path}"
        if self._settings.model_path:
            return "providers.local.model_path names its file"
        return "it is installed here and needs no key; it is a small demonstration model"

    def limits(self, model: str) -> ModelLimits:
        """The configured window, and nothing of models that are not this provider's."""
        return ModelLimits(window=self._settings.context_window if model == self._model else None)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Answer, when those that asked before are answered."""
        if request.model != self._model:
            raise BadRequest(f"There is no local model {request.model!r}; the one that can be used is {self._model!r}.")
        async with self._one_at_a_time:
            self._stay_awake()
            try:
                async with aclosing(self._answer(await self._loaded(), request)) as answer:
                    async for piece in answer:
                        yield piece
            finally:
                self._rest_later()

    async def _answer(self, worker: Worker, request: ChatRequest) -> AsyncGenerator[Delta | Reply, None]:
        text: list[str] = []
        try:
            await worker.ask(chat_messages(request.context), sampling(request.context))
            while True:
                match await worker.hear():
                    case Piece(text=piece):
                        text.append(piece)
                        yield Delta(piece)
                    case Working():
                        pass
                    case Done() as done:
                        yield _reply("".join(text), self._model, done)
                        return
                    case TooLong(tokens=tokens, window=window):
                        raise ContextOverflow(
                            f"The conversation is {tokens} tokens long; the local model reads {window} with its answer."
                        )
                    case Refused(sentence=sentence):
                        raise BadRequest(f"The local model refuses this request: {sentence}")
                    case Broke(sentence=sentence):
                        await worker.end()
                        raise WorkerGone(sentence)
                    case never:
                        assert_never(never)
        except WorkerGone as gone:
            if text:
                raise StreamCut(f"The local model broke off: {gone}.") from None
            raise Unreachable(f"The local model does not answer: {gone}.") from None
        finally:
            worker.stop()

    async def _loaded(self) -> Worker:
        if self._worker and self._worker.alive:
            return self._worker
        if self._worker:
            await self._worker.end()
            self._worker = None
        if self._path is None or not self._installed:
            raise Unreachable(f"The local model cannot be used: {self.why()}.")
        settings = self._settings
        load = Load(model=str(self._path), window=settings.context_window, threads=settings.threads)
        try:
            self._worker = await Worker.start(COMMAND, load, self._environment)
        except (WorkerGone, OSError) as error:
            raise Unreachable(f"The local model cannot be used: {error}.") from None
        return self._worker

    def _rest_later(self) -> None:
        if self._worker:
            self._rest = asyncio.get_running_loop().call_later(self._settings.idle_unload_seconds, self._worker.kill)

    def _stay_awake(self) -> None:
        if self._rest:
            self._rest.cancel()


def _chosen(model_path: str | None) -> tuple[str, Path | None]:
    """The model's name and its file, None if that is missing."""
    if model_path is None:
        return local_model.BUNDLED_NAME, local_model.bundled_model()
    path = Path(model_path).expanduser()
    if not path.is_absolute():
        raise SettingsRefused(f"providers.local.model_path must begin with `/` or `~`: {model_path}")
    return path.stem.lower(), path if path.is_file() else None


def _reply(text: str, model: str, done: Done) -> Reply:
    usage = Usage(input=done.input, output=done.output, cached=done.cached)
    return Reply(text=text, model=model, stop="end" if done.stop == "stop" else "length", usage=usage)


@hookimpl
def register_chat_providers() -> Sequence[type[ChatProvider]]:
    """The one provider of this module."""
    return [LocalProvider]
