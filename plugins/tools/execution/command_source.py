"""The tools that run commands, as far as they are enabled and the sandbox suffices. Nothing is imported until they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import msgspec
import structlog

from plugins.sandbox.policy import Level, SandboxKeys, SandboxStatus, accepted_level

if TYPE_CHECKING:
    from plugins.api.tool import Tool
    from plugins.tools.execution.jobs import Jobs
    from plugins.tools.execution.running import CommandSettings


log = structlog.get_logger("exuvia.sandbox")


class CommandKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.shell]` and `[tools.python]`: offer the tool."""

    enabled: bool = False


class ExecutionKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the configuration that concerns commands."""

    shell: bool
    python: bool
    sandbox: SandboxKeys
    access: Literal["rw", "ro", "none"]

    @property
    def enabled(self) -> list[str]:
        """The names of the enabled tools."""
        return [name for name in ("shell", "python") if getattr(self, name)]


def command_level(keys: ExecutionKeys, status: SandboxStatus) -> Level | None:
    """Return the level that commands run at, None if they must not run."""
    if keys.access == "none":
        return None
    level = accepted_level(keys.sandbox.level, status)
    return None if level == "none" and keys.access == "ro" else level


def command_problems(keys: ExecutionKeys, status: SandboxStatus) -> list[str]:
    """Return a sentence if commands run unconfined, are not offered although they are enabled, or have no network."""
    if not keys.enabled:
        return []
    commands, level = f"Commands ({' and '.join(keys.enabled)})", command_level(keys, status)
    match level:
        case None if keys.access == "none":
            problem = f"{commands} are not offered, because agent.workspace_access is none."
        case None if keys.sandbox.level == "none":
            problem = f"{commands} are not offered: without a sandbox, agent.workspace_access must be rw."
        case None:
            problem = f"{commands} are not offered; the sandbox's level is {status.level}: {status.reason} {status.fix}"
        case "none":
            problem = f"{commands} run unconfined, with all rights of the gateway's user: sandbox.level is none."
        case "partial" if keys.sandbox.network:
            problem = (
                f"{commands} have no network, although sandbox.network lists hosts: that needs the sandbox's level full."
            )
        case _:
            return []
    return [problem]


class CommandSource:
    """A `ToolSource`, used as an async context manager, at whose end all jobs are stopped.

    Args:
        keys: Returns the configuration in force.
        workspace: The workspace.
        protected: Returns the paths in it that no tool may change.
        folder: The folder for the files of jobs. It need not exist.
        now: Returns the current time.
        path: The variable `PATH` for commands without a sandbox.
    """

    def __init__(
        self,
        keys: Callable[[], ExecutionKeys],
        *,
        workspace: Path,
        protected: Callable[[], Sequence[str]],
        folder: Path,
        now: Callable[[], datetime],
        path: str,
    ) -> None:
        self.jobs: Jobs | None = None
        """The background jobs, None as long as no command was enabled."""
        self._keys = keys
        self._workspace = workspace
        self._protected = protected
        self._folder = folder
        self._now = now
        self._path = path
        self._status: SandboxStatus | None = None
        self._tools: dict[str, Tool] = {}
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def prepare(self, keys: ExecutionKeys) -> None:
        """Find out what the sandbox can do here, if keys that are about to be in force enable a tool; log problems."""
        if self._status is not None or not keys.enabled:
            return
        from plugins.sandbox.detection import detect  # noqa: PLC0415 - only where commands are enabled
        from plugins.tools.execution.command_tools import JobsTool, Python, Shell  # noqa: PLC0415
        from plugins.tools.execution.jobs import Jobs  # noqa: PLC0415
        from plugins.tools.execution.running import CommandRunner  # noqa: PLC0415

        self._status = await detect()
        runner = CommandRunner(self._settings, self._workspace, self._protected, self._path)
        self.jobs = await self._stack.enter_async_context(Jobs(runner, self._folder, self._now))
        for sentence in command_problems(keys, self._status):
            log.warning("commands", problem=sentence)
        self._tools = {"shell": Shell(runner, self.jobs), "python": Python(runner, self.jobs), "jobs": JobsTool(self.jobs)}

    def end_session(self, session: str) -> None:
        """Stop and forget the jobs of a session."""
        if self.jobs is not None:
            self.jobs.end_session(session)

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools that are enabled, and `jobs` with them."""
        enabled = self._keys().enabled if self._level() is not None else []
        return {name: self._tools[name] for name in [*enabled, *(["jobs"] if enabled else [])] if name in self._tools}

    def problems(self) -> list[str]:
        """Return what the operator should know about commands, as sentences."""
        return [] if self._status is None else command_problems(self._keys(), self._status)

    def _level(self) -> Level | None:
        return None if self._status is None else command_level(self._keys(), self._status)

    def _settings(self) -> CommandSettings:
        from plugins.support.errors import ToolFailed  # noqa: PLC0415
        from plugins.tools.execution.running import CommandSettings  # noqa: PLC0415

        keys, level = self._keys(), self._level()
        if level is None or keys.access == "none":
            raise ToolFailed("The configuration no longer allows commands.")
        return CommandSettings(level=level, network=keys.sandbox.network, access=keys.access)
