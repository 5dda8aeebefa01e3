"""The schema of a request for a response, after "Create a model response" in OpenAI's API reference."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from gateway.http.openai.api_errors import bad_request
from gateway.http.openai.schema import FunctionName, Name, Text

# --- input ------------------------------------------------------------------------------------------------------------


class _Part(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A part of an item's content."""


class InputText(_Part, frozen=True, kw_only=True, tag="input_text"):
    text: str


class OutputText(_Part, frozen=True, kw_only=True, tag="output_text"):
    text: str


class PlainText(_Part, frozen=True, kw_only=True, tag="text"):
    """Text as some clients send it."""

    text: str


class RefusalText(_Part, frozen=True, kw_only=True, tag="refusal"):
    refusal: str


class InputImage(_Part, frozen=True, kw_only=True, tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None


class InputFile(_Part, frozen=True, kw_only=True, tag="input_file"):
    """A file; refused as unsupported."""


Part: TypeAlias = InputText | OutputText | PlainText | RefusalText | InputImage | InputFile


class _Item(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """An item of the input. Fields that a client sends back from an earlier response and that do not count are ignored."""


class MessageItem(_Item, frozen=True, kw_only=True, tag="message"):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Part]


class FunctionCallItem(_Item, frozen=True, kw_only=True, tag="function_call"):
    call_id: Text
    name: Text
    arguments: str
    namespace: str | None = None


class FunctionOutputItem(_Item, frozen=True, kw_only=True, tag="function_call_output"):
    call_id: Text
    output: str | list[Part]


class CustomCallItem(_Item, frozen=True, kw_only=True, tag="custom_tool_call"):
    call_id: Text
    name: Text
    input: str


class CustomOutputItem(_Item, frozen=True, kw_only=True, tag="custom_tool_call_output"):
    call_id: Text
    output: str | list[Part]


class ReasoningItem(_Item, frozen=True, kw_only=True, tag="reasoning"):
    """Reasoning of an earlier response, which is not sent to the model again."""


class ReferenceItem(_Item, frozen=True, kw_only=True, tag="item_reference"):
    """The id of an earlier item; refused as unsupported."""

    id: str


Item: TypeAlias = (
    MessageItem | FunctionCallItem | FunctionOutputItem | CustomCallItem | CustomOutputItem | ReasoningItem | ReferenceItem
)

# --- tools and options ------------------------------------------------------------------------------------------------


class ResponseTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool. `function` and `custom` are run by the client, and a `namespace` holds such tools; all others are run by
    OpenAI's servers."""

    type: Text
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    tools: list[ResponseTool] | None = None


class ChosenTool(msgspec.Struct, frozen=True, kw_only=True):
    """`tool_choice` with the type and name of a tool."""

    type: Text
    name: str | None = None


class _TextFormat(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """`text.format`."""


class PlainFormat(_TextFormat, frozen=True, kw_only=True, tag="text"):
    pass


class ObjectFormat(_TextFormat, frozen=True, kw_only=True, tag="json_object"):
    pass


class SchemaFormat(_TextFormat, frozen=True, kw_only=True, tag="json_schema"):
    name: FunctionName
    schema: dict[str, Any] = {}
    description: str | None = None
    strict: bool | None = None


class TextOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`text`: the format of the answer. `verbosity` is ignored."""

    format: PlainFormat | ObjectFormat | SchemaFormat | None = None
    verbosity: Any = None


class ReasoningOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`reasoning`: whether the answer shows the model's reasoning; `generate_summary` is its older name. The effort is that
    of the gateway's configuration."""

    summary: str | None = None
    generate_summary: str | None = None

    @property
    def wants_summary(self) -> bool:
        """True if the answer has the reasoning. There is one summary: what the provider shows."""
        return (self.summary or self.generate_summary or "none") != "none"


class NamedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """`conversation` as an object: `id` is a session's key."""

    id: str


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a response.

    Fields below `user` are accepted and ignored, or refused if they would change the answer (see `refuse_unsupported`).
    """

    model: Name
    input: str | Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | NamedConversation | None = None
    store: bool | None = None
    stream: bool | None = None
    tools: Annotated[list[ResponseTool], msgspec.Meta(max_length=512)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChosenTool | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    background: bool | None = None
    prompt: Any = None
    truncation: str | None = None
    top_logprobs: int | None = None
    max_tool_calls: int | None = None
    client_metadata: Any = None
    context_management: Any = None
    include: Any = None
    moderation: Any = None
    prompt_cache_key: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None
    safety_identifier: Any = None
    service_tier: Any = None
    stream_options: Any = None


def refuse_unsupported(body: ResponseBody) -> None:
    """Check that a body has no option that would change the answer and is not supported.

    Raises:
        ApiError: An option is not supported.
    """
    supported = {
        "background": not body.background,
        "prompt": body.prompt is None,
        "top_logprobs": not body.top_logprobs,
        "truncation": body.truncation in (None, "disabled"),
        "context_management": not body.context_management,
    }
    for param, is_supported in supported.items():
        if not is_supported:
            raise bad_request(f"{param} is not supported; leave it out.", param, "unsupported_parameter")


def items_of(body: ResponseBody) -> list[Item]:
    """Return the items of the input; a text, and an item without a type, is a message.

    Raises:
        ApiError: An item is invalid or of an unsupported type.
    """
    if isinstance(body.input, str):
        return [MessageItem(role="user", content=body.input)]
    return [_item(each, f"input[{number}]") for number, each in enumerate(body.input)]


def _item(given: dict[str, Any], place: str) -> Item:
    try:
        item: Item = msgspec.convert({"type": "message", **given}, type=Item)
    except msgspec.ValidationError as error:
        reason = str(error).replace("`$", f"`{place}")[:300]
        raise bad_request(f"The request is not valid: {reason if '`' in reason else f'{place}: {reason}'}.", place) from None
    if isinstance(item, ReferenceItem):
        raise bad_request(f"{place}: items cannot be referred to by id; send the item itself.", place)
    return item
