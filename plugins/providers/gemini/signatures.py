"""What Gemini signed in a reply, kept as the reply's `opaque`: which part carried which signature and which id.

A reply comes in parts, and its signatures must be sent back on the parts that carried them, neither merged nor moved. Text
and calls stand in the message already, so the parts are kept as sizes and order alone: `gemini:[{"size":12},{"signature":
"…","id":"…"}]` is twelve characters of text, then a call.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sessions.events.messages import AssistantMessage

PREFIX = "gemini:"
"""What is signed by others does not begin so."""


class Signature(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a reply: text of `size` characters, or, without one, its next call with the vendor's `id` if it has one."""

    size: int | None = None
    id: str = ""
    signature: str = ""


_decode = msgspec.json.Decoder(tuple[Signature, ...]).decode


def write_seals(seals: Sequence[Signature]) -> str | None:
    """The seals as `opaque`; None if nothing was signed or named."""
    if not any(seal.signature or seal.id for seal in seals):
        return None
    return PREFIX + msgspec.json.encode(seals).decode()


def read_seals(message: AssistantMessage) -> tuple[Signature, ...]:
    """The seals of a message; empty if it is not Gemini's, or is no longer what was signed."""
    if not (message.opaque or "").startswith(PREFIX):
        return ()
    try:
        seals = _decode((message.opaque or "").removeprefix(PREFIX))
    except msgspec.MsgspecError:
        return ()
    sizes = [seal.size for seal in seals if seal.size is not None]
    whole = sum(sizes) == len(message.text) and len(seals) - len(sizes) == len(message.calls)
    return seals if whole and min(sizes, default=0) >= 0 else ()
