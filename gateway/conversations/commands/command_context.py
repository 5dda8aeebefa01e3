"""The conversation as a slash command sees it and may change it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import cast

from msgspec.structs import replace

from gateway.conversations.commands.approval_view import SendersApprovals
from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.commands.context_report import context_items, entry_of_cut, in_force, pruned
from gateway.conversations.commands.memory_view import MemoryView, as_command_failure, facts_in_short, memory_in_short
from gateway.conversations.commands.pairing_view import OwnersPairings
from gateway.conversations.commands.schedule_view import PersonsSchedules
from gateway.conversations.commands.undo import UNCERTAIN, TurnChanges, changes_of, told_to_the_model
from gateway.conversations.context.session_models import TEMPERATURE
from gateway.conversations.context.session_settings import QUEUE, VERBOSE
from gateway.conversations.routing.chat import AgentChoice, Chat
from gateway.conversations.routing.conversation import Conversation
from gateway.conversations.routing.subagents import SubagentTask
from gateway.conversations.schedules.recurrence import zone_named
from gateway.conversations.turn.inbox import WaitingCommand
from gateway.metrics.session_meter import SessionMeter
from gateway.models.token_counts import o200k
from gateway.protocol.frames import TITLE_CHARACTERS
from gateway.protocol.slash_commands import command_help, parse_command
from gateway.support.errors import GatewayError
from gateway.support.printable import one_line
from gateway.support.session_status import SessionStatus, describe, span
from plugins.api.command import (
    AgentEntry,
    CommandFailed,
    CommandHelp,
    CompactionEntry,
    ContextReport,
    ConversationEntry,
    HistoryEntry,
    JobEntry,
    McpView,
    OfferedModels,
    QueueState,
    SamplingState,
    SkillsView,
    SpendingSummary,
)
from plugins.api.context import Clock
from plugins.support.errors import ToolFailed
from plugins.support.workspace import OWNER
from sessions.events.codec import decode
from sessions.events.events import (
    MAIN_AGENT,
    ChangesUndone,
    CommandAnswered,
    ContextCompacted,
    MessageImported,
    MessageReceived,
    ModelReplied,
    Recorded,
    ReplyImported,
    SessionForked,
    ToolReturned,
    TurnStarted,
    UndoneFile,
)
from sessions.events.handed_messages import child_of, result_in
from sessions.events.messages import Usage
from sessions.events.vision import VisionSupport, text_with_attachments
from sessions.state.context import assemble
from sessions.state.transcript import Transcript

HISTORY_BYTES = 2 * 1024 * 1024
"""Bytes of the journal that `/history` reads backwards at most."""


NAMED_CHARACTERS = 64
"""Maximum characters of an unknown name that an answer repeats."""

UNDO_PAGE = 256
"""Events that `/undo` reads at a time, back to the start of the last turn."""


class CommandContext(MemoryView):
    """The `ConversationView` of one command's message, which documents the methods."""

    def __init__(
        self, chat: Chat, conversation: Conversation, waiting: WaitingCommand, services: CommandServices, meter: SessionMeter
    ) -> None:
        self._chat = chat
        super().__init__(services, waiting, conversation)
        self._meter = meter

    @property
    def approvals(self) -> SendersApprovals:
        services = self._services
        return SendersApprovals(services, self._waiting.message, self.session)

    @property
    def pairings(self) -> OwnersPairings:
        return OwnersPairings(self._services.senders, self._waiting.message)

    @property
    def schedules(self) -> PersonsSchedules:
        return PersonsSchedules(self._services, self._waiting.message, self.key, agent=self._transcript.agent)

    @property
    def client(self) -> str:
        return self._waiting.message.client

    @property
    def channel(self) -> str:
        return self._waiting.message.channel

    @property
    def key(self) -> str:
        return self._chat.key

    @property
    def session(self) -> str:
        return self._conversation.session

    def commands(self) -> Sequence[CommandHelp]:
        return command_help(self._services.commands)

    def local(self, at: str) -> datetime:
        return datetime.fromisoformat(at).astimezone(zone_named(self.schedules.zone))

    def status(self) -> str:
        transcript, services = self._transcript, self._services
        refused, notes, troubles = self._diagnostics()
        try:
            chosen = self._conversation.models.choose()
            model, name, window = chosen.why, chosen.name, chosen.window
            vision = chosen.limits.vision
        except GatewayError as error:
            model, name, window, vision = str(error), None, None, None
        return describe(
            SessionStatus(
                version=services.version,
                uptime=services.clock.monotonic() - services.began,
                model=model,
                answers=name,
                key=self.key,
                agent=transcript.agent,
                session=self.session,
                age=time_since(transcript.opened_at, services.clock),
                turns=transcript.turn,
                events=transcript.head,
                usage=transcript.usage,
                context=self._size(name, vision),
                window=window,
                waiting=sum(w.seq != self._waiting.seq for w in transcript.waiting),
                queue_limit=services.settings.current.sessions.queue_limit,
                running=transcript.open_turn is not None,
                refused=refused,
                notes=notes,
                troubles=troubles,
                last_error=self._meter.last_error,
                compactions=transcript.cycle.compactions,
                taken_back=transcript.cycle.compactions - len(in_force(transcript)),
                flush=self._flush(),
                memory=memory_in_short(services.memory),
                facts=facts_in_short(services.facts, self.facts.owner, services.fact_extraction.why_not(name)),
                noted=transcript.cycle.noted,
                notes_owed=len(transcript.cycle.owed),
                notes_trouble=self._conversation.compacting.notes.problem,
                mode=self._conversation.inbox.mode,
                channels=services.channels() if self._alone_as_owner else (),
                cluster=services.cluster() if self._alone_as_owner else "",
            )
        )

    def _diagnostics(self) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
        """Return refusals, notices and problems: they name paths, people and providers, so only the owner sees them, where
        nobody else reads it. Others see that there are some."""
        services = self._services
        refused = [refusal.sentence for refusal in services.hooks.refused]
        diagnostics = refused, services.settings.notes(), services.problems()
        if self._alone_as_owner or not any(diagnostics):
            return diagnostics
        return (), (), ["The gateway has a problem; its owner can see the details."]

    @property
    def _alone_as_owner(self) -> bool:
        return self.person == OWNER and not self._group

    def _flush(self) -> str:
        """Return the last flush in words."""
        mark = self._transcript.cycle.flush
        if mark is None:
            return "none yet" if self._conversation.compacting.flushes else "none, since it is switched off"
        ago = span(time_since(mark.at, self._services.clock))
        return f"{mark.outcome}{f' to {mark.path}' if mark.path else ''}, {ago} ago"

    @property
    def skills(self) -> SkillsView:
        return self._services.skills.of_person(self.person, group=self._group)

    @property
    def mcp(self) -> McpView:
        return self._services.mcp.view(self.person, self._send, group=self._group)

    async def _send(self, text: str) -> None:
        """Receive a message of the person, once for this command, as after a crash."""
        # Not for a command: the text is somebody else's.
        message = replace(self._waiting.message, id=f"command:{self.session}:{self._waiting.seq}", text=text, attachments=())
        try:
            await self._chat.receive(message, None)
        except GatewayError as error:
            raise CommandFailed(str(error)) from error

    def model(self) -> str:
        return self._explain_choice(self._conversation.models.choice)

    def models(self) -> Sequence[str]:
        may_choose = self._conversation.models.may_choose
        return [name for name in self._services.models.available() if may_choose(name)]

    async def choose_model(self, name: str | None) -> str:
        with as_command_failure():
            return await self._conversation.settings.choose_model(name, self.person)

    def sampling(self) -> SamplingState:
        with as_command_failure():
            models = self._conversation.models
            chosen = models.choose()
            parameters, limits = models.parameters(chosen), chosen.limits
        return SamplingState(
            model=chosen.name,
            effort=models.effort if models.effort in limits.efforts else None,
            efforts=limits.efforts,
            temperature=None if limits.temperature is None else cast("float | None", parameters.get(TEMPERATURE)),
            range=limits.temperature,
        )

    async def choose_effort(self, level: str | None) -> None:
        with as_command_failure():
            await self._conversation.settings.choose_effort(level, self.person)

    async def choose_temperature(self, value: float | None) -> None:
        with as_command_failure():
            await self._conversation.settings.choose_temperature(value, self.person)

    async def offered_models(self) -> Sequence[OfferedModels]:
        found = await self._services.models.listings.all()
        may_choose = self._conversation.models.may_choose
        return [
            OfferedModels(
                provider=name,
                models=tuple(model for model in sorted(each.chats) if may_choose(f"{name}:{model}")),
                failed=each.failed,
            )
            for name, each in found.items()
        ]

    async def history(self, count: int, *, commands: bool = False) -> Sequence[HistoryEntry]:
        head = self._chat.head(self.session) or 0
        entries: list[HistoryEntry] = []
        left_out = {self._waiting.seq}  # and messages of the forked session that are not part of this one
        before, read = head + 1, 0
        while before > 1 and len(entries) < count and read < HISTORY_BYTES:
            first = max(1, before - 64)
            lines = [line for line in await self._lines(first, before) if line]
            events = list(map(decode, lines))
            read += sum(map(len, lines))
            left_out.update(seq for each in events if isinstance(each.event, SessionForked) for seq in each.event.left)
            found = [entry for each in events if (entry := entry_of(each)) and entry.seq not in left_out]
            entries = [entry for entry in found if commands or not entry.of_command] + entries
            before = first
        return entries[-count:]

    def queue(self) -> QueueState:
        waiting = sum(w.seq != self._waiting.seq for w in self._transcript.waiting)
        limit = self._services.settings.current.sessions.queue_limit
        return QueueState(mode=self._conversation.inbox.mode, waiting=waiting, limit=limit)

    async def choose_queue(self, mode: str | None) -> None:
        await self._conversation.settings.change(QUEUE, mode, self.person)

    def verbose(self) -> bool:
        return self._conversation.verbose

    async def choose_verbose(self, on: bool | None) -> None:
        await self._conversation.settings.change(VERBOSE, None if on is None else "on" if on else "off", self.person)

    def spent(self) -> Mapping[str, Mapping[str, Usage]]:
        return {**self._transcript.spent, **self._services.facts.spent(self.session)}

    async def spending(self) -> SpendingSummary:
        costs = await self._services.spending.summary(self.person, self.session)
        return SpendingSummary(currency=costs.currency, session=costs.session) if self._group else costs

    def spent_by_plugins(self) -> Mapping[str, Mapping[str, Usage]]:
        return self._services.plugins_spent()

    def inherited(self) -> Usage:
        return self._transcript.inherited

    async def context(self) -> ContextReport:
        transcript = self._transcript
        try:
            chosen = self._conversation.models.choose()
            name, window, vision = chosen.name, chosen.window, chosen.limits.vision
        except GatewayError:
            name, window, vision = "", None, None
        total, context = self._size(name, vision), assemble(transcript)
        weigh = transcript.counts.calibration(name).tokens
        work = partial(
            context_items,
            transcript.instructions,
            transcript.view,
            context,
            vision=vision,
            weigh=weigh,
            total=total,
            count=o200k,
        )
        items = await asyncio.to_thread(work)
        return ContextReport(
            items=items,
            window=window,
            counted=transcript.last_usage.input if transcript.last_usage else None,
            reserve=self._conversation.compacting.reserve(window) if window else None,
            pruned=pruned(transcript.view),
        )

    async def compact(self, focus: str) -> CompactionEntry:
        with as_command_failure():
            made = await self._conversation.compacting.compact_now(focus, self._window())
        return entry_of_cut(self._transcript, self._transcript.cuts[-1], made, self._transcript.cycle.at)

    async def compactions(self, count: int) -> Sequence[CompactionEntry]:
        found: list[CompactionEntry] = []
        for cut in self._transcript.cuts[-count:]:
            (line, *_) = await self._conversation.recorder.log.lines(cut.seq, limit=1)
            recorded = decode(line)
            assert isinstance(recorded.event, ContextCompacted)
            found.append(entry_of_cut(self._transcript, cut, recorded.event, recorded.at))
        return found

    async def revert(self, number: int) -> int:
        with as_command_failure():
            return await self._conversation.compacting.revert(number, self._window())

    def _window(self) -> int | None:
        return self._conversation.models.choose().window

    async def undo(self) -> Sequence[UndoneFile]:
        undoing = asyncio.ensure_future(self._undo())
        try:
            return await asyncio.shield(undoing)
        except asyncio.CancelledError:
            await asyncio.wait([undoing])  # what was restored is recorded, even if nobody waits for the answer any more
            raise

    async def _undo(self) -> Sequence[UndoneFile]:
        turn, events = self._transcript.turn, await self._since_last_turn()
        for recorded in events:
            if isinstance(recorded.event, ChangesUndone) and recorded.event.answers == self._waiting.seq:
                return recorded.event.files  # the gateway stopped before it answered
        changes = changes_of(turn, events)
        if not changes.reversals:
            raise CommandFailed(_nothing_to_undo(changes))
        files = await self._services.file_undo.undo(changes, person=self.person, group=self._group)
        undone = ChangesUndone(of=turn, answers=self._waiting.seq, files=files, told=told_to_the_model(files))
        await self._conversation.recorder.append_durable(undone)
        return files

    async def _since_last_turn(self) -> list[Recorded]:
        """Return the durable events since the start of the last turn."""
        turn, events = self._transcript.turn, list[Recorded]()
        before = (self._chat.head(self.session) or 0) + 1
        while turn and before > 1 and not any(_starts(each, turn) for each in events):
            first = max(1, before - UNDO_PAGE)
            events = [*map(decode, await self._lines(first, before)), *events]
            before = first
        return events

    def stop_turn(self) -> bool:
        return self._chat.stop_turns()

    async def jobs(self) -> Sequence[JobEntry]:
        jobs = self._services.command_source.jobs
        return [] if jobs is None else [job.entry for job in await jobs.of_session(self.session)]

    async def stop_job(self, number: int) -> None:
        jobs = self._services.command_source.jobs
        try:
            if jobs is None:
                raise ToolFailed("There are no jobs.")
            await jobs.stop(await jobs.find(self.session, number))
        except ToolFailed as error:
            raise CommandFailed(str(error)) from error

    def title(self) -> str:
        return self._conversation.title

    async def rename(self, title: str) -> None:
        await self._conversation.rename(one_line(title, TITLE_CHARACTERS), self.person)

    async def archive(self, *, archived: bool) -> None:
        await self._conversation.archive(self.person, archived=archived)

    async def conversations(self) -> Sequence[ConversationEntry]:
        if self._group:
            raise CommandFailed("Others can read this chat; write /sessions in a private one.")
        return [
            ConversationEntry(
                key=each.session,
                title=each.title or each.beginning,
                at=each.at,
                pinned=each.pinned,
                archived=each.archived,
                running=each.running,
                parent=each.parent,
            )
            for each in await self._chat.list_conversations(self.person)
        ]

    async def delete(self, *, facts: bool) -> None:
        await self._chat.removals.delete_when_idle(self._chat, self.session, facts=facts)

    async def erase(self, message: int | None = None) -> None:
        await self._chat.removals.erase_when_idle(self._chat, self.session, message)

    async def spawn(self, task: str, tools: Sequence[str] | None = None) -> str:
        asked, chosen = self._waiting, None if tools is None else tuple(tools)
        with as_command_failure():
            child = await self._services.subagents.spawn(
                self.session, SubagentTask(text=task, tools=chosen), f"command:{asked.seq}", asked=asked.message
            )
        return child.started.child

    def agents(self) -> Sequence[AgentEntry]:
        current = self._transcript.agent
        names = dict.fromkeys((MAIN_AGENT, *self._services.settings.current.agents, current))
        return [AgentEntry(name=name, current=name == current) for name in names]

    async def start_anew(self, agent: str | None = None) -> str:
        chat = self._chat
        choice = chat.next_agent(self._waiting.message) if agent is None else AgentChoice(agent=agent, by_person=True)
        if choice.agent not in (MAIN_AGENT, *self._services.settings.current.agents):
            raise CommandFailed(f"There is no agent {one_line(choice.agent, NAMED_CHARACTERS)!r}.")
        with as_command_failure():
            successor = await chat.start_anew(self._conversation, self._waiting.seq, choice)
        self._services.command_source.end_session(self.session)
        return successor

    def _size(self, model: str | None, vision: VisionSupport | None) -> int | None:
        """Return the estimated tokens of the next request; None before the first one."""
        transcript = self._transcript
        if model is None or transcript.instructions is None:
            return None
        return transcript.counts.estimate(self._conversation.turn.answering.measure(vision, model), model)

    @property
    def _transcript(self) -> Transcript:
        return self._conversation.recorder.transcript

    def _explain_choice(self, name: str | None) -> str:
        with as_command_failure():
            return self._services.models.choose(name).why

    async def _lines(self, first: int, before: int) -> list[bytes]:
        lines: list[bytes] = []
        while first + len(lines) < before:
            page = await self._chat.lines(self.session, first + len(lines))
            if not page:
                break
            lines += page
        return lines[: before - first]


def _starts(recorded: Recorded, turn: int) -> bool:
    return recorded.turn == turn and isinstance(recorded.event, TurnStarted)


def _nothing_to_undo(changes: TurnChanges) -> str:
    if changes.undone:
        return "The changes of the last turn were undone before; there is nothing left to undo."
    if changes.uncertain:
        return f"Nothing was undone: {UNCERTAIN}. Look at {', '.join(changes.uncertain)}."
    return "The last turn changed no files with `write` or `edit`; there is nothing to undo."


def entry_of(recorded: Recorded) -> HistoryEntry | None:  # noqa: PLR0911 - one arm for each kind
    """Return an event as a line of the history; None if it is none."""
    match recorded.event:
        case MessageReceived(text=text) as message if child_of(message):
            return HistoryEntry(seq=recorded.seq, at=recorded.at, who="subagent", text=result_in(text))
        case MessageReceived(text=text, attachments=attachments):
            said = text_with_attachments(text, attachments)
            typed = parse_command(text) is not None
            return HistoryEntry(seq=recorded.seq, at=recorded.at, who="person", text=said, of_command=typed)
        case MessageImported(text=text, attachments=attachments):
            said = text_with_attachments(text, attachments)
            return HistoryEntry(seq=recorded.seq, at=recorded.at, who="person", text=said)
        case ModelReplied(text=text) | ReplyImported(text=text) if text:
            return HistoryEntry(seq=recorded.seq, at=recorded.at, who="assistant", text=text)
        case CommandAnswered(answer=text) if text:
            return HistoryEntry(seq=recorded.seq, at=recorded.at, who="gateway", text=text, of_command=True)
        case ToolReturned(output=text):
            return HistoryEntry(seq=recorded.seq, at=recorded.at, who="tool", text=text)
        case _:
            return None


def time_since(at: str, clock: Clock) -> float:
    """Return the seconds since an event's time."""
    return (clock.now() - datetime.fromisoformat(at)).total_seconds()
