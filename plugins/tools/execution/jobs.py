"""Background jobs: commands that go on after their call has returned.

A job belongs to a session. It is stopped when the session ends, when its time is over, and when the gateway stops. While it
runs, a small file names it, from which the next process learns which jobs were lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import structlog

from plugins.api.command import JobEntry
from plugins.api.tool import ToolContext
from plugins.support.errors import ToolFailed
from plugins.tools.execution.running import CommandRunner, CommandSpec, RunningCommand

log = structlog.get_logger("exuvia.sandbox")

MAX_RUNNING = 8
MAX_RUNNING_IN_ALL = 24
"""Maximum jobs that run at a time, of one session and of all."""

MAX_REMEMBERED = 20
"""Maximum jobs of a session that are remembered, those that ended first are forgotten first."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a running job: its session and number there, its command, and its output file."""

    session: str
    number: int
    what: str
    output: str
    started: datetime


class Job:
    """A job. Its `command` is None if it was lost in a restart."""

    def __init__(
        self, record: JobRecord, command: RunningCommand | None = None, task: asyncio.Task[None] | None = None
    ) -> None:
        self.record = record
        self.command = command
        self.task = task
        self.position = 0
        """The characters of its output that the model has read."""

    @property
    def running(self) -> bool:
        """True until the command has ended."""
        return self.command is not None and not self.command.ending

    @property
    def entry(self) -> JobEntry:
        """The job as people and models see it."""
        if self.command is None:
            state = "gone, because the gateway stopped while it ran"
        else:
            state = self.command.ending or "running"
        record = self.record
        return JobEntry(number=record.number, what=record.what, state=state, running=self.running, output=record.output)


class Jobs:
    """The jobs of all sessions, used as an async context manager, at whose end all jobs are stopped.

    Args:
        runner: Runs the commands.
        folder: The folder of the jobs' files. It need not exist.
        now: Returns the current time.
    """

    def __init__(self, runner: CommandRunner, folder: Path, now: Callable[[], datetime]) -> None:
        self._runner = runner
        self._folder = folder
        self._now = now
        self._jobs: dict[str, dict[int, Job]] = {}
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._finding_lost = asyncio.Lock()
        self._found_lost = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _cancelled(tuple(self._tasks))

    async def start(self, spec: CommandSpec, call: ToolContext) -> Job:
        """Start a job of the call's session.

        Raises:
            ToolFailed: Too many jobs run already, or the command cannot be started.
        """
        await self._find_lost()
        if self.running(call.session) >= MAX_RUNNING or len(self._tasks) >= MAX_RUNNING_IN_ALL:
            raise ToolFailed(
                f"Too many jobs are running: {self.running(call.session)} of this session, {len(self._tasks)} in all."
                " Stop one, or wait for its end."
            )
        started: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._run(spec, call, started))
        self._tasks[task] = call.session
        task.add_done_callback(self._ended)
        try:
            waited: list[asyncio.Future[Any]] = [task, started]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _cancelled([task])
            raise
        if not started.done():
            task.result()  # raises its error
        return started.result()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ToolFailed):
            log.error("job_failed", exc_info=error)

    async def _run(self, spec: CommandSpec, call: ToolContext, started: asyncio.Future[Job]) -> None:
        async with self._runner.running(spec, call, job=True) as command:
            own = self._jobs.setdefault(call.session, {})
            record = JobRecord(
                session=call.session,
                number=max(own, default=0) + 1,
                what=spec.what,
                output=command.output.path,
                started=self._now(),
            )
            own[record.number] = job = Job(record, command, asyncio.current_task())
            for number in [each for each, other in own.items() if not other.running][:-MAX_REMEMBERED]:
                del own[number]
            try:
                await asyncio.to_thread(self._write, record)
                started.set_result(job)
                await command.finish()
            finally:
                self._file(record).unlink(missing_ok=True)

    def running(self, session: str) -> int:
        """Return the number of running jobs of a session."""
        return sum(each == session for each in self._tasks.values())

    async def of_session(self, session: str) -> Sequence[Job]:
        """Return the jobs of a session by number."""
        await self._find_lost()
        return list(self._jobs.get(session, {}).values())

    async def find(self, session: str, number: int | None) -> Job:
        """Return a job of a session by its number. Raises ToolFailed if there is none."""
        jobs = await self.of_session(session)
        for job in jobs:
            if job.record.number == number:
                return job
        known = ", ".join(str(job.record.number) for job in jobs) or "none"
        raise ToolFailed(f"There is no job {number}; jobs: {known}.")

    async def stop(self, job: Job) -> None:
        """Stop a job, with all its processes."""
        if job.command is not None and job.task is not None:
            await job.command.stop()
            await asyncio.wait([job.task])

    def end_session(self, session: str) -> None:
        """Stop and forget the jobs of a session, without waiting for their end."""
        _cancel(task for task, owner in self._tasks.items() if owner == session)
        self._jobs.pop(session, None)

    # --- jobs that were lost in a restart -----------------------------------------------------------------------------

    def _file(self, record: JobRecord) -> Path:
        return self._folder / f"{record.session}-{record.number}.json"

    def _write(self, record: JobRecord) -> None:
        with contextlib.suppress(OSError):  # then the next process does not know of it
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file(record).write_bytes(msgspec.json.encode(record))

    async def _find_lost(self) -> None:
        """Read the files of an earlier process, once."""
        async with self._finding_lost:
            if not self._found_lost:
                for record in await asyncio.to_thread(_read_and_remove, self._folder):
                    self._jobs.setdefault(record.session, {})[record.number] = Job(record)
                self._found_lost = True


def _read_and_remove(folder: Path) -> list[JobRecord]:
    found = []
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found.append(msgspec.json.decode(path.read_bytes(), type=JobRecord))
        with contextlib.suppress(OSError):
            path.unlink()
    return sorted(found, key=lambda record: record.number)


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended."""
    tasks = list(tasks)
    _cancel(tasks)
    if tasks:
        await asyncio.wait(tasks)


def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks, each once: a second time would interrupt the end of its processes."""
    for task in tasks:
        if not task.cancelling():
            task.cancel()
