"""How large a view is in tokens, message by message: as it is counted in all, and shared out by our estimates."""

from __future__ import annotations

from collections.abc import Sequence

from sessions.compaction import Sizes
from sessions.context import Context, canonical_head, common_beginning
from sessions.messages import Message
from sessions.sight import Sight, look
from sessions.tokens import estimate
from sessions.transcript import Transcript
from sessions.units import Units, of_files, of_head, of_message, of_text


class Sizing:
    """Sizes of one session's requests. Each message is counted once; what a model is shown of files is decided anew each
    time, as it is for a request."""

    def __init__(self) -> None:
        self._messages: Sequence[Message] = ()
        self._units: list[Units] = []
        self._total = Units()
        self._head: tuple[object, Units] = (None, Units())

    def sizes(self, transcript: Transcript, context: Context, sight: Sight | None) -> Sizes:
        """The sizes of a request's parts in tokens, as the model counts that replied last; together they are what is
        estimated of the whole. `context` was assembled from the transcript; `sight` is that of the model to be asked."""
        self._follow(context.messages)
        head, counts = self._head_of(context), transcript.counts
        model = counts.last.model if counts.last else ""
        files = _files(context.messages, sight)
        messages = [units + files[index] if index in files else units for index, units in enumerate(self._units)]
        calibration = counts.calibration(model)
        parts = [calibration.tokens(head, whole=True), *(calibration.tokens(units) for units in messages)]
        estimated = counts.estimate(sum(files.values(), self._total + head), model)
        factor = estimated / max(sum(parts), 1)
        return Sizes(head=max(0, round(parts[0] * factor)), messages=tuple(round(part * factor) for part in parts[1:]))

    def _follow(self, messages: Sequence[Message]) -> None:
        known = common_beginning(messages, self._messages)
        fresh = [of_message(message) for message in messages[known:]]
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


def _files(messages: Sequence[Message], sight: Sight | None) -> dict[int, Units]:
    """What the messages with attachments have beside their texts, by their indexes."""
    files: dict[int, Units] = {}
    for seen in look(messages, sight, ""):
        files[seen.at[0]] = files.get(seen.at[0], Units()) + of_files([seen])
    return files
