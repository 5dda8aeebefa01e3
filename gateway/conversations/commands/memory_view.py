"""What a command sees of the memory, and may do to it: as the person who typed it may, in that chat."""

from __future__ import annotations

from collections.abc import Callable

from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.commands.memory_report import memory_found, memory_report
from gateway.conversations.notes.appending import NoteNotWritten
from gateway.support.errors import GatewayError, sentence_of
from plugins.api.command import CommandFailed, MemoryFound, MemoryReport
from plugins.api.facts.fact_errors import FactsError
from plugins.api.memory.scope import Scope
from plugins.facts.persons_facts import PersonsFacts
from plugins.memory.index_errors import IndexUnusable
from plugins.memory.sources.transcripts import document_of
from plugins.support.errors import ProviderError
from sessions.state.transcript import WaitingMessage


class MemoryView:
    """That part of a `ConversationView`. `session` is the one that it was typed in, `model` which model that chose, None
    where it did not."""

    def __init__(
        self, around: CommandServices, waiting: WaitingMessage, session: str, model: Callable[[], str | None]
    ) -> None:
        self._around = around
        self._session = session
        self._waiting = waiting
        self._model = model

    @property
    def person(self) -> str:
        """Who typed it."""
        return self._waiting.message.sender

    async def remember(self, text: str) -> str:
        """Write something into the notes."""
        try:
            return await self._around.remembering.remember(text, self.person, group=self._group)
        except NoteNotWritten as error:
            raise CommandFailed(str(error)) from error

    async def forget_lines(self, place: str) -> str:
        """Take lines out of a note."""
        try:
            return await self._around.remembering.forget(place, self.person, group=self._group)
        except NoteNotWritten as error:
            raise CommandFailed(str(error)) from error

    async def memory(self) -> MemoryReport:
        """What is remembered."""
        around = self._around
        now = around.clock.now().astimezone(around.zone())
        return await memory_report(around.memory, around.remembering.notes, now, self._scope)

    async def search_memory(self, query: str) -> MemoryFound:
        """What the memory has for a query."""
        try:
            return await memory_found(self._around.memory, query, self._scope)
        except IndexUnusable as error:
            raise CommandFailed(str(error)) from error

    @property
    def facts(self) -> PersonsFacts:
        """The small facts, as they may be told here."""
        return PersonsFacts(self._around.facts, self.person, group=self._group)

    async def distill(self) -> tuple[int, int]:
        """Make of this person's daily facts few that stay."""
        try:
            return await self._around.finding.distill(self.person, self._model(), self._session)
        except (GatewayError, ProviderError, FactsError) as error:
            raise CommandFailed(sentence_of(error)) from error

    async def message(self, session: str, seq: int) -> str:
        """A message of this person's sessions."""
        return await self._around.memory.excerpt(document_of(session), seq, 1, self._scope) or ""

    @property
    def _scope(self) -> Scope:
        return Scope(owners=frozenset({self.person}), private=not self._group)

    @property
    def _group(self) -> bool:
        return self._waiting.message.chat == "group"
