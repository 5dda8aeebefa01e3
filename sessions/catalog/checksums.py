"""Checksums for stored values, which also cover the name of the value.

SQLite has no checksums of its own, so a flipped bit in a page that still parses would go unnoticed.
"""

from __future__ import annotations

from hashlib import blake2b

DIGEST_SIZE = 16
"""Length in bytes of the digest before a value."""


def add_checksum(name: str, value: bytes) -> bytes:
    """Return the value with a digest in front of it. The digest covers the name, so that rows cannot be swapped."""
    return _digest(name, value) + value


def verify_checksum(name: str, sealed: object) -> bytes | None:
    """Return the value without its digest, or None if it is not what `add_checksum` returned for this name."""
    if not isinstance(sealed, bytes):
        return None
    value = sealed[DIGEST_SIZE:]
    return value if sealed[:DIGEST_SIZE] == _digest(name, value) else None


def _digest(name: str, value: bytes) -> bytes:
    return blake2b(value, digest_size=DIGEST_SIZE, key=name.encode()[: blake2b.MAX_KEY_SIZE]).digest()
