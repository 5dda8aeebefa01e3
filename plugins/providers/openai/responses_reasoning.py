"""Reasoning and compaction items of a reply over OpenAI's Responses API, kept in its `opaque`.

These are the reasoning, encrypted by the service, the phase of each message (commentary or the final answer), and the order
of all items. Text and calls are in the message already, so only their sizes and order are kept. Reasoning is sent back only
to the model that produced it: others refuse it. The `opaque` of other providers is ignored.

If the service compacted the conversation, the compaction item is kept too, also encrypted; a separate prefix identifies such
messages without decoding them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sessions.events.messages import AssistantMessage, Message

PREFIX = "openai.responses:"
"""The prefix of our `opaque`; a `_Content` follows as JSON."""

COMPACTED = "openai.responses.compacted:"
"""The prefix if one of the steps is a compaction."""

MAX_LENGTH = 1024 * 1024
"""The most characters of reasoning that are kept, since they share a line of the journal with the text."""


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a reply: reasoning or a compaction, in the form to send back; or `size` characters of text, after `gap`
    characters that the gateway added; or, without any of them, the next call."""

    thought: dict[str, Any] | None = None
    compaction: dict[str, Any] | None = None
    size: int | None = None
    gap: int = 0
    phase: str = ""

    @property
    def is_call(self) -> bool:
        """True for the next call."""
        return self.thought is None and self.compaction is None and self.size is None


class _Content(msgspec.Struct, frozen=True):
    model: str
    steps: tuple[Step, ...]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Content).decode


def encode_steps(model: str, steps: Sequence[Step]) -> str | None:
    """Return the steps of a model's reply as `opaque`; None if text and calls are enough."""
    ends = max((index for index, step in enumerate(steps, 1) if step.thought is None), default=0)
    kept = tuple(steps[:ends])  # reasoning at the end would be refused in every request
    if not any(step.thought or step.compaction or step.phase for step in kept):
        return None
    prefix = COMPACTED if any(step.compaction for step in kept) else PREFIX
    text = prefix + _encode(_Content(model, kept)).decode()
    return text if len(text) <= MAX_LENGTH else None


def decode_steps(message: AssistantMessage, model: str) -> tuple[Step, ...]:
    """Return the steps of a message; empty if they are another model's, or do not match the text and the calls."""
    if message.opaque is None or not message.opaque.startswith((PREFIX, COMPACTED)):
        return ()
    try:
        kept = _decode(message.opaque.partition(":")[2])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return ()
    sizes = [size for step in kept.steps if step.size is not None for size in (step.gap, step.size)]
    calls = sum(step.is_call for step in kept.steps)
    fits = sum(sizes) == len(message.text) and calls == len(message.calls) and min(sizes, default=0) >= 0
    return kept.steps if fits and kept.model == model else ()


def has_compaction(message: Message, model: str) -> bool:
    """Return True if a message carries a compaction by this model's service, which replaces everything before it."""
    if not (isinstance(message, AssistantMessage) and message.opaque and message.opaque.startswith(COMPACTED)):
        return False
    return any(step.compaction for step in decode_steps(message, model))
