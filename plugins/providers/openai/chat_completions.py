"""Requests and responses of OpenAI's chat completions.

Sources: OpenAI's API reference (`POST /v1/chat/completions`) and the behaviour of compatible servers: missing ids, no
`[DONE]`, usage that is null, errors inside the stream, several calls under one index, text in parts. Reasoning, which
OpenAI's own servers do not show, comes as `reasoning_content` (DeepSeek, llama.cpp, older vLLM), `reasoning` (vLLM, Groq,
OpenRouter), `reasoning_details` (OpenRouter), as parts of the content (Mistral), or in tags.

DeepSeek's models that think refuse (400) a conversation in which the `reasoning_content` before a tool call is missing
(https://api-docs.deepseek.com/guides/thinking_mode, "Tool Calls"). So a reply with calls keeps it as `opaque`, and it is
sent back to the same model, unless that refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from plugins.api.chat import CallDraft, ChatRequest, Delta, Reasoning, Reply, RequestOptions
from plugins.providers.hosted.encoding import EncodingCache, accepted_name, chat_body
from plugins.providers.hosted.images import available_images, data_url
from plugins.providers.hosted.openai_errors import stream_error
from plugins.providers.hosted.think_tags import ThinkTags
from plugins.support.errors import StreamCut
from plugins.support.lenient_json import count, decoded, is_json
from sessions.events.codec import replace_surrogates
from sessions.events.events import StopReason
from sessions.events.messages import AssistantMessage, Message, ToolMessage, Usage, UserMessage

_encode = msgspec.json.Encoder().encode

SAMPLING = frozenset({"temperature", "top_p"})
"""Parameters that are configured for all models and refused by OpenAI's reasoning models."""

OPAQUE = "openai.chat:"
"""The prefix of our `opaque`; the model and its reasoning follow as a JSON array."""

OPAQUE_BYTES = 256 * 1024
"""Bytes of reasoning above which it is not kept."""

DONE = b"[DONE]"
"""The data of the event that ends a stream."""

# --- the request ------------------------------------------------------------------------------------------------------


class Encoder:
    """An encoder of requests. The messages of each session's last request are kept as bytes; only new ones are encoded."""

    def __init__(self, cache: EncodingCache | None = None) -> None:
        self._cache = cache or EncodingCache()
        self._fills: dict[str, bool] = {}
        """The models that refused a request for its reasoning: True if it was missing, False if they accept none."""

    def adapt(self, request: ChatRequest, refusal: bytes) -> bool:
        """Return True if a model refused a request for its reasoning, and the next one differs: it is empty where it was
        missing, or left out if nothing was missing."""
        replies = [message for message in request.context.messages if isinstance(message, AssistantMessage)]
        if b"reasoning_content" not in refusal or not replies or request.model in self._fills:
            return False
        called = [message for message in replies if message.calls] or replies
        self._fills[request.model] = any(_kept_reasoning(message, request.model) is None for message in called)
        return True

    def body(
        self,
        request: ChatRequest,
        *,
        max_tokens: int | None,
        max_tokens_key: str,
        effort: str | None = None,
        samples: bool = True,
    ) -> bytes:
        """Return the JSON body of a streaming request. `effort` is the service's reasoning effort; `samples` is False for a
        model that refuses `temperature` and `top_p`."""
        context = request.context
        head: dict[str, Any] = {"model": request.model, "stream": True, "stream_options": {"include_usage": True}}
        left_out = {"effort"} if samples else {"effort", *SAMPLING}
        options = {name: value for name, value in context.parameters.items() if value is not None and name not in left_out}
        limit = options.pop("max_tokens", max_tokens)
        head |= options
        if limit is not None:
            head[max_tokens_key] = limit
        if effort:
            head["reasoning_effort"] = effort
        if context.tools:
            head["tools"] = [{"type": "function", "function": tool} for tool in context.tools]
        head |= _option_fields(request.options)
        fills = self._fills.get(request.model)

        def encoded(message: Message) -> bytes:
            wire = _wire_message(message, request.pictures)
            if isinstance(message, AssistantMessage) and fills is not False:
                reasoning = _kept_reasoning(message, request.model)
                if reasoning is not None or fills:
                    wire["reasoning_content"] = reasoning or ""
            return _encode(wire)

        messages = self._cache.joined(f"{request.session} {request.model} {fills}", context.messages, encoded)
        return chat_body(_encode(head), context.instructions, messages)


def _option_fields(request_options: RequestOptions) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if request_options.require_tool:
        named = {"type": "function", "function": {"name": request_options.tool}}
        fields["tool_choice"] = named if request_options.tool else "required"
    if request_options.single_tool_call:
        fields["parallel_tool_calls"] = False
    if (form := request_options.response_format) is not None:
        schema = {"name": form.name, "schema": form.schema, "description": form.description or None, "strict": form.strict}
        present = {name: value for name, value in schema.items() if value is not None}
        fields["response_format"] = (
            {"type": "json_object"} if form.schema is None else {"type": "json_schema", "json_schema": present}
        )
    return fields


def _wire_message(message: Message, pictures: Mapping[str, bytes]) -> dict[str, Any]:
    match message:
        case UserMessage() if sent := available_images(message, pictures):
            images = [{"type": "image_url", "image_url": {"url": data_url(*each)}} for each in sent]
            words = [{"type": "text", "text": message.text}] if message.text else []
            return {"role": "user", "content": [*images, *words]}
        case UserMessage():
            return {"role": "user", "content": message.text}
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.id, "content": message.text}
        case AssistantMessage(calls=()):
            return {"role": "assistant", "content": message.text}
        case AssistantMessage():
            calls = [
                {
                    "id": c.id,
                    "type": "function",
                    "function": {"name": accepted_name(c.tool), "arguments": c.arguments or "{}"},
                }
                for c in message.calls
            ]
            return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _kept_reasoning(message: AssistantMessage, model: str) -> str | None:
    """Return the reasoning of a reply with calls if this model wrote it."""
    if message.opaque is not None and message.opaque.startswith(OPAQUE):
        with suppress(msgspec.MsgspecError):
            author, reasoning = _decode_opaque(message.opaque.removeprefix(OPAQUE))
            return reasoning if author == model else None
    return None


_decode_opaque = msgspec.json.Decoder(tuple[str, str]).decode


# --- the reply --------------------------------------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Part(msgspec.Struct):
    text: str | None = None
    thinking: Any = None


class _Piece(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    reasoning_details: Any = None


class _Choice(msgspec.Struct):
    delta: _Piece | None = None
    message: _Piece | None = None
    finish_reason: str | None = None
    index: int = 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    model: str | None = None
    usage: Any = None
    error: Any = None


_chunk = msgspec.json.Decoder(_Chunk, strict=False).decode

_STOPS: dict[str, StopReason] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "refused",
}

_BROKEN = frozenset({"abort", "aborted", "error", "insufficient_system_resource"})
"""Finish reasons of a failed generation."""


class _Draft:
    """A tool call that grows with each piece."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.tool = ""
        self.arguments: list[str] = []

    def take(self, id_: str | None, function: _Function) -> None:
        """Add a piece. The id and the tool's name may come once or with every piece."""
        self.id = self.id or id_ or ""
        self.tool = self.tool or function.name or ""
        arguments = function.arguments
        if isinstance(arguments, dict):
            arguments = _encode(arguments).decode()
        if arguments:
            self.arguments.append(arguments)


class StreamAccumulator:
    """One reply, built from the chunks of its stream."""

    def __init__(self, model: str) -> None:
        self._model = self._asked = model
        self._text = ThinkTags()
        self._reasoning: list[str] = []
        """What must be sent back after a call."""
        self._calls: list[_Draft] = []
        self._open_calls: dict[int, _Draft] = {}
        self._finish: str | None = None
        self._usage: Any = None
        self._refused = False
        self.done = False
        """True after `[DONE]`: nothing follows."""
        self.progress = 0
        """The number of pieces with text, reasoning or part of a call."""

    @property
    def complete(self) -> bool:
        """True once the reply has a finish reason."""
        return self._finish is not None

    def take(self, data: bytes) -> Iterator[Delta | Reasoning]:
        """Add an event's data and yield its new text and reasoning. Raises BadAnswer, or the error that it contains."""
        if data.strip() == DONE:
            self.done = True
            yield from self._text.end()
            return
        chunk = decoded(_chunk, data)
        if chunk.error:
            raise stream_error(chunk.error, self._model)
        self._model = chunk.model or self._model
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices or ():
            if choice.index == 0:
                yield from self._take_choice(choice)

    def _take_choice(self, choice: _Choice) -> Iterator[Delta | Reasoning]:
        piece = choice.delta or choice.message or _Piece()
        self._refused = self._refused or bool(piece.refusal)
        if isinstance(piece.reasoning_content, str):
            self._reasoning.append(piece.reasoning_content)
        reasoning, text = _reasoning(piece), _text(piece.content)
        self.progress += bool(reasoning or text or _has_more(piece) or choice.finish_reason)
        if reasoning:
            yield Reasoning(reasoning)
        for each in (text, piece.refusal):
            if each and self._text.is_answer:
                yield self._text.answer(each)
            elif each:
                yield from self._text.feed(each)
        for call in piece.tool_calls or ():
            self._take_call(call)
        if choice.finish_reason:
            self._finish = choice.finish_reason
            yield from self._text.end()

    def _take_call(self, call: _Call) -> None:
        """Add a piece of a call. Pieces belong together by their index. Servers without an index send whole calls, and some
        send every call under the same index with an id of its own."""
        function = call.function or _Function()
        if call.index is None:
            draft = self._calls[-1] if self._calls and not function.name else None
        else:
            draft = self._open_calls.get(call.index)
            if draft and draft.id and call.id and function.name and draft.id != call.id:
                draft = None
        if draft is None:
            draft = _Draft(index=len(self._calls) if call.index is None else call.index)
            self._calls.append(draft)
            self._open_calls[draft.index] = draft
        draft.take(call.id, function)

    def _whole_calls(self) -> tuple[CallDraft, ...]:
        """Return the calls that may be run: none of a refused reply, and not a last call that the token limit has cut."""
        calls = sorted(self._calls, key=lambda draft: draft.index)
        if self._finish == "content_filter":
            return ()
        if self._finish == "length" and calls and not is_json("".join(calls[-1].arguments)):
            calls.pop()
        return tuple(
            CallDraft(id=draft.id, tool=draft.tool, arguments="".join(draft.arguments)) for draft in calls if draft.tool
        )

    def reply(self) -> Reply:
        """Return the whole reply. Raises StreamCut without an end."""
        if self._finish is None and not (self.done and (self._text.pieces or self._calls)):
            raise StreamCut("The reply was interrupted before its end.")
        if self._finish in _BROKEN:
            raise StreamCut(f"The provider interrupted the reply: {self._finish}.")
        calls = self._whole_calls()
        stop = "calls" if calls else _STOPS.get(self._finish or "stop", "end")
        if stop == "calls" and not calls:
            stop = "end"
        return Reply(
            text="".join(self._text.pieces),
            model=self._model,
            stop="refused" if self._refused and not calls else stop,
            calls=calls,
            usage=_usage(self._usage),
            cost=_cost(self._usage),
            opaque=self._opaque() if calls else None,
        )

    def _opaque(self) -> str | None:
        reasoning = "".join(self._reasoning)
        if not reasoning or len(reasoning.encode("utf-8", "replace")) > OPAQUE_BYTES:
            return None
        return OPAQUE + _encode((self._asked, replace_surrogates(reasoning))).decode()


def _text(content: str | list[_Part] | None) -> str | None:
    """Return the text of a piece. In a list, parts with thinking have no text."""
    return "".join(part.text or "" for part in content) if isinstance(content, list) else content


def _reasoning(piece: _Piece) -> str:
    """Return the reasoning of a piece under the first of the names that servers use, some of them several at once."""
    for value in (piece.reasoning_content, piece.reasoning):
        if value and isinstance(value, str):
            return value
    if piece.reasoning_details:
        return _joined_texts(piece.reasoning_details)
    parts = piece.content if isinstance(piece.content, list) else ()
    return "".join(_joined_texts(part.thinking) for part in parts if part.thinking)


def _joined_texts(value: object) -> str:
    """Return a text, or the texts and summaries of a list of objects; those of other kinds are encrypted."""
    if isinstance(value, str):
        return value
    entries = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    texts = [each.get("text") or each.get("summary") for each in entries]
    return "".join(text for text in texts if isinstance(text, str))


def _has_more(piece: _Piece) -> bool:
    """Return True if a piece has part of a call, a refusal, or reasoning that cannot be read."""
    functions = [call.function for call in piece.tool_calls or () if call.function]
    called = any(function.name or function.arguments for function in functions)
    return bool(called or piece.refusal or piece.reasoning or piece.reasoning_details)


def _usage(usage: Any) -> Usage | None:
    if (read := count(usage, "prompt_tokens")) is None:
        return None
    cached = count(usage, "prompt_tokens_details", "cached_tokens") or 0
    return Usage(input=read, output=count(usage, "completion_tokens") or 0, cached=cached)


def _cost(usage: Any) -> int | None:
    """Return what a service such as OpenRouter says that the request cost, from dollars into millionths of one."""
    cost = usage.get("cost") if isinstance(usage, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < math.inf:
        return None
    return round(cost * 1_000_000)
