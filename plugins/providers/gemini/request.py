"""A context as the body of a request to Google's Gemini API.

After the API's reference (`models.streamGenerateContent`, `Content`, `FunctionCall`) and its pages on function calling and
thought signatures. Roles alternate, a person speaks first and last, the results of a reply's calls stand together right
behind it, no part is empty, and what the model signed comes back on the part that it was signed on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from plugins.api.chat import ChatRequest, RequestOptions
from plugins.providers.gemini.signatures import Signature, read_seals
from plugins.providers.hosted.encoding_cache import EncodingCache
from plugins.providers.hosted.images import quoted, sent_with
from plugins.providers.hosted.tool_names import taken_name
from plugins.support.lenient_json import as_object
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from sessions.state.context import Context

_encode = msgspec.json.Encoder().encode

Json: TypeAlias = dict[str, Any]

UNSIGNED = "skip_thought_signature_validator"
"""What Google's page on thought signatures says to send with a call that none of its models made."""

BEGAN = "(The conversation began earlier.)"
GO_ON = "(Go on.)"
NO_TEXT = "(No text.)"
"""What a person is made to say where the vendor demands that one speaks, and none did."""

_NAMES = {
    "max_tokens": "maxOutputTokens",
    "top_p": "topP",
    "top_k": "topK",
    "stop": "stopSequences",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
_SIGN_NOTHING = ("gemini-1.", "gemini-2.", "gemma")
"""Models, by the beginning of their name, that demand no signature. Every later one does."""


class Encoder:
    """Encodes requests. Of each session's last one the messages are kept as bytes: only what is new is encoded."""

    def __init__(self, remembered: EncodingCache | None = None) -> None:
        self._remembered = remembered or EncodingCache()

    def body(self, request: ChatRequest, *, max_tokens: int | None) -> bytes:
        """The JSON body. `max_tokens` bounds the answer where the context's parameters do not."""
        signs = not request.model.removeprefix("models/").startswith(_SIGN_NOTHING)
        messages = request.context.messages
        session = f"{request.session} {signs}"  # a model of another kind is sent other bytes
        known, joined = self._remembered.take(session, messages)
        last = _grow(joined, messages, known, request.pictures, signs=signs)
        self._remembered.keep(session, messages, joined)
        end = b"" if last in (UserMessage, ToolMessage) else b"," * bool(joined) + _said(GO_ON)
        head = _encode(_head(request.context, request.options, max_tokens))[:-1]
        return b"".join((head, b"," * (head != b"{"), b'"contents":[', joined, end, b"]}"))


def _head(context: Context, request_options: RequestOptions, max_tokens: int | None) -> Json:
    """What stands before the contents. Of several calls at once the service has no word."""
    options = {_NAMES.get(name, name): value for name, value in context.parameters.items() if value is not None}
    if max_tokens is not None:
        options.setdefault("maxOutputTokens", max_tokens)
    if request_options.response_format is not None:
        options["responseMimeType"] = "application/json"
        if request_options.response_format.schema is not None:
            options["responseJsonSchema"] = request_options.response_format.schema
    head: Json = {"generationConfig": options} if options else {}
    if context.instructions:
        head["systemInstruction"] = {"parts": [{"text": context.instructions}]}
    if context.tools:
        declared = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
            for tool in context.tools
        ]
        head["tools"] = [{"functionDeclarations": declared}]
    if request_options.require_tool:
        named = {"allowedFunctionNames": [request_options.tool]} if request_options.tool else {}
        head["toolConfig"] = {"functionCallingConfig": {"mode": "ANY", **named}}
    return head


def _grow(
    joined: bytearray, messages: Sequence[Message], known: int, pictures: Mapping[str, bytes], *, signs: bool
) -> type[Message] | None:
    """Append the messages from the known-th on, as `contents` joined by commas; the kind of the last one is returned.
    `signs`: the model refuses a call without a signature."""
    last, ids = _standing(messages, known)
    for index in range(known, len(messages)):
        message = messages[index]
        match message:
            case UserMessage():
                parts = _person_parts(message, pictures)
            case AssistantMessage():
                seals = read_seals(message)
                parts = _model_parts(message, seals, signs=signs)
                ids = _ids(message.calls, seals)
            case ToolMessage():
                parts = [_result(message, ids.get(message.id, message.id))]
        if not parts:
            continue
        if type(message) is last:
            joined[-2:] = b"," + _encode(parts)[1:-1] + b"]}"  # the same one goes on speaking
            continue
        last = type(message)
        role = b"model" if last is AssistantMessage else b"user"
        if not joined and role == b"model":
            joined += _said(BEGAN)
        joined += b"," * bool(joined) + b'{"role":"%s","parts":%s}' % (role, _encode(parts))
    return last


def _standing(messages: Sequence[Message], known: int) -> tuple[type[Message] | None, dict[str, str]]:
    """The kind of the last of the known messages that was written, and the vendor's ids of the last reply's calls."""
    last: type[Message] | None = None
    for index in range(known - 1, -1, -1):
        message = messages[index]
        if isinstance(message, AssistantMessage):
            seals = read_seals(message)
            if message.text or message.calls or seals:
                return last or AssistantMessage, _ids(message.calls, seals)
        else:
            last = last or type(message)
    return last, {}


def _said(text: str) -> bytes:
    return b'{"role":"user","parts":[%s]}' % _encode({"text": text})


def _person_parts(message: UserMessage, pictures: Mapping[str, bytes]) -> list[Json]:
    """What a person said, pictures first, and never nothing."""
    parts: list[Json] = [
        {"inlineData": {"mimeType": picture.media, "data": quoted(base64)}}
        for picture, base64 in sent_with(message, pictures)
    ]
    return [*parts, {"text": message.text or NO_TEXT}] if message.text or not parts else parts


def _model_parts(message: AssistantMessage, seals: tuple[Signature, ...], *, signs: bool) -> list[Json]:
    """The parts of a reply as they came, or, where another provider gave it, its text and its calls."""
    if not seals:
        plain = (Signature(size=len(message.text)),) if message.text else ()
        seals = (*plain, *(Signature(id=call.id) for call in message.calls))
    parts: list[Json] = []
    calls, start = iter(message.calls), 0
    owed = signs
    for seal in seals:
        if seal.size is None:
            part: Json = {"functionCall": _call(next(calls), seal.id)}
            signature = seal.signature or (UNSIGNED if owed else "")
            owed = False  # of calls that were made together only the first is signed
        else:
            part = {"text": message.text[start : start + seal.size]}
            start += seal.size
            signature = seal.signature
        parts.append(part | {"thoughtSignature": signature} if signature else part)
    return parts


def _ids(calls: tuple[ToolCall, ...], seals: tuple[Signature, ...]) -> dict[str, str]:
    """The vendor's ids of calls by our own, where it gave one."""
    given = (seal.id for seal in seals if seal.size is None)
    return {call.id: id_ for call, id_ in zip(calls, given, strict=False) if id_}


def _call(call: ToolCall, id_: str) -> Json:
    return {"id": id_ or call.id, "name": taken_name(call.tool, longest=128, also=".:"), "args": as_object(call.arguments)}


def _result(message: ToolMessage, id_: str) -> Json:
    response = {"error" if message.failed else "output": message.text}
    return {"functionResponse": {"id": id_, "name": taken_name(message.tool, longest=128, also=".:"), "response": response}}
