"""A reply's signed thoughts, as `opaque` keeps them between a model's call of a tool and the tool's result.

They must come back as they were and where they were, so the order of everything in the reply is kept with them. Other
providers' opaque is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from sessions.events.messages import AssistantMessage

OURS = "anthropic:"
"""What our `opaque` begins with; behind it stand the steps as JSON."""

LONGEST = 1024 * 1024
"""Characters of thoughts that are kept; a line of the journal has to carry them beside the text."""

Step: TypeAlias = dict[str, Any] | int | Literal["call"]
"""A part of a reply: a block of thoughts just as it came, so many characters of the text, or the next call."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Step]).decode


def written(steps: Sequence[Step]) -> str | None:
    """The steps as `opaque`, or None if nothing in them has to come back: thoughts do only before a call."""
    if "call" not in steps or not any(isinstance(step, dict) for step in steps):
        return None
    text = OURS + _encode(steps).decode()
    return text if len(text) <= LONGEST else None


def steps_of(message: AssistantMessage) -> list[Step] | None:
    """The steps of a message, or None if it has none of ours that fit its text and calls."""
    if message.opaque is None or not message.opaque.startswith(OURS):
        return None
    try:
        steps = _decode(message.opaque.removeprefix(OURS))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    characters = sum(step for step in steps if isinstance(step, int))
    return steps if (characters, steps.count("call")) == (len(message.text), len(message.calls)) else None
