"""Checksums for stored values, which also cover the name of the value.

SQLite has no checksums of its own, so a flipped bit in a page that still parses would go unnoticed.
"""

from __future__ import annotations

from hashlib import blake2b

SEAL = 16
"""Length in bytes of the digest before a value."""


def seal(name: str, value: bytes) -> bytes:
    """Return the value with a digest in front of it. The digest covers the name, so that rows cannot be swapped."""
    return _digest(name, value) + value


def unseal(name: str, sealed: object) -> bytes | None:
    """Return the value without its digest, or None if it is not what `seal` returned for this name."""
    if not isinstance(sealed, bytes):
        return None
    value = sealed[SEAL:]
    return value if sealed[:SEAL] == _digest(name, value) else None


def _digest(name: str, value: bytes) -> bytes:
    return blake2b(value, digest_size=SEAL, key=name.encode()[: blake2b.MAX_KEY_SIZE]).digest()
