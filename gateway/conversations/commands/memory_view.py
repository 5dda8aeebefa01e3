"""The memory as a slash command sees it and may change it, with the rights of its sender in that chat."""

from __future__ import annotations

from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.commands.memory_report import memory_found, memory_report
from gateway.conversations.notes.appending import NoteNotWritten
from gateway.conversations.routing.conversation import Conversation
from gateway.conversations.turn.inbox import WaitingCommand
from gateway.support.errors import GatewayError, sentence_of
from plugins.api.command import CommandFailed, MemoryFound, MemoryReport
from plugins.api.facts.fact_errors import FactsError
from plugins.api.memory.scope import Scope
from plugins.api.services import IndexUnusable
from plugins.facts.persons_facts import PersonsFacts
from plugins.memory.memory_tools import LINES
from plugins.memory.sources.transcripts import document_of
from plugins.support.errors import ProviderError
from plugins.support.workspace import own_note


class MemoryView:
    """The memory part of a `ConversationView`."""

    def __init__(self, services: CommandServices, waiting: WaitingCommand, conversation: Conversation) -> None:
        self._services = services
        self._waiting = waiting
        self._conversation = conversation

    @property
    def person(self) -> str:
        """The sender of the command."""
        return self._waiting.message.sender

    async def remember(self, text: str) -> str:
        """Write a text into the notes."""
        try:
            return await self._services.memory_writer.remember(text, self.person, group=self._group)
        except NoteNotWritten as error:
            raise CommandFailed(str(error)) from error

    async def forget_lines(self, place: str) -> str:
        """Delete lines of a note."""
        try:
            return await self._services.memory_writer.forget(place, self.person, group=self._group)
        except NoteNotWritten as error:
            raise CommandFailed(str(error)) from error

    async def memory(self) -> MemoryReport:
        """Return the state of the memory."""
        services = self._services
        now = services.clock.now().astimezone(services.settings.zone)
        return await memory_report(services.memory, services.memory_writer.notes, now, self._scope)

    async def search_memory(self, query: str) -> MemoryFound:
        """Return the memory's results for a query."""
        try:
            return await memory_found(self._services.memory, query, self._scope)
        except IndexUnusable as error:
            raise CommandFailed(str(error)) from error

    async def excerpt(self, path: str, first: int, lines: int) -> str:
        """Return lines of a note or messages of a session; empty if there are none for this person."""
        found = await self._services.memory.excerpt(own_note(self.person, path), first, min(lines, LINES), self._scope)
        return found or ""

    @property
    def facts(self) -> PersonsFacts:
        """The facts, as far as they may be shown in this chat."""
        return PersonsFacts(self._services.facts, self.person, group=self._group)

    async def distill(self) -> tuple[int, int]:
        """Distill this person's daily facts."""
        conversation = self._conversation
        try:
            return await self._services.fact_extraction.distill(self.person, conversation.models.wish, conversation.session)
        except (GatewayError, ProviderError, FactsError) as error:
            raise CommandFailed(sentence_of(error)) from error

    async def message(self, session: str, seq: int) -> str:
        """Return a message of this person's sessions; empty if there is none."""
        return await self._services.memory.excerpt(document_of(session), seq, 1, self._scope) or ""

    @property
    def _scope(self) -> Scope:
        return Scope(owners=frozenset({self.person}), private=not self._group)

    @property
    def _group(self) -> bool:
        return self._waiting.message.chat == "group"
