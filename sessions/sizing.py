"""How large a view is in tokens, message by message: as it is counted in all, and shared out by our estimates."""

from __future__ import annotations

from collections.abc import Sequence

from sessions.compaction import Sizes
from sessions.context import Context, canonical_head, common_beginning
from sessions.messages import Attachment, Message, UserMessage
from sessions.tokens import estimate
from sessions.transcript import Transcript
from sessions.units import Units, of_head, of_message, of_text

PIXELS = 750
"""Pixels of a picture for each token, where a vendor's own formula is not at hand; `BYTES` is that of other files."""

BYTES = 3


class Sizing:
    """Sizes of one session's requests. Each message is counted once."""

    def __init__(self) -> None:
        self._messages: Sequence[Message] = ()
        self._units: list[Units] = []
        self._total = Units()
        self._head: tuple[object, Units] = (None, Units())

    def sizes(self, transcript: Transcript, context: Context) -> Sizes:
        """The sizes of a request's parts in tokens, as the model counts that replied last; together they are what is
        estimated of the whole. `context` was assembled from the transcript."""
        self._follow(context.messages)
        head, counts = self._head_of(context), transcript.counts
        model = counts.last.model if counts.last else ""
        calibration = counts.calibration(model)
        parts = [calibration.tokens(head, whole=True), *(calibration.tokens(units) for units in self._units)]
        estimated = counts.estimate(self._total + head, model)
        factor = estimated / max(sum(parts), 1)
        return Sizes(head=max(0, round(parts[0] * factor)), messages=tuple(round(part * factor) for part in parts[1:]))

    def _follow(self, messages: Sequence[Message]) -> None:
        known = common_beginning(messages, self._messages)
        fresh = [of_message(message) + _files(message) for message in messages[known:]]
        self._total += sum(fresh, Units()) - sum(self._units[known:], Units())
        self._units[known:] = fresh
        self._messages = messages

    def _head_of(self, context: Context) -> Units:
        key = (context.instructions, context.tools)
        if self._head[0] != key:
            self._head = (key, of_head(canonical_head(context).decode()))
        return self._head[1]


def weighed(transcript: Transcript, text: str) -> float:
    """The tokens of a text as the model counts that replied last, and never fewer than by its length: for what must fit."""
    counts = transcript.counts
    calibration = counts.calibration(counts.last.model if counts.last else "")
    return max(calibration.tokens(of_text(text)), estimate(text))


def _files(message: Message) -> Units:
    files = message.attachments if isinstance(message, UserMessage) else ()
    return Units(pictures=sum(map(_tokens_of, files)))


def _tokens_of(file: Attachment) -> int:
    return file.width * file.height // PIXELS if file.width else min(file.bytes, 64 * 1024) // BYTES
