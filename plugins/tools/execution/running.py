"""Running a command in the sandbox: what it may reach, its output, its deadline and its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from plugins.api.tool import ToolContext
from plugins.http.public_addresses import resolve_public
from plugins.sandbox.policy import Level, SandboxFailed, SandboxPolicy
from plugins.sandbox.process import SandboxedProcess, start
from plugins.support.errors import ToolFailed
from plugins.support.safe_open import OutsideFolder, components
from plugins.support.workspace import MAIN, OWNER, PEOPLE, meant
from plugins.tools.execution.command_output import CommandOutput, output_name
from plugins.tools.execution.network_proxy import NetworkProxy

PROGRESS_SECONDS = 0.1
"""The shortest time between two pieces of output that people are shown."""

PROGRESS_CHARACTERS = 4096
"""Maximum characters of such a piece; of more, the end is shown."""

SMALL_BYTES = 4096
"""A piece of output that is at most so long, and is not written to a file, is not worth a thread."""

ENVIRONMENT = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PYTHONUNBUFFERED": "1",
    "NODE_USE_ENV_PROXY": "1",
}
"""Variables for programs that would expect a person at a terminal."""

_LIMITS = {
    "memory": "it used too much memory",
    "processes": "it started too many processes",
    "disk": "it filled the disk",
    "output": "it printed too much",
}


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of commands now.

    Attributes:
        level: The sandbox's level.
        network: The hosts that commands may reach.
        access: How commands may use the workspace.
    """

    level: Level
    network: tuple[str, ...]
    access: Literal["rw", "ro"]


class CommandSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run.

    Attributes:
        argv: The program and its arguments.
        what: The command in one line, for people.
        folder: The folder to run it in, relative to the person's folder of the workspace.
        seconds: The time after which it is stopped.
    """

    argv: tuple[str, ...]
    what: str
    folder: str
    seconds: int


class RunningCommand:
    """A command that runs or has ended.

    Attributes:
        output: What it has printed.
        ending: How it ended, in words; empty while it runs.
        exit_code: Its exit code, None while it runs or if it was stopped.
    """

    def __init__(
        self, process: SandboxedProcess, output: CommandOutput, spec: CommandSpec, progress: Callable[[str], None] | None
    ) -> None:
        self.output = output
        self.ending = ""
        self.exit_code: int | None = None
        self._process = process
        self._spec = spec
        self._progress = None if progress is None else _Progress(progress)
        self._ended = asyncio.Event()
        self._stopped = ""
        self.proxy: NetworkProxy | None = None

    async def finish(self) -> None:
        """Read the output until the command has ended; stop it when its time is over."""
        try:
            async with asyncio.timeout(self._spec.seconds):
                await self._read()
        except TimeoutError:
            seconds = self._spec.seconds
            await self._stop(f"stopped after {seconds:,} second{'s' * (seconds != 1)}")
            await self._read()
        ended = await self._process.wait()
        await self._close_output()
        if ended.reason in _LIMITS:
            self._ended_with(f"killed, because {_LIMITS[ended.reason]}")
        elif self._stopped:
            self._ended_with(self._stopped)
        else:
            self.exit_code = ended.exit_code
            self._ended_with(f"exit code {ended.exit_code}")

    async def stop(self) -> None:
        """Stop the command with all its processes, and return when `finish` has noticed."""
        if not self.ending:
            await self._stop("stopped")
            await self._ended.wait()

    async def until_ended(self, seconds: float) -> None:
        """Return when the command has ended, after `seconds` at the latest."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    def report(self) -> str:
        """Return the output as the model reads it, with how the command ended."""
        text = self.output.shown()
        notes = [f"[{self.ending}]"] if self.exit_code != 0 else []
        notes += [f"[network: {sentence}]" for sentence in (self.proxy.refusals if self.proxy else ())]
        if not text:
            return "\n".join(notes) or "(no output)"
        return "\n".join([text.removesuffix("\n"), *notes]) if notes else text

    async def abandon(self) -> None:
        """End the command if it still runs, because nobody waits for it any more."""
        await self._process.kill()
        if not self.ending:
            await self._close_output()
            self._ended_with("stopped")

    async def _stop(self, ending: str) -> None:
        self._stopped = self._stopped or ending
        await self._process.kill()

    def _ended_with(self, ending: str) -> None:
        self.ending = ending
        self._ended.set()

    async def _read(self) -> None:
        async for data in self._process.output():
            if len(data) <= SMALL_BYTES and not self.output.is_long:
                text = self.output.feed(data)
            else:
                text = await asyncio.to_thread(self.output.feed, data)
            if self._progress is not None:
                self._progress.add(text)

    async def _close_output(self) -> None:
        text = await asyncio.to_thread(self.output.finish)
        if self._progress is not None:
            self._progress.add(text)
            self._progress.show()


class _Progress:
    """Shows pieces of output, not more often than people can see."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._loop = asyncio.get_running_loop()
        self._pending = ""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, text: str) -> None:
        """Show a piece, at once or together with what follows."""
        cut = len(self._pending) + len(text) > PROGRESS_CHARACTERS
        self._pending = f"[…]\n{(self._pending + text)[-PROGRESS_CHARACTERS:]}" if cut else self._pending + text
        if self._timer is None and self._pending:
            self._timer = self._loop.call_later(PROGRESS_SECONDS, self.show)

    def show(self) -> None:
        """Show what is pending."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending:
            self._show(self._pending)
            self._pending = ""


class CommandRunner:
    """Runs commands in the workspace.

    Args:
        settings: Returns the settings of commands now.
        workspace: The workspace.
        protected: Returns the paths in it that no tool may change.
        path: The variable `PATH` for commands without a sandbox.
    """

    def __init__(
        self, settings: Callable[[], CommandSettings], workspace: Path, protected: Callable[[], Sequence[str]], path: str
    ) -> None:
        self._settings = settings
        self._workspace = workspace
        self._protected = protected
        self._path = path

    @property
    def warning(self) -> str:
        """A sentence for the person who approves a command; empty if it runs in a sandbox."""
        return "" if self._settings().level != "none" else "It runs unconfined, with all rights of the gateway's user."

    def workspace_of(self, call: ToolContext) -> Path:
        """Return the folder that commands of this call work in: the whole workspace, or the folder of another person."""
        return self._workspace.joinpath(*meant((".",), call.person))

    def folder_of(self, spec: CommandSpec, call: ToolContext) -> str:
        """Return the folder of a command relative to that, without looking for it. ToolFailed if it lies elsewhere."""
        try:
            return "/".join(components(self.workspace_of(call), spec.folder))
        except OutsideFolder as error:
            raise ToolFailed(f"The folder is not valid: {error}") from error

    @contextlib.asynccontextmanager
    async def running(self, spec: CommandSpec, call: ToolContext, *, job: bool = False) -> AsyncIterator[RunningCommand]:
        """Run a command while the block runs. At its end no process of it is left.

        Args:
            spec: The command.
            call: The call.
            job: It runs in the background: its output goes to a file from the beginning, and is not shown as it comes.

        Raises:
            ToolFailed: The command could not be started.
        """
        settings = self._settings()
        output = CommandOutput(self._workspace, call.person, output_name(call.call), at_once=job)
        proxy = NetworkProxy(lambda: self._settings().network, call.session, resolve_public)
        async with contextlib.AsyncExitStack() as stack:
            process = await self._started(spec, call, settings)
            command = RunningCommand(process, output, spec, None if job else call.progress)
            stack.push_async_callback(command.abandon)
            if process.listener is not None:
                command.proxy = proxy
                await stack.enter_async_context(proxy.serving(process.listener))
            yield command

    async def _started(self, spec: CommandSpec, call: ToolContext, settings: CommandSettings) -> SandboxedProcess:
        workspace = self.workspace_of(call)
        folder = self.folder_of(spec, call)
        try:
            await asyncio.to_thread(workspace.mkdir, mode=0o700, parents=True, exist_ok=True)
            return await start(
                spec.argv,
                self._policy(workspace, call, settings),
                level=settings.level,
                environment=self._environment(settings),
                cwd=folder,
            )
        except SandboxFailed as error:
            raise ToolFailed(f"The command was not started: {error}") from error

    def _policy(self, workspace: Path, call: ToolContext, settings: CommandSettings) -> SandboxPolicy:
        private = [workspace / PEOPLE] if call.person == OWNER else []
        if call.group:
            private.append(workspace / MAIN)
        return SandboxPolicy(
            workspace=workspace,
            read_only=settings.access == "ro",
            protected=self._protected_in(workspace),
            private=tuple(private),
            network=bool(settings.network) and settings.level == "full",
        )

    def _protected_in(self, workspace: Path) -> tuple[str, ...]:
        """Return the protected paths below a folder, relative to it."""
        paths = [self._workspace / path for path in self._protected()]
        return tuple(str(path.relative_to(workspace)) for path in paths if path.is_relative_to(workspace))

    def _environment(self, settings: CommandSettings) -> dict[str, str]:
        return {**ENVIRONMENT, "PATH": self._path} if settings.level == "none" and self._path else ENVIRONMENT
