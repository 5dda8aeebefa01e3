"""Conversations: what each is made of, and what the configuration says to them at every turn."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from gateway.channels.delivering import Delivering
from gateway.commands.parsing import Typed
from gateway.commands.surroundings import Surroundings
from gateway.commands.view import View
from gateway.configuration.settings import Settings
from gateway.conversations.answering import Answering
from gateway.conversations.chat import Chat
from gateway.conversations.compacting import Compacting
from gateway.conversations.compaction_rules import CompactionRules, compaction_rules
from gateway.conversations.condensing import Condensing
from gateway.conversations.conversation import Conversation, ResumeRules
from gateway.conversations.day_notes import DayNotes
from gateway.conversations.files import ConversationFiles
from gateway.conversations.heeding import Heeding
from gateway.conversations.inbox import Inbox
from gateway.conversations.instructions import IN_SHORT, standing_instructions
from gateway.conversations.journal_news import JournalNews
from gateway.conversations.live import Live
from gateway.conversations.loaded_notes import LoadedNotes
from gateway.conversations.owed_notes import OwedNotes
from gateway.conversations.pruning import Pruning
from gateway.conversations.recalling import Recalling
from gateway.conversations.showing import Showing
from gateway.conversations.turn import Turn, TurnRules
from gateway.conversations.workspace_notes import WorkspaceNotes
from gateway.errors import GatewayError
from gateway.measuring.figures import Figures
from gateway.measuring.session_meter import SessionMeter
from gateway.models.choosing import ChosenModel, Models
from gateway.models.open_providers import OpenProviders
from gateway.provided.lifecycle import Lifecycle
from plugins.command_contract import Command
from plugins.contracts import ChatProvider, Clock, Tool
from plugins.facts.turns import is_order
from plugins.hooks import Hooks
from plugins.summaries import Flush, Summarizer
from sessions.attachments import Attachments
from sessions.events import MessageReceived, Recorded, TurnEnded
from sessions.recorder import Recorder
from sessions.sight import Sight
from sessions.transcript import Waiting


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What all conversations share."""

    settings: Settings
    clock: Clock
    hooks: Hooks
    models: Models
    providers: OpenProviders[ChatProvider]
    tools: Mapping[str, Tool]
    commands: Mapping[str, Command]
    attachments: Attachments
    notes: WorkspaceNotes
    day_notes: DayNotes
    summarizers: Mapping[str, Summarizer]
    flushes: Mapping[str, Flush]
    figures: Figures
    around: Surroundings
    lifecycle: Lifecycle
    delivering: Delivering


class Conversations:
    """Builds a conversation around the recorder of an open session."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._showing = Showing(parts.attachments)
        self._news = JournalNews(parts.around.memory.wake)

    def build(self, chat: Chat, recorder: Recorder) -> Conversation:
        """A conversation of this chat, ready to run."""
        parts = self._parts
        recorder.read_along(self._news.read)
        recorder.read_along(lambda recorded: self._looked_through(recorder, recorded))
        recorder.read_along(lambda recorded: parts.lifecycle.heard(recorder, recorded))
        parts.delivering.opened(recorder)
        meter = SessionMeter(recorder, parts.figures)
        live = Live(meter.listening(chat.news), chat.news)
        compacting = self._compacting(recorder)
        inbox = Inbox(recorder, commands=parts.commands, configured=lambda: parts.settings.current.sessions.queue)

        async def run_command(conversation: Conversation, command: Command, typed: Typed, waiting: Waiting) -> str:
            try:
                view = View(chat, conversation, waiting, parts.around, meter)
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

    def _compacting(self, recorder: Recorder) -> Compacting:
        parts = self._parts

        def lines(first: int) -> Awaitable[list[bytes]]:
            return recorder.log.lines(first, limit=1)

        def choose() -> ChosenModel:
            wanted = parts.settings.current.compaction.model
            return parts.models.choose(wanted or recorder.transcript.settings.get("model"))

        def sight() -> Sight | None:
            try:
                model = parts.models.choose(recorder.transcript.settings.get("model"))
            except GatewayError:
                return None
            return model.provider.limits(model.model).sight

        notes = OwedNotes(recorder, parts.day_notes, lines)
        condensing = Condensing(
            recorder,
            choose=choose,
            summarizers=parts.summarizers,
            flushes=parts.flushes,
            notes=notes,
            clock=parts.clock.now,
        )
        return Compacting(
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

    def _turn(self, recorder: Recorder, live: Live, inbox: Inbox, compacting: Compacting) -> Turn:
        parts = self._parts
        pruning = Pruning(recorder, parts.hooks, rules=lambda: parts.settings.current.pruning, now=parts.clock.now)
        answering = Answering(
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
            heed=Heeding(recorder, parts.around.remembering, parts.tools).heed,
            clock=parts.clock,
            hold=parts.providers.in_use,
        )

    def _notes(self, recorder: Recorder) -> LoadedNotes:
        return LoadedNotes(recorder, self._parts.notes, now=self._today, shown=self._may_see_notes)

    def _may_see_notes(self) -> bool:
        return self._parts.settings.current.agent.workspace_access != "none"

    def _recalling(self, recorder: Recorder) -> Recalling:
        settings = self._parts.settings
        return Recalling(
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
