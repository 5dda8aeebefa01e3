"""How large a view is in tokens, message by message: estimated, and put right by what the provider counted."""

from __future__ import annotations

from sessions.compaction import Sizes
from sessions.context import Context, canonical, canonical_head
from sessions.messages import Message
from sessions.tokens import MESSAGE, estimate
from sessions.transcript import Transcript

FACTORS = (0.5, 3.0)
"""How far a provider's count may put an estimate right; beyond, one of the two means something else."""


class Sizing:
    """Sizes of one session's requests. Each message is estimated once."""

    def __init__(self) -> None:
        self._messages: tuple[Message, ...] = ()
        self._sizes: list[int] = []
        self._head: tuple[object, int] = (None, 0)

    def sizes(self, transcript: Transcript, context: Context) -> Sizes:
        """The sizes of a request's parts in tokens; `context` was assembled from the transcript."""
        self._follow(context.messages)
        head = self._head_of(context)
        factor = self._factor(transcript, head)
        return Sizes(head=round(head * factor), messages=tuple(round(size * factor) for size in self._sizes))

    def _follow(self, messages: tuple[Message, ...]) -> None:
        known = len(self._messages)
        if messages[:known] != self._messages:
            pairs = enumerate(zip(messages, self._messages, strict=False))
            known = next((index for index, (one, other) in pairs if one is not other), min(len(messages), known))
        self._sizes[known:] = [size_of(message) for message in messages[known:]]
        self._messages = messages

    def _head_of(self, context: Context) -> int:
        key = (context.instructions, context.tools)
        if self._head[0] != key:
            self._head = (key, estimate(canonical_head(context).decode()))
        return self._head[1]

    def _factor(self, transcript: Transcript, head: int) -> float:
        """What the newest count of the provider says of our estimate of the same messages."""
        if transcript.last_usage is None or not transcript.last_usage.input:
            return 1.0
        estimated = head + sum(self._sizes[: transcript.last_usage_messages])
        return min(max(transcript.last_usage.input / max(estimated, 1), FACTORS[0]), FACTORS[1])


def size_of(message: Message) -> int:
    """The estimated tokens of one message."""
    return MESSAGE + estimate(canonical(message).decode())
