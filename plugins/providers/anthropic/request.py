"""A context as the body of a request to Anthropic's Messages API (`POST /v1/messages`).

After its API reference and the pages on tool use, extended and preserved thinking, and prompt caching. The service wants
turns of person and model that begin and end with the person, every result in the one message behind its call, no empty
text, and tools wherever calls stand. Thoughts are demanded back while the model goes on with its tools, and they are bound
to everything before them; older ones are left out, so that pruning and compaction cannot invalidate them.

What stays the same from one request to the next is marked for the service's cache: the tools, the instructions, and the
last two turns of the person. The first of the two is where the request before had its mark, and the service looks back
from a mark by twenty blocks only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from plugins.api.chat import ChatRequest, RequestOptions
from plugins.api.models import ReportedLimits
from plugins.providers.anthropic.reasoning import steps_of
from plugins.providers.hosted.encoding_cache import EncodingCache
from plugins.providers.hosted.images import quoted, sent_with
from plugins.providers.hosted.model_limits import known_limits, longest
from plugins.providers.hosted.tool_names import taken_name
from plugins.support.errors import BadRequest
from plugins.support.lenient_json import as_object
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from sessions.state.context import Context

Json: TypeAlias = dict[str, Any]

_encode = msgspec.json.Encoder().encode

_MARK = {"type": "ephemeral"}

_MARKED = 2
"""Turns of the person that are marked; the service allows four marks in all."""

_LOOSE = 3
"""Turns at the end that are encoded anew: they may still grow, and their marks move on."""

_NAMES = {"stop": "stop_sequences"}

_UNKNOWN = frozenset({"seed", "presence_penalty", "frequency_penalty"})
"""Parameters that the service calls otherwise, and those that it does not have."""

_BEFORE = "(The conversation begins with your words.)"

_EMPTY = "(An empty message.)"

_GO_ON = "Go on."

_FAILED = "The tool failed and said nothing."

_FORMER = {"name": "former", "description": "Is not offered any more.", "input_schema": {"type": "object"}}
"""Stands for tools that were called and are gone."""

_SAMPLED = {
    "claude-3": True,
    "claude-haiku-4": True,
    "claude-opus-4": True,
    "claude-opus-4-7": False,
    "claude-opus-4-8": False,
    "claude-sonnet-4": True,
}
"""Which still take `temperature` and `top_p`, by the beginning of the name, from Anthropic's model pages: newer ones refuse
a request that sets them."""

_ANSWER = 8_192
"""Tokens of an answer where nothing is known of the model; the service demands a number."""


def takes_sampling(name: str) -> bool:
    """Whether a model takes `temperature` and `top_p`. One of Anthropic's that is too new for the list does not."""
    sampled = longest(_SAMPLED, name)
    return not name.startswith("claude-") if sampled is None else sampled


def answer_limit(name: str, wanted: int | None, told: Mapping[str, ReportedLimits] | None = None) -> int:
    """How many tokens an answer may have: as many as wanted and possible. By default a twelfth of the window, because
    older models count these tokens as part of the conversation and refuse one that leaves no room for them. `told` is what
    the service said of its models."""
    limits = known_limits("anthropic", name, told)
    if limits.window is None or limits.output is None:
        return wanted or _ANSWER
    return min(wanted or limits.window // 12, limits.output)


class Encoder:
    """Encodes requests. Of each session's last one all but the end is kept as bytes: only what is new is encoded. `told` is
    what the service said of its models."""

    def __init__(self, remembered: EncodingCache | None = None, told: Mapping[str, ReportedLimits] | None = None) -> None:
        self._remembered = remembered or EncodingCache()
        self._told = told or {}

    def body(
        self,
        request: ChatRequest,
        *,
        max_tokens: int | None = None,
        thinking: Json | None = None,
        effort: str | None = None,
        thoughts: bool = True,
    ) -> bytes:
        """The JSON body of a streaming request. `thinking` and `effort` are as the service has them; `thoughts` says
        whether thoughts are sent back at all."""
        messages = request.context.messages
        going_on = open_round(messages)
        if thinking and thinking.get("type") == "enabled" and going_on < len(messages):
            # In this mode each answer of a round must begin with thoughts, which other providers' do not.
            thoughts = thoughts and all(steps_of(m) for m in messages[going_on:] if isinstance(m, AssistantMessage))
            thinking = thinking if thoughts else None
        head = _head(request, self._told, max_tokens=max_tokens, thinking=thinking, effort=effort)
        turns = self._turns(request, going_on, thoughts=thoughts)
        return b"".join((_encode(head)[:-1], b',"messages":[', turns, b"]}"))

    def _turns(self, request: ChatRequest, going_on: int, *, thoughts: bool) -> bytes:
        session, messages, pictures = request.session, request.context.messages, request.pictures
        known, encoded = self._remembered.take(session, messages)
        turns = list(turns_of(messages[known:]))
        if known and (len(turns) < _LOOSE or _joined(messages, known)):  # what followed is gone, as after a compaction
            known, encoded, turns = 0, bytearray(), list(turns_of(messages))
        settled = 0
        for turn in turns[:-_LOOSE]:
            if known + len(turn.messages) > going_on:
                break
            encoded += b"," * bool(encoded) + _encode(turn.wire(pictures, thoughts=False))
            known += len(turn.messages)
            settled += 1
        self._remembered.keep(session, messages[:known], encoded)
        end = [turn.wire(pictures, thoughts=thoughts) for turn in turns[settled:]]
        if not end or end[-1]["role"] == "assistant":
            end.append(_said(_GO_ON))
        for turn_ in [turn_ for turn_ in end if turn_["role"] == "user"][-_MARKED:]:
            turn_["content"][-1]["cache_control"] = _MARK
        begins = [_encode(_said(_BEFORE))] if messages and _speaks(messages[0]) else []
        return b",".join([*begins, *([bytes(encoded)] if encoded else []), *map(_encode, end)])


def _head(
    request: ChatRequest,
    told: Mapping[str, ReportedLimits],
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
        "max_tokens": answer_limit(request.model, parameters.pop("max_tokens", max_tokens), told),
    }
    head |= _sampling(request.model, parameters, thinks=bool(thinking and thinking.get("type") != "disabled"))
    if thinking:
        head["thinking"] = thinking
    output: Json = {"effort": effort} if effort else {}
    if (form := request.options.response_format) is not None:
        if form.schema is None:
            raise BadRequest("Anthropic's models answer in JSON where they are given a schema, and not without one.")
        output["format"] = {"type": "json_schema", "schema": form.schema}
    if output:
        head["output_config"] = output
    if context.instructions.strip():
        head["system"] = [{"type": "text", "text": context.instructions, "cache_control": _MARK}]
    return head | _tools(context) | _choice(request.options)


def _sampling(model: str, parameters: Json, *, thinks: bool) -> Json:
    """The parameters as the model takes them. They are configured for all models: what one does not know must not close
    it. Temperatures end at 1 here, and where there is one there may be no `top_p`."""
    parameters = {_NAMES.get(name, name): value for name, value in parameters.items() if name not in _UNKNOWN}
    temperature, top_p = parameters.pop("temperature", None), parameters.pop("top_p", None)
    if thinks or not takes_sampling(model):
        return parameters
    if temperature is not None:
        return parameters | {"temperature": min(temperature, 1.0)}
    return parameters if top_p is None else parameters | {"top_p": top_p}


def _choice(request_options: RequestOptions) -> Json:
    """Which tool is to be called, and how many at once."""
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
    """Messages of one side that follow each other, and are one message to the service."""

    role: Literal["user", "assistant"]
    messages: list[Message]

    def wire(self, pictures: Mapping[str, bytes], *, thoughts: bool) -> Json:
        """The turn as one message with blocks, never without any."""
        blocks = [block for message in self.messages for block in _blocks(message, pictures, thoughts=thoughts)]
        return {"role": self.role, "content": blocks or [_text(_EMPTY)]}


def turns_of(messages: Iterable[Message]) -> Iterator[Turn]:
    """The messages by turns. An answer in which nothing was said joins the person's."""
    turn: Turn | None = None
    for message in messages:
        role: Literal["user", "assistant"] = "assistant" if _speaks(message) else "user"
        if turn and (turn.role == role or (isinstance(message, AssistantMessage) and not _speaks(message))):
            turn.messages.append(message)
            continue
        if turn:
            yield turn
        turn = Turn(role, [message])
    if turn:
        yield turn


def _joined(messages: Sequence[Message], index: int) -> bool:
    """Whether the message belongs to the turn of the one before it."""
    begins = index - 1
    while begins > 0 and isinstance(messages[begins], AssistantMessage) and not _speaks(messages[begins]):
        begins -= 1
    return len(list(turns_of(messages[begins : index + 1]))) == 1


def open_round(messages: Sequence[Message]) -> int:
    """Where the model began what it has not ended: the index of the first of the last answers that all called tools; the
    number of messages if the last answer called none."""
    begins = len(messages)
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, AssistantMessage):
            if not message.calls:
                break
            begins = index
    return begins


def has_thoughts(messages: Sequence[Message]) -> bool:
    """Whether thoughts of ours would be sent back with these messages."""
    return any(isinstance(m, AssistantMessage) and steps_of(m) for m in messages[open_round(messages) :])


def _speaks(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and bool(message.calls or message.text.strip())


def _blocks(message: Message, pictures: Mapping[str, bytes], *, thoughts: bool) -> Iterator[Json]:
    match message:
        case UserMessage():
            for picture, base64 in sent_with(message, pictures):
                source = {"type": "base64", "media_type": picture.media, "data": quoted(base64)}
                yield {"type": "image", "source": source}
            if message.text.strip():
                yield _text(message.text)
        case ToolMessage():
            yield _result(message)
        case AssistantMessage():
            yield from _answer(message, thoughts=thoughts)


def _answer(message: AssistantMessage, *, thoughts: bool) -> Iterator[Json]:
    """The parts of an answer in the order in which they came, as far as it is known."""
    position, calls = 0, iter(message.calls)
    for step in steps_of(message) or (len(message.text), *("call" for _ in message.calls)):
        if isinstance(step, int):
            text = message.text[position : position + step]
            position += step
            if text.strip():
                yield _text(text)
        elif isinstance(step, dict):
            if thoughts:
                yield step
        else:
            yield _call(next(calls))


def _said(text: str) -> Json:
    return {"role": "user", "content": [_text(text)]}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _call(call: ToolCall) -> Json:
    name = taken_name(call.tool, longest=128)
    return {"type": "tool_use", "id": call.id, "name": name, "input": as_object(call.arguments)}


def _result(message: ToolMessage) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": message.id}
    text = message.text if message.text.strip() else _FAILED if message.failed else ""
    if text:
        block["content"] = text
    if message.failed:
        block["is_error"] = True
    return block
