"""The removal of conversations: what is deleted, and what is erased with everything that came of it.

Both are recorded first and are finished even after a crash; the conversations that they reach are closed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import msgspec
import structlog

from gateway.conversations.deletion.deletion_log import ErasureOrdered, RemovalRequested, new_removal_id
from gateway.conversations.deletion.deletions import DeletedConversation, Deletions
from gateway.conversations.routing.chat import Chat
from gateway.conversations.routing.forks import Forks
from gateway.conversations.routing.live_sessions import LiveSessions
from gateway.support.errors import Conflict, OwnedElsewhere, error_fields
from sessions.events.errors import JournalDamaged, SessionsError, UnknownSession
from sessions.store.catalog import Name, SessionRow

if TYPE_CHECKING:
    from gateway.conversations.erasure.erasure_plan import Chosen
    from gateway.conversations.erasure.erasures import Erased, ErasurePlan, Erasures

T = TypeVar("T")

DeletionWatcher: TypeAlias = Callable[[str, str, DeletedConversation | None], None]
"""Called with the person, the key, and None before anything is removed; again with the result."""

log = structlog.get_logger("exuvia.removals")


RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before a removal that could not begin is tried again: after the first failure, the second, and so on."""

REQUESTS_SECONDS = 30.0
"""Seconds between two looks for requests that another gateway of the same database has recorded and not carried out."""


def _do_nothing() -> None:
    """Note nothing."""


class Remove(Protocol):
    """Removes something, and calls `recorded` once the next start would finish it."""

    async def __call__(self, *, recorded: Callable[[], None]) -> object: ...


class OpenConversations(Protocol):
    """The conversations in memory; see `Switchboard`."""

    def closed(self, person: str, key: str) -> AbstractAsyncContextManager[list[SessionRow]]:
        """Close a conversation for as long as the block runs; it is opened again unless the block calls `forget`."""
        ...

    def forget(self, person: str, key: str) -> None:
        """Forget a conversation that is `closed`, because its deletion has begun."""
        ...

    def require_idle(self, person: str, key: str) -> None:
        """Raise Conflict if a turn runs in a conversation, or a message waits for one."""
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
        self._requested: set[str] = set()
        """The ids of the requests that are being carried out."""

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
        return await asyncio.shield(self._conversations.spawn(self._erase_of_session(person, session, chosen, by)))

    async def erase_conversation(self, person: str, key: str, *, by: str) -> Erased:
        """Erase all sessions of a person's key with everything that came of them, then delete the key. Errors as for
        `erase`."""
        erased = await asyncio.shield(self._conversations.spawn(self._erase_of_key(person, key, by)))
        deleted = await self.delete(person, key, by=by, facts=True)
        return msgspec.structs.replace(erased, remains=tuple(dict.fromkeys((*erased.remains, *deleted.remains))))

    async def delete_when_idle(self, chat: Chat, session: str, *, facts: bool) -> None:
        """Record durably that the conversation of a session is to be deleted, and delete it in the background, once nothing
        runs or waits in it. Raises StorageFailed."""
        await self._request(
            RemovalRequested(removal=new_removal_id(), person=chat.person, session=session, facts=facts), chat
        )

    async def erase_when_idle(self, chat: Chat, session: str, message: int | None) -> None:
        """Record durably that the message with this seq of a session, or the whole conversation, is to be erased, and erase
        it in the background, once nothing runs or waits in it. Raises StorageFailed."""
        asked = RemovalRequested(
            removal=new_removal_id(), person=chat.person, session=session, message=message or 0, erase=True
        )
        await self._request(asked, chat)

    async def resume_requests(self) -> None:
        """Carry out what was requested and has not begun, in the background."""
        with suppress(SessionsError):  # `Deletions.problems` has the reason
            for asked in await self._deletions.requests():
                if asked.removal not in self._requested:
                    self._conversations.spawn(self._carry_out_request(asked, None))

    async def watch_requests(self) -> None:
        """Carry out what other gateways of a database have recorded and not carried out, as long as this one serves."""
        while True:
            await asyncio.sleep(REQUESTS_SECONDS)
            try:
                await self.resume_requests()
            except Exception as error:  # the next look may find them
                log.error("requests_not_read", **error_fields(error))

    async def resume_erasures(self) -> None:
        """Finish the erasures that the last stop interrupted."""
        with suppress(SessionsError):  # `Deletions.problems` has the reason
            for order in await self._deletions.unfinished_erasures():
                if not order.everything:
                    await self._finish_erasure(order)

    async def resume_deletions(self) -> None:
        """Finish the deletions that the last stop interrupted."""
        await self._deletions.resume()

    async def _request(self, asked: RemovalRequested, chat: Chat) -> None:
        await self._deletions.request(asked)
        self._conversations.spawn(self._carry_out_request(asked, chat))

    async def _carry_out_request(self, asked: RemovalRequested, chat: Chat | None) -> None:
        """Carry out what was requested once the conversation is idle, whose chat is given if this gateway has it."""
        self._requested.add(asked.removal)
        try:
            if asked.message:
                done = await self._when_idle(chat, asked, partial(self._erase_requested, asked))
            else:
                done = not asked.erase or await self._when_idle(chat, asked, partial(self._erase_requested, asked))
                done = done and await self._when_idle(chat, asked, partial(self._delete_requested, asked))
            if done:
                await self._deletions.request_ended(asked)
        except SessionsError as error:  # the next start finds nothing left to remove
            log.error("request_not_ended", removal=asked.removal, **error_fields(error))
        finally:
            self._requested.discard(asked.removal)

    async def _erase_requested(self, asked: RemovalRequested, *, recorded: Callable[[], None]) -> None:
        from gateway.conversations.erasure.erasure_plan import Chosen  # noqa: PLC0415 - not at the start

        row = await self._row(asked.person, asked.session)
        if asked.message:
            chosen = Chosen(messages=frozenset({asked.message}))
            await self._erase(row.person, {row.session: chosen}, row.person, recorded)
        else:
            await self._erase_of_key(row.person, row.key, row.person, recorded=recorded)

    async def _delete_requested(self, asked: RemovalRequested, *, recorded: Callable[[], None]) -> None:
        row = await self._row(asked.person, asked.session)
        await self._delete(row.person, row.key, row.person, facts=asked.facts or asked.erase, recorded=recorded)

    async def _row(self, person: str, session: str) -> SessionRow:
        """Return the row of a person's session. Raises UnknownSession."""
        row = await self._sessions.row(session)
        if row is None or row.person != person:
            raise UnknownSession(f"There is no session {session}.")
        return row

    async def _when_idle(self, chat: Chat | None, asked: RemovalRequested, remove: Remove) -> bool:
        """Remove something once nothing runs or waits in a chat. Return True if that is done, or there is nothing to remove.

        What fails before it is recorded is tried again after a pause, unless another gateway has the conversation; what is
        recorded, or fails lastingly, is left to the next start.
        """
        changed, recorded, failures = asyncio.Event(), asyncio.Event(), 0
        if chat is not None:
            chat.watch(changed.set)
        try:
            while True:
                changed.clear()
                if chat is not None and not chat.idle and chat.is_open:
                    await changed.wait()
                    continue
                try:
                    await remove(recorded=recorded.set)
                except Conflict:  # a message came meanwhile, or another conversation that it reaches is in use
                    pass
                except Exception as error:
                    log.error("removal_not_begun", removal=asked.removal, session=asked.session, **error_fields(error))
                    if isinstance(error, UnknownSession):
                        return True
                    elsewhere = chat.dropped if chat is not None else isinstance(error, OwnedElsewhere)
                    if recorded.is_set() or elsewhere or isinstance(error, JournalDamaged):
                        return False
                else:
                    return True
                # Not until the chat changes: it does when it is opened again after the attempt.
                await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
                failures += 1
        finally:
            if chat is not None:
                chat.unwatch(changed.set)

    async def _delete(
        self, person: str, key: str, by: str, *, facts: bool, recorded: Callable[[], None] = _do_nothing
    ) -> DeletedConversation:
        async with self._conversations.closed(person, key) as rows:
            begun = await self._deletions.begin(rows, by, facts=facts)
            recorded()
            self._conversations.forget(person, key)
            for watcher in tuple(self._watchers):
                watcher(person, key, None)
            await self._deletions.remove_sessions(begun)
        deleted = await self._deletions.finish(begun)
        for watcher in tuple(self._watchers):
            watcher(person, key, deleted)
        return deleted

    async def _finish_erasure(self, order: ErasureOrdered, failures: int = 0) -> None:
        try:
            async with self._deletions.carrying_out(order):
                if await self._deletions.is_unfinished(order):
                    await self._carry_out(order)
        except Conflict:  # a conversation that it reaches is in use
            self._conversations.spawn(self._finish_erasure_later(order, failures))
        except Exception as error:  # the next start tries again
            self._deletions.not_finished(order, error)

    async def _finish_erasure_later(self, order: ErasureOrdered, failures: int) -> None:
        await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
        await self._finish_erasure(order, failures + 1)

    async def _erase_of_session(self, person: str, session: str, chosen: Chosen, by: str) -> Erased:
        row = await self._row(person, session)
        return await self._erase(row.person, {row.session: chosen}, by, _do_nothing)

    async def _erase_of_key(self, person: str, key: str, by: str, *, recorded: Callable[[], None] = _do_nothing) -> Erased:
        from gateway.conversations.erasure.erasure_plan import Chosen  # noqa: PLC0415 - not at the start

        rows = await self._sessions.of_key(person, key)
        if not rows:
            raise UnknownSession(f"There is no session {key}.")
        chosen = {row.session: Chosen(upto=row.head) for row in rows}  # one order: a crash leaves none of them out
        return await self._erase(person, chosen, by, recorded)

    async def _erase(self, person: str, chosen: Mapping[str, Chosen], by: str, recorded: Callable[[], None]) -> Erased:
        order = await self._erasures().order(person, chosen, by)
        async with self._deletions.carrying_out(order):
            return await self._carry_out(order, recorded)

    async def _carry_out(self, order: ErasureOrdered, recorded: Callable[[], None] | None = None) -> Erased:
        """Carry out an order while the conversations that it reaches are held; without `recorded`, it was recorded before,
        otherwise record it first and call that."""
        names, plan = set[Name](), await self._erasures().plan(order)
        while not names.issuperset(reaches := await self._names_of(order, plan)):
            names |= reaches
            plan = await self._erasures().plan(order, plan)
        for name in sorted(names):  # before any of them is closed
            self._conversations.require_idle(*name)
        async with AsyncExitStack() as stack:
            for name in sorted(names):
                await stack.enter_async_context(self._conversations.emptied(name))
            async with self._forks.paused:
                plan = await self._erasures().plan(order, plan)
                if not names.issuperset(await self._names_of(order, plan)):
                    raise Conflict("A conversation has grown meanwhile; try again.")
                if recorded is not None:
                    await self._deletions.record(order)
                    recorded()
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
