"""A stage for turns: one conversation on a log in memory, a model and tools that do as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import msgspec

from gateway.config.keys import AgentKeys, CompactionKeys, QueueMode, SessionsKeys, load_config
from gateway.config.settings import Settings
from gateway.config.validation import Timezone
from gateway.conversations.context.attachment_rendering import AttachmentRenderer
from gateway.conversations.context.compacting import Compactor
from gateway.conversations.context.compaction_rules import CompactionRules, compaction_rules
from gateway.conversations.context.conversation_config import ConversationConfig, ResumeRules, TurnRules
from gateway.conversations.context.loaded_notes import LoadedNotes
from gateway.conversations.context.pruning import Pruner
from gateway.conversations.context.session_models import SessionModels
from gateway.conversations.context.summarization import Summarization
from gateway.conversations.context.workspace_notes import WorkspaceNotes
from gateway.conversations.notes.day_notes import DayNotes
from gateway.conversations.notes.explicit_memory import WRITE, ExplicitMemory
from gateway.conversations.notes.memory_writer import MemoryWriter
from gateway.conversations.notes.pending_notes import PendingNotes
from gateway.conversations.routing.conversation import Conversation
from gateway.conversations.turn.answering import ReplyRequest
from gateway.conversations.turn.conversation_files import ConversationFiles
from gateway.conversations.turn.inbox import Inbox, WaitingCommand
from gateway.conversations.turn.preparation import TurnPreparation
from gateway.conversations.turn.recalling import Recall
from gateway.conversations.turn.streaming_reply import StreamingReplies
from gateway.conversations.turn.tool_calls import ToolCalls
from gateway.conversations.turn.turn import Turn
from gateway.metrics.counters import Counters
from gateway.models.call import ModelCaller
from gateway.models.registry import ModelRegistry
from gateway.protocol.slash_commands import parse_command
from plugins.api.chat import CallDraft, ChatRequest, Delta, Reply
from plugins.api.command import Command
from plugins.api.context import NoSettings
from plugins.api.facts.fact_settings import FactKeys
from plugins.api.memory_settings import MemoryKeys, RecallKeys
from plugins.api.models import ModelLimits
from plugins.api.pruning import PruningRules
from plugins.api.tool import Tool, ToolContext, ToolOutput
from plugins.facts.facts import Facts
from plugins.host.hooks import Hooks
from plugins.host.loading import load_plugins
from plugins.memory.memory import Memory
from plugins.testing.contexts import NOON, ManualClock
from sessions.attachments.store import Attachments
from sessions.events.codec import decode
from sessions.events.errors import StorageFailed
from sessions.events.events import Event, MessageReceived
from sessions.events.messages import ToolDefinition
from sessions.state.context import is_paired
from sessions.state.reducer import project
from sessions.state.transcript import Transcript
from sessions.store.protocols import START, Log, Position
from sessions.store.recorder import Recorder
from tests.stories import MemoryLog, opened, received
from tests.waiting import until

Answer = Callable[[ChatRequest], AsyncIterator[Delta | Reply]]


DEFAULTS = load_config(None, environment={}, overrides={})

NO_COMPACTION = compaction_rules(CompactionKeys(enabled=False), AgentKeys(), NOON)


def says(text: str, *tools: str) -> Answer:
    """A model's answer: the text in two pieces, and calls of these tools."""

    async def answer(request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            if piece:
                yield Delta(piece)
                await asyncio.sleep(0)
        calls = tuple(CallDraft(id="c", tool=tool, arguments="{}") for tool in tools)
        yield Reply(text=text, model=request.model, stop="calls" if calls else "end", calls=calls)

    return answer


def hangs_after(text: str) -> Answer:
    """A model that says something and then nothing more."""

    async def answer(_: ChatRequest) -> AsyncIterator[Delta | Reply]:
        if text:
            yield Delta(text)
        await asyncio.Event().wait()

    return answer


def breaks(error: BaseException, text: str = "") -> Answer:
    """A model that says something and then fails."""

    async def answer(_: ChatRequest) -> AsyncIterator[Delta | Reply]:
        if text:
            yield Delta(text)
        raise error

    return answer


class Model:
    """A chat provider that gives the answers it was told, in order, the last one for ever. It refuses unpaired calls."""

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

    def stream(self, request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        assert is_paired(request.context.messages)
        self.requests.append(request)
        return self.answers[min(len(self.requests), len(self.answers)) - 1](request)


class Instrument:
    """A tool that does what the test says and counts how often it ran."""

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


def no_facts(now: Callable[[], datetime]) -> Facts:
    """The facts of a home that has none and can have none."""

    async def opener(fold: Callable[[bytes], None]) -> tuple[Log, Position]:
        raise StorageFailed("There is no disk.")

    return Facts(opener, keys=FactKeys, workspace=Path, now=now)


class StageConfig(ConversationConfig):
    """The configuration of a stage."""

    def __init__(self, clock: ManualClock, rules: CompactionRules, resume: ResumeRules | None, **sections: Any) -> None:
        self.settings = Settings(msgspec.structs.replace(DEFAULTS, **sections))
        super().__init__(self.settings, clock)
        self.rules = rules
        self._resume = resume

    @property
    def turn(self) -> TurnRules:
        return TurnRules(instructions="Be brief.", short_reason="Brief.", parameters={})

    @property
    def compaction(self) -> CompactionRules:
        return self.rules

    @property
    def resume(self) -> ResumeRules:
        return self._resume or super().resume

    def choose_queue(self, mode: QueueMode) -> None:
        """Configure another mode."""
        sessions = msgspec.structs.replace(self.settings.current.sessions, queue=mode)
        self.settings.offer(msgspec.structs.replace(self.settings.current, sessions=sessions))


class Stage:
    """A conversation and what surrounds it."""

    def __init__(
        self,
        model: Model,
        *tools: Instrument,
        lines: list[bytes] | None = None,
        commands: Mapping[str, Command] | None = None,
        attachments: Path | None = None,
        resume: ResumeRules | None = None,
        rounds: int = 5,
        queue: QueueMode = "followup",
        workspace: Path | None = None,
        pruning: PruningRules = PruningRules(),  # noqa: B008 - it is frozen
        hooks: Hooks | None = None,
        compaction: CompactionRules = NO_COMPACTION,
        memory: Memory | None = None,
        recall: RecallKeys = RecallKeys(),  # noqa: B008 - it is frozen
    ) -> None:
        self.clock = ManualClock()
        self.memory = memory
        self.log = MemoryLog()
        self.model = model
        self.slept: list[float] = []
        position, transcript = START, Transcript()
        for line in lines or []:
            self.log.written.append(line)
            recorded = decode(line)
            position = type(position)(seq=recorded.seq, offset=position.offset + len(line), sum=line[-19:-3])
            transcript = project([line], transcript)
        self.log.end = self.log.durable = position.offset
        self.recorder = Recorder(self.log, position, transcript, self.clock.now)
        if not lines:
            self.recorder.append(opened(), urgent=True)
        self.live = StreamingReplies(lambda: None, lambda: None)
        kept = Attachments(attachments or Path("unused"))
        models = ModelRegistry({"staged": model}, configured="auto", window=None)
        hooks = hooks or load_plugins(())
        notes = PendingNotes(self.recorder, DayNotes(workspace or Path("unused")), lambda seq: self.log.lines(seq, limit=1))
        if memory is None:
            recall = RecallKeys(mode="off")
        self.config = StageConfig(
            self.clock,
            compaction,
            resume,
            agent=AgentKeys(timezone=Timezone("UTC"), tool_rounds=rounds),
            sessions=SessionsKeys(queue=queue),
            pruning=pruning,
            memory=MemoryKeys(recall=recall),
        )
        self.models = SessionModels(self.recorder, models, self.config)
        self.counters = Counters()
        caller = ModelCaller(self.counters, sleep=self._sleep)
        self.compacting = Compactor(
            self.recorder,
            config=self.config,
            models=self.models,
            summarization=Summarization(
                self.recorder,
                choose=models.choose,
                caller=caller,
                summarizers={name: kind() for name, kind in hooks.summarizers().items()},
                flushes={name: kind() for name, kind in hooks.flushes().items()},
                notes=notes,
                clock=self.clock.now,
            ),
            notes=notes,
            hooks=hooks,
            clock=self.clock,
        )
        answering = ReplyRequest(
            self.recorder,
            live=self.live,
            files=ConversationFiles(AttachmentRenderer(kept)),
            prune=Pruner(self.recorder, hooks, self.config, self.clock).prune,
            compacting=self.compacting,
            caller=caller,
        )
        standing = WorkspaceNotes(workspace or Path("unused"))
        self.notes = LoadedNotes(self.recorder, standing, self.config)
        inbox = Inbox(self.recorder, self.config, commands or {})
        self.tools: dict[str, Tool] = {tool.definition.name: tool for tool in tools}  # type: ignore[misc]
        self.turn = Turn(
            self.recorder,
            live=self.live,
            answering=answering,
            preparation=self._preparation(memory, workspace),
            calls=ToolCalls(self.recorder, self.tools, kept),
            inbox=inbox,
            models=self.models,
            config=self.config,
            clock=self.clock,
        )
        self.conversation = Conversation(
            self.recorder,
            live=self.live,
            turn=self.turn,
            compacting=self.compacting,
            inbox=inbox,
            commands=commands or {},
            run_command=self._run_command,
            models=self.models,
            config=self.config,
            clock=self.clock,
        )

    def _preparation(self, memory: Memory | None, workspace: Path | None) -> TurnPreparation:
        given = memory or cast(Memory, None)  # without one nothing is recalled or remembered
        writer = MemoryWriter(workspace or Path("unused"), given, self.config.settings, self.clock)
        return TurnPreparation(
            self.recorder,
            self.config,
            tools=self.tools,
            notes=self.notes,
            explicit_memory=ExplicitMemory(self.recorder, writer, self.tools if memory else [WRITE]),
            recall=Recall(self.recorder, given, no_facts(self.clock.now), self.config, self.clock),
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def _run_command(self, conversation: Conversation, command: Command, waiting: WaitingCommand) -> str:
        return await command.run(waiting.typed.argument, None)  # type: ignore[arg-type]

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        """Run the conversation for a while; on leaving it is stopped as the gateway stops it."""
        task = asyncio.create_task(self.conversation.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()):
                raise error

    def hear(self, text: str, id_: str = "m1") -> int:
        return self.receive(received(text, id_))

    def receive(self, message: MessageReceived) -> int:
        return self.conversation.receive(message, parse_command(message.text))

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition)

    async def until_settled(self) -> None:
        await self.until(lambda: self.recorder.durable_transcript.settled and self.recorder.transcript.settled)

    @property
    def events(self) -> list[Event]:
        return [decode(line).event for line in self.log.written]  # type: ignore[misc]

    @property
    def kinds(self) -> list[str]:
        return [str(type(event).__struct_config__.tag) for event in self.events]

    def told(self, kind: type[Any]) -> list[Any]:
        """All events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]
