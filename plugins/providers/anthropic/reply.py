"""A reply of Anthropic's Messages API: the events of its stream, and its thinking in later requests.

Source: its page on streaming. `message_start`, then blocks one after the other, each started, continued and ended, then
`message_delta` with the stop reason, and `message_stop`. Events and blocks of unknown kinds are ignored, as the page
requires.

Between a tool call and the tool's result, thinking must be sent back unchanged and in its place, so a reply's `opaque`
contains its thinking blocks and the order of all its parts. The `opaque` of other providers is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from plugins.api.chat import CallDraft, Delta, Reasoning, Reply
from plugins.providers.anthropic.errors import stream_error
from plugins.support.errors import ContextOverflow, StreamCut
from plugins.support.lenient_json import count, decoded, is_json
from sessions.events.events import StopReason
from sessions.events.messages import AssistantMessage, Usage

# --- the stream -------------------------------------------------------------------------------------------------------

_FULL = "model_context_window_exceeded"

_STOPS: dict[str, StopReason] = {"max_tokens": "length", _FULL: "length", "tool_use": "calls", "refusal": "refused"}
"""By the service's stop reason; all others are an ordinary end."""

_COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class _Head(msgspec.Struct):
    model: str | None = None
    usage: Any = None


class _Delta(msgspec.Struct):
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    """An event; the last three fields are those of a whole message from a server that does not stream."""

    type: str = ""
    index: int = 0
    message: _Head | None = None
    content_block: dict[str, Any] | None = None
    delta: _Delta | None = None
    usage: Any = None
    error: Any = None
    model: str | None = None
    content: list[dict[str, Any]] = []
    stop_reason: str | None = None


_event = msgspec.json.Decoder(_Event, strict=False).decode
_encode = msgspec.json.Encoder().encode


class _Block:
    """A block that grows with each delta. `start` is its first form."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.kind = str(start.get("type"))
        self.pieces: list[str] = []
        self.signature = ""

    def thinking(self) -> dict[str, Any] | None:
        """Return the block in the form to send back; None for other blocks and without a signature."""
        if self.kind == "redacted_thinking":
            return self.start
        signature = self.signature or self.start.get("signature")
        if self.kind != "thinking" or not signature:
            return None
        return self.start | {"thinking": f"{self.start.get('thinking', '')}{''.join(self.pieces)}", "signature": signature}

    def call(self) -> CallDraft | None:
        """Return the call, if the block is one."""
        name = self.start.get("name")
        if self.kind != "tool_use" or not isinstance(name, str) or not name:
            return None
        given = self.start.get("input")
        arguments = "".join(self.pieces) or (_encode(given).decode() if given else "")
        return CallDraft(id=str(self.start.get("id", "")), tool=name, arguments=arguments)


class StreamAccumulator:
    """One reply, built from the events of its stream."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: list[_Block] = []
        self._open_blocks: dict[int, _Block] = {}
        self._stop: str | None = None
        self._counts: dict[str, int] = {}
        self._thinks = False
        self.done = False
        """True after `message_stop`: nothing follows."""
        self.progress = 0
        """The number of events with text, thinking or part of a call."""

    @property
    def complete(self) -> bool:
        """True once the reply has a stop reason."""
        return self._stop is not None

    def take(self, data: bytes) -> Iterator[Delta | Reasoning]:
        """Add an event's data and yield its new text and thinking. Raises BadAnswer, or the error that it contains."""
        event = decoded(_event, data, "Anthropic")
        self.progress += self._has_content(event)
        match event.type:
            case "error":
                raise stream_error(event.error, self._model)
            case "message_start" if event.message:
                self._model = event.message.model or self._model
                self._count(event.message.usage)
            case "content_block_start" if event.content_block:
                yield from self._start(event.index, event.content_block)
            case "content_block_delta" if event.delta:
                block = self._open_blocks.get(event.index) or self._add_block(event.index, {"type": "text"})
                yield from self._continue(block, event.delta)
            case "message_delta":
                self._stop = (event.delta and event.delta.stop_reason) or self._stop
                self._count(event.usage)
            case "message_stop":
                self.done = True
            case "message":
                for index, start in enumerate(event.content):
                    yield from self._start(index, start)
                self._model, self._stop = event.model or self._model, event.stop_reason
                self._count(event.usage)

    def _has_content(self, event: _Event) -> bool:
        """Return True if an event carries text, thinking or part of a call. While a model's thinking is not shown, the
        service sends pings."""
        if (delta := event.delta) is not None:
            return bool(delta.text or delta.partial_json or delta.thinking or delta.signature or delta.stop_reason)
        if event.type == "ping":
            return bool(self._blocks) and self._blocks[-1].kind == "thinking" and not self._blocks[-1].signature
        return event.type == "content_block_start" and (event.content_block or {}).get("type") not in ("text", "thinking")

    def _start(self, index: int, start: dict[str, Any]) -> Iterator[Delta | Reasoning]:
        block = self._add_block(index, start)
        if block.kind == "text" and start.get("text"):
            yield self._text(block, str(start["text"]))
        elif block.kind == "thinking" and start.get("thinking"):
            yield self._thought(str(start["thinking"]))

    def _add_block(self, index: int, start: dict[str, Any]) -> _Block:
        block = self._open_blocks[index] = _Block(start)
        self._blocks.append(block)
        return block

    def _continue(self, block: _Block, delta: _Delta) -> Iterator[Delta | Reasoning]:
        block.signature = delta.signature or block.signature
        if block.kind == "text" and delta.text:
            yield self._text(block, delta.text)
        elif block.kind == "thinking" and delta.thinking:
            thought = self._thought(delta.thinking, first=not block.pieces)
            block.pieces.append(delta.thinking)
            yield thought
        elif block.kind == "tool_use" and delta.partial_json:
            block.pieces.append(delta.partial_json)

    def _thought(self, text: str, *, first: bool = True) -> Reasoning:
        """Return a piece of thinking, after an empty line if it is the first of another block."""
        between = "\n\n" if first and self._thinks else ""
        self._thinks = True
        return Reasoning(between + text)

    def _text(self, block: _Block, text: str) -> Delta:
        block.pieces.append(text)
        return Delta(text)

    def _count(self, usage: Any) -> None:
        """Update the counts. Those of later events are totals; a missing or smaller one leaves the previous count."""
        for name in _COUNTS:
            if (value := count(usage, name)) is not None:
                self._counts[name] = max(value, self._counts.get(name, 0))

    def reply(self) -> Reply:
        """Return the whole reply. Raises StreamCut without an end, ContextOverflow if the window is full before a reply."""
        if self._stop is None:
            raise StreamCut("The reply was interrupted before its end.")
        text = "".join("".join(block.pieces) for block in self._blocks if block.kind == "text")
        calls, steps = self._calls_and_steps()
        if self._stop == _FULL and not text and not calls:
            raise ContextOverflow("The conversation is too long for the model: it leaves no room for a reply.")
        stop = _STOPS.get(self._stop, "end")
        return Reply(
            text=text,
            model=self._model,
            stop="calls" if calls else "end" if stop == "calls" else stop,
            calls=tuple(calls),
            usage=self._usage(),
            opaque=encode_steps(steps),
        )

    def _calls_and_steps(self) -> tuple[list[CallDraft], list[Step]]:
        """Return the calls that may be run, and the order of all parts. A refused reply has no calls, and a last call that
        the token limit has cut is dropped."""
        calls: list[CallDraft] = []
        steps: list[Step] = []
        for block in self._blocks:
            if call := block.call():
                cut = block is self._blocks[-1] and _STOPS.get(self._stop or "") == "length" and not is_json(call.arguments)
                if self._stop != "refusal" and not cut:
                    calls.append(call)
                    steps.append("call")
            elif thinking := block.thinking():
                steps.append(thinking)
            elif block.kind == "text":
                steps.append(len("".join(block.pieces)))
        return calls, steps

    def _usage(self) -> Usage | None:
        """Return the usage. The service counts tokens read from and written to its cache separately."""
        if "input_tokens" not in self._counts:
            return None
        fresh, output, written, cached = (self._counts.get(name, 0) for name in _COUNTS)
        return Usage(input=fresh + cached + written, output=output, cached=cached)


# --- thinking ---------------------------------------------------------------------------------------------------------

PREFIX = "anthropic:"
"""The prefix of our `opaque`; the steps follow as JSON."""

MAX_LENGTH = 1024 * 1024
"""Maximum characters of thinking that are kept: they share a line of the journal with the text."""

Step: TypeAlias = dict[str, Any] | int | Literal["call"]
"""A part of a reply: an unchanged thinking block, a number of characters of the text, or the next call."""

_decode_steps = msgspec.json.Decoder(list[Step]).decode


def encode_steps(steps: Sequence[Step]) -> str | None:
    """Return the steps as `opaque`; None if nothing has to be sent back: thinking is needed only before a call."""
    if "call" not in steps or not any(isinstance(step, dict) for step in steps):
        return None
    text = PREFIX + _encode(steps).decode()
    return text if len(text) <= MAX_LENGTH else None


def decode_steps(message: AssistantMessage) -> list[Step] | None:
    """Return the steps of a message; None if it has none of Anthropic's that match its text and calls."""
    if message.opaque is None or not message.opaque.startswith(PREFIX):
        return None
    try:
        steps = _decode_steps(message.opaque.removeprefix(PREFIX))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    characters = sum(step for step in steps if isinstance(step, int))
    return steps if (characters, steps.count("call")) == (len(message.text), len(message.calls)) else None
