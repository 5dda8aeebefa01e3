"""Conversations: what each is made of, and what the configuration says to them at every turn."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

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
from gateway.conversations.turn.inbox import Inbox
from gateway.conversations.turn.recalling import Recall
from gateway.conversations.turn.streaming_reply import StreamingReplies
from gateway.conversations.turn.turn import Turn, TurnRules
from gateway.metrics.counters import Counters
from gateway.metrics.session_meter import SessionMeter
from gateway.models.providers import OpenProviders
from gateway.models.registry import ChosenModel, ModelRegistry
from gateway.plugin_runtime.lifecycle import Lifecycle
from gateway.protocol.slash_commands import TypedCommand
from gateway.support.errors import GatewayError
from plugins.api.chat import ChatProvider
from plugins.api.command import Command
from plugins.api.context import Clock
from plugins.api.summarization import MemoryFlush, Summarizer
from plugins.api.tool import Tool
from plugins.facts.ended_turns import is_order
from plugins.host.hooks import Hooks
from sessions.attachments.store import Attachments
from sessions.events.events import MessageReceived, Recorded, TurnEnded
from sessions.events.vision import VisionSupport
from sessions.state.transcript import WaitingMessage
from sessions.store.recorder import Recorder


class ConversationDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What all conversations share."""

    settings: Settings
    clock: Clock
    hooks: Hooks
    models: ModelRegistry
    providers: OpenProviders[ChatProvider]
    tools: Mapping[str, Tool]
    commands: Mapping[str, Command]
    attachments: Attachments
    notes: WorkspaceNotes
    day_notes: DayNotes
    summarizers: Mapping[str, Summarizer]
    flushes: Mapping[str, MemoryFlush]
    figures: Counters
    around: CommandServices
    lifecycle: Lifecycle
    delivering: ReplyDelivery


class ConversationFactory:
    """Builds a conversation around the recorder of an open session."""

    def __init__(self, parts: ConversationDependencies) -> None:
        self._parts = parts
        self._showing = AttachmentRenderer(parts.attachments)
        self._news = IndexTrigger(parts.around.memory.wake)

    def build(self, chat: Chat, recorder: Recorder) -> Conversation:
        """A conversation of this chat, ready to run."""
        parts = self._parts
        recorder.on_event(self._news.read)
        recorder.on_event(lambda recorded: self._looked_through(recorder, recorded))
        recorder.on_event(lambda recorded: parts.lifecycle.heard(recorder, recorded))
        parts.delivering.opened(recorder)
        meter = SessionMeter(recorder, parts.figures)
        live = StreamingReplies(meter.first_text_observer(chat.news), chat.news)
        compacting = self._compacting(recorder)
        inbox = Inbox(recorder, commands=parts.commands, configured=lambda: parts.settings.current.sessions.queue)

        async def run_command(
            conversation: Conversation, command: Command, typed: TypedCommand, waiting: WaitingMessage
        ) -> str:
            try:
                view = CommandContext(chat, conversation, waiting, parts.around, meter)
                return await command.run(typed.argument, view)
            finally:
                if typed.opens_session:
                    chat.switched()

        return Conversation(
            recorder,
            live=live,
            turn=self._turn(recorder, live, inbox, compacting),
            compacting=compacting,
            inbox=inbox,
            verbose=lambda: parts.settings.current.agent.verbose,
            commands=parts.commands,
            run_command=run_command,
            resume=self._resume_rules,
            clock=parts.clock,
        )

    def _compacting(self, recorder: Recorder) -> Compactor:
        parts = self._parts

        def lines(first: int) -> Awaitable[list[bytes]]:
            return recorder.log.lines(first, limit=1)

        def choose() -> ChosenModel:
            wanted = parts.settings.current.compaction.model
            return parts.models.choose(wanted or recorder.transcript.settings.get("model"))

        def sight() -> VisionSupport | None:
            try:
                model = parts.models.choose(recorder.transcript.settings.get("model"))
            except GatewayError:
                return None
            return model.provider.limits(model.model).vision

        notes = PendingNotes(recorder, parts.day_notes, lines)
        condensing = Summarization(
            recorder,
            choose=choose,
            summarizers=parts.summarizers,
            flushes=parts.flushes,
            notes=notes,
            clock=parts.clock.now,
        )
        return Compactor(
            recorder,
            rules=self._compaction_rules,
            condensing=condensing,
            notes=notes,
            hooks=parts.hooks,
            sight=sight,
            now=parts.clock.now,
        )

    def _looked_through(self, recorder: Recorder, recorded: Recorded) -> None:
        """Have a turn that ended looked through for facts, in time, and what somebody told to be remembered."""
        event = recorded.event
        if isinstance(event, TurnEnded) or (isinstance(event, MessageReceived) and is_order(event.text)):
            self._parts.around.finding.heard(recorder.transcript.session, recorded.seq)

    def _compaction_rules(self) -> CompactionRules:
        current = self._parts.settings.current
        return compaction_rules(current.compaction, current.agent, self._today())

    def _turn(self, recorder: Recorder, live: StreamingReplies, inbox: Inbox, compacting: Compactor) -> Turn:
        parts = self._parts
        pruning = Pruner(recorder, parts.hooks, rules=lambda: parts.settings.current.pruning, now=parts.clock.now)
        answering = ReplyRequest(
            recorder,
            live=live,
            files=ConversationFiles(self._showing),
            prune=pruning.prune,
            compacting=compacting,
            provider_failed=parts.figures.provider_errors.add,
        )
        return Turn(
            recorder,
            live=live,
            answering=answering,
            inbox=inbox,
            choose=lambda: parts.models.choose(recorder.transcript.settings.get("model")),
            tools=parts.tools,
            attachments=parts.attachments,
            rules=self._turn_rules,
            notes=self._notes(recorder).load,
            recall=self._recalling(recorder).recall,
            heed=ExplicitMemory(recorder, parts.around.remembering, parts.tools).heed,
            clock=parts.clock,
            hold=parts.providers.in_use,
        )

    def _notes(self, recorder: Recorder) -> LoadedNotes:
        return LoadedNotes(recorder, self._parts.notes, now=self._today, shown=self._may_see_notes)

    def _may_see_notes(self) -> bool:
        return self._parts.settings.current.agent.workspace_access != "none"

    def _recalling(self, recorder: Recorder) -> Recall:
        settings = self._parts.settings
        return Recall(
            recorder,
            self._parts.around.memory,
            self._parts.around.facts,
            keys=lambda: settings.current.memory.recall,
            allowed=self._may_see_notes,
            clock=self._parts.clock,
        )

    def _turn_rules(self) -> TurnRules:
        agent = self._parts.settings.current.agent
        return TurnRules(
            instructions=standing_instructions(agent.instructions, agent.language, self._today()),
            in_short=agent.instructions or IN_SHORT,
            parameters={} if agent.temperature is None else {"temperature": agent.temperature},
            rounds=agent.tool_rounds,
        )

    def _today(self) -> datetime:
        """Now, in the time zone of the configuration or the system."""
        name = self._parts.settings.current.agent.timezone
        return self._parts.clock.now().astimezone(ZoneInfo(name) if name else None)

    def _resume_rules(self) -> ResumeRules:
        sessions = self._parts.settings.current.sessions
        return ResumeRules(mode=sessions.resume, within=timedelta(seconds=sessions.resume_within))
