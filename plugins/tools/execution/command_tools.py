"""The tools `shell` and `python`, which run a command, and `jobs`, which lists and stops those in the background."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from plugins.api.tool import ApprovalRequest, ToolContext, ToolOutput
from plugins.support.errors import ToolFailed
from plugins.tools.execution.jobs import Job, Jobs
from plugins.tools.execution.plain_command import digest_of_files, is_rememberable, parse
from plugins.tools.execution.running import CommandRunner, CommandSpec
from plugins.tools.file_changes import convert
from sessions.events.messages import ToolDefinition

SECONDS = 120
MAX_SECONDS = 280
"""The time limit of a command in seconds: the default, and the maximum, which is less than what every tool has."""

BACKGROUND_SECONDS = 3600
MAX_BACKGROUND_SECONDS = 24 * 3600
"""The same for a job in the background."""

MAX_WAIT_SECONDS = 240
"""Maximum seconds that `jobs` waits for the end of a job."""

MAX_SCRIPT_CHARACTERS = 30_000
"""Maximum length of a command or program: the kernel takes arguments of up to 128 KiB."""

MAX_TITLE = 200
"""Maximum characters of a script's first line in its description."""

_Script = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SCRIPT_CHARACTERS)]


class RunArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments that `shell` and `python` share."""

    folder: str = "."
    timeout: Annotated[int, msgspec.Meta(ge=1)] | None = None
    background: bool = False

    def command_for(self, argv: tuple[str, ...], script: str) -> CommandSpec:
        """Return the command that runs a script. Raises ToolFailed if the time limit is too long."""
        default, most = (BACKGROUND_SECONDS, MAX_BACKGROUND_SECONDS) if self.background else (SECONDS, MAX_SECONDS)
        if self.timeout is not None and self.timeout > most:
            hint = "" if self.background else "; with background it can be longer"
            raise ToolFailed(f"The timeout can be at most {most:,} seconds{hint}.")
        return CommandSpec(argv=argv, what=_title(script), folder=self.folder, seconds=self.timeout or default)


class ShellArguments(RunArguments, frozen=True, kw_only=True):
    """Arguments of the `shell` tool."""

    command: _Script


class PythonArguments(RunArguments, frozen=True, kw_only=True):
    """Arguments of the `python` tool."""

    code: _Script


def _definition(name: str, description: str, script: str, what: str) -> ToolDefinition:
    background = f"in the background {BACKGROUND_SECONDS:,} by default and at most {MAX_BACKGROUND_SECONDS:,}"
    timeout = f"Seconds after which it is stopped: {SECONDS} by default, at most {MAX_SECONDS}; {background}."
    return ToolDefinition(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": {
                script: {"type": "string", "description": what},
                "folder": {"type": "string", "description": "The folder to run it in, relative to the workspace."},
                "timeout": {"type": "integer", "minimum": 1, "description": timeout},
                "background": {
                    "type": "boolean",
                    "description": "Return at once while it goes on. The tool jobs shows its output and stops it.",
                },
            },
            "required": [script],
            "additionalProperties": False,
        },
    )


class PreparedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of `shell` or `python`: its arguments, its command, and what a person is shown of it."""

    request: RunArguments
    spec: CommandSpec
    described: ApprovalRequest


class CommandTool:
    """The base class of `shell` and `python`."""

    repeatable: ClassVar[bool] = False

    def __init__(self, runner: CommandRunner, jobs: Jobs) -> None:
        self._runner = runner
        self._jobs = jobs

    def prepare(self, arguments: dict[str, Any]) -> PreparedCall:
        """Return the call of these arguments. Raises ToolFailed."""
        raise NotImplementedError

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest:
        """Describe the command, where and for how long it runs, and the files that it names.

        Raises:
            ToolFailed: The arguments are not valid.
        """
        prepared = self.prepare(arguments)
        described, spec = prepared.described, prepared.spec
        workspace, folder = self._runner.workspace_of(call), self._runner.folder_of(spec, call)
        text = described.detail or described.what
        circumstances = [
            *([f"In the folder {folder}."] if folder != "." else []),
            *([f"In the background, for at most {spec.seconds:,} seconds."] if prepared.request.background else []),
            *([self._runner.warning] if self._runner.warning else []),
        ]
        script = described.detail if described.detail != described.what else ""
        return msgspec.structs.replace(
            described,
            path="" if folder == "." else folder,
            detail="\n\n".join([" ".join(circumstances), script]).strip("\n"),
            state=await asyncio.to_thread(digest_of_files, workspace, folder, text),
        )

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Run the command and return its output, or start a job.

        Raises:
            ToolFailed: The command could not be started.
        """
        prepared = self.prepare(arguments)
        if prepared.request.background:
            job = await self._jobs.start(prepared.spec, call)
            return ToolOutput(
                text=f"Started job {job.record.number}. The tool jobs shows its output, which goes to {job.record.output}."
            )
        async with self._runner.running(prepared.spec, call) as command:
            await command.finish()
        return ToolOutput(text=command.report(), exit_code=command.exit_code)


class Shell(CommandTool):
    """The `shell` tool, which runs a shell command."""

    definition: ClassVar[ToolDefinition] = _definition(
        "shell",
        "Run a shell command (bash) in the workspace, and return its output and exit code. It has no terminal and no input,"
        " and reaches only the workspace and the hosts that the operator allows.",
        "command",
        "The command.",
    )

    def prepare(self, arguments: dict[str, Any]) -> PreparedCall:
        """Return the call of these arguments. Raises ToolFailed."""
        request = convert(arguments, ShellArguments)
        argv = parse(_checked(request.command))
        what = shlex.join(argv) if argv else _title(request.command)
        return PreparedCall(
            request=request,
            spec=request.command_for((_shell(), "-c", request.command), request.command),
            described=ApprovalRequest(
                what=what, detail="" if argv else request.command, argv=argv, rememberable=is_rememberable(argv)
            ),
        )


class Python(CommandTool):
    """The `python` tool, which runs a Python program."""

    definition: ClassVar[ToolDefinition] = _definition(
        "python",
        "Run a Python program in the workspace, and return its output and exit code. Print what you want to see. It has no"
        " input, and reaches only the workspace and the hosts that the operator allows.",
        "code",
        "The program.",
    )

    def prepare(self, arguments: dict[str, Any]) -> PreparedCall:
        """Return the call of these arguments. Raises ToolFailed."""
        request = convert(arguments, PythonArguments)
        what = _title(_checked(request.code))
        return PreparedCall(
            request=request,
            spec=request.command_for(("python3", "-c", request.code), request.code),
            described=ApprovalRequest(what=what, detail=request.code, rememberable=False),
        )


class JobsArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of the `jobs` tool."""

    action: Literal["list", "output", "stop"] = "list"
    job: Annotated[int, msgspec.Meta(ge=1)] | None = None
    wait: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0


class JobsTool:
    """The `jobs` tool, which lists, shows and stops the session's jobs in the background."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="jobs",
        description="List the commands of this session that run in the background, show the output of one, or stop one.",
        parameters={
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "enum": ["list", "output", "stop"],
                    "description": "`output` shows what is new since it was last shown. The default is `list`.",
                },
                "job": {"type": "integer", "minimum": 1, "description": "The number of the job, for output and stop."},
                "wait": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": MAX_WAIT_SECONDS,
                    "description": "For output: wait up to so many seconds for the end of the job.",
                },
            },
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = False

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest | None:
        """Return None: each job was approved, and only the session's own are shown and stopped."""
        return None

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """List the jobs, show the output of one, or stop one.

        Raises:
            ToolFailed: There is no such job.
        """
        request = convert(arguments, JobsArguments)
        if request.action == "list":
            return ToolOutput(text="\n".join(map(_line, await self._jobs.of_session(call.session))) or "There are no jobs.")
        job = await self._jobs.find(call.session, request.job)
        if request.action == "stop":
            await self._jobs.stop(job)
        elif job.command is not None:
            await job.command.until_ended(request.wait)
        return ToolOutput(text=f"{_line(job)}\n{_new_output(job)}", exit_code=job.command.exit_code if job.command else None)


def _line(job: Job) -> str:
    entry = job.entry
    return f"{entry.number}: {entry.state}: {entry.what}"


def _new_output(job: Job) -> str:
    if job.command is None:
        return f"Its output until then is in {job.record.output}."
    new, job.position = job.command.output.since(job.position)
    return new or "(no new output)"


@cache
def _shell() -> str:
    return "bash" if shutil.which("bash") else "sh"


def _title(text: str) -> str:
    """Return the first line of a script, with how many follow."""
    lines = text.strip().splitlines()
    first = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in lines[0][:MAX_TITLE])
    cut = "…" if len(lines[0]) > MAX_TITLE else ""
    more = {0: "", 1: " (and 1 more line)"}.get(len(lines) - 1, f" (and {len(lines) - 1:,} more lines)")
    return f"{first}{cut}{more}"


def _checked(text: str) -> str:
    """Return a script that can be passed to a program. Raises ToolFailed."""
    if "\0" in text or not text.strip():
        raise ToolFailed("It is empty." if not text.strip() else "It contains a NUL.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed("It is not valid Unicode.") from error
    return text
