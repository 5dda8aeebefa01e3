"""A context as the body of a request to Anthropic's Messages API (`POST /v1/messages`).

Sources: its API reference and the pages on tool use, extended and preserved thinking, and prompt caching. The service
requires alternating turns that begin and end with the user, all results in the message right after their calls, no empty
text, and tools if there are calls. Thinking must be sent back while the model continues after tool calls, and is bound to
everything before it; older thinking is left out, so that pruning and compaction cannot invalidate it.

Stable parts of a request are marked for the service's cache: the tools, the instructions, and the last two user turns. The
first of these was marked in the previous request, and the service looks back only twenty blocks from a mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from plugins.api.chat import ChatRequest, RequestOptions
from plugins.api.models import ReportedLimits
from plugins.providers.anthropic.reply import decode_steps
from plugins.providers.hosted.encoding import EncodingCache, accepted_name
from plugins.providers.hosted.images import available_images, json_string
from plugins.providers.hosted.known_models import known_limits, longest_prefix
from plugins.support.errors import BadRequest
from plugins.support.lenient_json import as_object
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from sessions.state.context import Context

Json: TypeAlias = dict[str, Any]

_encode = msgspec.json.Encoder().encode

_MARK = {"type": "ephemeral"}

_MARKED = 2
"""The number of user turns that are marked; the service allows four marks in all."""

_UNSETTLED = 3
"""The number of final turns that are encoded again: they may grow, and their marks move."""

_NAMES = {"stop": "stop_sequences"}

_UNSUPPORTED = frozenset({"effort", "seed", "presence_penalty", "frequency_penalty"})
"""Parameters that the service does not have, or not under these names."""

_BEFORE = "(The conversation begins with your words.)"

_EMPTY = "(An empty message.)"

_GO_ON = "Go on."

_FAILED = "The tool failed and said nothing."

_FORMER = {"name": "former", "description": "Is not offered any more.", "input_schema": {"type": "object"}}
"""A placeholder for tools that were called and are no longer offered."""

_ACCEPTS_SAMPLING = {
    "claude-3": True,
    "claude-haiku-4": True,
    "claude-opus-4": True,
    "claude-opus-4-7": False,
    "claude-opus-4-8": False,
    "claude-sonnet-4": True,
}
"""The models that accept `temperature` and `top_p`, by the prefix of the name, from Anthropic's model pages: newer ones
refuse requests with them."""

_DEFAULT_MAX_TOKENS = 8_192
"""The tokens of a reply of an unknown model; the service requires a number."""


def accepts_sampling(name: str) -> bool:
    """Return True if a model accepts `temperature` and `top_p`. Anthropic's models that are newer than the table do not."""
    accepts = longest_prefix(_ACCEPTS_SAMPLING, name)
    return not name.startswith("claude-") if accepts is None else accepts


def max_reply_tokens(name: str, wanted: int | None, reported: Mapping[str, ReportedLimits] | None = None) -> int:
    """Return the `max_tokens` of a request: as many as wanted and possible. The default is a twelfth of the window, because
    older models count these tokens as part of the conversation and refuse one that leaves no room for them. `reported` are
    the limits that the service reported."""
    limits = known_limits("anthropic", name, reported)
    if limits.window is None or limits.output is None:
        return wanted or _DEFAULT_MAX_TOKENS
    return min(wanted or limits.window // 12, limits.output)


class Encoder:
    """An encoder of requests. The bytes of each session's last request are kept except for the end, so only new messages are
    encoded. `reported` are the limits that the service reported."""

    def __init__(self, cache: EncodingCache | None = None, reported: Mapping[str, ReportedLimits] | None = None) -> None:
        self._cache = cache or EncodingCache()
        self._reported = reported or {}

    def body(
        self,
        request: ChatRequest,
        *,
        max_tokens: int | None = None,
        thinking: Json | None = None,
        effort: str | None = None,
        with_thinking: bool = True,
    ) -> bytes:
        """Return the JSON body of a streaming request. `max_tokens` limits the reply if the context's parameters do not;
        `thinking` and `effort` are the service's own; without `with_thinking` all earlier thinking is left out. Raises
        BadRequest for a response format without a schema."""
        messages = request.context.messages
        round_start = tool_round_start(messages)
        if thinking and thinking.get("type") == "enabled" and round_start < len(messages):
            # In this mode each reply of a round must begin with thinking, which other providers' replies lack.
            with_thinking = with_thinking and all(
                decode_steps(m) for m in messages[round_start:] if isinstance(m, AssistantMessage)
            )
            thinking = thinking if with_thinking else None
        head = _head(request, self._reported, max_tokens=max_tokens, thinking=thinking, effort=effort)
        turns = self._turns(request, round_start, with_thinking=with_thinking)
        return b"".join((_encode(head)[:-1], b',"messages":[', turns, b"]}"))

    def _turns(self, request: ChatRequest, round_start: int, *, with_thinking: bool) -> bytes:
        session, messages, pictures = request.session, request.context.messages, request.pictures
        known, encoded = self._cache.take(session, messages)
        turns = list(turns_of(messages[known:]))
        if known and (
            len(turns) < _UNSETTLED or _continues_turn(messages, known)
        ):  # later messages are gone, as after a compaction
            known, encoded, turns = 0, bytearray(), list(turns_of(messages))
        settled = 0
        for turn in turns[:-_UNSETTLED]:
            if known + len(turn.messages) > round_start:
                break
            encoded += b"," * bool(encoded) + _encode(turn.wire(pictures, with_thinking=False))
            known += len(turn.messages)
            settled += 1
        self._cache.put(session, messages[:known], encoded)
        wire = [turn.wire(pictures, with_thinking=with_thinking) for turn in turns[settled:]]
        if not wire or wire[-1]["role"] == "assistant":
            wire.append(_user_message(_GO_ON))
        for user_turn in [each for each in wire if each["role"] == "user"][-_MARKED:]:
            user_turn["content"][-1]["cache_control"] = _MARK
        opening = [_encode(_user_message(_BEFORE))] if messages and _has_content(messages[0]) else []
        return b",".join([*opening, *([bytes(encoded)] if encoded else []), *map(_encode, wire)])


def _head(
    request: ChatRequest,
    reported: Mapping[str, ReportedLimits],
    *,
    max_tokens: int | None,
    thinking: Json | None,
    effort: str | None,
) -> Json:
    context = request.context
    parameters = {name: value for name, value in context.parameters.items() if value is not None}
    head: Json = {
        "model": request.model,
        "stream": True,
        "max_tokens": max_reply_tokens(request.model, parameters.pop("max_tokens", max_tokens), reported),
    }
    head |= _sampling(request.model, parameters, thinks=bool(thinking and thinking.get("type") != "disabled"))
    if thinking:
        head["thinking"] = thinking
    output: Json = {"effort": effort} if effort else {}
    if (form := request.options.response_format) is not None:
        if form.schema is None:
            raise BadRequest("Anthropic's models can be required to answer in JSON only with a schema.")
        output["format"] = {"type": "json_schema", "schema": form.schema}
    if output:
        head["output_config"] = output
    if context.instructions.strip():
        head["system"] = [{"type": "text", "text": context.instructions, "cache_control": _MARK}]
    return head | _tools(context) | _choice(request.options)


def _sampling(model: str, parameters: Json, *, thinks: bool) -> Json:
    """Return the parameters in the form that the model accepts. They are configured for all models, so unknown ones are
    dropped. The highest temperature is 1, and `top_p` is not allowed beside it."""
    parameters = {_NAMES.get(name, name): value for name, value in parameters.items() if name not in _UNSUPPORTED}
    temperature, top_p = parameters.pop("temperature", None), parameters.pop("top_p", None)
    if thinks or not accepts_sampling(model):
        return parameters
    if temperature is not None:
        return parameters | {"temperature": min(temperature, 1.0)}
    return parameters if top_p is None else parameters | {"top_p": top_p}


def _choice(request_options: RequestOptions) -> Json:
    if not request_options.require_tool and not request_options.single_tool_call:
        return {}
    kind: Json = (
        {"type": "tool", "name": request_options.tool}
        if request_options.tool
        else {"type": "any" if request_options.require_tool else "auto"}
    )
    return {"tool_choice": kind | ({"disable_parallel_tool_use": True} if request_options.single_tool_call else {})}


def _tools(context: Context) -> Json:
    tools: list[Json] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in context.tools
    ]
    if tools:
        tools[-1]["cache_control"] = _MARK
        return {"tools": tools}
    if any(isinstance(message, ToolMessage) for message in context.messages):
        return {"tools": [_FORMER], "tool_choice": {"type": "none"}}
    return {}


class Turn(msgspec.Struct):
    """Consecutive messages of one side, which are one message to the service."""

    role: Literal["user", "assistant"]
    messages: list[Message]

    def wire(self, pictures: Mapping[str, bytes], *, with_thinking: bool) -> Json:
        """Return the turn as one message with at least one block."""
        blocks = [block for message in self.messages for block in _blocks(message, pictures, with_thinking=with_thinking)]
        return {"role": self.role, "content": blocks or [_text(_EMPTY)]}


def turns_of(messages: Iterable[Message]) -> Iterator[Turn]:
    """Group the messages into turns. An empty reply joins the user's turn."""
    turn: Turn | None = None
    for message in messages:
        role: Literal["user", "assistant"] = "assistant" if _has_content(message) else "user"
        if turn and (turn.role == role or (isinstance(message, AssistantMessage) and not _has_content(message))):
            turn.messages.append(message)
            continue
        if turn:
            yield turn
        turn = Turn(role, [message])
    if turn:
        yield turn


def _continues_turn(messages: Sequence[Message], index: int) -> bool:
    """Return True if the message belongs to the turn of the one before it."""
    start = index - 1
    while start > 0 and isinstance(messages[start], AssistantMessage) and not _has_content(messages[start]):
        start -= 1
    return len(list(turns_of(messages[start : index + 1]))) == 1


def tool_round_start(messages: Sequence[Message]) -> int:
    """Return the index at which the unfinished tool round starts: the first of the last replies that all call tools; the
    number of messages if the last reply calls none."""
    start = len(messages)
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, AssistantMessage):
            if not message.calls:
                break
            start = index
    return start


def has_thinking(messages: Sequence[Message]) -> bool:
    """Return True if these messages are sent with thinking."""
    return any(isinstance(m, AssistantMessage) and decode_steps(m) for m in messages[tool_round_start(messages) :])


def _has_content(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and bool(message.calls or message.text.strip())


def _blocks(message: Message, pictures: Mapping[str, bytes], *, with_thinking: bool) -> Iterator[Json]:
    match message:
        case UserMessage():
            for picture, base64 in available_images(message, pictures):
                source = {"type": "base64", "media_type": picture.media, "data": json_string(base64)}
                yield {"type": "image", "source": source}
            if message.text.strip():
                yield _text(message.text)
        case ToolMessage():
            yield _result(message)
        case AssistantMessage():
            yield from _answer(message, with_thinking=with_thinking)


def _answer(message: AssistantMessage, *, with_thinking: bool) -> Iterator[Json]:
    """Yield the parts of a reply in their original order, as far as it is known."""
    position, calls = 0, iter(message.calls)
    for step in decode_steps(message) or (len(message.text), *("call" for _ in message.calls)):
        if isinstance(step, int):
            text = message.text[position : position + step]
            position += step
            if text.strip():
                yield _text(text)
        elif isinstance(step, dict):
            if with_thinking:
                yield step
        else:
            yield _call(next(calls))


def _user_message(text: str) -> Json:
    return {"role": "user", "content": [_text(text)]}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _call(call: ToolCall) -> Json:
    name = accepted_name(call.tool, max_length=128)
    return {"type": "tool_use", "id": call.id, "name": name, "input": as_object(call.arguments)}


def _result(message: ToolMessage) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": message.id}
    text = message.text if message.text.strip() else _FAILED if message.failed else ""
    if text:
        block["content"] = text
    if message.failed:
        block["is_error"] = True
    return block
