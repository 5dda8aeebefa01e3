"""The protocol of a catalog: what is known of all sessions, so that a start need not read their logs.

And the protocol of claims: the right to write the sessions of a conversation, where several gateways share a store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from sessions.events.events import MAIN_AGENT, Succession
from sessions.state.transcript import PINNED, ForkOrigin, Transcript
from sessions.store.protocols import Position
from sessions.store.receipts import Receipts

Name: TypeAlias = tuple[str, str]
"""The identity of a conversation for people: the person, and the person's key."""


PORTION = 1000
"""Items that are handled before other tasks run: a person may have very many conversations."""

T = TypeVar("T")


async def portions(items: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """Yield a sequence in portions; other tasks run between them."""
    for at in range(0, len(items), PORTION):
        if at:
            await asyncio.sleep(0)
        yield items[at : at + PORTION]


WEBSOCKET = "websocket"
"""The channel of the gateway's own clients, where most conversations begin."""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The known facts about a session that is not open.

    `head` is its last durable seq and `at` that event's time. `size` (bytes) and `mtime_ns` are those of the log's stamp
    when the row was valid; an `mtime_ns` of 0 means that the log was not verified. `settled` is True if nothing is left to
    finish.

    The rest is for lists of conversations: `title` is empty if there is none, `beginning` is that of the first message,
    `replied` the seq of the newest answer, `used` the time of the newest message or answer, `origin` the session that a fork
    continues, `channel` where the conversation began, empty for `websocket`, `agent` the agent that answers, `parent` the
    key of the conversation that started it as a subagent.
    """

    session: str
    key: str
    person: str
    opened_at: str
    succeeds: Succession | None
    head: int
    at: str
    size: int
    mtime_ns: int
    settled: bool
    closed: bool
    title: str = ""
    pinned: bool = False
    archived: bool = False
    replied: int = 0
    origin: ForkOrigin | None = None
    channel: str = ""
    used: str = ""
    beginning: str = ""
    agent: str = MAIN_AGENT
    parent: str = ""

    @property
    def name(self) -> Name:
        """The person and the key."""
        return self.person, self.key

    @property
    def acknowledged(self) -> int:
        """The seq up to which the log is known to have been durable. An unverified head may be in a tail that was never
        synced."""
        return self.head if self.mtime_ns else 1


class ListedSession(msgspec.Struct, frozen=True, kw_only=True):
    """The current session of a key, for lists of conversations: `created` is the time of the key's first session, and
    `origin_key` the key of the session that a fork continues, empty if there is none."""

    row: SessionRow
    created: str
    origin_key: str


def listed_fields(transcript: Transcript) -> dict[str, Any]:
    """Return the fields of a row that are for lists of conversations."""
    return {
        "title": transcript.title.text if transcript.title else "",
        "pinned": PINNED in transcript.settings,
        "archived": transcript.archived,
        "replied": transcript.replied,
        "used": transcript.used,
        "origin": transcript.origin,
        "beginning": transcript.beginning,
        "agent": transcript.agent,
        "parent": transcript.parent.key if transcript.parent else "",
        "channel": "" if transcript.channel == WEBSOCKET else transcript.channel,
    }


class Catalog(Protocol):
    """The sessions of one home, checkpoints of their transcripts, and the message ids of each key.

    It is derived: what is missing is read again from the logs. Only a row's `acknowledged` is more: it tells that a log has
    lost its end.
    """

    failure: str | None
    """Why changes cannot be written at present."""

    unreadable: dict[str, str]
    """The reason for each session whose log is damaged, missing or unreadable."""

    @property
    def count(self) -> int:
        """The number of known sessions."""
        ...

    async def current(self, person: str, key: str) -> SessionRow | None:
        """Return the session that receives the messages of a person's key, and have the rows of the key ready for `row`,
        `chain` and `successor`."""
        ...

    def row(self, session: str) -> SessionRow | None:
        """Return the row of a session whose key was asked for with `current`, or None if it is unknown."""
        ...

    async def find(self, session: str) -> SessionRow | None:
        """Return the row of any session, or None if it is unknown."""
        ...

    async def sessions(self, person: str) -> list[SessionRow]:
        """Return the current session of each of a person's keys, in the order of the keys."""
        ...

    async def listed(self, person: str) -> list[ListedSession]:
        """Return what `sessions` does, with more about each key."""
        ...

    async def every(self, person: str) -> list[SessionRow]:
        """Return all sessions of a person, in no order."""
        ...

    def chain(self, session: str) -> list[SessionRow]:
        """Return the earlier sessions of this one's key, newest first."""
        ...

    def successor(self, session: str) -> SessionRow | None:
        """Return the session that continues this one."""
        ...

    async def unsettled(self) -> list[SessionRow]:
        """Return the sessions that may have something left to finish."""
        ...

    async def changed_since(self, at: str) -> list[SessionRow]:
        """Return the sessions with an event at or after a time, RFC 3339 in UTC."""
        ...

    def put(self, row: SessionRow) -> None:
        """Insert or update the row of a session; its `size` and `mtime_ns` must be those of the completely durable log."""
        ...

    async def replace(self, rows: Collection[SessionRow]) -> None:
        """Replace everything about sessions, which are closed and whose logs were rewritten on request, with these rows.

        The rows are never missing; those of unknown sessions are ignored. Nothing of the former rows, checkpoints and
        message ids remains in the catalog's file. Raises StorageFailed; then the file may still have it.
        """
        ...

    async def remove(self, sessions: Collection[str]) -> None:
        """Remove everything about sessions whose logs are removed on request. Nothing of it remains in the catalog's file.
        Raises StorageFailed; then the file still has it."""
        ...

    async def checkpoint(self, session: str) -> tuple[Position, Transcript] | None:
        """Return the last valid checkpoint of a session, or None. The log is authoritative: it must still hold the line at
        the position."""
        ...

    def save_checkpoint(
        self, session: str, position: Position, transcript: Transcript, receipts: Receipts | None = None
    ) -> None:
        """Store a transcript for the next start, and the ids of the session's messages up to the same position.

        Both must be durable. Without `receipts` the next start reads the ids from the log.
        """
        ...

    async def receipts(self, person: str, key: str) -> Receipts:
        """Return the newest message ids of a key, at least REMEMBERED, across its sessions, as its logs have them now.

        Raises StorageFailed while they cannot be read.
        """
        ...


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The right to write the sessions of a person's key. `epoch` grows with each owner: what an earlier one still writes is
    rejected. `unfinished` is True if an earlier owner may have left something to finish."""

    name: Name
    epoch: int
    unfinished: bool = False


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway that has the claim on a key, and its address for other gateways. Both are empty if it is not known yet,
    or no gateway has it and this one takes none: try again."""

    gateway: str
    url: str


class Claims(Protocol):
    """The claims of one gateway."""

    shared: bool
    """True if other gateways may have claims."""

    async def claim(self, name: Name) -> Claim | Elsewhere:
        """Claim a person's key before any of its sessions is opened or created. Raises StorageFailed."""
        ...

    def holds(self, claim: Claim) -> bool:
        """Return True as long as a claim is neither released nor lost."""
        ...

    async def release(self, claim: Claim, *, settled: bool, to: str = "") -> None:
        """Release a claim, after all sessions of its key were closed. Unless it is `settled`, another gateway finishes what
        is left. `to` is the gateway that is to claim it, any by default."""
        ...

    def on_lost(self, lost: Callable[[Claim], None]) -> None:
        """Set the callback for claims that another gateway has taken over, called on the event loop. Nothing that is
        written under them will become durable."""
        ...

    def unowned(self) -> AsyncIterator[Name]:
        """Yield the keys that have unfinished work and no owner, until there are no more. Those that are yielded are to be
        claimed."""
        ...

    async def until_unowned(self) -> None:
        """Return when there may be keys with unfinished work and no owner."""
        ...

    @property
    def regained(self) -> int:
        """How often contact with the store was lost and has come back."""
        ...

    async def until_regained(self, before: int) -> None:
        """Return once `regained` is more than `before`: what has failed may be tried again."""
        ...


class SoleClaims:
    """The `Claims` of the only gateway of a home: always granted, and never lost."""

    shared = False
    regained = 0

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def claim(self, name: Name) -> Claim:
        """Return the claim; see `Claims.claim`."""
        return Claim(name=name, epoch=0)

    def holds(self, claim: Claim) -> bool:
        """Return True; see `Claims.holds`."""
        return True

    async def release(self, claim: Claim, *, settled: bool, to: str = "") -> None:
        """Do nothing; see `Claims.release`."""

    def on_lost(self, lost: Callable[[Claim], None]) -> None:
        """Do nothing; see `Claims.on_lost`."""

    async def unowned(self) -> AsyncIterator[Name]:
        """Yield what an earlier process left unfinished; see `Claims.unowned`."""
        rows = sorted(await self._catalog.unsettled(), key=lambda row: row.at, reverse=True)
        for name in dict.fromkeys(row.name for row in rows):
            yield name

    async def until_unowned(self) -> None:
        """Wait for ever: nobody else leaves anything; see `Claims.until_unowned`."""
        await asyncio.get_running_loop().create_future()

    async def until_regained(self, before: int) -> None:
        """Wait for ever: the contact is never lost; see `Claims.until_regained`."""
        await asyncio.get_running_loop().create_future()
