"""The addresses on channels that the owner has linked to persons: the log `HOME/pairings.jsonl`.

It has the line format of all logs (see docs/events.md), is opened when somebody whom the configuration does not name sends
a message, and is created by the first link. A person may have any number of addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self, TypeAlias

import msgspec

from gateway.support.errors import Busy, sentence_of
from sessions.events.errors import SessionsError
from sessions.store.lazy_log import LazyLog, LogFormat
from sessions.store.protocols import Lines, Store


class PairingsUnusable(Busy):
    """The log cannot be read or written. Messages of senders whom the configuration does not name wait until it can."""


class AddressLinked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="address_linked"):
    """`by` linked the sender `address` of a channel to a person. `name` is what the sender called themselves."""

    channel: str
    address: str
    person: str
    by: str
    name: str = ""


class AddressUnlinked(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="address_unlinked"):
    """The sender `address` of a channel is unknown again."""

    channel: str
    address: str
    by: str


class ChannelAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A sender: the channel, its name for them, and what they call themselves, on one line."""

    channel: str
    address: str
    name: str

    @property
    def sender(self) -> str:
        """The channel and the address, such as `telegram:12345`, as in `plugins.senders`."""
        return f"{self.channel}:{self.address}"


class LinkedAddress(ChannelAddress, frozen=True, kw_only=True):
    """An address that is linked to a person since `at` (RFC 3339, UTC)."""

    person: str
    at: str


PairingEvent: TypeAlias = AddressLinked | AddressUnlinked
Links: TypeAlias = Mapping[tuple[str, str], LinkedAddress]


class Pairings:
    """The linked addresses of all channels, as an async context manager.

    Args:
        store: The store of the log.
        now: Returns the current time in UTC.
    """

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._log = LazyLog(LINKS, store, now, unusable="The paired addresses cannot be read, so their messages wait")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._log.close()

    def problems(self) -> list[str]:
        """Return the problem of the log as a sentence, if there is one."""
        return [self._log.problem] if self._log.problem else []

    async def rewrite(self, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        """Replace the lines of the log, see `LazyLog.rewrite`. Raises StorageFailed, JournalDamaged."""
        await self._log.rewrite(rewritten)

    async def _links(self) -> Links:
        try:
            return await self._log.durable_state()
        except SessionsError as error:
            raise PairingsUnusable(sentence_of(error)) from error

    async def _append(self, event: PairingEvent) -> None:
        try:
            async with self._log.writing() as writer:
                await writer.append_durable(event)
        except SessionsError as error:
            raise PairingsUnusable(sentence_of(error)) from error

    async def person_of(self, channel: str, address: str) -> str:
        """Return the person of an address; "" if it is not linked. Raises PairingsUnusable."""
        link = (await self._links()).get((channel, address))
        return link.person if link else ""

    async def listed(self) -> list[LinkedAddress]:
        """Return all linked addresses, oldest first. Raises PairingsUnusable."""
        return list((await self._links()).values())

    async def link(self, *, channel: str, address: str, person: str, by: str, name: str = "") -> None:
        """Link an address to a person, instead of any other, durably. Raises PairingsUnusable."""
        await self._append(AddressLinked(channel=channel, address=address, person=person, by=by, name=name))

    async def unlink(self, linked: LinkedAddress, by: str) -> None:
        """Unlink an address durably. Raises PairingsUnusable."""
        await self._append(AddressUnlinked(channel=linked.channel, address=linked.address, by=by))


def fold_link(links: Links, event: PairingEvent, *, seq: int, at: str, turn: int | None, size: int) -> Links:
    """Return the links after one more event."""
    key = (event.channel, event.address)
    others = {each: link for each, link in links.items() if each != key}
    if isinstance(event, AddressUnlinked):
        return others
    link = LinkedAddress(channel=event.channel, address=event.address, person=event.person, name=event.name, at=at)
    return {**others, key: link}


LINKS: LogFormat[PairingEvent, Links] = LogFormat(
    name="pairings", events=(AddressLinked, AddressUnlinked), empty={}, fold=fold_link
)
