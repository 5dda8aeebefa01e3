"""What the gateway reports about channels to its clients."""

from __future__ import annotations

import msgspec


class CodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An unknown sender who was told a code, which is valid for `seconds`."""

    address: str
    name: str
    code: str
    seconds: int


class AddressEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An address that speaks for a person since `at` (RFC 3339, UTC)."""

    address: str
    name: str
    person: str
    at: str


class PairingsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The response to `GET /api/pairings`."""

    codes: tuple[CodeEntry, ...]
    linked: tuple[AddressEntry, ...]
    persons: tuple[str, ...]


class AdmittedAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a change: an address and the person for whom it speaks, or spoke."""

    address: str
    person: str
