"""What of a reply over OpenAI's Responses API must come back beside its text and calls, as `opaque` keeps it.

That is the reasoning, encrypted by the service, the phase of each message (a remark on the way or the final answer), and
the order of everything. Text and calls stand in the message already, so they are kept as sizes and order alone. Only the
model that thought is given its reasoning again: others refuse it. Other providers' opaque is never read.

Where the service compacted the conversation by itself, the item in which it did so is kept too, encrypted as well; a prefix
of its own tells such messages without looking into them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sessions.events.messages import AssistantMessage, Message

PREFIX = "openai.responses:"
"""What our `opaque` begins with; behind it stands a `_Kept` as JSON."""

COMPACTED = "openai.responses.compacted:"
"""What it begins with where one of the steps is a compaction."""

LONGEST = 1024 * 1024
"""Characters of reasoning that are kept; a line of the journal has to carry them beside the text."""


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a reply: reasoning or a compaction, just as it has to come back; or `size` characters of text, behind `gap`
    characters that are ours; or, without any of them, the next call."""

    thought: dict[str, Any] | None = None
    compaction: dict[str, Any] | None = None
    size: int | None = None
    gap: int = 0
    phase: str = ""

    @property
    def is_call(self) -> bool:
        """Whether the next call stands here."""
        return self.thought is None and self.compaction is None and self.size is None


class _Kept(msgspec.Struct, frozen=True):
    model: str
    steps: tuple[Step, ...]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Kept).decode


def written(model: str, steps: Sequence[Step]) -> str | None:
    """The steps of a model's reply as `opaque`; None if text and calls say it all."""
    ends = max((index for index, step in enumerate(steps, 1) if step.thought is None), default=0)
    kept = tuple(steps[:ends])  # reasoning that nothing follows would be refused for ever
    if not any(step.thought or step.compaction or step.phase for step in kept):
        return None
    prefix = COMPACTED if any(step.compaction for step in kept) else PREFIX
    text = prefix + _encode(_Kept(model, kept)).decode()
    return text if len(text) <= LONGEST else None


def steps_of(message: AssistantMessage, model: str) -> tuple[Step, ...]:
    """The steps of a message; empty if they are not this model's, or no longer fit the text and the calls."""
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


def compacts(message: Message, model: str) -> bool:
    """Whether a message carries a compaction by this model's service, which stands for all that came before."""
    if not (isinstance(message, AssistantMessage) and message.opaque and message.opaque.startswith(COMPACTED)):
        return False
    return any(step.compaction for step in steps_of(message, model))
