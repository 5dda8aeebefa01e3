"""Converts a request body to a context and options that any provider takes.

A provider receives instructions, then messages. So all `system` and `developer` messages, wherever they are, become
instructions, in their order; the text parts of a user's message are joined, and its pictures precede them.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec

from gateway.http.openai import schema as forms
from gateway.http.openai.api_errors import bad_request
from gateway.http.openai.schema import ChatBody
from plugins.api.chat import RequestOptions, ResponseFormat
from sessions.events.file_types import detect_picture
from sessions.events.messages import (
    AssistantMessage,
    Attachment,
    Message,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from sessions.state.context import Context, is_paired

_DATA, _BASE64 = "data:", ";base64,"


class ParsedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a provider. `model` is the name that the client used; `pictures` holds the base64 of each by its
    SHA-256; `stops` are the stop sequences."""

    model: str
    context: Context
    pictures: Mapping[str, bytes]
    options: RequestOptions
    stops: Sequence[str]


def parse_request(body: ChatBody) -> ParsedRequest:
    """Convert a body. It decodes pictures, so run it in a thread if the body is large.

    Raises:
        ApiError: The request is invalid or unsupported.
    """
    forms.refuse_unsupported(body)
    pictures = ImageUrls()
    messages = _messages(body.messages, pictures)
    check_pairs(messages)
    context = Context(
        instructions="\n\n".join(
            _joined(each.content) for each in body.messages if isinstance(each, forms.SystemMessage | forms.DeveloperMessage)
        ),
        tools=_tools(body),
        parameters=_parameters(body),
        messages=messages,
    )
    return ParsedRequest(
        model=body.model,
        context=context,
        pictures=pictures.base64,
        options=_request_options(body, context.tools),
        stops=_stops(body),
    )


# --- messages ---------------------------------------------------------------------------------------------------------


def _messages(bodies: Sequence[forms.MessageBody], pictures: ImageUrls) -> list[Message]:
    messages: list[Message] = []
    called: dict[str, str] = {}
    for number, each in enumerate(bodies):
        place = f"messages[{number}]"
        match each:
            case forms.UserMessageBody():
                messages.append(user_message(each, pictures, place))
            case forms.AssistantMessageBody():
                called |= {call.id: call.function.name for call in each.tool_calls or ()}
                messages.append(_assistant(each, place))
            case forms.ToolMessageBody():
                tool = called.get(each.tool_call_id, "")
                messages.append(ToolMessage(id=each.tool_call_id, tool=tool, text=_joined(each.content)))
            case forms.SystemMessage() | forms.DeveloperMessage():
                pass
    if not messages:
        raise bad_request("messages: send at least one user message.", "messages")
    return messages


def user_message(body: forms.UserMessageBody, pictures: ImageUrls, place: str) -> UserMessage:
    """Return a user's message and add its pictures to `pictures`; `place` names it in errors."""
    if isinstance(body.content, str):
        return UserMessage(text=body.content)
    texts, attached = [], []
    for number, part in enumerate(body.content):
        where = f"{place}.content[{number}]"
        match part:
            case forms.TextPart():
                texts.append(part.text)
            case forms.ImagePart():
                attached.append(pictures.add(part.image_url.url, f"{where}.image_url.url"))
            case forms.AudioPart() | forms.FilePart():
                raise bad_request(f"{where}: only text and pictures are supported.", where)
    return UserMessage(text="\n".join(texts), attachments=tuple(attached))


def _assistant(body: forms.AssistantMessageBody, place: str) -> AssistantMessage:
    calls = tuple(
        ToolCall(id=call.id, tool=call.function.name, arguments=call.function.arguments) for call in body.tool_calls or ()
    )
    text = _joined(body.content) or body.refusal or ""
    if body.content is None and not text and not calls:
        raise bad_request(f"{place}: an assistant message needs content or tool_calls.", place)
    return AssistantMessage(text=text, calls=calls)


def _joined(content: str | Sequence[forms.TextPart | forms.RefusalPart] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text if isinstance(part, forms.TextPart) else part.refusal for part in content)


def check_pairs(messages: Sequence[Message]) -> None:
    """Raise ApiError, as OpenAI does, unless each call is followed by exactly one result."""
    if is_paired(messages):
        return
    owed: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.id not in owed:
                raise bad_request(
                    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.", "messages"
                )
            owed.discard(message.id)
        elif owed:
            break
        elif isinstance(message, AssistantMessage):
            owed = {call.id for call in message.calls}
    missing = ", ".join(sorted(owed))[:200]
    raise bad_request(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id', which"
        f" must differ. These have no response: {missing}.",
        "messages",
    )


# --- tools and options ------------------------------------------------------------------------------------------------


def _tools(body: ChatBody) -> tuple[ToolDefinition, ...]:
    """Return the client's tools; none if `tool_choice` is `none`."""
    tools = [each.function for each in body.tools or ()]
    if body.tool_choice == "none":
        return ()
    check_depth(tool.parameters for tool in tools)
    nothing: dict[str, Any] = {"type": "object", "properties": {}}
    return tuple(
        ToolDefinition(name=tool.name, description=tool.description or "", parameters=tool.parameters or nothing)
        for tool in tools
    )


def _request_options(body: ChatBody, tools: Sequence[ToolDefinition]) -> RequestOptions:
    choice = body.tool_choice
    name = choice.function.name if isinstance(choice, forms.NamedTool) else None
    if (name or choice == "required") and name not in {None, *(tool.name for tool in tools)}:
        raise bad_request(f"tool_choice names {name}, which is none of the tools.", "tool_choice")
    if choice is not None and choice != "none" and not tools:
        raise bad_request("tool_choice is only allowed when tools are specified.", "tool_choice")
    return RequestOptions(
        require_tool=name is not None or choice == "required",
        tool=name,
        single_tool_call=bool(tools) and body.parallel_tool_calls is False,
        response_format=_form(body),
    )


def _form(body: ChatBody) -> ResponseFormat | None:
    match body.response_format:
        case forms.ObjectForm():
            return ResponseFormat()
        case forms.SchemaForm(json_schema=wanted):
            check_depth([wanted.schema])
            description = wanted.description or ""
            return ResponseFormat(name=wanted.name, schema=wanted.schema, description=description, strict=wanted.strict)
        case _:
            return None


def check_depth(schemas: Iterable[Mapping[str, Any] | None]) -> None:
    """Raise ApiError if a schema is nested too deeply."""
    if any(forms.is_too_deep(schema) for schema in schemas):
        raise bad_request(f"A schema is nested more than {forms.DEEPEST} levels deep.")


def _stops(body: ChatBody) -> list[str]:
    return [body.stop] if isinstance(body.stop, str) else body.stop or []


_SAMPLING: tuple[Literal["temperature", "top_p", "seed", "presence_penalty", "frequency_penalty"], ...] = (
    "temperature",
    "top_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
)


def _parameters(body: ChatBody) -> dict[str, Any]:
    """Return the sampling options under the names of `ChatRequest`."""
    limit = body.max_completion_tokens or body.max_tokens
    given = {name: getattr(body, name) for name in _SAMPLING} | {"max_tokens": limit, "stop": _stops(body) or None}
    return {name: value for name, value in given.items() if value is not None}


# --- pictures -----------------------------------------------------------------------------------------------------------


class ImageUrls:
    """The pictures of one request. `content` holds the bytes of each by its SHA-256.

    Only `data:` URLs are accepted. A request often contains third-party text, and a gateway that fetches any URL would
    explore its own network for whoever wrote it.
    """

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def add(self, url: str, place: str) -> Attachment:
        """Return the picture of a URL; `place` names it in errors.

        Raises:
            ApiError: The URL is not a `data:` URL with a picture of a known format.
        """
        content = _bytes_of(url, place)
        picture = detect_picture(content)
        if picture is None:
            raise bad_request(f"{place}: this is not a complete PNG, JPEG, GIF or WebP.", place, "invalid_image")
        digest = sha256(content).hexdigest()
        self.content[digest] = content
        return Attachment(sha256=digest, media=picture.media, bytes=len(content), width=picture.width, height=picture.height)

    @property
    def base64(self) -> dict[str, bytes]:
        """The base64 of each picture by its SHA-256."""
        return {digest: b64encode(content) for digest, content in self.content.items()}


def _bytes_of(url: str, place: str) -> bytes:
    if url[: len(_DATA)].lower() != _DATA:
        raise bad_request(
            f"{place}: pictures are not fetched; send the picture itself as a base64 `data:` URL.",
            place,
            "invalid_image_url",
        )
    _, mark, encoded = url.partition(_BASE64)
    try:
        return b64decode(encoded, validate=True) if mark else b""
    except (binascii.Error, ValueError):
        raise bad_request(f"{place}: the URL is not valid base64.", place, "invalid_image_url") from None
