"""The transport to a server that is a program: messages as lines over its standard streams, with bounds.

The SDK's own transport buffers a line without a limit and leaves the server running if the gateway is killed. Here the
server runs under `supervisor`, in a process group of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from plugins.mcp.definitions import MESSAGE_BYTES, MESSAGE_VALUES, one_visible_line, values_in

ENDLESS_BYTES = 512 * 1024 * 1024
"""Bytes of one message after which the server is ended."""

END_SECONDS = 1.0
"""Seconds that a server has to end after the end of its input."""

EXIT_SECONDS = 0.5
"""Seconds that a server has between the end of its output and its exit."""

KILL_SECONDS = 4.0
"""Seconds that the supervisor has to kill the server and its descendants."""

_AT_MOST = f"at most {MESSAGE_BYTES:,} with {MESSAGE_VALUES:,} values are taken"
_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
_CHUNK = 64 * 1024
_EDGE = 4096
_ID = rb'"id"\s*:\s*("[\w.:-]{1,100}"|\d{1,18})'
_ID_BEFORE = re.compile(rb"\A\s*\{(?:(?!\"(?:result|error|params)\").){0,300}?" + _ID, re.DOTALL)
_VERSION = rb'\s*"jsonrpc"\s*:\s*"2\.0"\s*'
_ID_AFTER = re.compile(rb"[}\]]\s*,(?:" + _VERSION + rb",)?\s*" + _ID + rb"\s*(?:," + _VERSION + rb")?\}\s*\Z")

Messages: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]


class ServerEnded(Exception):
    """The server ended or had to be ended; `str(error)` is the end of a sentence."""


class Oversized(NamedTuple):
    """A line that is too long, or has too many values: its length, beginning and end."""

    length: int
    head: bytes
    tail: bytes

    def request_id(self) -> str | int | None:
        """Return the id of the request that it answers, if that stands where servers write it."""
        found = _ID_BEFORE.search(self.head) or _ID_AFTER.search(self.tail)
        if found is None:
            return None
        text = found[1].decode("ascii", errors="replace")
        return text.strip('"') if text.startswith('"') else int(text)


async def lines(read: Callable[[int], Awaitable[bytes]]) -> AsyncIterator[bytes | Oversized]:
    """Yield the lines of a stream. Of one that is longer than `MESSAGE_BYTES` only the beginning and the end are kept.

    Args:
        read: Returns at most so many bytes, none at the end.

    Raises:
        ServerEnded: A line does not end.
    """
    line, dropped = bytearray(), 0
    while chunk := await read(_CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line += end
            whole = not dropped and values_in(line) <= MESSAGE_VALUES
            yield bytes(line) if whole else Oversized(dropped + len(line), bytes(line[:_EDGE]), bytes(line[-_EDGE:]))
            line, dropped = bytearray(), 0
        line += rest
        if len(line) > MESSAGE_BYTES or dropped:
            kept = line[:_EDGE] + line[-_EDGE:]
            dropped, line = dropped + max(0, len(line) - len(kept)), kept if len(line) > 2 * _EDGE else line
        if dropped > ENDLESS_BYTES:
            raise ServerEnded("it sent a message without an end")


class StdioTransport:
    """Starts a server and exchanges messages with it, in a `with` block of the SDK's client.

    Args:
        command: The program and its arguments.
        env: Variables besides the few that every server gets.
        cwd: The folder to run it in.
        environment: The gateway's environment.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path, environment: Mapping[str, str]) -> None:
        inherited = {name: environment[name] for name in _INHERITED if name in environment}
        self._command = tuple(command)
        self._environment = {**inherited, **env}
        self._cwd = cwd
        self._errors = b""
        self._failure = ""
        self._process: Process | None = None
        self.ended = asyncio.Event()
        """Set when the server has closed its output."""

    async def reason(self) -> str:
        """Return why the server ended, with the last line that it wrote to its standard error."""
        if self._failure:
            return self._failure
        how = "closed its output"
        if self._process is not None and await _exits(self._process, EXIT_SECONDS):
            code = self._process.returncode or 0
            how = f"was killed by signal {code - 128}" if code > 128 else f"ended with code {code}"
        said = [one_visible_line(line, 300) for line in self._errors.decode(errors="replace").splitlines()[-50:]]
        return ": ".join([f"its process {how}", *[line for line in said if line][-1:]])

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[TransportStreams]:
        """Run the server while the block runs.

        Raises:
            OSError: The folder does not exist, or no process can be started.
        """
        receiving, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, sending = anyio.create_memory_object_stream[SessionMessage](0)
        with receiving, received, sent, sending:
            process, lifeline = await self._start()
            self._process = process
            tasks = [
                asyncio.create_task(self._read(process, receiving)),
                asyncio.create_task(self._write(process, sending)),
                asyncio.create_task(self._read_errors(process)),
            ]
            try:
                yield received, sent
            finally:
                await asyncio.shield(asyncio.ensure_future(self._stop(process, lifeline, tasks)))

    async def _start(self) -> tuple[Process, int]:
        watched, lifeline = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", _SUPERVISOR, str(watched), *self._command),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=self._environment,
                cwd=self._cwd,
                pass_fds=(watched,),
                start_new_session=True,
            )
        except BaseException:
            os.close(lifeline)
            raise
        finally:
            os.close(watched)
        return process, lifeline

    async def _stop(self, process: Process, lifeline: int, tasks: Sequence[asyncio.Task[None]]) -> None:
        """End the server and its descendants: by the end of its input, then through the supervisor, then by force.

        If this is cancelled, as by the end of the event loop, they are killed at once.
        """
        try:
            if process.stdin is not None:
                process.stdin.close()
            try:
                if not self.ended.is_set():
                    await _exits(process, END_SECONDS)
            finally:
                os.close(lifeline)
            await _exits(process, KILL_SECONDS)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # also what is left if the supervisor itself was killed
            for task in tasks:
                task.cancel()
            # What was not read keeps the pipes open, and a `Process` has no public way to close them.
            process._transport.close()  # type: ignore[attr-defined]
        await asyncio.wait(tasks)
        await process.wait()

    async def _read(self, process: Process, receiving: Messages) -> None:
        assert process.stdout is not None
        try:
            async for line in lines(process.stdout.read):
                message = parsed(line)
                if message is not None:
                    await receiving.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the client is closing
        except ServerEnded as error:
            self._failure = str(error)
        finally:
            self.ended.set()
            receiving.close()

    async def _write(self, process: Process, sending: MemoryObjectReceiveStream[SessionMessage]) -> None:
        assert process.stdin is not None
        try:
            async for message in sending:
                process.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await process.stdin.drain()
        except OSError:
            sending.close()  # the end of the output says more

    async def _read_errors(self, process: Process) -> None:
        assert process.stderr is not None
        while some := await process.stderr.read(_CHUNK):
            self._errors = (self._errors + some)[-_EDGE:]


async def _exits(process: Process, seconds: float) -> bool:
    """Return True if the process ends within this time."""
    try:
        async with asyncio.timeout(seconds):
            # Not `Process.wait`, which also waits for pipes that a descendant may hold.
            while process.returncode is None:  # noqa: ASYNC110 - the event loop sets it
                await asyncio.sleep(0.005)
    except TimeoutError:
        return False
    return True


def parsed(line: bytes | Oversized) -> SessionMessage | None:
    """Return the message in a line, None for an empty one or one that is no message, such as a log line.

    Raises:
        ServerEnded: A message is too long and does not say what it answers.
    """
    if isinstance(line, Oversized):
        answered = line.request_id()
        if answered is None:
            raise ServerEnded(f"it sent a message of {line.length:,} bytes; {_AT_MOST}")
        sentence = f"The answer has {line.length:,} bytes; {_AT_MOST}."
        error = ErrorData(code=INTERNAL_ERROR, message=sentence)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=answered, error=error))
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None
