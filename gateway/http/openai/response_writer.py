"""Writes an answer as JSON once it is complete, or as an event stream while it comes.

The objects are "The chat completion object" and "The chat completion chunk object" of OpenAI's API reference.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import msgspec
from aiohttp import web

from gateway.http.event_stream import ClientGone, EventStream
from gateway.http.openai.api_errors import ApiError
from gateway.http.responses import answer
from plugins.api.chat import CallDraft
from sessions.events.events import StopReason
from sessions.events.messages import Usage

Json: TypeAlias = dict[str, Any]

_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"
"""The event that ends a stream."""

_FINISHES: dict[StopReason, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "refused": "content_filter",
    "cancelled": "stop",
}


class CompletionHeader(msgspec.Struct, kw_only=True):
    """The fields that all objects of one answer share: id, Unix time in seconds, and the answering `provider:model`."""

    id: str
    created: int
    model: str

    @classmethod
    def new(cls, created: int, model: str) -> CompletionHeader:
        """Return the header of an answer that begins now; `model` is used until the answering one is known."""
        return cls(id=f"chatcmpl-{secrets.token_hex(12)}", created=created, model=model)

    def accept(self, headers: Mapping[str, str]) -> None:
        """Note the headers of an accepted message, which change nothing here."""


def completion(
    head: CompletionHeader,
    text: str,
    calls: Sequence[CallDraft],
    stop: StopReason,
    usage: Usage | None,
    *,
    reasoning: str = "",
) -> Json:
    """Return a complete answer. Its `reasoning_content` is not OpenAI's own field, but that of most compatible servers."""
    message: Json = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [_call(number, call) for number, call in enumerate(calls)]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISHES[stop]}
    return {**_named(head, "chat.completion"), "choices": [choice], "usage": usage_of(usage)}


class AnswerHeader(Protocol):
    """The fields of an answer that are known before its text; `model` is the answering `provider:model`."""

    model: str

    def accept(self, headers: Mapping[str, str]) -> None:
        """Note the headers of an accepted message."""
        ...


class AnswerEvents(Protocol):
    """Encodes the events of a stream."""

    def text(self, text: str) -> bytes:
        """Return the events for a piece of the answer."""
        ...

    def reasoning(self, text: str) -> bytes:
        """Return the events for a piece of the model's reasoning; empty if they have no place for it."""
        ...

    def end(self, calls: Sequence[CallDraft], stop: StopReason, usage: Usage | None) -> bytes:
        """Return the last events."""
        ...

    def fail(self, refused: ApiError) -> bytes:
        """Return the last events of an answer that failed."""
        ...


class Chunks:
    """The chunks of a chat completion. With `with_usage`, the last chunk has the token counts, and all others null."""

    def __init__(self, head: CompletionHeader, *, with_usage: bool) -> None:
        self._head = head
        self._with_usage = with_usage
        self._begun = False

    def text(self, text: str) -> bytes:
        """Return the event for a piece of the answer."""
        return self._event({"content": text})

    def reasoning(self, text: str) -> bytes:
        """Return the event for a piece of the model's reasoning."""
        return self._event({"reasoning_content": text})

    def end(self, calls: Sequence[CallDraft], stop: StopReason, usage: Usage | None) -> bytes:
        """Return the events that follow the text."""
        events = [
            self._event({"tool_calls": [{"index": number, **_call(number, call)}]}) for number, call in enumerate(calls)
        ]
        events.append(self._event({}, _FINISHES[stop]))
        if self._with_usage:
            events.append(self._chunk([], usage_of(usage)))
        return b"".join([*events, DONE])

    def fail(self, refused: ApiError) -> bytes:
        """Return the event of an error, which OpenAI's clients raise."""
        return event(refused.body)

    def _event(self, delta: Json, finish: str | None = None) -> bytes:
        if not self._begun:
            self._begun = True
            delta = {"role": "assistant", "content": None if "tool_calls" in delta else "", **delta}
        return self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], None)

    def _chunk(self, choices: Sequence[Json], usage: Json | None) -> bytes:
        chunk = {**_named(self._head, "chat.completion.chunk"), "choices": choices}
        return event(chunk | {"usage": usage} if self._with_usage else chunk)


def event(value: Json) -> bytes:
    """Return a value as a server-sent event."""
    return b"data: %s\n\n" % _encode(value)


def usage_of(usage: Usage | None) -> Json | None:
    """Return token counts in OpenAI's format; None if the provider does not report them."""
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def _named(head: CompletionHeader, kind: str) -> Json:
    return {"id": head.id, "object": kind, "created": head.created, "model": head.model}


def _call(number: int, call: CallDraft) -> Json:
    """Return a tool call; one without an id from the provider gets a random one."""
    id_ = call.id or f"call_{number}_{secrets.token_hex(8)}"
    return {"id": id_, "type": "function", "function": {"name": call.tool, "arguments": call.arguments or "{}"}}


CompleteAnswer: TypeAlias = Callable[[str, str, Sequence[CallDraft], StopReason, Usage | None], Awaitable[Json]]
"""Returns the object of a complete answer: its text, its reasoning, its calls, the reason of its end, its token counts."""


class ResponseWriter(ABC):
    """The destination of an answer.

    `has_sent` is True once the client has received text, which cannot be taken back.
    """

    def __init__(self, head: AnswerHeader) -> None:
        self.has_sent = False
        self._head = head

    async def accepted(self, headers: Mapping[str, str]) -> None:
        """Set the headers of the response: the message is stored and will be answered."""
        self._head.accept(headers)

    def name(self, model: str) -> None:
        """Set the `provider:model` that answers."""
        self._head.model = model

    def begin(self, model: str) -> None:
        """Begin an answer of a `provider:model`; text of an earlier attempt that was not sent is discarded."""
        self.name(model)

    @abstractmethod
    async def text(self, text: str) -> None:
        """Add a piece of the answer."""

    @abstractmethod
    async def reasoning(self, text: str) -> None:
        """Add a piece of the model's reasoning. An answer can still begin anew after it."""

    @abstractmethod
    async def end(self, calls: Sequence[CallDraft], stop: StopReason, usage: Usage | None) -> None:
        """Complete the answer."""


class JsonResponseWriter(ResponseWriter):
    """Writes an answer as one JSON object; `response` is set when it is complete.

    Args:
        head: The header of the answer.
        complete: Returns the object of the complete answer.
    """

    def __init__(self, head: AnswerHeader, complete: CompleteAnswer) -> None:
        super().__init__(head)
        self.response: web.Response | None = None
        self._headers: Mapping[str, str] = {}
        self._complete = complete
        self._text: list[str] = []
        self._reasoning: list[str] = []

    async def accepted(self, headers: Mapping[str, str]) -> None:
        await super().accepted(headers)
        self._headers = headers

    def begin(self, model: str) -> None:
        super().begin(model)
        self._text.clear()
        self._reasoning.clear()

    async def text(self, text: str) -> None:
        self._text.append(text)

    async def reasoning(self, text: str) -> None:
        self._reasoning.append(text)

    async def end(self, calls: Sequence[CallDraft], stop: StopReason, usage: Usage | None) -> None:
        self.response = answer(200, await self._complete("".join(self._text), "".join(self._reasoning), calls, stop, usage))
        self.response.headers.update(self._headers)


class EventStreamWriter(ResponseWriter):
    """Writes an answer as server-sent events.

    Args:
        stream: The stream that the events are written to.
        head: The header of the answer.
        events: Encodes its events.
        admitted: Returns True while the client's token is valid.
        before_end: Called before the last events of a complete answer are sent.
    """

    def __init__(
        self,
        stream: EventStream,
        head: AnswerHeader,
        events: AnswerEvents,
        *,
        admitted: Callable[[], bool],
        before_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(head)
        self.stream = stream
        self._events = events
        self._admitted = admitted
        self._before_end = before_end
        self._reasoned = False
        self._between = ""

    def begin(self, model: str) -> None:
        super().begin(model)
        self._between = "\n\n" if self._reasoned else ""

    async def accepted(self, headers: Mapping[str, str]) -> None:
        """Begin the stream with these headers. Later failures are sent in the stream."""
        await super().accepted(headers)
        self.stream.headers = headers
        await self.stream.begin()

    async def text(self, text: str) -> None:
        """Send a piece of the answer.

        Raises:
            ClientGone: The client disconnected or does not read.
            ApiError: The client's token is no longer valid.
        """
        self._check_admitted()
        self.has_sent = True
        await self.stream.write(self._events.text(text))

    async def reasoning(self, text: str) -> None:
        """Send a piece of the model's reasoning, after an empty line if the answer begins anew. Raises the errors of
        `text`."""
        self._check_admitted()
        if events := self._events.reasoning(self._between + text):
            await self.stream.write(events)
            self._reasoned, self._between = True, ""

    def _check_admitted(self) -> None:
        if not self._admitted():
            raise ApiError("The token of this request is no longer valid.", status=401, code="invalid_api_key")

    async def end(self, calls: Sequence[CallDraft], stop: StopReason, usage: Usage | None) -> None:
        self.has_sent = True
        last = self._events.end(calls, stop, usage)
        if self._before_end is not None:
            await self._before_end()
        await self.stream.write(last, last=True)

    async def fail(self, refused: ApiError) -> None:
        """End a stream with an error."""
        with suppress(ClientGone):
            await self.stream.write(self._events.fail(refused), last=True)
