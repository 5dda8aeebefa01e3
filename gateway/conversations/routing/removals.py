"""The removal of conversations: what is deleted, and what is erased with everything that came of it.

Both are recorded first and are finished even after a crash; the conversations that they reach are closed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import msgspec
import structlog

from gateway.conversations.deletion.deletion_log import ErasureOrdered
from gateway.conversations.deletion.deletions import DeletedConversation, Deletions
from gateway.conversations.routing.chat import Chat
from gateway.conversations.routing.forks import Forks
from gateway.conversations.routing.live_sessions import LiveSessions
from gateway.support.errors import Conflict
from sessions.events.errors import SessionsError, UnknownSession
from sessions.store.catalog import Name, SessionRow

if TYPE_CHECKING:
    from gateway.conversations.erasure.erasure_plan import Chosen
    from gateway.conversations.erasure.erasures import Erased, ErasurePlan, Erasures

T = TypeVar("T")

DeletionWatcher: TypeAlias = Callable[[str, str, DeletedConversation | None], None]
"""Called with the person, the key, and None before anything is removed; again with the result."""

log = structlog.get_logger("exuvia.removals")


class OpenConversations(Protocol):
    """The conversations in memory; see `Switchboard`."""

    def closed(self, person: str, key: str) -> AbstractAsyncContextManager[list[SessionRow]]:
        """Close a conversation for as long as the block runs; it is opened again unless the block calls `forget`."""
        ...

    def forget(self, person: str, key: str) -> None:
        """Forget a conversation that is `closed`, because its deletion has begun."""
        ...

    def emptied(self, name: Name) -> AbstractAsyncContextManager[None]:
        """Keep the sessions of a key closed for as long as the block runs; its clients stay subscribed."""
        ...

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a task that ends with the switchboard."""
        ...


class Removals:
    """Deletes and erases conversations of a running gateway.

    Args:
        conversations: The conversations in memory.
        sessions: All sessions.
        forks: Makes no copy of a session while something is erased.
        deletions: The log of deletions and erasures.
        erasures: Returns the erasures; called when the first one is needed.
    """

    def __init__(
        self,
        conversations: OpenConversations,
        sessions: LiveSessions,
        forks: Forks,
        deletions: Deletions,
        erasures: Callable[[], Erasures],
    ) -> None:
        self._conversations = conversations
        self._sessions = sessions
        self._forks = forks
        self._deletions = deletions
        self._erasures = erasures
        self._watchers: set[DeletionWatcher] = set()

    def on_deleted(self, watcher: DeletionWatcher) -> Callable[[], None]:
        """Call `watcher` when a conversation was closed in order to be deleted. Returns a function that removes it."""
        self._watchers.add(watcher)
        return lambda: self._watchers.discard(watcher)

    async def delete(self, person: str, key: str, *, by: str, facts: bool) -> DeletedConversation:
        """Delete a person's conversation. Once it is recorded, it is finished even after a crash.

        Raises:
            UnknownSession: There is no such conversation.
            Conflict: A turn runs, or a message waits for one.
            StorageFailed: The conversation cannot be opened, or something cannot be removed.
        """
        # Shielded: if the caller is cancelled, the rest must be removed nevertheless.
        return await asyncio.shield(self._conversations.spawn(self._delete(person, key, by, facts=facts)))

    async def erase(self, person: str, session: str, chosen: Chosen, *, by: str) -> Erased:
        """Erase something of a person's session, and everything that came of it. Once it is recorded, it is finished even
        after a crash.

        Raises:
            UnknownSession: The person has no such session, or it has no such message.
            Conflict: A turn runs in a conversation that it reaches, or a message waits for one.
            StorageFailed: Something cannot be read or written.
        """
        row = await self._sessions.row(session)
        if row is None or row.person != person:
            raise UnknownSession(f"There is no session {session}.")
        return await asyncio.shield(self._conversations.spawn(self._erase(person, {session: chosen}, by)))

    async def erase_conversation(self, person: str, key: str, *, by: str) -> Erased:
        """Erase all sessions of a person's key with everything that came of them, then delete the key. Errors as for
        `erase`."""
        rows = await self._sessions.of_key(person, key)
        if not rows:
            raise UnknownSession(f"There is no session {key}.")
        from gateway.conversations.erasure.erasure_plan import Chosen  # noqa: PLC0415 - not at the start

        chosen = {row.session: Chosen(upto=row.head) for row in rows}  # one order: a crash leaves none of them out
        erased = await asyncio.shield(self._conversations.spawn(self._erase(person, chosen, by)))
        deleted = await self.delete(person, key, by=by, facts=True)
        return msgspec.structs.replace(erased, remains=tuple(dict.fromkeys((*erased.remains, *deleted.remains))))

    def delete_when_idle(self, chat: Chat, *, facts: bool) -> None:
        """Delete a chat in the background, once nothing runs or waits in it."""
        delete = partial(self._delete, chat.person, chat.key, chat.person, facts=facts)
        self._conversations.spawn(self._when_idle(chat, delete, failed="conversation_not_deleted"))

    def erase_when_idle(self, chat: Chat, session: str, message: int | None) -> None:
        """Erase the message with this seq of a session, or the whole conversation, once nothing runs or waits in it."""
        from gateway.conversations.erasure.erasure_plan import Chosen  # noqa: PLC0415 - not at the start

        def erase() -> Awaitable[object]:
            if message is None:
                return self.erase_conversation(chat.person, chat.key, by=chat.person)
            return self.erase(chat.person, session, Chosen(messages=frozenset({message})), by=chat.person)

        self._conversations.spawn(self._when_idle(chat, erase, failed="not_erased"))

    async def resume_erasures(self) -> None:
        """Finish the erasures that the last stop interrupted."""
        with suppress(SessionsError):  # `Deletions.problems` has the reason
            for order in await self._deletions.unfinished_erasures():
                if not order.everything:
                    await self._finish_erasure(order)

    async def resume_deletions(self) -> None:
        """Finish the deletions that the last stop interrupted."""
        await self._deletions.resume()

    async def _when_idle(self, chat: Chat, remove: Callable[[], Awaitable[object]], *, failed: str) -> None:
        changed = asyncio.Event()
        chat.watch(changed.set)
        try:
            while True:
                changed.clear()
                if chat.idle or not chat.is_open:
                    with suppress(Conflict):  # a message came meanwhile
                        await remove()
                        return
                await changed.wait()
        except SessionsError as error:
            log.error(failed, key=chat.key, reason=str(error))
        finally:
            chat.unwatch(changed.set)

    async def _delete(self, person: str, key: str, by: str, *, facts: bool) -> DeletedConversation:
        async with self._conversations.closed(person, key) as rows:
            begun = await self._deletions.begin(rows, by, facts=facts)
            self._conversations.forget(person, key)
            for watcher in tuple(self._watchers):
                watcher(person, key, None)
            await self._deletions.remove_sessions(begun)
        deleted = await self._deletions.finish(begun)
        for watcher in tuple(self._watchers):
            watcher(person, key, deleted)
        return deleted

    async def _finish_erasure(self, order: ErasureOrdered) -> None:
        try:
            async with self._deletions.carrying_out(order):
                if await self._deletions.is_unfinished(order):
                    await self._carry_out(order, recorded=True)
        except Exception as error:  # the next start tries again
            self._deletions.not_finished(order, error)

    async def _erase(self, person: str, chosen: Mapping[str, Chosen], by: str) -> Erased:
        order = await self._erasures().order(person, chosen, by)
        async with self._deletions.carrying_out(order):
            return await self._carry_out(order, recorded=False)

    async def _carry_out(self, order: ErasureOrdered, *, recorded: bool) -> Erased:
        """Carry out an order while the conversations that it reaches are held; record it first."""
        names, plan = set[Name](), await self._erasures().plan(order)
        while not names.issuperset(reaches := await self._names_of(order, plan)):
            names |= reaches
            plan = await self._erasures().plan(order, plan)
        async with AsyncExitStack() as stack:
            for name in sorted(names):
                await stack.enter_async_context(self._conversations.emptied(name))
            async with self._forks.paused:
                plan = await self._erasures().plan(order, plan)
                if not names.issuperset(await self._names_of(order, plan)):
                    raise Conflict("A conversation has grown meanwhile; try again.")
                if not recorded:
                    await self._deletions.record(order)
                try:
                    erased = await self._erasures().carry_out(plan)
                except Exception as error:
                    self._deletions.not_finished(order, error)
                    raise
        await self._deletions.erasure_finished(order)
        return msgspec.structs.replace(erased, remains=(*erased.remains, *await self._deletions.in_copies()))

    async def _names_of(self, order: ErasureOrdered, plan: ErasurePlan) -> set[Name]:
        sessions = {*plan.changing, *(each.session for each in order.sessions)}
        return {row.name for session in sessions if (row := await self._sessions.row(session)) is not None}
