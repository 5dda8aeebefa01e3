"""The sessions of all persons as of now: rows of the catalog, and those in memory up to their last durable event."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from gateway.conversations.routing.chat import Chat
from gateway.conversations.routing.conversation_list import (
    ListedConversation,
    TreeNode,
    listed_conversations,
    related_sessions,
)
from sessions.store.catalog import Catalog, Name, SessionRow, listed_fields, portions
from sessions.store.protocols import Store
from sessions.store.reading import StoredLog


class LiveSessions:
    """Reads and lists the sessions.

    Args:
        catalog: The catalog of all sessions.
        store: Their logs.
        chats: The chats in memory, whose sessions are ahead of the catalog.
    """

    def __init__(self, catalog: Catalog, store: Store, chats: Mapping[Name, Chat]) -> None:
        self._catalog = catalog
        self._store = store
        self._chats = chats

    async def current_sessions(self, person: str) -> list[SessionRow]:
        """Return a person's keys, each with its current session up to its last durable event."""
        return [self._as_of_now(row) async for rows in portions(await self._catalog.sessions(person)) for row in rows]

    async def conversations(self, person: str) -> list[ListedConversation]:
        """Return a person's conversations, in the order of their keys. Changes meanwhile may or may not be in it."""
        running = {chat.key for chat in self._chats.values() if chat.person == person and chat.has_turn}
        listed = list[ListedConversation]()
        async for sessions in portions(await self._catalog.listed(person)):
            now = [msgspec.structs.replace(each, row=self._as_of_now(each.row)) for each in sessions]
            listed += listed_conversations(now, running)
        return listed

    async def tree(self, person: str, key: str) -> list[TreeNode]:
        """Return the sessions of a person's key, and all that share an origin with one of them, oldest first."""
        return await asyncio.to_thread(related_sessions, await self.every(person), key)

    async def every(self, person: str) -> list[SessionRow]:
        """Return all sessions of a person up to their last durable events, in no order."""
        open_sessions = [
            each.session for chat in self._chats.values() if chat.person == person for each in chat.conversations
        ]
        now = {row.session: self._as_of_now(row) for each in open_sessions if (row := self._catalog.row(each)) is not None}
        rows = await self._catalog.every(person)
        return await asyncio.to_thread(lambda: [now.get(row.session, row) for row in rows])

    async def current(self, person: str, key: str) -> SessionRow | None:
        """Return the current session of a person's key up to its last durable event."""
        row = await self._catalog.current(person, key)
        return self._as_of_now(row) if row else None

    async def of_key(self, person: str, key: str) -> list[SessionRow]:
        """Return all sessions of a person's key, in no order."""
        return [row for row in await self.every(person) if row.key == key]

    async def row(self, session: str) -> SessionRow | None:
        """Return the catalog row of a session. For one in memory, it dates from when the session was last idle or failed."""
        return await self._catalog.find(session)

    def log(self, session: str) -> StoredLog:
        return StoredLog(self._store, session)

    def durable(self, session: str) -> int | None:
        """Return the last durable seq of a session in memory: later events in the journal may still be lost."""
        row = self._catalog.row(session)
        chat = self._chats.get(row.name) if row else None
        conversation = chat.conversation(session) if chat else None
        return conversation.recorder.durable if conversation else None

    def _as_of_now(self, row: SessionRow) -> SessionRow:
        chat = self._chats.get((row.person, row.key))
        conversation = chat.conversation(row.session) if chat else None
        if conversation is None:
            return row
        recorder = conversation.recorder
        transcript = recorder.durable_transcript
        return msgspec.structs.replace(row, head=recorder.durable, at=transcript.at, **listed_fields(transcript))
