"""The signatures of a Gemini reply, kept in its `opaque`: which part has which signature and id.

A reply has parts, and their signatures must be sent back on the same parts, neither merged nor moved. Text and calls are in
the message already, so only sizes and order are kept: `gemini:[{"size":12},{"signature":"…","id":"…"}]` is twelve characters
of text, then a call.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sessions.events.messages import AssistantMessage

PREFIX = "gemini:"
"""The prefix of our `opaque`, which other providers' values do not have."""


class SignedPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a reply: `size` characters of text, or the next call, with the vendor's `id` if there is one."""

    size: int | None = None
    id: str = ""
    signature: str = ""


_decode = msgspec.json.Decoder(tuple[SignedPart, ...]).decode


def encode_signatures(signed: Sequence[SignedPart]) -> str | None:
    """Return the parts as `opaque`; None if none has a signature or an id."""
    if not any(part.signature or part.id for part in signed):
        return None
    return PREFIX + msgspec.json.encode(signed).decode()


def decode_signatures(message: AssistantMessage) -> tuple[SignedPart, ...]:
    """Return the parts of a message; empty if it is not Gemini's, or was changed."""
    if not (message.opaque or "").startswith(PREFIX):
        return ()
    try:
        signed = _decode((message.opaque or "").removeprefix(PREFIX))
    except msgspec.MsgspecError:
        return ()
    sizes = [part.size for part in signed if part.size is not None]
    whole = sum(sizes) == len(message.text) and len(signed) - len(sizes) == len(message.calls)
    return signed if whole and min(sizes, default=0) >= 0 else ()
