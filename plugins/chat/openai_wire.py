"""OpenAI's chat completions on the wire: a context as a request's body, a stream's chunks as a reply.

After OpenAI's API reference (`POST /v1/chat/completions`), and what compatible servers make of it: ids that are missing,
`[DONE]` that never comes, usage that is null, errors inside the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from plugins.contracts import CallDraft, ChatRequest, Delta, Reply
from plugins.errors import BadAnswer, ContextOverflow, ProviderError, RateLimited, StreamCut, Unreachable
from plugins.transport import plain_words
from sessions.context import continues
from sessions.events import StopReason
from sessions.messages import AssistantMessage, Message, ToolMessage, Usage, UserMessage
from sessions.wire import carriable

_encode = msgspec.json.Encoder().encode

REMEMBERED = 32 * 1024 * 1024
"""Bytes of encoded conversations that are kept, since each request repeats the one before."""

_OVERFLOW_CODES = frozenset({"context_length_exceeded", "string_above_max_length", "exceed_context_size_error"})
_OVERFLOW_WORDS = (
    "maximum context length",
    "context length exceeded",
    "exceeds the available context size",
    "exceed context window",
    "context window exceeds",
    "prompt is too long",
    "input is too long",
    "too many tokens in the prompt",
)


# --- the request ------------------------------------------------------------------------------------------------------


class Encoder:
    """Encodes requests. Of each session's last one the messages are kept as bytes: only what is new is encoded."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._known: dict[str, tuple[tuple[Message, ...], bytearray]] = {}
        self._bytes = 0
        self._limit = remembered

    def body(self, request: ChatRequest, *, max_tokens: int | None, max_tokens_key: str) -> bytes:
        """The JSON body of a streaming request."""
        context = request.context
        head: dict[str, Any] = {"model": request.model, "stream": True, "stream_options": {"include_usage": True}}
        head |= {name: value for name, value in context.parameters.items() if value is not None}
        if max_tokens is not None:
            head.setdefault(max_tokens_key, max_tokens)
        if context.tools:
            head["tools"] = [{"type": "function", "function": tool} for tool in context.tools]
        system = _encode({"role": "system", "content": context.instructions}) if context.instructions else b""
        messages = self._messages(request.session, context.messages)
        between = b"," if system and messages else b""
        return b"".join((_encode(head)[:-1], b',"messages":[', system, between, messages, b"]}"))

    def _messages(self, session: str, messages: tuple[Message, ...]) -> bytearray:
        """The messages, joined by commas. What is kept grows in place: a copy of a long conversation costs page faults."""
        before, joined = self._known.pop(session, ((), bytearray()))
        self._bytes -= len(joined)
        if not continues(messages, before):
            before, joined = (), bytearray()
        for message in messages[len(before) :]:
            joined += b"," * bool(joined) + _encode(_wire_message(message))
        self._known[session] = messages, joined
        self._bytes += len(joined)
        while self._bytes > self._limit and self._known:
            _, forgotten = self._known.pop(next(iter(self._known)))  # the one that was used longest ago
            self._bytes -= len(forgotten)
        return joined


def _wire_message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage():
            return {"role": "user", "content": message.text}
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.id, "content": message.text}
        case AssistantMessage(calls=()):
            return {"role": "assistant", "content": message.text}
        case AssistantMessage():
            calls = [
                {"id": c.id, "type": "function", "function": {"name": c.tool, "arguments": c.arguments or "{}"}}
                for c in message.calls
            ]
            return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


# --- the answer -------------------------------------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Piece(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Piece | None = None
    message: _Piece | None = None
    finish_reason: str | None = None
    index: int = 0


class _CachedTokens(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: Any = None


_chunk = msgspec.json.Decoder(_Chunk, strict=False).decode

_STOPS: dict[str, StopReason] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "refused",
}


class Assembly:
    """One answer as its chunks come. `take` gives the text that is new; `reply` the whole once `complete`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._text: list[str] = []
        self._calls: dict[int, list[str]] = {}
        self._finish: str | None = None
        self._usage: _Usage | None = None
        self._refused = False
        self.done = False
        """`[DONE]` came: nothing follows."""

    @property
    def complete(self) -> bool:
        """Whether the answer has its end, by its own word."""
        return self._finish is not None

    def take(self, data: bytes) -> Iterator[Delta]:
        """The new text of one event's data. Raises BadAnswer, or what an error inside the stream means."""
        if data.strip() == b"[DONE]":
            self.done = True
            return
        chunk = parse_chunk(data)
        if chunk.error:
            raise stream_error(chunk.error)
        self._model = chunk.model or self._model
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices or ():
            if choice.index == 0:
                yield from self._take_choice(choice)

    def _take_choice(self, choice: _Choice) -> Iterator[Delta]:
        piece = choice.delta or choice.message or _Piece()
        self._refused = self._refused or bool(piece.refusal)
        for text in (piece.content, piece.refusal):
            if text:
                self._text.append(text)
                yield Delta(text)
        for place, call in enumerate(piece.tool_calls or ()):
            self._take_call(place, call)
        self._finish = choice.finish_reason or self._finish

    def _take_call(self, place: int, call: _Call) -> None:
        """Calls come in pieces under an index; servers that give none send whole calls, one behind the other."""
        if call.index is not None:
            index = call.index
        elif call.function and call.function.name:
            index = len(self._calls)
        else:
            index = max(self._calls, default=place)
        parts = self._calls.setdefault(index, ["", "", ""])
        parts[0] = parts[0] or call.id or ""
        if call.function:
            parts[1] += call.function.name or "" if not parts[1] else ""
            parts[2] += call.function.arguments or ""

    def reply(self) -> Reply:
        """The whole answer; StreamCut if it has no end."""
        if self._finish is None and not (self.done and (self._text or self._calls)):
            raise StreamCut("The answer broke off before its end.")
        calls = tuple(CallDraft(id=i, tool=t, arguments=a) for _, (i, t, a) in sorted(self._calls.items()) if t)
        stop = "calls" if calls else _STOPS.get(self._finish or "stop", "end")
        if stop == "calls" and not calls:
            stop = "end"
        return Reply(
            text="".join(self._text),
            model=self._model,
            stop="refused" if self._refused and not calls else stop,
            calls=calls,
            usage=_usage(self._usage),
        )


def parse_chunk(data: bytes) -> _Chunk:
    """One chunk. Text with lone surrogates, which msgspec refuses, is kept with replacements."""
    try:
        return _chunk(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        try:
            return _chunk(carriable(json.dumps(json.loads(data), ensure_ascii=False)))
        except (ValueError, RecursionError):
            raise BadAnswer(f"The provider sent what is no chunk of an answer: {plain_words(data[:200])}") from error


def _usage(usage: _Usage | None) -> Usage | None:
    if usage is None or usage.prompt_tokens is None:
        return None
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens if details else None) or 0
    return Usage(input=usage.prompt_tokens, output=usage.completion_tokens or 0, cached=cached)


# --- errors -----------------------------------------------------------------------------------------------------------


def is_overflow(body: bytes) -> bool:
    """Whether an error's body says that the request was too long. Only asked about errors: a person may write anything."""
    error = _error_object(body)
    if error.get("code") in _OVERFLOW_CODES or error.get("type") in _OVERFLOW_CODES:
        return True
    message = str(error.get("message", "")).lower()
    return any(words in message for words in _OVERFLOW_WORDS)


def error_code(body: bytes) -> str:
    """The error's own code or type; empty if it has none."""
    error = _error_object(body)
    return str(error.get("code") or error.get("type") or "")


def stream_error(error: Any) -> ProviderError:
    """What an error object inside a stream means."""
    body = _encode({"error": error})
    sentence = f"The provider broke off: {plain_words(body)}"
    if is_overflow(body):
        return ContextOverflow(sentence)
    if "rate_limit" in error_code(body):
        return RateLimited(sentence)
    return StreamCut(sentence) if error_code(body) in ("", "server_error") else Unreachable(sentence)


def _error_object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return {}
    error = value.get("error", value) if isinstance(value, dict) else None
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}
