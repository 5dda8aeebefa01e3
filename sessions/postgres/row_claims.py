"""The claims of one gateway among several: rows of the table `chat`.

A claim is released by its holder, or ends with it: `membership` frees the claims of a gateway that was declared dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import structlog

from sessions.events.errors import StorageFailed
from sessions.postgres.connections import Database
from sessions.postgres.membership import CONTACT_SECONDS, FENCE, Membership
from sessions.store.catalog import Claim, Elsewhere, Name

AT_ONCE = 4
"""Number of conversations that are adopted in one statement: the other gateways adopt the next ones."""

log = structlog.get_logger("exuvia.claims")

_CLAIM = f"""
    WITH fence AS {FENCE},
    before AS (
        SELECT COALESCE(
            (SELECT unsettled FROM chat WHERE (person, key) = (%(person)s, %(key)s)),
            EXISTS (SELECT FROM session WHERE (person, key) = (%(person)s, %(key)s) AND NOT settled)
        ) AS unfinished
    )
    INSERT INTO chat AS held (person, key, epoch, holder, unsettled)
    SELECT %(person)s, %(key)s, 1, fence.id, true FROM fence
    ON CONFLICT (person, key) DO UPDATE SET epoch = held.epoch + 1, holder = excluded.holder, unsettled = true
        WHERE held.holder IS NULL OR held.holder = excluded.holder
    RETURNING epoch, (SELECT unfinished FROM before)
"""  # noqa: S608 - a fragment of ours

_HOLDER = """
    SELECT gateway.id, gateway.url FROM chat JOIN gateway ON gateway.id = chat.holder
    WHERE chat.person = %(person)s AND chat.key = %(key)s
"""

_UNCLAIMED = """
    SELECT DISTINCT session.person, session.key FROM session
    WHERE NOT session.settled AND NOT EXISTS (
        SELECT FROM chat WHERE (chat.person, chat.key) = (session.person, session.key)
    )
"""
"""Conversations with unfinished work that no gateway ever claimed: those of a database that had no claims, or was copied."""

_OURS = "SELECT person, key FROM chat WHERE holder = %s"

_RELEASE = f"""
    UPDATE chat SET holder = {FENCE}, unsettled = %(unsettled)s
    WHERE person = %(person)s AND key = %(key)s AND epoch = %(epoch)s AND holder IS NOT NULL
"""  # noqa: S608 - a fragment of ours

_ADOPT = f"""
    WITH fence AS {FENCE},
    free AS (
        SELECT id FROM chat WHERE unsettled AND holder IS NULL ORDER BY id LIMIT {AT_ONCE} FOR UPDATE SKIP LOCKED
    )
    UPDATE chat SET epoch = epoch + 1, holder = fence.id FROM fence, free WHERE chat.id = free.id
    RETURNING chat.person, chat.key, chat.epoch
"""  # noqa: S608 - a fragment of ours


class RowClaims:
    """The `Claims` of one gateway of a database that several share."""

    shared = True

    def __init__(self, database: Database, membership: Membership) -> None:
        self._database = database
        self._membership = membership
        self._held: dict[Name, Claim] = {}
        self._adopted: dict[Name, Claim] = {}
        """Claims that `unowned` has made, until they are claimed."""
        self._lost: Callable[[Claim], None] = lambda _: None
        self._is_first = True
        membership.on_death = self._drop

    async def claim(self, name: Name) -> Claim | Elsewhere:
        """Claim a person's key; see `Claims.claim`."""
        if (adopted := self._adopted.pop(name, None)) is not None:
            self._held[name] = adopted
            return adopted
        if not (gateway := self._membership.id):
            raise _dead()
        with self._doubting():
            granted = await asyncio.to_thread(self._claim, name, gateway)
        if isinstance(granted, Claim):
            if gateway != self._membership.id:
                raise _dead()
            self._held[name] = granted
            self._adopted.pop(name, None)  # an adoption that this claim has overtaken
        return granted

    def holds(self, claim: Claim) -> bool:
        """Return True as long as the claim is not lost; see `Claims.holds`."""
        return self._held.get(claim.name) == claim

    async def release(self, claim: Claim, *, settled: bool, to: str = "") -> None:
        """Give a claim up; see `Claims.release`. If the database does not answer, this gateway keeps it, and `unowned`
        yields it as soon as the database answers again."""
        if not self.holds(claim):
            return
        del self._held[claim.name]
        if self._membership.silent_seconds > CONTACT_SECONDS:  # each attempt would take seconds
            self._membership.doubtful = True
            return
        try:
            with self._doubting():
                await asyncio.to_thread(self._release, claim, settled=settled, to=to)
        except StorageFailed as error:
            log.warning("claim_not_released", key=claim.name[1], reason=str(error))

    def on_lost(self, lost: Callable[[Claim], None]) -> None:
        """Set the callback for lost claims; see `Claims.on_lost`."""
        self._lost = lost

    async def unowned(self) -> AsyncIterator[Name]:
        """Adopt conversations with unfinished work; see `Claims.unowned`."""
        self._membership.unowned.clear()
        if self._membership.doubtful:
            for name in await self._unknown():
                yield name
        if self._is_first:
            for name in await asyncio.to_thread(self._unclaimed):
                yield name
            self._is_first = False
        while not self._membership.draining:
            gateway = self._membership.id
            with self._doubting():
                found = await asyncio.to_thread(self._adopt, gateway)
            if gateway != self._membership.id:
                return
            self._adopted |= {claim.name: claim for claim in found if claim.name not in self._held}
            self._membership.adopted += len(found)
            for claim in found:
                yield claim.name
            if not found:
                return

    async def until_unowned(self) -> None:
        """Return when there may be unfinished work without an owner; see `Claims.until_unowned`."""
        await self._membership.unowned.wait()

    async def until_regained(self, before: int) -> None:
        """Return once lost contact has come back; see `Claims.until_regained`."""
        await self._membership.until_regained(before)

    @property
    def regained(self) -> int:
        """How often lost contact has come back; see `Claims.regained`."""
        return self._membership.regained

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """Note that a statement may have been committed although the block fails."""
        try:
            yield
        except StorageFailed:
            self._membership.doubtful = True
            raise

    async def _unknown(self) -> list[Name]:
        """Return the conversations of this gateway according to the database that it does not know to have."""
        self._membership.doubtful = False
        with self._doubting():
            ours = await asyncio.to_thread(self._ours, self._membership.id)
        return [name for name in ours if name not in self._held and name not in self._adopted]

    def _drop(self) -> None:
        held, self._held = self._held, {}
        self._adopted.clear()
        for claim in held.values():
            self._lost(claim)

    # --- on threads ---------------------------------------------------------------------------------------------------

    def _claim(self, name: Name, gateway: str) -> Claim | Elsewhere:
        given = {"person": name[0], "key": name[1], "gateways": [gateway]}
        with self._database.connection() as connection:
            takes = not self._membership.draining
            if takes and (found := connection.execute(_CLAIM, given).fetchone()) is not None:
                return Claim(name=name, epoch=found[0], unfinished=found[1])
            if (holder := connection.execute(_HOLDER, given).fetchone()) is not None and holder[0] != gateway:
                return Elsewhere(gateway=holder[0], url=holder[1])
        if takes and self._membership.id != gateway:
            raise _dead()
        return Elsewhere(gateway="", url="")  # this gateway takes none, or it was released meanwhile

    def _release(self, claim: Claim, *, settled: bool, to: str) -> None:
        given = {
            "person": claim.name[0],
            "key": claim.name[1],
            "epoch": claim.epoch,
            "unsettled": not settled,
            "gateways": [to],
        }
        with self._database.connection() as connection:
            connection.execute(_RELEASE, given)

    def _ours(self, gateway: str) -> list[Name]:
        with self._database.connection() as connection:
            return connection.execute(_OURS, (gateway,)).fetchall()

    def _unclaimed(self) -> list[Name]:
        with self._database.connection() as connection:
            return connection.execute(_UNCLAIMED).fetchall()

    def _adopt(self, gateway: str) -> list[Claim]:
        with self._database.connection() as connection:
            found = connection.execute(_ADOPT, {"gateways": [gateway]}).fetchall()
        return [Claim(name=(person, key), epoch=epoch, unfinished=True) for person, key, epoch in found]


def _dead() -> StorageFailed:
    return StorageFailed("The other gateways have declared this one dead, because it did not answer; it begins again.")
