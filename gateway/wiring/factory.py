"""Builds the conversation of an open session. Its parts read the current configuration at every turn."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.config.settings import Settings
from gateway.conversations.approvals.gate import ApprovalGate
from gateway.conversations.channels.reply_delivery import ReplyDelivery
from gateway.conversations.channels.turn_activity import TurnActivity
from gateway.conversations.commands.command_context import CommandContext
from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.context.compacting import Compactor
from gateway.conversations.context.conversation_config import ConversationConfig
from gateway.conversations.context.loaded_notes import LoadedNotes, WorkspaceNotes
from gateway.conversations.context.pruning import Pruner
from gateway.conversations.context.request_attachments import AttachmentRenderer, ConversationFiles
from gateway.conversations.context.session_models import SessionModels
from gateway.conversations.context.session_settings import SessionSettings
from gateway.conversations.context.summarization import Summarization
from gateway.conversations.notes.day_notes import DayNotes, PendingNotes
from gateway.conversations.notes.memory_writer import ExplicitMemory
from gateway.conversations.notes.workspace_memory import IndexTrigger
from gateway.conversations.routing.chat import Chat
from gateway.conversations.routing.child_tools import tools_of_session
from gateway.conversations.routing.conversation import Conversation
from gateway.conversations.routing.session_updates import SessionUpdates
from gateway.conversations.turn.answering import ReplyRequester
from gateway.conversations.turn.inbox import Inbox, WaitingCommand
from gateway.conversations.turn.recalling import Recall
from gateway.conversations.turn.streaming_reply import StreamingReplies
from gateway.conversations.turn.titles import TitleMaker
from gateway.conversations.turn.tool_calls import ToolCalls
from gateway.conversations.turn.turn import Turn, TurnPreparation
from gateway.metrics.counters import Counters
from gateway.metrics.session_meter import SessionMeter
from gateway.models.call import ModelCaller
from gateway.models.providers import OpenProviders
from gateway.models.registry import ModelRegistry
from gateway.models.spending.spending import Spending
from gateway.models.spending.spending_log import Payer
from gateway.plugin_runtime.lifecycle import Lifecycle
from plugins.api.chat import ChatProvider
from plugins.api.command import Command
from plugins.api.compaction import MemoryFlush, Summarizer
from plugins.api.context import Clock
from plugins.api.tool import Tool
from plugins.facts.ended_turns import is_remember_command
from plugins.host.hooks import Hooks
from sessions.events.events import MAIN_AGENT, MessageReceived, Recorded, SessionClosed, TurnEnded
from sessions.store.protocols import Blobs
from sessions.store.recorder import Recorder


class ConversationDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that all conversations of one agent share."""

    agent: str = MAIN_AGENT
    settings: Settings
    clock: Clock
    hooks: Hooks
    models: ModelRegistry
    caller: ModelCaller
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
    activity: TurnActivity
    titles: TitleMaker
    updates: SessionUpdates
    spending: Spending


class ConversationFactory:
    """Builds a conversation for the recorder of an open session."""

    def __init__(self, dependencies: ConversationDependencies) -> None:
        self._dependencies = dependencies
        self._config = ConversationConfig(dependencies.settings, dependencies.clock)
        self._attachment_renderer = AttachmentRenderer(dependencies.attachments)
        self._index_trigger = IndexTrigger(dependencies.command_services.memory.wake)

    def build(self, chat: Chat, recorder: Recorder) -> Conversation:
        """Return a conversation of this chat, ready to run."""
        dependencies = self._dependencies
        recorder.on_event(self._index_trigger.on_event)
        recorder.on_event(lambda recorded: self._queue_extraction(recorder, recorded))
        recorder.on_event(lambda recorded: self._end_jobs(recorder.transcript.session, recorded))
        recorder.on_event(lambda recorded: dependencies.lifecycle.on_event(recorder, recorded))
        transcript = recorder.transcript
        dependencies.spending.know(transcript.session, Payer(chat.person, transcript.agent))
        dependencies.delivery.opened(recorder)
        dependencies.titles.opened(recorder)
        dependencies.updates.opened(chat, recorder)
        tools = tools_of_session(
            dependencies.tools, transcript.parent, lambda name: self._config.rights_of(chat.person).has_tool(name)
        )
        dependencies.command_services.subagents.opened(chat, recorder, tools)
        meter = SessionMeter(recorder, dependencies.counters)
        streaming = StreamingReplies(meter.first_text_observer(chat.notify), chat.notify)
        dependencies.activity.opened(recorder, streaming)
        models = SessionModels(recorder, dependencies.models, self._config, dependencies.providers.in_use)
        compacting = self._compacting(recorder, models)
        inbox = Inbox(recorder, self._config, dependencies.commands)
        questions = dependencies.command_services.questions
        gate = ApprovalGate(recorder, dependencies.settings, questions.rules, dependencies.clock)
        questions.add(gate)

        async def run_command(conversation: Conversation, command: Command, waiting: WaitingCommand) -> str:
            try:
                view = CommandContext(chat, conversation, waiting, dependencies.command_services, meter)
                return await command.run(waiting.typed.argument, view)
            finally:
                if waiting.typed.opens_session:
                    chat.release()

        return Conversation(
            recorder,
            turn=self._turn(recorder, tools, streaming, inbox=inbox, models=models, compacting=compacting, gate=gate),
            compacting=compacting,
            inbox=inbox,
            commands=dependencies.commands,
            run_command=run_command,
            models=models,
            settings=SessionSettings(recorder, models, dependencies.models),
            approvals=gate,
            config=self._config,
        )

    def _compacting(self, recorder: Recorder, models: SessionModels) -> Compactor:
        dependencies = self._dependencies
        notes = PendingNotes(recorder, dependencies.day_notes)
        summarization = Summarization(
            recorder,
            models=models,
            caller=dependencies.caller,
            summarizers=dependencies.summarizers,
            flushes=dependencies.flushes,
            notes=notes,
            clock=dependencies.clock,
        )
        return Compactor(
            recorder,
            config=self._config,
            models=models,
            summarization=summarization,
            hooks=dependencies.hooks,
        )

    def _end_jobs(self, session: str, recorded: Recorded) -> None:
        if isinstance(recorded.event, SessionClosed):
            self._dependencies.command_services.command_source.end_session(session)

    def _queue_extraction(self, recorder: Recorder, recorded: Recorded) -> None:
        """Queue an ended turn, or an explicit request to remember, for fact extraction."""
        event = recorded.event
        if isinstance(event, TurnEnded) or (isinstance(event, MessageReceived) and is_remember_command(event.text)):
            self._dependencies.command_services.fact_extraction.on_event(recorder.transcript.session, recorded.seq)

    def _turn(
        self,
        recorder: Recorder,
        tools: Mapping[str, Tool],
        streaming: StreamingReplies,
        *,
        inbox: Inbox,
        models: SessionModels,
        compacting: Compactor,
        gate: ApprovalGate,
    ) -> Turn:
        dependencies = self._dependencies
        pruning = Pruner(recorder, dependencies.hooks, self._config)
        answering = ReplyRequester(
            recorder,
            streaming=streaming,
            files=ConversationFiles(self._attachment_renderer),
            pruner=pruning,
            compacting=compacting,
            caller=dependencies.caller,
        )
        return Turn(
            recorder,
            answering=answering,
            preparation=self._preparation(recorder, tools, models),
            calls=ToolCalls(recorder, tools, dependencies.attachments, gate, streaming, config=self._config),
            inbox=inbox,
            models=models,
            config=self._config,
        )

    def _preparation(self, recorder: Recorder, tools: Mapping[str, Tool], models: SessionModels) -> TurnPreparation:
        dependencies, services = self._dependencies, self._dependencies.command_services
        return TurnPreparation(
            recorder,
            self._config,
            models=models,
            tools=tools,
            notes=LoadedNotes(recorder, dependencies.notes, services.skills, self._config),
            explicit_memory=ExplicitMemory(recorder, services.memory_writer, tools),
            recall=Recall(recorder, services.memory, services.facts, self._config),
        )
