"""A context as the body of a request to Google's Gemini API.

Sources: the API's reference (`models.streamGenerateContent`, `Content`, `FunctionCall`) and its pages on function calling
and thought signatures. Roles alternate, the user is first and last, the results of a reply's calls are together right after
it, no part is empty, and a signature is sent back on the part that it was received on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from plugins.api.chat import SHOWN_PURPOSES, ChatRequest
from plugins.providers.gemini.reply import SignedPart, decode_signatures
from plugins.providers.hosted.encoding import EncodingCache, accepted_name
from plugins.providers.hosted.images import available_images, json_string
from plugins.support.lenient_json import as_object
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

_encode = msgspec.json.Encoder().encode

Json: TypeAlias = dict[str, Any]

UNSIGNED = "skip_thought_signature_validator"
"""The signature of calls that were not made by a Gemini model, according to Google's page on thought signatures."""

EARLIER = "(The conversation began earlier.)"
GO_ON = "(Go on.)"
NO_TEXT = "(No text.)"
"""The user's text where the API requires some and there is none."""

_NAMES = {
    "max_tokens": "maxOutputTokens",
    "top_p": "topP",
    "top_k": "topK",
    "stop": "stopSequences",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
BUDGETS = {"none": 0, "low": 1_024, "medium": 8_192, "high": 24_576}
"""The tokens of thinking for each level, from Google's page on compatibility with OpenAI's API."""
_UNSIGNED_MODELS = ("gemini-1.", "gemini-2.", "gemma")
"""The prefixes of models that require no signatures. All later ones do."""

_WITHOUT_THOUGHTS = ("gemini-1.", "gemini-2.0", "gemma")
"""The prefixes of models that do not think."""


class Encoder:
    """An encoder of requests. The messages of each session's last request are kept as bytes; only new ones are encoded."""

    def __init__(self, cache: EncodingCache | None = None) -> None:
        self._cache = cache or EncodingCache()

    def body(
        self, request: ChatRequest, *, max_tokens: int | None, effort: str | None = None, with_thoughts: bool = True
    ) -> bytes:
        """Return the JSON body. `max_tokens` limits the reply if the context's parameters do not; `effort` is a level that
        the model has; without `with_thoughts` no summaries of the model's thoughts are requested."""
        name = request.model.removeprefix("models/")
        requires_signatures = not name.startswith(_UNSIGNED_MODELS)
        thinks = not name.startswith(_WITHOUT_THOUGHTS) and effort != "none"
        with_thoughts = with_thoughts and thinks and request.purpose in SHOWN_PURPOSES
        messages = request.context.messages
        session = f"{request.session} {requires_signatures}"  # the bytes depend on it
        known, joined = self._cache.take(session, messages)
        last = _append_messages(joined, messages, known, request.pictures, requires_signatures=requires_signatures)
        self._cache.put(session, messages, joined)
        end = b"" if last in (UserMessage, ToolMessage) else b"," * bool(joined) + _user_content(GO_ON)
        head = _encode(_head(request, max_tokens, effort, with_thoughts=with_thoughts))[:-1]
        return b"".join((head, b"," * (head != b"{"), b'"contents":[', joined, end, b"]}"))


def _head(request: ChatRequest, max_tokens: int | None, effort: str | None, *, with_thoughts: bool) -> Json:
    """Return the fields before the contents. The API cannot limit a reply to a single call."""
    context, request_options = request.context, request.options
    given = {name: value for name, value in context.parameters.items() if value is not None and name != "effort"}
    options = {_NAMES.get(name, name): value for name, value in given.items()}
    if effort is not None:
        options["thinkingConfig"] = _thinking(request.model, effort)
    if max_tokens is not None:
        options.setdefault("maxOutputTokens", max_tokens)
    if with_thoughts:
        options["thinkingConfig"] = {"includeThoughts": True} | options.get("thinkingConfig", {})
    if request_options.response_format is not None:
        options["responseMimeType"] = "application/json"
        if request_options.response_format.schema is not None:
            options["responseJsonSchema"] = request_options.response_format.schema
    head: Json = {"generationConfig": options} if options else {}
    if context.instructions:
        head["systemInstruction"] = {"parts": [{"text": context.instructions}]}
    if context.tools:
        declarations = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
            for tool in context.tools
        ]
        head["tools"] = [{"functionDeclarations": declarations}]
    if request_options.require_tool:
        named = {"allowedFunctionNames": [request_options.tool]} if request_options.tool else {}
        head["toolConfig"] = {"functionCallingConfig": {"mode": "ANY", **named}}
    return head


def _thinking(model: str, effort: str) -> Json:
    """Return how much the model is to think: a level, or the budget in tokens that a level is for the models before 3."""
    if model.removeprefix("models/").startswith("gemini-2."):
        return {"thinkingBudget": BUDGETS[effort]}
    return {"thinkingLevel": effort}


def _append_messages(
    joined: bytearray, messages: Sequence[Message], known: int, pictures: Mapping[str, bytes], *, requires_signatures: bool
) -> type[Message] | None:
    """Append the messages from index `known` on, as `contents` joined by commas, and return the kind of the last one.
    `requires_signatures` is True if the model refuses calls without a signature."""
    last, ids = _state_at(messages, known)
    for index in range(known, len(messages)):
        message = messages[index]
        match message:
            case UserMessage():
                parts = _user_parts(message, pictures)
            case AssistantMessage():
                signed = decode_signatures(message)
                parts = _model_parts(message, signed, requires_signatures=requires_signatures)
                ids = _ids(message.calls, signed)
            case ToolMessage():
                parts = [_result(message, ids.get(message.id, message.id))]
        if not parts:
            continue
        if type(message) is last:
            joined[-2:] = b"," + _encode(parts)[1:-1] + b"]}"  # the same role continues
            continue
        last = type(message)
        role = b"model" if last is AssistantMessage else b"user"
        if not joined and role == b"model":
            joined += _user_content(EARLIER)
        joined += b"," * bool(joined) + b'{"role":"%s","parts":%s}' % (role, _encode(parts))
    return last


def _state_at(messages: Sequence[Message], known: int) -> tuple[type[Message] | None, dict[str, str]]:
    """Return the kind of the last known message that was encoded, and the vendor's ids of the last reply's calls."""
    last: type[Message] | None = None
    for index in range(known - 1, -1, -1):
        message = messages[index]
        if isinstance(message, AssistantMessage):
            signed = decode_signatures(message)
            if message.text or message.calls or signed:
                return last or AssistantMessage, _ids(message.calls, signed)
        else:
            last = last or type(message)
    return last, {}


def _user_content(text: str) -> bytes:
    return b'{"role":"user","parts":[%s]}' % _encode({"text": text})


def _user_parts(message: UserMessage, pictures: Mapping[str, bytes]) -> list[Json]:
    """Return the parts of a user's message, images first; never empty."""
    parts: list[Json] = [
        {"inlineData": {"mimeType": picture.media, "data": json_string(base64)}}
        for picture, base64 in available_images(message, pictures)
    ]
    return [*parts, {"text": message.text or NO_TEXT}] if message.text or not parts else parts


def _model_parts(message: AssistantMessage, signed: tuple[SignedPart, ...], *, requires_signatures: bool) -> list[Json]:
    """Return the parts of a reply as they were received, or, from another provider, its text and its calls."""
    if not signed:
        plain = (SignedPart(size=len(message.text)),) if message.text else ()
        signed = (*plain, *(SignedPart(id=call.id) for call in message.calls))
    parts: list[Json] = []
    calls, start = iter(message.calls), 0
    needs_signature = requires_signatures
    for part in signed:
        if part.size is None:
            wire: Json = {"functionCall": _call(next(calls), part.id)}
            signature = part.signature or (UNSIGNED if needs_signature else "")
            needs_signature = False  # only the first of parallel calls is signed
        else:
            wire = {"text": message.text[start : start + part.size]}
            start += part.size
            signature = part.signature
        parts.append(wire | {"thoughtSignature": signature} if signature else wire)
    return parts


def _ids(calls: tuple[ToolCall, ...], signed: tuple[SignedPart, ...]) -> dict[str, str]:
    """Map our ids of calls to the vendor's ids, where there are any."""
    given = (part.id for part in signed if part.size is None)
    return {call.id: id_ for call, id_ in zip(calls, given, strict=False) if id_}


def _call(call: ToolCall, id_: str) -> Json:
    return {
        "id": id_ or call.id,
        "name": accepted_name(call.tool, max_length=128, also=".:"),
        "args": as_object(call.arguments),
    }


def _result(message: ToolMessage, id_: str) -> Json:
    response = {"error" if message.failed else "output": message.text}
    return {
        "functionResponse": {"id": id_, "name": accepted_name(message.tool, max_length=128, also=".:"), "response": response}
    }
