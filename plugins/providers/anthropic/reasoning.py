"""A reply's thinking blocks, kept in its `opaque` between a tool call and the tool's result.

They must be sent back unchanged and in place, so the order of all parts of the reply is kept, too. The `opaque` of other
providers is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from sessions.events.messages import AssistantMessage

PREFIX = "anthropic:"
"""The prefix of our `opaque`; the steps follow as JSON."""

MAX_LENGTH = 1024 * 1024
"""The most characters of thinking that are kept, since they share a line of the journal with the text."""

Step: TypeAlias = dict[str, Any] | int | Literal["call"]
"""A part of a reply: an unchanged thinking block, a number of characters of the text, or the next call."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Step]).decode


def encode_steps(steps: Sequence[Step]) -> str | None:
    """Return the steps as `opaque`; None if nothing has to be sent back: thinking is needed only before a call."""
    if "call" not in steps or not any(isinstance(step, dict) for step in steps):
        return None
    text = PREFIX + _encode(steps).decode()
    return text if len(text) <= MAX_LENGTH else None


def decode_steps(message: AssistantMessage) -> list[Step] | None:
    """Return the steps of a message; None if it has none of Anthropic's that match its text and calls."""
    if message.opaque is None or not message.opaque.startswith(PREFIX):
        return None
    try:
        steps = _decode(message.opaque.removeprefix(PREFIX))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    characters = sum(step for step in steps if isinstance(step, int))
    return steps if (characters, steps.count("call")) == (len(message.text), len(message.calls)) else None
