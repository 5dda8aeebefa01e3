"""One request's context: what stands before the conversation, and its messages.

`assemble` is total: whatever the log holds, each call of the result has exactly one result behind it, so that no provider
refuses the request and no session is stuck. `Digest` is the hash that `request_sent` carries.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from sessions.messages import AssistantMessage, Message, ToolDefinition, ToolMessage, UserMessage
from sessions.transcript import Transcript

LOST_RESULT = "No result of this call was recorded."
"""What the model is told where a call has no result in the log."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one request says. `parameters` are the sampling options that were configured."""

    instructions: str
    tools: tuple[ToolDefinition, ...]
    parameters: dict[str, Any]
    messages: tuple[Message, ...]


def assemble(transcript: Transcript) -> Context:
    """The context of the next request, from the transcript alone."""
    before = transcript.instructions
    messages = tuple(transcript.messages)
    if not is_paired(messages):
        messages = tuple(paired(messages))
    return Context(
        instructions=before.text if before else "",
        tools=before.tools if before else (),
        parameters=dict(before.parameters) if before else {},
        messages=messages,
    )


def is_paired(messages: Sequence[Message]) -> bool:
    """Whether each call is followed, before anything else, by its one result, and each result follows its call."""
    owed: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.id not in owed:
                return False
            owed.discard(message.id)
        elif owed:
            return False
        elif isinstance(message, AssistantMessage) and message.calls:
            owed = {call.id for call in message.calls}
            if len(owed) != len(message.calls):
                return False
    return not owed


def paired(messages: Iterable[Message]) -> list[Message]:
    """The messages with every call followed by its result: results move up to their call, a lost one is replaced by
    `LOST_RESULT`, one without a call is left out."""
    results: dict[str, ToolMessage] = {}
    others: list[UserMessage | AssistantMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            results.setdefault(message.id, message)
        else:
            others.append(message)
    repaired: list[Message] = []
    for message in others:
        repaired.append(message)
        if isinstance(message, AssistantMessage):
            repaired.extend(
                results.get(call.id) or ToolMessage(id=call.id, tool=call.tool, text=LOST_RESULT, failed=True)
                for call in message.calls
            )
    return repaired


class Digest:
    """SHA-256 of a context's canonical JSON, which costs only what is new since the context asked about before.

    The canonical JSON is the array `[head, message, message, …]`, with `head` an object of `instructions`, `parameters`
    and `tools`: keys sorted, no white space, UTF-8, no escapes that JSON does not demand.
    """

    def __init__(self) -> None:
        self._head = b""
        self._messages: tuple[Message, ...] = ()
        self._state = hashlib.sha256()
        self._size = 0

    def of(self, context: Context) -> tuple[str, int]:
        """Return the hexadecimal digest and the canonical JSON's size in bytes."""
        head = canonical_head(context)
        known = len(self._messages)
        if head != self._head or not self._continues(context.messages):
            self._state = hashlib.sha256(b"[" + head)
            self._head, known, self._size = head, 0, len(head) + 2
        for message in context.messages[known:]:
            piece = b"," + canonical(message)
            self._state.update(piece)
            self._size += len(piece)
        self._messages = context.messages
        whole = self._state.copy()
        whole.update(b"]")
        return whole.hexdigest(), self._size

    def _continues(self, messages: tuple[Message, ...]) -> bool:
        return len(messages) >= len(self._messages) and all(map(operator.is_, self._messages, messages))


def canonical(value: object) -> bytes:
    """A value's canonical JSON."""
    return msgspec.json.encode(value, order="sorted")


def canonical_head(context: Context) -> bytes:
    """The canonical JSON of what stands before the messages."""
    return canonical({"instructions": context.instructions, "parameters": context.parameters, "tools": context.tools})
