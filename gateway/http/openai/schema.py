"""The schema of a chat completion request, after OpenAI's API reference."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from gateway.http.openai.api_errors import ApiError, bad_request

T = TypeVar("T")

Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]

# --- messages ---------------------------------------------------------------------------------------------------------


class _Part(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A part of a message's content."""


class TextPart(_Part, frozen=True, kw_only=True, tag="text"):
    text: str


class ImageAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The URL of a picture: a `data:` URL with its bytes."""

    url: str


class ImagePart(_Part, frozen=True, kw_only=True, tag="image_url"):
    image_url: ImageAddress


class RefusalPart(_Part, frozen=True, kw_only=True, tag="refusal"):
    refusal: str


class AudioPart(_Part, frozen=True, kw_only=True, tag="input_audio"):
    """An audio part; refused as unsupported."""


class FilePart(_Part, frozen=True, kw_only=True, tag="file"):
    """A file part; refused as unsupported."""


class _MessageBody(msgspec.Struct, frozen=True, kw_only=True, tag_field="role"):
    """A message; its tag is its `role`."""


class SystemMessage(_MessageBody, frozen=True, kw_only=True, tag="system"):
    content: str | list[TextPart]


class DeveloperMessage(_MessageBody, frozen=True, kw_only=True, tag="developer"):
    content: str | list[TextPart]


class UserMessageBody(_MessageBody, frozen=True, kw_only=True, tag="user"):
    content: str | list[TextPart | ImagePart | AudioPart | FilePart]


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a tool, and its arguments as JSON text."""

    name: Text
    arguments: str


class ToolCallBody(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of the model, as the client sends it back."""

    id: Text
    function: CalledFunction
    type: Literal["function"] = "function"


class AssistantMessageBody(_MessageBody, frozen=True, kw_only=True, tag="assistant"):
    content: str | list[TextPart | RefusalPart] | None = None
    refusal: str | None = None
    tool_calls: list[ToolCallBody] | None = None


class ToolMessageBody(_MessageBody, frozen=True, kw_only=True, tag="tool"):
    content: str | list[TextPart]
    tool_call_id: Text


MessageBody: TypeAlias = SystemMessage | DeveloperMessage | UserMessageBody | AssistantMessageBody | ToolMessageBody

# --- tools and options ------------------------------------------------------------------------------------------------

FunctionName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")]


_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_function_name(name: str) -> bool:
    """Return True if a tool may have this name."""
    return _FUNCTION_NAME.fullmatch(name) is not None


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A client's tool: `parameters` is the JSON Schema of an object."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ClientTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the model may call and the client runs."""

    function: Function
    type: Literal["function"] = "function"


class NamedFunction(msgspec.Struct, frozen=True, kw_only=True):
    """The function that must be called."""

    name: FunctionName


class NamedTool(msgspec.Struct, frozen=True, kw_only=True):
    """`tool_choice` with the name of a tool."""

    function: NamedFunction
    type: Literal["function"] = "function"


class _Form(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """`response_format`."""


class TextForm(_Form, frozen=True, kw_only=True, tag="text"):
    pass


class ObjectForm(_Form, frozen=True, kw_only=True, tag="json_object"):
    pass


class NamedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON Schema for the answer; `strict` is passed on to providers that support it."""

    name: FunctionName
    schema: dict[str, Any] = {}
    description: str | None = None
    strict: bool | None = None


class SchemaForm(_Form, frozen=True, kw_only=True, tag="json_schema"):
    json_schema: NamedSchema


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a stream: with `include_usage`, the last chunk has the token counts."""

    include_usage: bool | None = None


_Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
_Tokens = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]


class ChatBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a chat completion.

    Fields below `stream_options` are accepted and ignored, or refused if they would change the answer (see
    `refuse_unsupported`).
    """

    model: Name
    messages: Annotated[list[MessageBody], msgspec.Meta(min_length=1)]
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    stop: Text | Annotated[list[Text], msgspec.Meta(max_length=4)] | None = None
    seed: int | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    tools: Annotated[list[ClientTool], msgspec.Meta(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: TextForm | ObjectForm | SchemaForm | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, float] | None = None
    modalities: list[str] | None = None
    audio: Any = None
    functions: Any = None
    function_call: Any = None
    web_search_options: Any = None
    metadata: Any = None
    moderation: Any = None
    prediction: Any = None
    prompt_cache_key: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None
    reasoning_effort: Any = None
    safety_identifier: Any = None
    service_tier: Any = None
    store: Any = None
    user: Any = None
    verbosity: Any = None


def refuse_unsupported(body: ChatBody) -> None:
    """Check that a body has no option that would change the answer and is not supported.

    Raises:
        ApiError: An option is not supported.
    """
    supported = {
        "n": body.n in (None, 1),
        "logprobs": not body.logprobs,
        "top_logprobs": not body.top_logprobs,
        "logit_bias": not body.logit_bias,
        "modalities": body.modalities in (None, ["text"]),
        "audio": body.audio is None,
        "functions": not body.functions,
        "function_call": body.function_call is None,
        "web_search_options": body.web_search_options is None,
    }
    for param, is_supported in supported.items():
        if not is_supported:
            hint = _HINTS.get(param, "leave it out")
            raise bad_request(f"{param} is not supported; {hint}.", param, "unsupported_parameter")


_HINTS = {
    "n": "each request has one answer",
    "modalities": "answers are text",
    "functions": "send `tools` instead",
    "function_call": "send `tool_choice` instead",
}
"""What to do instead of using an unsupported option."""

# --- reading ----------------------------------------------------------------------------------------------------------

DEEPEST = 100
"""The maximum nesting of a schema; deeper ones exceed some JSON parsers' limits."""

_UNKNOWN = re.compile(r"^Object contains unknown field `(.*?)`")
_NAME = r"Expected `str` matching regex '\\A[A-Za-z0-9_-]{1,64}\\Z'"


def decode_body(data: bytes, form: type[T]) -> T:
    """Decode a body.

    Raises:
        ApiError: The body does not match the schema; the error names the place.
    """
    try:
        return msgspec.json.decode(data, type=form)
    except RecursionError:
        raise bad_request("The request is nested too deeply.") from None
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        reason = str(error)[:200].rstrip(".")
        raise bad_request(f"The body of the request is not valid JSON: {reason}.") from None


def _invalid(reason: str) -> ApiError:
    what, where, place = reason.removesuffix("`").rpartition(" - at `$")
    what, place = (what, place.removeprefix(".")) if where else (reason, "")
    if (unknown := _UNKNOWN.match(what)) and not place:
        name = unknown[1][:100]
        return bad_request(f"Unrecognized request argument supplied: {name}.", name, "unknown_parameter")
    what = what.replace(_NAME, "Expected a name of up to 64 letters, digits, underscores and hyphens")[:300]
    return bad_request(f"The request is not valid: {f'{place}: ' if place else ''}{what}.", place[:200] or None)


def is_too_deep(value: Any, left: int = DEEPEST) -> bool:
    """Return True if a JSON value is nested more than `left` levels deep."""
    if left < 0:
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(is_too_deep(each, left - 1) for each in inner)
