"""Ollama's chat on the wire: a context as a request's body, the lines of a stream as a reply.

After Ollama's API documentation (`POST /api/chat`, tool calling, thinking, context length). Three things differ from the
other services. A request that does not fit is cut in silence unless it says `truncate` and `shift` are false, and by old
releases even then, which only the count of tokens shows. Arguments of calls are objects, not text. And a model that thinks
before it calls a tool wants its thoughts back with the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from plugins.api.chat import CallDraft, ChatRequest, Delta, Reply
from plugins.providers.hosted.encoding_cache import EncodingCache
from plugins.providers.hosted.images import quoted, sent_with
from plugins.providers.ollama.errors import in_stream
from plugins.support.errors import BadAnswer, BadRequest, ContextOverflow, StreamCut
from plugins.support.http_errors import error_message
from plugins.support.lenient_json import as_object, decoded
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage, clamp_count

_encode = msgspec.json.Encoder().encode

THOUGHTS = "ollama:"
"""What a reply's `opaque` begins with when it holds the thoughts before a call; another provider's are not sent."""

BEYOND = 10
"""How many windows a request may seem to fill: a larger count is not that of one."""

_OPTIONS = {"max_tokens": "num_predict"}
"""Names of parameters that Ollama calls otherwise."""


# --- the request ------------------------------------------------------------------------------------------------------


class Encoder:
    """Encodes requests; of each session's messages only those that are new since its last one."""

    def __init__(self) -> None:
        self._remembered = EncodingCache()

    def body(self, request: ChatRequest, *, window: int | None, max_tokens: int | None, **fields: Any) -> bytes:
        """The JSON body of a streaming request. `window` and `max_tokens` are in tokens; what is None is left to the
        server, also of the other fields. Raises BadRequest for a wish that Ollama has no word for."""
        context, request_options = request.context, request.options
        if request_options.require_tool:
            raise BadRequest("Ollama cannot be told that a tool must be called; leave tool_choice to the model.")
        if request_options.response_format is not None:
            fields = {
                **fields,
                "format": "json"
                if request_options.response_format.schema is None
                else request_options.response_format.schema,
            }
        options = {"num_ctx": window, "num_predict": max_tokens}
        options |= {_OPTIONS.get(name, name): value for name, value in context.parameters.items() if value is not None}
        tools = [{"type": "function", "function": tool} for tool in context.tools] or None
        fixed = {"model": request.model, "stream": True, "truncate": False, "shift": False}
        head = _encode(fixed | _given(fields) | {"options": _given(options)} | _given({"tools": tools}))
        system = _encode({"role": "system", "content": context.instructions}) if context.instructions else b""
        messages = self._messages(request.session, context.messages, request.pictures)
        between = b"," if system and messages else b""
        return b"".join((head[:-1], b',"messages":[', system, between, messages, b"]}"))

    def _messages(self, session: str, messages: Sequence[Message], pictures: Mapping[str, bytes]) -> bytearray:
        """The messages, joined by commas."""
        known, joined = self._remembered.take(session, messages)
        for message in messages[known:]:
            joined += b"," * bool(joined) + _encode(_wire_message(message, pictures))
        self._remembered.keep(session, messages, joined)
        return joined


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _wire_message(message: Message, pictures: Mapping[str, bytes]) -> dict[str, Any]:
    """One message as Ollama takes it. Any order of them is allowed, and so is empty content."""
    match message:
        case UserMessage():
            images = [quoted(base64) for _, base64 in sent_with(message, pictures)]
            return {"role": "user", "content": message.text} | ({"images": images} if images else {})
        case ToolMessage():
            # Ollama has no mark for a failure, and templates show the name of the tool, not the id.
            text = f"Error: {message.text}" if message.failed else message.text
            return {"role": "tool", "tool_name": message.tool, "tool_call_id": message.id, "content": text}
        case AssistantMessage():
            wire: dict[str, Any] = {"role": "assistant", "content": message.text}
            if message.opaque and message.opaque.startswith(THOUGHTS):
                wire["thinking"] = message.opaque.removeprefix(THOUGHTS)
            if message.calls:
                wire["tool_calls"] = [_wire_call(index, call) for index, call in enumerate(message.calls)]
            return wire


def _wire_call(index: int, call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "function": {"index": index, "name": call.tool, "arguments": as_object(call.arguments)}}


# --- the answer -------------------------------------------------------------------------------------------------------


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
    """One answer as its lines come. `take` gives the text that is new; `reply` the whole once `complete`. `window` is how
    many tokens the model was told to read."""

    def __init__(self, model: str, window: int | None) -> None:
        self._model = model
        self._window = window
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[CallDraft] = []
        self._last: _Line | None = None
        self.said = 0
        """The lines that have brought text, thoughts or calls."""

    @property
    def complete(self) -> bool:
        """Whether the line that ends an answer has come."""
        return self._last is not None

    def take(self, data: bytes) -> Iterator[Delta]:
        """The new text of one line. Raises BadAnswer, or what an error inside the stream means."""
        line = parse_line(data)
        if line.error:
            raise in_stream(line.error)
        self._model = line.model or self._model
        message = line.message or _Message()
        self.said += bool(message.content or message.thinking or message.tool_calls or line.done)
        if message.thinking:
            self._thoughts.append(message.thinking)
        for call in message.tool_calls or ():
            self._take_call(call)
        if line.done:
            self._last = line
        if message.content:
            self._text.append(message.content)
            yield Delta(message.content)

    def _take_call(self, call: _Call) -> None:
        """Calls always come whole."""
        function = call.function or _Function()
        arguments = function.arguments
        if not isinstance(arguments, str):
            arguments = _encode(arguments or {}).decode()
        if function.name:
            self._calls.append(CallDraft(id=call.id or "", tool=function.name, arguments=arguments))

    def reply(self) -> Reply:
        """The whole answer. StreamCut if it has no end, ContextOverflow if the server cut the request in silence."""
        last = self._last
        if last is None:
            raise StreamCut("The answer broke off before its end.")
        read = clamp_count(last.prompt_eval_count)
        if read is not None and self._window and self._window <= read < BEYOND * self._window:
            raise ContextOverflow(f"The conversation is too long for the model: it fills all of its {self._window} tokens.")
        thoughts = "".join(self._thoughts)
        return Reply(
            text="".join(self._text),
            model=self._model,
            stop="calls" if self._calls else "length" if last.done_reason == "length" else "end",
            calls=tuple(self._calls),
            usage=_usage(last),
            opaque=THOUGHTS + thoughts if thoughts and self._calls else None,
        )


def parse_line(data: bytes) -> _Line:
    """One line; BadAnswer if it is something else."""
    try:
        return decoded(_line, data)
    except ValueError as error:
        raise BadAnswer(f"Ollama sent what is no line of an answer: {error_message(data[:200])}") from error


def _usage(last: _Line) -> Usage | None:
    if (read := clamp_count(last.prompt_eval_count)) is None:
        return None
    cached = clamp_count(last.prompt_eval_cached_count) or 0
    return Usage(input=read, output=clamp_count(last.eval_count) or 0, cached=cached)
