"""The context of one request: the instructions and tools before the conversation, and its messages.

`assemble` is total: whatever the log holds, each call is followed by exactly one result, so that no provider rejects the
request and no session gets stuck. `Gauge` measures a context for `request_sent`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from sessions.events.events import InstructionsSet
from sessions.events.messages import AssistantMessage, Message, ToolDefinition, ToolMessage, UserMessage
from sessions.events.tokens import TokenFeatures, head_features, message_features
from sessions.state.persistent_list import PersistentList
from sessions.state.transcript import Transcript

LOST_RESULT = "No result of this call was recorded."
"""The result that the model sees for a call without a result in the log."""


MARKED = 32
"""Number of messages between two stored states of a gauge."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one request. `parameters` are the configured sampling options."""

    instructions: str
    tools: tuple[ToolDefinition, ...]
    parameters: dict[str, Any]
    messages: Sequence[Message]


def assemble(transcript: Transcript, before: Context | None = None) -> Context:
    """Return the context of the next request, from the transcript alone.

    Args:
        transcript: The folded session.
        before: A context assembled earlier; the part that both have in common is not checked again.
    """
    head = transcript.instructions
    messages = transcript.messages
    known = len(before.messages) if before is not None and starts_with(messages, before.messages) else 0
    if not is_paired(messages[known:]):
        messages = PersistentList(pair_results(messages))
    return Context(
        instructions=instructions_text(head) if head else "",
        tools=head.tools if head else (),
        parameters=dict(head.parameters) if head else {},
        messages=messages,
    )


def instructions_text(instructions: InstructionsSet) -> str:
    """Return the text before the conversation: the instructions, and each note under a heading with its path."""
    return "\n\n".join([instructions.text, *(f"# {note.path}\n\n{note.text}" for note in instructions.notes)])


def starts_with(messages: Sequence[Message], before: Sequence[Message]) -> bool:
    """Return True if these messages begin with those `before`. If one list grew from the other, no items are compared."""
    if isinstance(messages, PersistentList) and messages.extends(before):
        return True
    return tuple(messages[: len(before)]) == tuple(before)


def is_paired(messages: Sequence[Message]) -> bool:
    """Return True if each call is directly followed by its only result, and each result follows its call."""
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


def pair_results(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with every call followed by its result: results move up to their call, a missing one is replaced
    by `LOST_RESULT`, one without a call is dropped."""
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


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The hash and size of a context: `sha256` in hexadecimal of its canonical JSON, and its token features (`units`)
    without attachments."""

    sha256: str
    units: TokenFeatures


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The state after measuring the first so many messages."""

    messages: int
    state: Any  # hashlib's type is not available at run time
    units: TokenFeatures


class Gauge:
    """An incremental measurement of contexts: each costs only what is new, or follows a change, since the previous one.

    The canonical JSON is the array `[head, message, message, …]`, with `head` an object of `instructions`, `parameters` and
    `tools`: keys sorted, no white space, UTF-8, and only the escapes that JSON requires.
    """

    def __init__(self) -> None:
        self._head = b""
        self._head_of: tuple[str, bytes] = "", b""
        """The instructions and the encoded parameters of the head: it is encoded anew only if they or the tools change."""
        self._tools: tuple[ToolDefinition, ...] | None = None
        self._messages: Sequence[Message] = ()
        self._marks: list[_Mark] = []

    def measure(self, context: Context) -> Measured:
        """Return the context's hash and token features."""
        known = self._known(context)
        state, units = known.state.copy(), known.units
        for count, message in enumerate(context.messages[known.messages :], known.messages + 1):
            state.update(b"," + canonical(message))
            units += message_features(message)
            if count % MARKED == 0 or count == len(context.messages):
                if self._marks[-1].messages % MARKED:
                    self._marks.pop()  # the final mark, which moves
                self._marks.append(_Mark(messages=count, state=state.copy(), units=units))
        self._messages = context.messages
        state.update(b"]")
        return Measured(sha256=state.hexdigest(), units=units)

    def _known(self, context: Context) -> _Mark:
        """Return the last mark that is valid for this context, and discard those after it."""
        head_of = context.instructions, canonical(context.parameters)
        # Schemas that are equal may differ as JSON (1 and 1.0), so tools must be the same object.
        if head_of != self._head_of or context.tools is not self._tools:
            head, self._head_of, self._tools = canonical_head(context), head_of, context.tools
            if head != self._head:
                self._head, self._messages = head, ()
                self._marks = [_Mark(messages=0, state=hashlib.sha256(b"[" + head), units=head_features(head.decode()))]
        common = common_prefix(context.messages, self._messages)
        while self._marks[-1].messages > common:
            self._marks.pop()
        return self._marks[-1]


def common_prefix(messages: Sequence[Message], before: Sequence[Message]) -> int:
    """Return the number of messages that both lists begin with."""
    if starts_with(messages, before):
        return len(before)
    pairs = enumerate(zip(messages, before, strict=False))
    return next((index for index, (one, other) in pairs if one is not other and one != other), len(messages))


def canonical(value: object) -> bytes:
    """Return a value's canonical JSON."""
    return msgspec.json.encode(value, order="sorted")


def canonical_head(context: Context) -> bytes:
    """Return the canonical JSON of the part before the messages."""
    return canonical({"instructions": context.instructions, "parameters": context.parameters, "tools": context.tools})
