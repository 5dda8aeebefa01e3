"""The removal of conversations: what is deleted, and what is erased with everything that came of it.

Both are recorded first and are finished even after a crash; the conversations that they reach are closed meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
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
"""Seconds between two looks for requests of gateways of the same database that are gone."""


def _do_nothing() -> None:
    """Note nothing."""


class _Gone(Exception):
    """The session that a request names is gone."""


def _require_named(rows: Sequence[SessionRow], asked: RemovalRequested | None) -> None:
    """Raise _Gone unless the session of a request is among these rows: others have its key since then."""
    if asked is not None and all(row.session != asked.session for row in rows):
        raise _Gone


async def _pause(failures: int) -> None:
    await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])


class OpenConversations(Protocol):
    """The conversations in memory; see `Switchboard`."""

    async def chat(self, person: str, key: str, *, create: bool) -> Chat | None:
        """Return a person's chat, opened if it is not in memory; without `create`, None for an unknown key. Raises
        OwnedElsewhere, StorageFailed."""
        ...

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
        """Delete a person's conversation. Once it is recorded, it is finished even after a crash, unless the conversation
        has gone on by then: its log has grown.

        Raises:
            UnknownSession: There is no such conversation.
            Conflict: A turn runs, a message waits for one, or the conversation goes on.
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
        removal = new_removal_id()
        await self._request(RemovalRequested(removal=removal, person=chat.person, session=session, facts=facts), chat)

    async def erase_when_idle(self, chat: Chat, session: str, message: int | None) -> None:
        """Record durably that the message with this seq of a session, or the whole conversation, is to be erased, and erase
        it in the background, once nothing runs or waits in it. Raises StorageFailed."""
        removal, seq = new_removal_id(), message or 0
        asked = RemovalRequested(removal=removal, person=chat.person, session=session, message=seq, erase=True)
        await self._request(asked, chat)

    async def resume_requests(self) -> None:
        """Carry out the requests that were recorded and have not begun, in the background. Raises StorageFailed."""
        for removal in await self._deletions.requests():
            if removal not in self._requested:
                self._conversations.spawn(self._carry_out_request(removal, None))

    async def watch_requests(self) -> None:
        """Carry out the requests of gateways of the same database that are gone, as long as this one serves."""
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
        async def record() -> None:
            try:
                await self._deletions.request(asked)
            except Exception:
                self._conversations.spawn(self._withdraw(asked.removal))
                raise
            self._conversations.spawn(self._carry_out_request(asked.removal, chat))

        # Shielded: once it is recorded it is carried out, although the command was stopped meanwhile.
        await asyncio.shield(self._conversations.spawn(record()))

    async def _withdraw(self, removal: str) -> None:
        """End a request that could not be recorded, in case it was stored without being confirmed."""
        self._requested.add(removal)
        for failures in itertools.count():
            with suppress(Exception):
                await self._deletions.request_ended(removal)
                break
            await _pause(failures)
        self._requested.discard(removal)

    async def _carry_out_request(self, removal: str, chat: Chat | None) -> None:
        """Carry out what is left to do of a request, step by step. `chat` is that of its conversation, if this gateway has
        it."""
        self._requested.add(removal)
        try:
            while (asked := (await self._deletions.requests()).get(removal)) is not None:
                if chat is None or chat.dropped:
                    chat = await self._chat_of(asked)
                if chat is None or not await self._when_idle(chat, asked):
                    await self._deletions.request_ended(removal)
        except OwnedElsewhere:  # that gateway, or the next one, carries it out
            log.debug("removal_left_to_another_gateway", removal=removal)
        except Exception as error:  # the next start carries it out
            log.error("removal_not_carried_out", removal=removal, **error_fields(error))
        finally:
            self._requested.discard(removal)

    async def _chat_of(self, asked: RemovalRequested) -> Chat | None:
        """Return the chat with the session of a request, opened as soon as that is possible; None if the session is gone.
        Raises OwnedElsewhere."""
        for failures in itertools.count():
            try:
                row = await self._sessions.row(asked.session)
                if row is None or row.person != asked.person:
                    return None
                return await self._conversations.chat(row.person, row.key, create=False)
            except OwnedElsewhere:
                raise
            except Exception as error:
                log.error("removal_not_begun", removal=asked.removal, session=asked.session, **error_fields(error))
            await _pause(failures)
        raise AssertionError

    async def _when_idle(self, chat: Chat, asked: RemovalRequested) -> bool:
        """Carry out the next step of a request once nothing runs or waits in its chat. Return False if the request ends:
        there is nothing to remove, the step failed permanently, or it was recorded and the next start finishes it.

        A step that fails for another reason is tried again after a pause, as long as this gateway has the conversation.
        """
        changed, recorded = asyncio.Event(), asyncio.Event()
        chat.watch(changed.set)
        try:
            for failures in itertools.count():
                while not chat.idle and chat.is_open:
                    changed.clear()
                    await changed.wait()
                if chat.dropped:
                    return True  # there may be another one
                try:
                    await self._remove_requested(asked, recorded.set)
                except Conflict:  # a message came meanwhile, or another conversation that it reaches is in use
                    pass
                except _Gone:
                    return False
                except Exception as error:
                    log.error("removal_failed", removal=asked.removal, session=asked.session, **error_fields(error))
                    if recorded.is_set() or isinstance(error, JournalDamaged | UnknownSession):
                        return False
                else:
                    return True
                # Not until the chat changes: it does when it is opened again after the attempt.
                await _pause(failures)
        finally:
            chat.unwatch(changed.set)
        raise AssertionError

    async def _remove_requested(self, asked: RemovalRequested, recorded: Callable[[], None]) -> None:
        """Carry out the next step of a request. Raises _Gone, and the errors of `delete` and `erase`."""
        from gateway.conversations.erasure.erasure_plan import Chosen  # noqa: PLC0415 - not at the start

        row = await self._sessions.row(asked.session)
        if row is None or row.person != asked.person:
            raise _Gone
        if asked.message:
            chosen = {row.session: Chosen(messages=frozenset({asked.message}))}
            await self._erase(row.person, chosen, row.person, recorded, asked.removal)
        elif asked.erase:
            await self._erase_of_key(row.person, row.key, row.person, recorded, asked)
        elif any(order.removal == asked.removal for order in await self._deletions.unfinished_erasures()):
            raise Conflict("What came of the conversation is not erased yet.")
        else:
            await self._delete(row.person, row.key, row.person, facts=asked.facts, recorded=recorded, asked=asked)

    async def _delete(
        self,
        person: str,
        key: str,
        by: str,
        *,
        facts: bool,
        recorded: Callable[[], None] = _do_nothing,
        asked: RemovalRequested | None = None,
    ) -> DeletedConversation:
        async with self._conversations.closed(person, key) as rows:
            _require_named(rows, asked)
            begun = await self._deletions.begin(rows, by, facts=facts, removal=asked.removal if asked else "")
            recorded()
            self._conversations.forget(person, key)
            for watcher in tuple(self._watchers):
                watcher(person, key, None)
            if not await self._deletions.remove_sessions(begun):
                raise Conflict("The conversation was continued meanwhile; try again.")
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
        await _pause(failures)
        await self._finish_erasure(order, failures + 1)

    async def _erase_of_session(self, person: str, session: str, chosen: Chosen, by: str) -> Erased:
        row = await self._sessions.row(session)
        if row is None or row.person != person:
            raise UnknownSession(f"There is no session {session}.")
        return await self._erase(person, {session: chosen}, by, _do_nothing)

    async def _erase_of_key(
        self,
        person: str,
        key: str,
        by: str,
        recorded: Callable[[], None] = _do_nothing,
        asked: RemovalRequested | None = None,
    ) -> Erased:
        from gateway.conversations.erasure.erasure_plan import Chosen  # noqa: PLC0415 - not at the start

        rows = await self._sessions.of_key(person, key)
        _require_named(rows, asked)
        if not rows:
            raise UnknownSession(f"There is no session {key}.")
        chosen = {row.session: Chosen(upto=row.head) for row in rows}  # one order: a crash leaves none of them out
        return await self._erase(person, chosen, by, recorded, asked.removal if asked else "")

    async def _erase(
        self, person: str, chosen: Mapping[str, Chosen], by: str, recorded: Callable[[], None], removal: str = ""
    ) -> Erased:
        order = msgspec.structs.replace(await self._erasures().order(person, chosen, by), removal=removal)
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
