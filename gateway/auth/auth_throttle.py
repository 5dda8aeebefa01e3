"""Attempts with wrong tokens: how long an address must wait after them.

Whoever guesses is told to wait, and nobody else: only the address that was wrong, only with wrong tokens, and a program that
goes on with its one old token after a rotation is wrong once, however often it comes.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable

import msgspec

ADDRESSES = 1024
"""How many addresses are remembered; the one that was wrong longest ago is forgotten for a new one."""

FREE = 5
"""So many different wrong tokens cost an address nothing."""

LONGEST_WAIT = 300.0
"""Seconds that an address waits at most."""

FORGET_AFTER = 900.0
"""Seconds without a further wrong token after which an address begins anew."""

STORM = 100
"""From so many wrong tokens of all addresses on (those of about the last minute) no address has any for free."""


class _Record(msgspec.Struct):
    """What is known of an address: its different wrong tokens (counted; the marks of the last few), when the last came, and
    until when it waits, both on the clock given."""

    wrong: int
    marks: tuple[bytes, ...]
    last: float
    until: float


class AuthThrottle:
    """Counts wrong tokens. `now` is a clock in seconds that never goes back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._records: OrderedDict[str, _Record] = OrderedDict()
        self._level = 0.0
        self._level_at = now()

    def __len__(self) -> int:
        return len(self._records)

    def wait(self, address: str) -> float:
        """Seconds that this address should wait before it tries another token; 0 if none."""
        record = self._records.get(place_of(address))
        return 0.0 if record is None else max(0.0, record.until - self._now())

    def wrong(self, address: str, mark: bytes) -> None:
        """A wrong token came; `mark` tells it from others."""
        now, place = self._now(), place_of(address)
        record = self._records.pop(place, None)
        if record is None or now - record.last > FORGET_AFTER:
            record = _Record(wrong=0, marks=(), last=now, until=0.0)
        self._records[place] = record
        if len(self._records) > ADDRESSES:
            self._records.popitem(last=False)
        record.last = now
        if mark in record.marks:
            return
        record.marks = (*record.marks, mark)[-FREE:]
        record.wrong += 1
        over = record.wrong - (0 if self._is_storm(now) else FREE)
        if over > 0:
            record.until = now + min(LONGEST_WAIT, 2.0 ** min(over - 1, 16))

    def _is_storm(self, now: float) -> bool:
        """Count one more of all addresses; the count sinks to nothing in a minute."""
        self._level = max(0.0, self._level - (now - self._level_at) * STORM / 60.0) + 1.0
        self._level_at = now
        return self._level > STORM


def place_of(address: str) -> str:
    """What counts as one address: of IPv6 the network (/64), which one subscriber has as a whole."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, 64), strict=False))
