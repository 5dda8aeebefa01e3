"""Requests and responses of Ollama's chat API.

Source: Ollama's API documentation (`POST /api/chat`, tool calling, thinking, context length). Three things differ from other
services. A request that does not fit is truncated without an error unless `truncate` and `shift` are false, and by old
releases even then, which only the token count shows. Arguments of calls are objects, not text. A model that thinks before a
tool call needs its thinking sent back with the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from plugins.api.chat import CallDraft, ChatRequest, Delta, Reasoning, Reply
from plugins.providers.hosted.encoding import EncodingCache, chat_body
from plugins.providers.hosted.images import available_images, json_string
from plugins.providers.hosted.think_tags import ThinkTags
from plugins.providers.ollama.errors import stream_error
from plugins.support.errors import BadRequest, ContextOverflow, StreamCut
from plugins.support.lenient_json import as_object, decoded
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage, clamp_count

_encode = msgspec.json.Encoder().encode

THINKING = "ollama:"
"""The prefix of `opaque` with the thinking before a call; other providers' values are not sent."""

IMPLAUSIBLE_WINDOWS = 10
"""The number of windows above which a prompt count is not credible."""

_OPTIONS = {"max_tokens": "num_predict"}
"""Ollama's names of parameters."""


# --- the request ------------------------------------------------------------------------------------------------------


class Encoder:
    """An encoder of requests. The messages of each session's last request are kept as bytes; only new ones are encoded."""

    def __init__(self) -> None:
        self._cache = EncodingCache()

    def body(self, request: ChatRequest, *, window: int | None, max_tokens: int | None, **fields: Any) -> bytes:
        """Return the JSON body of a streaming request. `window` and `max_tokens` None are the server's defaults; `fields`
        are more fields of the body, left out if None. Raises BadRequest if the request requires a tool call."""
        context, request_options = request.context, request.options
        if request_options.require_tool:
            raise BadRequest("Ollama cannot require a tool call; leave tool_choice to the model.")
        if request_options.response_format is not None:
            schema = request_options.response_format.schema
            fields = {**fields, "format": "json" if schema is None else schema}
        options = {"num_ctx": window, "num_predict": max_tokens}
        given = {name: value for name, value in context.parameters.items() if value is not None and name != "effort"}
        options |= {_OPTIONS.get(name, name): value for name, value in given.items()}
        tools = [{"type": "function", "function": tool} for tool in context.tools] or None
        fixed = {"model": request.model, "stream": True, "truncate": False, "shift": False}
        head = _encode(fixed | _without_none(fields) | {"options": _without_none(options)} | _without_none({"tools": tools}))
        messages = self._cache.joined(
            request.session, context.messages, lambda message: _encode(_wire_message(message, request.pictures))
        )
        return chat_body(head, context.instructions, messages)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _wire_message(message: Message, pictures: Mapping[str, bytes]) -> dict[str, Any]:
    """Return one message in Ollama's format. Any order and empty content are allowed."""
    match message:
        case UserMessage():
            images = [json_string(base64) for _, base64 in available_images(message, pictures)]
            return {"role": "user", "content": message.text} | ({"images": images} if images else {})
        case ToolMessage():
            # Ollama has no field for a failure, and templates show the name of the tool, not the id.
            text = f"Error: {message.text}" if message.failed else message.text
            return {"role": "tool", "tool_name": message.tool, "tool_call_id": message.id, "content": text}
        case AssistantMessage():
            wire: dict[str, Any] = {"role": "assistant", "content": message.text}
            if message.opaque and message.opaque.startswith(THINKING):
                wire["thinking"] = message.opaque.removeprefix(THINKING)
            if message.calls:
                wire["tool_calls"] = [_wire_call(index, call) for index, call in enumerate(message.calls)]
            return wire


def _wire_call(index: int, call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "function": {"index": index, "name": call.tool, "arguments": as_object(call.arguments)}}


# --- the reply --------------------------------------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: dict[str, Any] | str | None = None


class _Call(msgspec.Struct):
    function: _Function | None = None
    id: str | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Line(msgspec.Struct):
    model: str | None = None
    message: _Message | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: Any = None
    prompt_eval_cached_count: Any = None
    eval_count: Any = None
    error: Any = None


_line = msgspec.json.Decoder(_Line, strict=False).decode


class StreamAccumulator:
    """One reply, built from the lines of its stream. `window` is the requested window in tokens."""

    def __init__(self, model: str, window: int | None) -> None:
        self._model = model
        self._window = window
        self._thinking: list[str] = []
        self._text = ThinkTags()  # old releases do not separate thinking
        self._calls: list[CallDraft] = []
        self._last: _Line | None = None
        self.progress = 0
        """The number of lines with text, thinking or calls."""

    @property
    def complete(self) -> bool:
        """True after the last line."""
        return self._last is not None

    done = complete

    def take(self, data: bytes) -> Iterator[Delta | Reasoning]:
        """Add a line and yield its new text and thinking. Raises BadAnswer, or the error that the line contains."""
        line = decoded(_line, data, "Ollama")
        if line.error:
            raise stream_error(line.error)
        self._model = line.model or self._model
        message = line.message or _Message()
        self.progress += bool(message.content or message.thinking or message.tool_calls or line.done)
        if message.thinking:
            self._thinking.append(message.thinking)
            yield Reasoning(message.thinking)
        for call in message.tool_calls or ():
            self._take_call(call)
        if message.content:
            yield from self._text.feed(message.content)
        if line.done:
            self._last = line
            yield from self._text.end()

    def _take_call(self, call: _Call) -> None:
        """Add a call; calls are never split."""
        function = call.function or _Function()
        arguments = function.arguments
        if not isinstance(arguments, str):
            arguments = _encode(arguments or {}).decode()
        if function.name:
            self._calls.append(CallDraft(id=call.id or "", tool=function.name, arguments=arguments))

    def reply(self) -> Reply:
        """Return the whole reply. Raises StreamCut without an end, ContextOverflow if the server truncated the request."""
        last = self._last
        if last is None:
            raise StreamCut("The reply was interrupted before its end.")
        read = clamp_count(last.prompt_eval_count)
        if read is not None and self._window and self._window <= read < IMPLAUSIBLE_WINDOWS * self._window:
            raise ContextOverflow(f"The conversation is too long for the model: it fills all of its {self._window} tokens.")
        thinking = "".join(self._thinking)
        return Reply(
            text="".join(self._text.pieces),
            model=self._model,
            stop="calls" if self._calls else "length" if last.done_reason == "length" else "end",
            calls=tuple(self._calls),
            usage=_usage(last),
            opaque=THINKING + thinking if thinking and self._calls else None,
        )


def _usage(last: _Line) -> Usage | None:
    if (read := clamp_count(last.prompt_eval_count)) is None:
        return None
    cached = clamp_count(last.prompt_eval_cached_count) or 0
    return Usage(input=read, output=clamp_count(last.eval_count) or 0, cached=cached)
