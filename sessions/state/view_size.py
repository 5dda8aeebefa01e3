"""The size of a view in tokens, message by message: the estimated total, distributed in proportion to
their own estimates."""

from __future__ import annotations

from collections.abc import Sequence

from sessions.events.messages import AssistantMessage, Message
from sessions.events.tokens import (
    TokenFeatures,
    attachment_features,
    estimate,
    head_features,
    message_features,
    text_features,
)
from sessions.events.vision import VisionSupport, attachment_visibility
from sessions.state.compaction import Sizes
from sessions.state.context import Context, canonical_head, common_prefix
from sessions.state.persistent_list import PersistentList
from sessions.state.transcript import Transcript


class CharacterCount:
    """The number of characters of each message in a view (`sizes`), and their sum. Call `follow` before reading them."""

    def __init__(self) -> None:
        self.messages: Sequence[Message] = ()
        self.sizes: PersistentList[int] = PersistentList()
        self.characters = 0

    def follow(self, messages: Sequence[Message]) -> int:
        """Update the counts to these messages. Returns the index of the first message that changed."""
        known = common_prefix(messages, self.messages)
        if known < len(self.sizes):
            self.characters -= sum(self.sizes[known:])
            self.sizes = PersistentList(self.sizes[:known])
        for message in messages[known:]:
            self.sizes = self.sizes.grown(characters(message))
            self.characters += self.sizes[-1]
        self.messages = messages
        return known


def characters(message: Message) -> int:
    """Return the number of characters of a message that the model is shown."""
    if isinstance(message, AssistantMessage):
        return len(message.text) + len(message.opaque or "") + sum(len(call.arguments) for call in message.calls)
    return len(message.text)


class ViewSize:
    """The sizes of one session's requests. Each message is measured once; the visibility of files is decided anew for each
    request."""

    def __init__(self) -> None:
        self._messages: Sequence[Message] = ()
        self._units: list[TokenFeatures] = []
        self._total = TokenFeatures()
        self._head: tuple[object, TokenFeatures] = (None, TokenFeatures())

    def sizes(self, transcript: Transcript, context: Context, vision: VisionSupport | None) -> Sizes:
        """Return the sizes of a request's parts in tokens, for the model that replied last.

        They add up to the estimate of the whole request.

        Args:
            transcript: The folded session.
            context: The context assembled from it.
            vision: The picture support of the model that is asked.
        """
        self._follow(context.messages)
        head, counts = self._head_of(context), transcript.counts
        model = counts.last.model if counts.last else ""
        files = _files(context.messages, vision)
        messages = [units + files[index] if index in files else units for index, units in enumerate(self._units)]
        calibration = counts.calibration(model)
        parts = [calibration.tokens(head, whole=True), *(calibration.tokens(units) for units in messages)]
        estimated = counts.estimate(sum(files.values(), self._total + head), model)
        factor = estimated / max(sum(parts), 1)
        return Sizes(head=max(0, round(parts[0] * factor)), messages=tuple(round(part * factor) for part in parts[1:]))

    def _follow(self, messages: Sequence[Message]) -> None:
        known = common_prefix(messages, self._messages)
        fresh = [message_features(message) for message in messages[known:]]
        self._total += sum(fresh, TokenFeatures()) - sum(self._units[known:], TokenFeatures())
        self._units[known:] = fresh
        self._messages = messages

    def _head_of(self, context: Context) -> TokenFeatures:
        key = (context.instructions, context.tools)
        if self._head[0] != key:
            self._head = (key, head_features(canonical_head(context).decode()))
        return self._head[1]


def text_tokens(transcript: Transcript, text: str) -> float:
    """Return the tokens of a text for the model that replied last, but at least the estimate by length: for limits that must
    hold."""
    counts = transcript.counts
    calibration = counts.calibration(counts.last.model if counts.last else "")
    return max(calibration.tokens(text_features(text)), estimate(text))


def _files(messages: Sequence[Message], vision: VisionSupport | None) -> dict[int, TokenFeatures]:
    """Return the token features of attachments, by the index of their message."""
    files: dict[int, TokenFeatures] = {}
    for seen in attachment_visibility(messages, vision, ""):
        files[seen.at[0]] = files.get(seen.at[0], TokenFeatures()) + attachment_features([seen])
    return files
