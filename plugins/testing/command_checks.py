"""Conformance checks for commands, and a conversation for testing them. Inherit the class in a test module, and set the
command and an argument:

    class TestMine(CommandConformance):
        command = Mine
        argument = "tomorrow"

Override `conversation` for a command that needs a special conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import ClassVar, cast

import msgspec

from plugins.api.command import (
    AgentEntry,
    Command,
    CommandFailed,
    CommandHelp,
    CompactionEntry,
    ContextItem,
    ContextReport,
    ConversationEntry,
    ConversationView,
    FactsView,
    HeartbeatEntry,
    HistoryEntry,
    JobEntry,
    McpView,
    MemoryMatches,
    MemoryReport,
    NoteEntry,
    OfferedModels,
    OpenQuestion,
    PairingsView,
    PruningReport,
    QueueState,
    RememberedApproval,
    SamplingState,
    ScheduleEntry,
    ScheduleOptions,
    SchedulesView,
    SkillsView,
    SpendingSummary,
)
from plugins.api.fact_values import NoSuchFact
from plugins.host import validation
from plugins.testing.checks import assert_not_blocking, check, check_sentence
from sessions.events.events import ApprovalScope, UndoneFile
from sessions.events.messages import Usage

COMPACTED = CompactionEntry(
    number=2,
    at="2026-11-21T12:00:00.000Z",
    why="requested",
    messages=12,
    tokens_before=9_000,
    tokens_after=1_000,
    by="model_summary",
    summary="## Goals\n\n- Paint the sky.",
    kept=("src/a.py", "#12"),
    lost=("v1.2",),
    checks=("An identifier was missing.",),
)


class NoFacts:
    """A `FactsView` without facts."""

    async def listed(self, *_: object) -> list[object]:
        return []

    daily = listed

    async def clear(self) -> int:
        return 0

    async def pin(self, *_: object, **__: object) -> object:
        raise NoSuchFact("There is no such fact.")

    edit = forget = history = pin


class NoSkills:
    """A `SkillsView` without skills."""

    async def listed(self) -> list[object]:
        """Return no skills."""
        return []

    async def show(self, name: str, *_: object) -> object:
        """Find no skill."""
        raise CommandFailed(f"There is no skill {name!r}.")

    admit = revoke = show


class NoServers:
    """An `McpView` without servers."""

    def listed(self) -> list[object]:
        """Return no servers."""
        return []

    async def changes(self, server: str, *_: object) -> object:
        """Find no server."""
        raise CommandFailed(f"There is no MCP server {server!r}.")

    accept = run_prompt = log_in = changes


class FixedSchedules:
    """A `SchedulesView` with one schedule; `done` records the changes."""

    ENTRY: ClassVar[ScheduleEntry] = ScheduleEntry(
        id="abc123", text="Water ``` the plants.", rule="every 2 d", next="2026-06-10T09:00:00Z", key="main"
    )

    def __init__(self, done: list[object]) -> None:
        self._done = done

    async def entries(self) -> Sequence[ScheduleEntry]:
        return [self.ENTRY]

    @property
    def zone(self) -> str:
        """Return UTC."""
        return "UTC"

    async def heartbeat(self) -> HeartbeatEntry | None:
        """Return one that has cost 12 cents."""
        return HeartbeatEntry(
            every="every 30 min",
            active="08:00-22:00",
            zone="UTC",
            key="main",
            next="2026-06-10T09:00:00Z",
            last="sent",
            sent=4,
            skipped=1,
            cost=120_000,
            currency="USD",
        )

    async def show(self, id_: str) -> ScheduleEntry:
        """Return the schedule."""
        return self.ENTRY

    async def add(self, text: str, *, reminder: bool, options: ScheduleOptions | None = None) -> ScheduleEntry:
        """Record the text."""
        self._done.append(("remind" if reminder else "schedule", text))
        return self.ENTRY

    async def remove(self, id_: str) -> ScheduleEntry:
        self._done.append(("remove", id_))
        return self.ENTRY

    async def run(self, id_: str) -> None:
        self._done.append(("run", id_))

    async def propose(self, text: str, *, reminder: bool, options: ScheduleOptions | None = None) -> ScheduleEntry | None:
        """Propose nothing."""
        return None

    async def confirm(self) -> ScheduleEntry:
        """Record that the proposal was confirmed."""
        self._done.append("confirm")
        return self.ENTRY

    async def pause(self, id_: str) -> ScheduleEntry:
        """Record that the schedule was paused."""
        self._done.append(("pause", id_))
        return self.ENTRY

    async def resume(self, id_: str) -> ScheduleEntry:
        """Record that the schedule was resumed."""
        self._done.append(("resume", id_))
        return self.ENTRY


class NoPairings:
    """A `PairingsView` without addresses and codes."""

    async def linked(self) -> list[object]:
        """Return no addresses."""
        return []

    requests = linked

    async def find(self, code: str, *_: object) -> object:
        """Find no code or address."""
        raise CommandFailed("There is no such code or address.")

    admit = remove = find


class StaticApprovals:
    """An `ApprovalsView` of `open` questions and one remembered approval, `p2r8`. Changes go to `done`."""

    def __init__(self, done: list[object]) -> None:
        self.open = [OpenQuestion(approval="k3f9", key="main", text="May `shell` do this?")]
        self._done = done

    async def questions(self) -> Sequence[OpenQuestion]:
        return self.open

    async def answer(self, approval: str, *, approve: bool, scope: ApprovalScope = "once") -> str:
        """Record the answer. Raise CommandFailed unless the question is open."""
        if all(question.approval != approval for question in self.open):
            raise CommandFailed("No such question is open.")
        self._done.append(("answer", approval, approve, scope))
        return f"Approved {scope}." if approve else "Denied."

    async def remembered(self) -> Sequence[RememberedApproval]:
        return [RememberedApproval(id="p2r8", at="2026-11-21T12:00:00.000Z", text="exactly the command `git status`")]

    async def revoke(self, rule: str) -> str:
        """Record the change. Raise CommandFailed for any other rule than `p2r8`."""
        if rule != "p2r8":
            raise CommandFailed("There is no such rule.")
        self._done.append(("revoke", rule))
        return "exactly the command `git status`"


class StaticConversation:
    """A fake `ConversationView` for testing commands. `done` records the changes as tuples that begin with a word; the
    other attributes are the state, and may be set."""

    person = "owner"
    client = "terminal"
    channel = "websocket"
    key = "main"
    session = "20261121-031241-7k2m9q"

    def __init__(self, *, running: bool = False, said: Sequence[HistoryEntry] = ()) -> None:
        self.running = running
        self.said = said
        self.done: list[object] = []
        self.mode = "followup"
        self.is_verbose = False
        self.effort: str | None = None
        self.efforts: tuple[str, ...] = ("low", "high")
        self.temperature: float | None = None
        self.range: tuple[float, float] | None = (0.0, 2.0)
        self.tokens: Mapping[str, Mapping[str, Usage]] = {}
        self.of_plugins: Mapping[str, Mapping[str, Usage]] = {}
        self.before = Usage()
        self.items: tuple[ContextItem, ...] = ()
        self.pruned = PruningReport()
        self.window: int | None = 1000
        self.counted: int | None = None
        self.reserve: int | None = None
        self.made: tuple[CompactionEntry, ...] = ()
        self.background: tuple[JobEntry, ...] = ()
        self.titled = ""
        self.others: tuple[ConversationEntry, ...] = ()
        self.approvals = StaticApprovals(self.done)

    def commands(self) -> Sequence[CommandHelp]:
        return [CommandHelp(name="status", usage="/status", summary="Say how it is.")]

    def status(self) -> str:
        return "all is well"

    def model(self) -> str:
        return "local:smollm2, because it is installed"

    def models(self) -> Sequence[str]:
        return ["local:smollm2", "openai:gpt"]

    async def offered_models(self) -> Sequence[OfferedModels]:
        return [OfferedModels(provider="openai", models=("gpt", "gpt-mini"))]

    async def choose_model(self, name: str | None) -> str:
        """Record the choice. Raise CommandFailed for the provider `nobody`."""
        self.done.append(("choose", name))
        if name == "nobody:x":
            raise CommandFailed("There is no provider nobody.")
        return f"{name or 'auto'}, because it was chosen"

    def sampling(self) -> SamplingState:
        return SamplingState(
            model="openai:gpt", effort=self.effort, efforts=self.efforts, temperature=self.temperature, range=self.range
        )

    async def choose_effort(self, level: str | None) -> None:
        """Change the effort. Raise CommandFailed for an unknown level."""
        if level is not None and level not in self.efforts:
            raise CommandFailed("There is no such level.")
        self.effort = level
        self.done.append(("effort", level))

    async def choose_temperature(self, value: float | None) -> None:
        self.temperature = value
        self.done.append(("temperature", value))

    async def history(self, count: int, *, commands: bool = False) -> Sequence[HistoryEntry]:
        self.done.append(("history", count, commands))
        return self.said[-count:]

    def queue(self) -> QueueState:
        return QueueState(mode=self.mode, waiting=2, limit=20)

    async def choose_queue(self, mode: str | None) -> None:
        self.mode = mode or "followup"

    async def jobs(self) -> Sequence[JobEntry]:
        return self.background

    async def stop_job(self, number: int) -> None:
        """Record the request. Raise CommandFailed if there is no such job."""
        if number not in [job.number for job in self.background]:
            raise CommandFailed(f"There is no job {number}.")
        self.done.append(("stop_job", number))

    def verbose(self) -> bool:
        return self.is_verbose

    async def choose_verbose(self, on: bool | None) -> None:
        self.is_verbose = bool(on)
        self.done.append(("verbose", on))

    def local(self, at: str) -> datetime:
        return datetime.fromisoformat(at).astimezone(UTC)

    def spent(self) -> Mapping[str, Mapping[str, Usage]]:
        return self.tokens

    async def spending(self) -> SpendingSummary:
        return SpendingSummary(currency="USD")

    def spent_by_plugins(self) -> Mapping[str, Mapping[str, Usage]]:
        return self.of_plugins

    def inherited(self) -> Usage:
        return self.before

    async def context(self) -> ContextReport:
        return ContextReport(
            items=self.items, window=self.window, counted=self.counted, reserve=self.reserve, pruned=self.pruned
        )

    async def compact(self, focus: str) -> CompactionEntry:
        """Return `COMPACTED`. Raise CommandFailed for the focus `nothing`."""
        if focus == "nothing":
            raise CommandFailed("There is nothing to compact.")
        return msgspec.structs.replace(COMPACTED, noted=self.is_verbose)

    async def compactions(self, count: int) -> Sequence[CompactionEntry]:
        return self.made[-count:]

    async def revert(self, number: int) -> int:
        self.done.append(("revert", number))
        return 12_345

    async def forget_lines(self, place: str) -> str:
        self.done.append(("forget", place))
        return "- old ``` line"

    async def distill(self) -> tuple[int, int]:
        return 1200, 3

    @property
    def facts(self) -> FactsView:
        return cast("FactsView", NoFacts())

    @property
    def pairings(self) -> PairingsView:
        return cast("PairingsView", NoPairings())

    @property
    def schedules(self) -> SchedulesView:
        return FixedSchedules(self.done)

    @property
    def skills(self) -> SkillsView:
        return cast("SkillsView", NoSkills())

    @property
    def mcp(self) -> McpView:
        return cast("McpView", NoServers())

    async def message(self, session: str, seq: int) -> str:
        return ""

    async def remember(self, text: str) -> str:
        self.done.append(("remember", text))
        return "MEMORY.md#L3-L3"

    async def memory(self) -> MemoryReport:
        note = NoteEntry(path="memory/2026-11-20.md", bytes=1_234, changed="2 h ago")
        return MemoryReport(notes=2, sessions=1, chunks=7, how="by words", latest=(note,), remarks=("It is behind.",))

    async def search_memory(self, query: str) -> MemoryMatches:
        """Return one result for `tea`, otherwise none."""
        self.done.append(("search", query))
        hits = (("MEMORY.md#L3-L4", "tea\n\nwithout milk"),) if query == "tea" else ()
        return MemoryMatches(hits=hits, remarks=() if hits else ("Nothing matches in 2 notes.",))

    async def excerpt(self, path: str, first: int, lines: int) -> str:
        """Return the two lines of the hit for `tea`, and "" elsewhere."""
        self.done.append(("excerpt", f"{path} {first} {lines}"))
        return "tea\nwithout milk" if path == "MEMORY.md" else ""

    async def undo(self) -> Sequence[UndoneFile]:
        """Return what was done with three files."""
        self.done.append("undo")
        return (
            UndoneFile(path="notes.md", outcome="restored"),
            UndoneFile(path="new.md", outcome="removed"),
            UndoneFile(path="memory/tea.md", outcome="kept", why="it was changed since"),
        )

    def stop_turn(self) -> bool:
        return self.running

    async def spawn(self, task: str, tools: Sequence[str] | None = None) -> str:
        self.done.append(("spawn", task) if tools is None else ("spawn", task, tuple(tools)))
        return "main.sub.aaaaaa"

    def agents(self) -> Sequence[AgentEntry]:
        return (AgentEntry(name="main", current=True), AgentEntry(name="work"))

    async def start_anew(self, agent: str | None = None) -> str:
        self.done.append("anew" if agent is None else ("anew", agent))
        return "20261121-031242-aaaaaa"

    def title(self) -> str:
        return self.titled

    async def rename(self, title: str) -> None:
        self.titled = title

    async def archive(self, *, archived: bool) -> None:
        self.done.append(("archive", archived))

    async def conversations(self) -> Sequence[ConversationEntry]:
        return self.others

    async def delete(self, *, facts: bool) -> None:
        self.done.append(("delete", facts))

    async def erase(self, message: int | None = None) -> None:
        self.done.append(("erase", message))


ODD = (
    "",
    "x",
    "x" * 20_000,
    "-1",
    "99999999999999999999",
    "../../etc/passwd",
    "\x00\u202e😀",
    "--help",
    "a\nb",
    '"; DROP TABLE x',
)
"""Arguments that people may type."""


class CommandConformance:
    """Checks for a command."""

    command: ClassVar[type[Command]]
    argument: ClassVar[str] = ""
    seconds: ClassVar[float] = 5.0
    """The maximum time for a cancelled command to end."""

    def conversation(self) -> ConversationView:
        """Return the conversation that the command is typed in."""
        return StaticConversation()

    async def answer(self, command: Command, argument: str) -> str:
        """Return the answer or the message of its CommandFailed. Anything else fails the check."""
        try:
            answer = await command.run(argument, self.conversation())
        except CommandFailed as error:
            check_sentence(str(error))
            return str(error)
        except Exception as error:
            told = f"{type(error).__name__} was raised for {argument[:100]!r}, and not CommandFailed: {error}"
            raise AssertionError(told) from error
        assert isinstance(answer, str), f"run returned {type(answer).__name__}, and not text."
        return answer

    @check
    async def test_its_class_is_valid(self) -> None:
        """Fix what the message names: the class needs `name`, `usage` and `summary` as one line each, `when` as "now" or
        "between_turns", and an async method `run`."""
        assert validation.command(self.command) == self.command.name

    @check
    async def test_help_can_show_it(self) -> None:
        """`usage` is the syntax, beginning with the slash and the name: "/remind TIME TEXT". `summary` is one sentence."""
        assert self.command.usage.split()[0] == f"/{self.command.name}", f"usage is {self.command.usage!r}."
        assert self.command.summary.endswith("."), f"summary is no sentence: {self.command.summary!r}"

    @check
    async def test_it_answers(self) -> None:
        """`run` returns the answer as Markdown. It is never empty, so that people see that something happened."""
        answer = await self.command().run(self.argument, self.conversation())
        assert isinstance(answer, str), f"run returned {type(answer).__name__}, and not text."
        assert answer.strip(), "The answer is empty."

    @check
    async def test_any_argument_is_answered(self) -> None:
        """Raise CommandFailed with one sentence for the person if the command fails. Any other error counts as a failure
        of the plugin."""
        for argument in ODD:
            assert (await self.answer(self.command(), argument)).strip(), f"The answer to {argument[:100]!r} is empty."

    @check
    async def test_conversations_are_independent(self) -> None:
        """One instance serves all sessions: keep nothing about a conversation on `self`."""
        command = self.command()
        first = await self.answer(command, self.argument)
        for argument in ODD:
            await self.answer(command, argument)
        again = await self.answer(command, self.argument)
        assert again == first, f"After others it answered {again[:200]!r}, and before {first[:200]!r}."

    @check
    async def test_it_does_not_block_the_event_loop(self) -> None:
        """All sessions share one event loop: no `time.sleep`, no `requests`, no long computation. Use
        `await asyncio.to_thread(...)` for files and computation."""
        await assert_not_blocking(lambda: self.answer(self.command(), self.argument))

    @check
    async def test_it_can_be_cancelled(self) -> None:
        """`/stop` cancels a command at an await. Do not catch CancelledError."""
        running = asyncio.create_task(self.command().run(self.argument, self.conversation()))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running], timeout=self.seconds)
        assert running.done(), "It is still running after it was cancelled."
