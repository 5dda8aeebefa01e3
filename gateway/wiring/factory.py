"""Builds conversations, and passes them what the configuration says at every turn."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from gateway.config.keys import Config
from gateway.config.settings import Settings
from gateway.conversations.channels.delivery import ReplyDelivery
from gateway.conversations.commands.command_context import CommandContext
from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.context.attachment_rendering import AttachmentRenderer
from gateway.conversations.context.compacting import Compactor
from gateway.conversations.context.compaction_rules import CompactionRules, compaction_rules
from gateway.conversations.context.instructions import IN_SHORT, standing_instructions
from gateway.conversations.context.loaded_notes import LoadedNotes
from gateway.conversations.context.pruning import Pruner
from gateway.conversations.context.summarization import Summarization
from gateway.conversations.context.workspace_notes import WorkspaceNotes
from gateway.conversations.notes.day_notes import DayNotes
from gateway.conversations.notes.explicit_memory import ExplicitMemory
from gateway.conversations.notes.index_trigger import IndexTrigger
from gateway.conversations.notes.pending_notes import PendingNotes
from gateway.conversations.routing.chat import Chat
from gateway.conversations.routing.conversation import Conversation, ResumeRules
from gateway.conversations.turn.answering import ReplyRequest
from gateway.conversations.turn.conversation_files import ConversationFiles
from gateway.conversations.turn.inbox import Inbox, WaitingCommand
from gateway.conversations.turn.recalling import Recall
from gateway.conversations.turn.streaming_reply import StreamingReplies
from gateway.conversations.turn.turn import Turn, TurnRules
from gateway.metrics.counters import Counters
from gateway.metrics.session_meter import SessionMeter
from gateway.models.providers import OpenProviders
from gateway.models.registry import ChosenModel, ModelRegistry
from gateway.plugin_runtime.lifecycle import Lifecycle
from gateway.support.errors import GatewayError
from plugins.api.chat import ChatProvider
from plugins.api.command import Command
from plugins.api.context import Clock
from plugins.api.summarization import MemoryFlush, Summarizer
from plugins.api.tool import Tool
from plugins.facts.ended_turns import is_remember_command
from plugins.host.hooks import Hooks
from sessions.events.events import MessageReceived, Recorded, TurnEnded
from sessions.events.vision import VisionSupport
from sessions.store.blobs import Blobs
from sessions.store.recorder import Recorder


class ConversationDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that all conversations share."""

    settings: Settings
    clock: Clock
    hooks: Hooks
    models: ModelRegistry
    providers: OpenProviders[ChatProvider]
    tools: Mapping[str, Tool]
    commands: Mapping[str, Command]
    attachments: Blobs
    notes: WorkspaceNotes
    day_notes: DayNotes
    summarizers: Mapping[str, Summarizer]
    flushes: Mapping[str, MemoryFlush]
    counters: Counters
    command_services: CommandServices
    lifecycle: Lifecycle
    delivery: ReplyDelivery


class ConversationFactory:
    """Builds a conversation for the recorder of an open session."""

    def __init__(self, dependencies: ConversationDependencies) -> None:
        self._dependencies = dependencies
        self._attachment_renderer = AttachmentRenderer(dependencies.attachments)
        self._index_trigger = IndexTrigger(dependencies.command_services.memory.wake)
        self._rules: CompactionRules
        self._rules_of: tuple[Config, datetime] | None = None
        """The configuration and the second that `_rules` are of."""

    def build(self, chat: Chat, recorder: Recorder) -> Conversation:
        """Return a conversation of this chat, ready to run."""
        dependencies = self._dependencies
        recorder.on_event(self._index_trigger.on_event)
        recorder.on_event(lambda recorded: self._queue_extraction(recorder, recorded))
        recorder.on_event(lambda recorded: dependencies.lifecycle.on_event(recorder, recorded))
        dependencies.delivery.opened(recorder)
        meter = SessionMeter(recorder, dependencies.counters)
        live = StreamingReplies(meter.first_text_observer(chat.notify), chat.notify)
        compacting = self._compacting(recorder)
        inbox = Inbox(
            recorder, commands=dependencies.commands, configured=lambda: dependencies.settings.current.sessions.queue
        )

        async def run_command(conversation: Conversation, command: Command, waiting: WaitingCommand) -> str:
            try:
                view = CommandContext(chat, conversation, waiting, dependencies.command_services, meter)
                return await command.run(waiting.typed.argument, view)
            finally:
                if waiting.typed.opens_session:
                    chat.release()

        return Conversation(
            recorder,
            live=live,
            turn=self._turn(recorder, live, inbox, compacting),
            compacting=compacting,
            inbox=inbox,
            verbose=lambda: dependencies.settings.current.agent.verbose,
            commands=dependencies.commands,
            run_command=run_command,
            resume=self._resume_rules,
            clock=dependencies.clock,
        )

    def _compacting(self, recorder: Recorder) -> Compactor:
        dependencies = self._dependencies

        def lines(first: int) -> Awaitable[list[bytes]]:
            return recorder.log.lines(first, limit=1)

        def choose() -> ChosenModel:
            wanted = dependencies.settings.current.compaction.model
            return dependencies.models.choose(wanted or recorder.transcript.settings.get("model"))

        def vision() -> VisionSupport | None:
            try:
                model = dependencies.models.choose(recorder.transcript.settings.get("model"))
            except GatewayError:
                return None
            return model.provider.limits(model.model).vision

        notes = PendingNotes(recorder, dependencies.day_notes, lines)
        summarization = Summarization(
            recorder,
            choose=choose,
            summarizers=dependencies.summarizers,
            flushes=dependencies.flushes,
            notes=notes,
            clock=dependencies.clock.now,
        )
        return Compactor(
            recorder,
            rules=self._compaction_rules,
            summarization=summarization,
            notes=notes,
            hooks=dependencies.hooks,
            vision=vision,
            now=dependencies.clock.now,
        )

    def _queue_extraction(self, recorder: Recorder, recorded: Recorded) -> None:
        """Queue an ended turn, or an explicit request to remember, for fact extraction."""
        event = recorded.event
        if isinstance(event, TurnEnded) or (isinstance(event, MessageReceived) and is_remember_command(event.text)):
            self._dependencies.command_services.fact_extraction.on_event(recorder.transcript.session, recorded.seq)

    def _compaction_rules(self) -> CompactionRules:
        """Return the rules as of this second: a turn reads them four times."""
        current, second = self._dependencies.settings.current, self._dependencies.clock.now().replace(microsecond=0)
        if self._rules_of != (current, second):
            self._rules_of = current, second
            self._rules = compaction_rules(current.compaction, current.agent, self._today())
        return self._rules

    def _turn(self, recorder: Recorder, live: StreamingReplies, inbox: Inbox, compacting: Compactor) -> Turn:
        dependencies = self._dependencies
        pruning = Pruner(
            recorder, dependencies.hooks, rules=lambda: dependencies.settings.current.pruning, now=dependencies.clock.now
        )
        answering = ReplyRequest(
            recorder,
            live=live,
            files=ConversationFiles(self._attachment_renderer),
            prune=pruning.prune,
            compacting=compacting,
            provider_failed=dependencies.counters.provider_errors.add,
        )
        return Turn(
            recorder,
            live=live,
            answering=answering,
            inbox=inbox,
            choose=lambda: dependencies.models.choose(recorder.transcript.settings.get("model")),
            tools=dependencies.tools,
            attachments=dependencies.attachments,
            rules=self._turn_rules,
            notes=self._notes(recorder).load,
            recall=self._recalling(recorder).recall,
            remember=ExplicitMemory(
                recorder, dependencies.command_services.memory_writer, dependencies.tools
            ).write_requested,
            clock=dependencies.clock,
            hold=dependencies.providers.in_use,
        )

    def _notes(self, recorder: Recorder) -> LoadedNotes:
        return LoadedNotes(recorder, self._dependencies.notes, now=self._today, shown=self._may_see_notes)

    def _may_see_notes(self) -> bool:
        return self._dependencies.settings.current.agent.workspace_access != "none"

    def _recalling(self, recorder: Recorder) -> Recall:
        settings = self._dependencies.settings
        return Recall(
            recorder,
            self._dependencies.command_services.memory,
            self._dependencies.command_services.facts,
            keys=lambda: settings.current.memory.recall,
            allowed=self._may_see_notes,
            clock=self._dependencies.clock,
        )

    def _turn_rules(self) -> TurnRules:
        agent = self._dependencies.settings.current.agent
        return TurnRules(
            instructions=standing_instructions(agent.instructions, agent.language, self._today()),
            short_reason=agent.instructions or IN_SHORT,
            parameters={} if agent.temperature is None else {"temperature": agent.temperature},
            rounds=agent.tool_rounds,
        )

    def _today(self) -> datetime:
        """Return the current time in the time zone of the configuration or the system."""
        name = self._dependencies.settings.current.agent.timezone
        return self._dependencies.clock.now().astimezone(ZoneInfo(name) if name else None)

    def _resume_rules(self) -> ResumeRules:
        sessions = self._dependencies.settings.current.sessions
        return ResumeRules(mode=sessions.resume, within=timedelta(seconds=sessions.resume_within))
