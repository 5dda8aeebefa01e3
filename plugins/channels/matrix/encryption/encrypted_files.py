"""Files of encrypted rooms: AES-256 in counter mode, with a SHA-256 of what is stored on the server."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from typing import Any

from plugins.channels.matrix.encryption.signatures import base64_of, bytes_of


def encrypt_file(content: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return an encrypted file, and the object that describes it without its `url`."""
    key, start = os.urandom(32), os.urandom(8) + bytes(8)
    hidden = _applied(content, key, start)
    jwk = base64.urlsafe_b64encode(key).decode().rstrip("=")
    return hidden, {
        "v": "v2",
        "key": {"alg": "A256CTR", "ext": True, "k": jwk, "key_ops": ["encrypt", "decrypt"], "kty": "oct"},
        "iv": base64_of(start),
        "hashes": {"sha256": base64_of(hashlib.sha256(hidden).digest())},
    }


def decrypt_file(hidden: bytes, description: Mapping[str, Any]) -> bytes:
    """Return the content of an encrypted file.

    Raises:
        ValueError: It is not the file that was described.
    """
    try:
        key = bytes_of(description["key"]["k"].replace("-", "+").replace("_", "/"))
        start, expected = bytes_of(description["iv"]), bytes_of(description["hashes"]["sha256"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("its key is missing") from error
    if hashlib.sha256(hidden).digest() != expected:
        raise ValueError("it is not the file that was sent")
    return _applied(hidden, key, start)


def _applied(content: bytes, key: bytes, start: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415 - an extra

    counter = Cipher(algorithms.AES(key), modes.CTR(start)).encryptor()
    return counter.update(content) + counter.finalize()
