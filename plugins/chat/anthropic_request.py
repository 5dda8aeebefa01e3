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

from plugins.chat.anthropic_models import answer_limit, takes_sampling
from plugins.chat.anthropic_thoughts import steps_of
from plugins.chat.loose_json import as_object
from plugins.chat.pictures import quoted, sent_with
from plugins.chat.remembered import Remembered
from plugins.chat.tool_names import taken_name
from plugins.contracts import ChatRequest, ToldLimits, Wishes
from plugins.errors import BadRequest
from sessions.context import Context
from sessions.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

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


class Encoder:
    """Encodes requests. Of each session's last one all but the end is kept as bytes: only what is new is encoded. `told` is
    what the service said of its models."""

    def __init__(self, remembered: Remembered | None = None, told: Mapping[str, ToldLimits] | None = None) -> None:
        self._remembered = remembered or Remembered()
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


# --- what stands before the messages ----------------------------------------------------------------------------------


def _head(
    request: ChatRequest,
    told: Mapping[str, ToldLimits],
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
    if (form := request.wishes.form) is not None:
        if form.schema is None:
            raise BadRequest("Anthropic's models answer in JSON where they are given a schema, and not without one.")
        output["format"] = {"type": "json_schema", "schema": form.schema}
    if output:
        head["output_config"] = output
    if context.instructions.strip():
        head["system"] = [{"type": "text", "text": context.instructions, "cache_control": _MARK}]
    return head | _tools(context) | _choice(request.wishes)


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


def _choice(wishes: Wishes) -> Json:
    """Which tool is to be called, and how many at once."""
    if not wishes.must_call and not wishes.one_call:
        return {}
    kind: Json = {"type": "tool", "name": wishes.tool} if wishes.tool else {"type": "any" if wishes.must_call else "auto"}
    return {"tool_choice": kind | ({"disable_parallel_tool_use": True} if wishes.one_call else {})}


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


# --- the messages -----------------------------------------------------------------------------------------------------


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
