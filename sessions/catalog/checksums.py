"""A seal: a value at rest that tells whether it is still what was stored, and under which name.

SQLite has no checksums of its own, so a flipped byte in a page that still parses would be believed.
"""

from __future__ import annotations

from hashlib import blake2b

SEAL = 16
"""Bytes of the digest that stands before a sealed value."""


def seal(name: str, value: bytes) -> bytes:
    """The value with a digest before it that covers the name too, so that rows cannot change places."""
    return _digest(name, value) + value


def unseal(name: str, sealed: object) -> bytes | None:
    """The value, or None where it is not what `seal` made for this name."""
    if not isinstance(sealed, bytes):
        return None
    value = sealed[SEAL:]
    return value if sealed[:SEAL] == _digest(name, value) else None


def _digest(name: str, value: bytes) -> bytes:
    return blake2b(value, digest_size=SEAL, key=name.encode()[: blake2b.MAX_KEY_SIZE]).digest()
