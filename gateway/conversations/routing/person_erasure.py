"""Erases persons: their conversations, and what they have left elsewhere. An erasure that was ordered is always finished."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from gateway.conversations.deletion.deletion_log import ErasureOrdered
from gateway.conversations.deletion.deletions import Deletions
from gateway.conversations.routing.switchboard import Switchboard
from gateway.support.errors import Conflict
from sessions.events.errors import SessionsError, UnknownSession
from sessions.store.catalog import Catalog

if TYPE_CHECKING:
    from gateway.conversations.erasure.erasures import Erased, Erasures

ROUNDS = 3
"""How many times conversations are looked for: one may begin while others are erased."""


class PersonErasures:
    """The erasures of persons in a running gateway.

    Args:
        switchboard: Erases their conversations.
        erasures: Returns the erasures; called when the first one is needed.
        deletions: The log of deletions.
        catalog: The catalog of the sessions.
        forget_browsers: Removes a person's browsers from the list of those that are signed in.
    """

    def __init__(
        self,
        switchboard: Switchboard,
        erasures: Callable[[], Erasures],
        deletions: Deletions,
        catalog: Catalog,
        forget_browsers: Callable[[str], Awaitable[None]],
    ) -> None:
        self._switchboard = switchboard
        self._erasures = erasures
        self._deletions = deletions
        self._catalog = catalog
        self.forget_browsers = forget_browsers
        self._lock = asyncio.Lock()
        """Held by the erasure that is carried out, so that the start does not resume it."""
        self._running: set[asyncio.Task[Erased]] = set()

    async def erase(self, person: str, *, by: str) -> Erased:
        """Erase everything of a person, and return the receipt.

        Raises:
            Conflict: A turn runs in one of the conversations, or a message waits for one.
            StorageFailed: Something cannot be read or written.
        """
        from gateway.conversations.erasure.erasures import order_of_person  # noqa: PLC0415 - not at the start

        for row in await self._catalog.every(person):
            self._switchboard.require_idle(person, row.key)
        task = asyncio.create_task(self._erase(order_of_person(person, by)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _erase(self, order: ErasureOrdered) -> Erased:
        async with self._lock, self._deletions.carrying_out(order):
            await self._deletions.record(order)
            return await self._carry_out(order)

    async def resume(self) -> None:
        """Finish the erasures of persons that the last stop interrupted."""
        with suppress(SessionsError):  # `Deletions.problems` has the reason
            async with self._lock:
                for order in await self._deletions.unfinished_erasures():
                    if order.everything:
                        await self._resume(order)

    async def _resume(self, order: ErasureOrdered) -> None:
        try:
            async with self._deletions.carrying_out(order):
                if await self._deletions.is_unfinished(order):
                    await self._carry_out(order)
        except Exception as error:  # the next start tries again
            self._deletions.not_finished(order, error)

    async def _carry_out(self, order: ErasureOrdered) -> Erased:
        """Erase their access first, so that nothing of them arrives while their conversations are erased."""
        from gateway.conversations.erasure.erasures import combined  # noqa: PLC0415 - not at the start

        receipts = [await self._erasures().erase_entries(order)]
        await self.forget_browsers(order.person)
        for _ in range(ROUNDS):
            for key in sorted({row.key for row in await self._catalog.every(order.person)}):
                if (erased := await self._erase_conversation(order, key)) is not None:
                    receipts.append(erased)
        receipts.append(await self._erasures().erase_entries(order))
        await self._deletions.erasure_finished(order)
        remains = [sentence for receipt in receipts for sentence in receipt.remains]
        return combined(receipts, [*remains, *await self._deletions.in_copies()])

    async def _erase_conversation(self, order: ErasureOrdered, key: str) -> Erased | None:
        """Erase a conversation; return None if it was deleted meanwhile. A turn that began after the order was checked, or
        that a start has resumed, is stopped."""
        while True:
            try:
                return await self._switchboard.removals.erase_conversation(order.person, key, by=order.by)
            except UnknownSession:
                if any(row.key == key for row in await self._catalog.every(order.person)):
                    raise
                return None
            except Conflict:
                for each in {row.key for row in await self._catalog.every(order.person)}:
                    await self._stop(order.person, each)

    async def _stop(self, person: str, key: str) -> None:
        """Stop the turns of a conversation, and wait until none runs and no message waits in it."""
        if (chat := await self._switchboard.chat(person, key, create=False)) is None:
            return
        changed = asyncio.Event()
        chat.watch(changed.set)
        try:
            while not self._is_idle(person, key):
                chat.stop_turns()
                await changed.wait()
                changed.clear()
        finally:
            chat.unwatch(changed.set)

    def _is_idle(self, person: str, key: str) -> bool:
        try:
            self._switchboard.require_idle(person, key)
        except Conflict:
            return False
        return True
