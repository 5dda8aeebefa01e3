"""A conversation built by the gateway's factory, with a log in memory, a scripted model and scripted tools.

The tests of the gateway use it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import msgspec

from gateway.config.agents import AgentKeys
from gateway.config.approval_rules import ApprovalsKeys
from gateway.config.keys import CompactionKeys, QueueMode, SessionsKeys, execution_keys, load_config
from gateway.config.settings import Settings
from gateway.conversations.approvals.open_questions import OpenQuestions
from gateway.conversations.approvals.remembered_rules import RememberedRules
from gateway.conversations.channels.pairings import Pairings
from gateway.conversations.channels.reply_delivery import ReplyDelivery
from gateway.conversations.channels.senders import Senders
from gateway.conversations.channels.turn_activity import TurnActivity
from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.commands.undo import FileUndo
from gateway.conversations.context.loaded_notes import WorkspaceNotes
from gateway.conversations.facts.fact_extraction import FactExtraction
from gateway.conversations.notes.day_notes import DayNotes
from gateway.conversations.notes.memory_writer import MemoryWriter
from gateway.conversations.routing.chat import Chat, ChatRemovals, Conversations
from gateway.conversations.routing.session_updates import SessionUpdates
from gateway.conversations.routing.subagents import Subagents
from gateway.conversations.schedules.heartbeat import Heartbeats
from gateway.conversations.schedules.proposals import RuleProposals
from gateway.conversations.schedules.schedules import Schedules
from gateway.conversations.turn.titles import TitleMaker
from gateway.metrics.counters import Counters
from gateway.models.call import ModelCaller
from gateway.models.providers import open_chats
from gateway.models.registry import ModelRegistry
from gateway.models.spending.spending import Spending
from gateway.models.spending.spending_log import Ledger, Payer, Zones
from gateway.plugin_runtime.lifecycle import Lifecycle
from gateway.protocol.slash_commands import parse_command
from gateway.support.home import Home
from gateway.wiring.factory import ConversationDependencies, ConversationFactory
from plugins.api.chat import CallDraft, ChatRequest, Delta, Reply, StreamPart
from plugins.api.command import Command
from plugins.api.context import NoSettings
from plugins.api.memory_settings import FactKeys, MemoryKeys, RecallKeys
from plugins.api.models import ModelLimits
from plugins.api.pruning import PruningRules
from plugins.api.tool import ToolContext, ToolOutput
from plugins.facts.facts import Facts
from plugins.host.hooks import Hooks
from plugins.host.loading import load_plugins
from plugins.mcp.mcp_client import McpClient
from plugins.memory.memory import Memory
from plugins.skills.library import SkillLibrary
from plugins.testing.contexts import ManualClock, in_memory_services
from plugins.tools.execution.command_source import CommandSource
from sessions.attachments.store import Attachments
from sessions.catalog.sqlite_catalog import SqliteCatalog
from sessions.events.codec import decode
from sessions.events.errors import StorageFailed
from sessions.events.events import Event, MessageReceived, SessionOpened
from sessions.events.messages import ToolDefinition
from sessions.files.committer import Committer
from sessions.files.journal_folder import JournalFolder
from sessions.files.journals import Journals
from sessions.state.context import is_paired
from sessions.state.reducer import project
from sessions.state.transcript import Transcript
from sessions.store.catalog import Claim
from sessions.store.protocols import START, Log, Position
from sessions.store.receipts import Receipts
from sessions.store.recorder import Recorder

Answer = Callable[[ChatRequest], AsyncIterator[StreamPart]]


INSTRUCTIONS = "Be brief.\n\nToday is Saturday, 2026-11-21 (UTC).\n"
"""The instructions of a `Stage`."""

NO_COMPACTION = CompactionKeys(enabled=False)

NOWHERE = Path("unused")
"""A path that does not exist."""

OPENED = SessionOpened(format=1, session="20261121-120000-aaaaaa", key="main", person="owner")


async def _no_log(fold: Callable[[bytes], None]) -> tuple[Log, Position]:
    raise StorageFailed("There is no disk.")


def _no_context(*_: object) -> Any:
    raise AssertionError("No plugin is opened, and no session begins.")


class MemoryLog:
    """A `Log` in memory. Urgent lines and all before them become durable after `steps` iterations of the event loop."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.end = 0
        self.durable = 0
        self.steps = 1
        self.failure: StorageFailed | None = None
        self._durable: Callable[[int], None] = lambda _: None
        self._failed: Callable[[StorageFailed], None] = lambda _: None

    def append(self, line: bytes, *, urgent: bool) -> None:
        if self.failure is not None:
            raise self.failure
        self.written.append(line)
        self.end += len(line)
        if urgent:
            self._commit_after(self.steps, self.end)
        else:
            asyncio.get_running_loop().call_later(0.05, self._commit)

    def stamp(self) -> None:
        return None

    def on_commit(self, durable: Callable[[int], None], failed: Callable[[StorageFailed], None]) -> None:
        self._durable, self._failed = durable, failed

    async def until_written(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        size, lines = 0, list[bytes]()
        for line in self.written[first - 1 :]:
            lines.append(line)
            size += len(line)
            if size >= limit:
                break
        return lines

    async def catch_up(self, after: Position) -> list[bytes]:
        return []

    async def close(self) -> None:
        self._commit()

    def fail(self) -> None:
        """Fail the log, losing all lines that are not durable."""
        self.failure = StorageFailed("the disk is full")
        self._failed(self.failure)

    def _commit_after(self, steps: int, upto: int) -> None:
        if steps:
            asyncio.get_running_loop().call_soon(self._commit_after, steps - 1, upto)
        else:
            self._commit(upto)

    def _commit(self, upto: int | None = None) -> None:
        durable = self.end if upto is None else upto
        if self.failure is None and self.durable < durable:
            self.durable = durable
            self._durable(self.durable)


def says(text: str, *tools: str) -> Answer:
    """Return an answer that streams the text in two parts and calls the tools."""

    async def answer(request: ChatRequest) -> AsyncIterator[StreamPart]:
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            if piece:
                yield Delta(piece)
                await asyncio.sleep(0)
        calls = tuple(CallDraft(id="c", tool=tool, arguments="{}") for tool in tools)
        yield Reply(text=text, model=request.model, stop="calls" if calls else "end", calls=calls)

    return answer


def hangs_after(text: str) -> Answer:
    """Return an answer that streams the text and then hangs."""

    async def answer(_: ChatRequest) -> AsyncIterator[StreamPart]:
        if text:
            yield Delta(text)
        await asyncio.Event().wait()

    return answer


def breaks(error: BaseException, text: str = "") -> Answer:
    """Return an answer that streams the text and then raises the error."""

    async def answer(_: ChatRequest) -> AsyncIterator[StreamPart]:
        if text:
            yield Delta(text)
        raise error

    return answer


class Model:
    """A chat provider with scripted answers. The last one is repeated. Requests with unpaired calls are rejected."""

    name: ClassVar[str] = "staged"
    Settings: ClassVar[type] = NoSettings

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[ChatRequest] = []
        self.small = False
        self.window: Any = 1000

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def default_model(self) -> str | None:
        return "model"

    def explain_default(self) -> str:
        return "the test says so"

    def limits(self, model: str) -> ModelLimits:
        return ModelLimits(window=self.window, small=self.small)

    def stream(self, request: ChatRequest) -> AsyncIterator[StreamPart]:
        assert is_paired(request.context.messages)
        self.requests.append(request)
        return self.answers[min(len(self.requests), len(self.answers)) - 1](request)


class Instrument:
    """A tool with a scripted action that counts its runs."""

    def __init__(self, name: str, act: Callable[[], Any] | None = None, *, repeatable: bool = False) -> None:
        self.definition = ToolDefinition(name=name, description="", parameters={})
        self.repeatable = repeatable
        self.runs = 0
        self._act = act

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        self.runs += 1
        result = self._act() if self._act else "done"
        if asyncio.iscoroutine(result):
            result = await result
        return ToolOutput(text=str(result))


async def _nobody(_: str) -> Payer | None:
    return None


class Stage:
    """A conversation with its dependencies.

    Without `memory` nothing is recalled; without `workspace` there are no notes. `models` defaults to the given model alone.
    `configure` replaces the other settings. Tools run without approval, unless `approvals` says otherwise; `rules` holds
    what was approved always.
    """

    def __init__(
        self,
        model: Model,
        *tools: Instrument,
        lines: Sequence[bytes] = (),
        clock: ManualClock | None = None,
        models: ModelRegistry | None = None,
        commands: Mapping[str, Command] | None = None,
        attachments: Path = NOWHERE,
        rounds: int = 5,
        queue: QueueMode = "followup",
        workspace: Path = NOWHERE,
        pruning: PruningRules = PruningRules(),  # noqa: B008 - immutable
        hooks: Hooks | None = None,
        compaction: CompactionKeys = NO_COMPACTION,
        memory: Memory | None = None,
        recall: RecallKeys = RecallKeys(),  # noqa: B008 - immutable
        approvals: ApprovalsKeys = ApprovalsKeys(default="allow"),  # noqa: B008 - immutable
        rules: RememberedRules | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.log = MemoryLog()
        self.model = model
        self.memory = memory
        self.counters = Counters()
        self.slept: list[float] = []
        agent = {"instructions": "Be brief.", "timezone": "UTC", "tool_rounds": rounds}
        self.settings = Settings(load_config(None, environment={}, overrides={"agent": agent}))
        self.configure(
            sessions=SessionsKeys(queue=queue),
            pruning=pruning,
            compaction=compaction,
            approvals=approvals,
            memory=MemoryKeys(recall=recall if memory else RecallKeys(mode="off")),
        )
        self.recorder = self._recorder(lines)
        hooks, commands = hooks or load_plugins(()), commands or {}
        models = models or ModelRegistry({"staged": model}, AgentKeys())
        caller = ModelCaller(self.counters, sleep=self._sleep)
        if memory is None:
            memory = Memory(NOWHERE, (), keys=MemoryKeys, providers={}, today=lambda: self.clock.now().date())
        facts = Facts(_no_log, keys=FactKeys, workspace=Path, now=self.clock.now)
        store, catalog = Journals(NOWHERE, NOWHERE, Committer()), SqliteCatalog(NOWHERE, JournalFolder(NOWHERE))
        spending = Spending(Ledger(store, self.clock.now, Zones), self.settings, self.counters, find=_nobody)
        extraction = FactExtraction(
            facts,
            store,
            catalog,
            settings=self.settings,
            models=models,
            caller=caller,
            clock=self.clock,
        )
        self.skills = SkillLibrary(
            workspace / "admitted", workspace, keys=lambda: self.settings.current.skills, now=self.clock.now
        )
        services = CommandServices(
            models=models,
            commands=commands,
            settings=self.settings,
            clock=self.clock,
            began=0.0,
            version="",
            hooks=hooks,
            problems=list,
            memory=memory,
            memory_writer=MemoryWriter(workspace, memory, self.settings, self.clock),
            facts=facts,
            subagents=Subagents(lambda: 1),
            fact_extraction=extraction,
            skills=self.skills,
            mcp=McpClient(log=in_memory_services().log, workspace=workspace, folder=NOWHERE, environment={}),
            command_source=CommandSource(
                lambda: execution_keys(self.settings.current),
                workspace=workspace,
                protected=tuple,
                folder=NOWHERE,
                now=self.clock.now,
                path="",
            ),
            file_undo=FileUndo(workspace, tuple, Attachments(attachments)),
            questions=OpenQuestions(rules or RememberedRules(store, self.clock.now)),
            senders=Senders(self.settings, Pairings(store, self.clock.now), self.clock),
            schedules=Schedules(store, self.clock.now),
            proposals=RuleProposals(models, caller, self.clock.monotonic),
            heartbeat=Heartbeats(self.settings, self.clock, Home(workspace.parent), lambda _: True),
            spending=spending,
        )
        dependencies = ConversationDependencies(
            settings=self.settings,
            clock=self.clock,
            hooks=hooks,
            models=models,
            caller=caller,
            providers=open_chats({}, _no_context),
            tools={tool.definition.name: tool for tool in tools},  # type: ignore[misc]
            commands=commands,
            attachments=Attachments(attachments),
            notes=WorkspaceNotes(workspace),
            day_notes=DayNotes(workspace),
            titles=TitleMaker(self.settings, models, caller),
            updates=SessionUpdates(),
            spending=spending,
            summarizers={name: kind() for name, kind in hooks.summarizers().items()},
            flushes={name: kind() for name, kind in hooks.flushes().items()},
            counters=self.counters,
            command_services=services,
            lifecycle=Lifecycle(hooks, _no_context),
            activity=TurnActivity(lambda _: None),
            delivery=ReplyDelivery(lambda _: None, self.clock.now, lambda: None, Attachments(attachments)),
        )
        chat = Chat(
            Claim(name=("owner", "main"), epoch=0),
            Receipts(),
            store=store,
            catalog=catalog,
            settings=self.settings,
            begin=_no_context,
            others=cast("Conversations", None),
            list_conversations=_no_context,
            removals=cast("ChatRemovals", None),
        )
        self.conversation = ConversationFactory(dependencies).build(chat, self.recorder)
        self.streaming, self.turn, self.compacting = (
            self.conversation.streaming,
            self.conversation.turn,
            self.conversation.compacting,
        )

    def _recorder(self, lines: Sequence[bytes]) -> Recorder:
        """Return the recorder of a log with initial lines."""
        position, transcript = START, Transcript()
        for line in lines:
            self.log.written.append(line)
            recorded = decode(line)
            position = Position(seq=recorded.seq, offset=position.offset + len(line), sum=line[-19:-3])
            transcript = project([line], transcript)
        self.log.end = self.log.durable = position.offset
        recorder = Recorder(self.log, position, transcript, self.clock.now)
        if not lines:
            recorder.append(OPENED, urgent=True)
        return recorder

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def configure(self, **sections: msgspec.Struct) -> None:
        """Replace sections of the configuration from the next turn on."""
        self.settings.offer(msgspec.structs.replace(self.settings.current, **sections))

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        """Run the conversation, and stop it on exit as the gateway does."""
        task = asyncio.create_task(self.conversation.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()):
                raise error

    def hear(self, text: str, id_: str = "m1") -> int:
        return self.receive(
            MessageReceived(
                id=id_, client="test", sender="owner", channel="websocket", chat="private", text=text, attachments=()
            )
        )

    async def say(self, text: str, id_: str = "m1") -> None:
        """Send a message and wait until the session is settled."""
        self.hear(text, id_)
        await self.until_settled()

    def receive(self, message: MessageReceived) -> int:
        return self.conversation.receive(message, parse_command(message.text))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(90):
            while not condition():  # noqa: ASYNC110 - the condition may depend on state without an event
                await asyncio.sleep(0.005)

    async def until_settled(self) -> None:
        await self.until(lambda: self.recorder.durable_transcript.settled and self.recorder.transcript.settled)

    @property
    def events(self) -> list[Event]:
        return [decode(line).event for line in self.log.written]  # type: ignore[misc]

    @property
    def kinds(self) -> list[str]:
        return [str(type(event).__struct_config__.tag) for event in self.events]

    def told(self, kind: type[Any]) -> list[Any]:
        """Return all events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]
