"""How many characters a view shows, kept along: each message is counted once."""

from __future__ import annotations

from collections.abc import Sequence

from sessions.context import common_beginning
from sessions.growing import Growing
from sessions.messages import AssistantMessage, Message


class Tally:
    """The `sizes` of a view's messages in characters, and their sum. `follow` it with the view before it is asked."""

    def __init__(self) -> None:
        self.messages: Sequence[Message] = ()
        self.sizes: Growing[int] = Growing()
        self.characters = 0

    def follow(self, messages: Sequence[Message]) -> int:
        """Count what is not what was there before; returns the index of the first such message."""
        known = common_beginning(messages, self.messages)
        if known < len(self.sizes):
            self.characters -= sum(self.sizes[known:])
            self.sizes = Growing(self.sizes[:known])
        for message in messages[known:]:
            self.sizes = self.sizes.grown(characters(message))
            self.characters += self.sizes[-1]
        self.messages = messages
        return known


def characters(message: Message) -> int:
    """Characters that a message shows to the model."""
    if isinstance(message, AssistantMessage):
        return len(message.text) + len(message.opaque or "") + sum(len(call.arguments) for call in message.calls)
    return len(message.text)
