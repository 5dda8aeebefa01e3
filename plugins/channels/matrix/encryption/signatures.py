"""Signed JSON, as Matrix signs it, and the keys of cross-signing."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any


def base64_of(content: bytes) -> str:
    """Return the unpadded Base64 of Matrix."""
    return base64.b64encode(content).decode().rstrip("=")


def bytes_of(text: str) -> bytes:
    """Return the bytes of a Base64 text with or without padding. Raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def canonical(value: Mapping[str, Any]) -> bytes:
    """Return the bytes of an object that are signed: Canonical JSON without `signatures` and `unsigned`."""
    kept = {key: each for key, each in value.items() if key not in ("signatures", "unsigned")}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def signed(value: dict[str, Any], user: str, key: str, sign: Callable[[bytes], str]) -> dict[str, Any]:
    """Return an object with another signature.

    Args:
        value: The object.
        user: Who signs.
        key: The name of the key, without its algorithm.
        sign: Returns the signature of bytes.
    """
    signatures = {who: dict(theirs) for who, theirs in value.get("signatures", {}).items()}
    signatures.setdefault(user, {})[f"ed25519:{key}"] = sign(canonical(value))
    return value | {"signatures": signatures}


def is_signed(value: Mapping[str, Any], user: str, key: str, public: str) -> bool:
    """Return True if an object has a valid signature of this Ed25519 key."""
    from vodozemac import Ed25519PublicKey, Ed25519Signature  # noqa: PLC0415 - an extra

    try:
        signature = Ed25519Signature.from_base64(value["signatures"][user][f"ed25519:{key}"])
        Ed25519PublicKey.from_base64(public).verify_signature(canonical(value), signature)
    except (KeyError, TypeError, ValueError, RecursionError):
        return False
    return True
