"""Starting a command in the sandbox, reading its output, and ending it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import marshal
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from plugins.sandbox.bubblewrap import operations
from plugins.sandbox.landlock import rules
from plugins.sandbox.policy import PROXY_PORT, Ended, Level, SandboxFailed, SandboxPolicy
from plugins.sandbox.seccomp import filter_program
from plugins.sandbox.workspace_guard import guarded_paths

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_CHUNK = 64 * 1024
_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); import command_supervisor; command_supervisor.main()"


async def start(
    argv: Sequence[str],
    policy: SandboxPolicy,
    *,
    level: Level,
    environment: Mapping[str, str] | None = None,
    cwd: str = ".",
    stdin: bytes | int = b"",
) -> SandboxedProcess:
    """Start a command in the sandbox.

    Args:
        argv: The program, which is searched in the folders of the system, and its arguments.
        policy: What the command may reach.
        level: A level that works here, see `plugins.sandbox.detection`.
        environment: Variables in addition to `PATH`, `HOME`, `TMPDIR`, `LANG`, `USER`, and those that name the proxy.
            Nothing is inherited from the gateway.
        cwd: The folder to start in, relative to the workspace.
        stdin: The input of the command; or a descriptor to read it from, which stays open here.

    Raises:
        SandboxFailed: The sandbox could not be made; nothing has run.
    """
    specification = await asyncio.to_thread(_specification, list(argv), policy, level, dict(environment or {}), cwd)
    with contextlib.ExitStack() as kept, contextlib.ExitStack() as passed:
        try:
            control, controlled = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            kept.callback(control.close)
            passed.callback(controlled.close)
            control.setblocking(False)
            output, written = os.pipe2(os.O_CLOEXEC)
            kept.callback(os.close, output)
            passed.callback(os.close, written)
            os.set_blocking(output, False)
            file = passed.enter_context(_file_with(marshal.dumps(specification)))
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", "-X", "utf8", "-c", _PROGRAM, str(Path(__file__).parent)),
                *(str(file), str(controlled.fileno())),
                stdin=stdin if isinstance(stdin, int) else passed.enter_context(_file_with(stdin)),
                stdout=written,
                stderr=written,
                env={},
                cwd="/",
                pass_fds=(file, controlled.fileno()),
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxFailed(f"No process can be started: {error.strerror}.") from error
        kept.pop_all()
    started = SandboxedProcess(process, control, output, policy.limits.output)
    try:
        await started.begin()
    except BaseException:
        await started.kill()
        raise
    return started


class SandboxedProcess:
    """A running command. Leaving its `async with` block ends it, with every process that it started.

    Attributes:
        listener: A socket that listens at 127.0.0.1:`PROXY_PORT` inside the sandbox, if the policy says so and the level is
            `full`. It is the only way out of the sandbox. The caller serves and closes it.
    """

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket, output: int, most_output: int) -> None:
        self._process = process
        self._control = control
        self._output = output
        self._output_left = most_output
        self._is_read = False
        self._reason = "killed"
        self._end: asyncio.Task[Ended] | None = None
        self.listener: socket.socket | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    @property
    def pid(self) -> int:
        """The process that supervises the command."""
        return self._process.pid

    async def begin(self) -> None:
        """Wait until the command runs. Raises SandboxFailed if it never will."""
        report, descriptors = await self._receive()
        if descriptors:
            self.listener = socket.socket(fileno=descriptors[0])
            self.listener.setblocking(False)
        if "failed" in report or not report:
            raise SandboxFailed(report.get("failed") or f"The sandbox ended: {await self._first_output()}")

    async def output(self) -> AsyncIterator[bytes]:
        """Yield the output, standard error included, until the command and all of its processes have ended.

        A command whose output is not read waits. One with more output than its limit is killed. Only one iterator may be
        used at a time.
        """
        self._is_read = True
        try:
            while self._output >= 0:
                try:
                    chunk = os.read(self._output, min(_CHUNK, self._output_left + 1))
                except BlockingIOError:
                    await _readable(self._output)
                    continue
                if not chunk:
                    self._close_output()
                    return
                yield chunk[: self._output_left]
                self._output_left -= len(chunk)
                if self._output_left < 0:
                    await self.kill("output")
                    self._close_output()
                await asyncio.sleep(0)  # a command that writes fast would not let anything else run
        finally:
            self._is_read = False

    async def wait(self) -> Ended:
        """Wait until the command and all of its processes have ended; output that was not read is discarded."""
        async for _ in self.output():
            pass
        return await self._ended()

    async def kill(self, reason: str = "killed") -> Ended:
        """End the command and all of its processes, and return when none is left. Does nothing if it has ended."""
        if self._end is None or not self._end.done():
            self._reason = reason
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
        ended = await self._ended()
        if not self._is_read:
            self._close_output()
        return ended

    async def _ended(self) -> Ended:
        if self._end is None:
            self._end = asyncio.create_task(self._await_end(), name="sandboxed command")
        return await asyncio.shield(self._end)

    async def _await_end(self) -> Ended:
        report: dict[str, Any] = {}
        while "exit_code" not in report:
            report, descriptors = await self._receive()
            for descriptor in descriptors:  # the listener of a start that was cancelled
                os.close(descriptor)
            if not report:
                break
        await self._process.wait()
        self._control.close()
        ended = Ended(exit_code=report.get("exit_code", 137), reason=report.get("reason", "killed"))
        return msgspec.structs.replace(ended, reason=self._reason) if ended.reason == "killed" else ended

    async def _receive(self) -> tuple[dict[str, Any], list[int]]:
        """Return the next report of the supervisor; an empty one if it has ended."""
        await _readable(self._control.fileno())
        try:
            content, descriptors, _, _ = socket.recv_fds(self._control, _CHUNK, 1)
        except ConnectionError:
            return {}, []
        return (marshal.loads(content) if content else {}), descriptors  # noqa: S302 - of our own program

    async def _first_output(self) -> str:
        async for chunk in self.output():
            return chunk.decode(errors="replace").strip()
        return "it said nothing."

    def _close_output(self) -> None:
        if self._output >= 0:
            os.close(self._output)
            self._output = -1


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@contextlib.contextmanager
def _file_with(content: bytes) -> Iterator[int]:
    """Provide the descriptor of a file in memory, open at its beginning, in a `with` block."""
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        fcntl.fcntl(
            descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        )
        yield descriptor
    finally:
        os.close(descriptor)


def _specification(
    argv: list[str], policy: SandboxPolicy, level: Level, environment: dict[str, str], cwd: str
) -> dict[str, Any]:
    """Return what the supervisor needs to know, as values that `marshal` can write."""
    workspace = policy.workspace.resolve()
    folder = (workspace / cwd).resolve()
    if not folder.is_dir() or not folder.is_relative_to(workspace):
        raise SandboxFailed(f"{cwd} is not a folder of the workspace.")
    has_network = policy.network and level == "full"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    environment = {
        "PATH": _PATH,
        "HOME": "/tmp",  # noqa: S108 - of its own
        "TMPDIR": "/tmp",  # noqa: S108
        "LANG": "C.UTF-8",
        "USER": "user",
        "GIT_CONFIG_NOSYSTEM": "1",
        **(dict.fromkeys(names, _PROXY) | {"NO_PROXY": "localhost,127.0.0.1"} if has_network else {}),
        **environment,
    }
    found: dict[str, Any] = {
        "level": level,
        "argv": argv,
        "env": environment,
        "cwd": str(folder),
        "limits": msgspec.structs.asdict(policy.limits),
        "disks": [str(workspace)],
        "network": has_network,
        "port": PROXY_PORT,
        "placeholders": {},
        "tmp": os.path.realpath(tempfile.gettempdir()),
    }
    if level == "none":
        return found
    guarded = guarded_paths(policy, workspace)
    calls = filter_program(isolated=level == "full")
    if level == "partial":
        return found | {"rules": rules(policy, workspace, guarded), "filter": calls}
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxFailed("bubblewrap is not installed.")
    options = operations(policy, workspace, guarded, environment=environment, cwd=folder, calls=calls)
    missing = {
        str(workspace / path): content for path, content in guarded.read_only.items() if _is_missing(workspace / path)
    }
    return found | {"program": program, "bubblewrap": options, "placeholders": missing}


def _is_missing(path: Path) -> bool:
    """Return True for a path where nothing is, or where another command's supervisor has put a placeholder."""
    try:
        found = path.lstat()
    except OSError:
        return True
    return stat.S_IMODE(found.st_mode) == (0o555 if stat.S_ISDIR(found.st_mode) else 0o444) and found.st_nlink <= 2
