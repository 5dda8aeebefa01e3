"""Limits before authentication: wrong tokens, and connections that have not authenticated yet.

Only the address that sent wrong tokens waits, and only before its next wrong token. A client that keeps sending one old
token after a rotation counts as one attempt, however often it tries. One address cannot use up
all connections.
"""

from __future__ import annotations

import ipaddress
from asyncio import BaseTransport
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import msgspec

ADDRESSES = 1024
"""Maximum number of addresses that are remembered; the one whose last wrong token is oldest is dropped first."""

FREE = 5
"""The number of different wrong tokens that an address may send without waiting."""

LONGEST_WAIT = 300.0
"""The longest wait of an address, in seconds."""

FORGET_AFTER = 900.0
"""Seconds without a wrong token after which the count of an address is reset."""

STORM = 100
"""Wrong tokens a minute, from all addresses together, above which no address has free attempts."""


SWEEP = 256
"""The number of new connections after which closed ones are removed."""


class _Record(msgspec.Struct):
    """The wrong tokens of one address.

    `wrong` counts the different ones, `digests` are those of the last few. `last` is when the last one came and `until`
    the end of the wait, both on the given clock.
    """

    wrong: int
    digests: tuple[bytes, ...]
    last: float
    until: float


class AuthThrottle:
    """Counter of wrong tokens by address. `now` is a monotonic clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._records: OrderedDict[str, _Record] = OrderedDict()
        self._level = 0.0
        self._level_at = now()

    def __len__(self) -> int:
        return len(self._records)

    def wait(self, address: str) -> float:
        """Return the seconds that this address must wait before its next attempt; 0 if none."""
        record = self._records.get(source_of(address))
        return 0.0 if record is None else max(0.0, record.until - self._now())

    def count_wrong(self, address: str, digest: bytes) -> None:
        """Count a wrong token. `digest` identifies it; a repeated one is not counted again."""
        now, source = self._now(), source_of(address)
        record = self._records.pop(source, None)
        if record is None or now - record.last > FORGET_AFTER:
            record = _Record(wrong=0, digests=(), last=now, until=0.0)
        self._records[source] = record
        if len(self._records) > ADDRESSES:
            self._records.popitem(last=False)
        record.last = now
        if digest in record.digests:
            return
        record.digests = (*record.digests, digest)[-FREE:]
        record.wrong += 1
        over = record.wrong - (0 if self._is_storm(now) else FREE)
        if over > 0:
            record.until = now + min(LONGEST_WAIT, 2.0 ** min(over - 1, 16))

    def _is_storm(self, now: float) -> bool:
        """Count a wrong token of any address, and return True if there are more than STORM a minute."""
        self._level = max(0.0, self._level - (now - self._level_at) * STORM / 60.0) + 1.0
        self._level_at = now
        return self._level > STORM


def source_of(address: str) -> str:
    """Return the address or network that counts as one source: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, 64), strict=False))


class _Connection(Protocol):
    """A connection's protocol, as aiohttp's server creates it."""

    @property
    def transport(self) -> BaseTransport | None: ...


class UnauthenticatedLimit:
    """The open connections that have not authenticated yet: at most `most` of one address."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_address: dict[str, set[_Connection]] = {}
        self._added = 0

    def has_room(self, address: str) -> bool:
        """Return True if this address may open a further connection."""
        if len(self._by_address.get(address, ())) < self._most:
            return True
        self._remove_closed()
        return len(self._by_address.get(address, ())) < self._most

    def add(self, address: str, connection: _Connection) -> None:
        """Count a connection that was just opened."""
        self._by_address.setdefault(address, set()).add(connection)
        self._added += 1
        if self._added >= SWEEP:
            self._remove_closed()

    def authenticated(self, address: str, connection: _Connection) -> None:
        """Stop counting a connection: it has authenticated."""
        if address in self._by_address:
            self._by_address[address].discard(connection)

    def _remove_closed(self) -> None:
        self._added = 0
        still = {address: {each for each in those if _is_open(each)} for address, those in self._by_address.items()}
        self._by_address = {address: those for address, those in still.items() if those}


def _is_open(connection: _Connection) -> bool:
    return connection.transport is not None and not connection.transport.is_closing()
