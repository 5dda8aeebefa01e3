"""Converts a request for a response to a context and options that any provider takes.

Items become messages: an assistant's text and the calls that follow it are one message, each output is one, and reasoning is
left out. Custom tools, which take a text, become functions with the parameter `input`; the functions of a namespace are
offered as `NAMESPACE__NAME`; tools that only OpenAI's servers can run are not offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gateway.http.openai import schema as chat_schema
from gateway.http.openai.api_errors import bad_request
from gateway.http.openai.request_parser import ImageUrls, ParsedRequest, check_depth, check_pairs
from gateway.http.openai.responses import response_schema as forms
from gateway.http.openai.responses.response_schema import ResponseBody
from plugins.api.chat import RequestOptions, ResponseFormat
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolDefinition, ToolMessage, UserMessage
from sessions.state.context import Context

_TEXT: dict[str, Any] = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The parameters of a custom tool."""

_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A client's tool as it is offered to a model: its kind, and its name and namespace for the client."""

    kind: str
    name: str
    namespace: str | None = None
    definition: ToolDefinition


class ConvertedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a provider; `tools` are the offered tools by the names that the model uses."""

    parsed: ParsedRequest
    tools: Mapping[str, OfferedTool]


def convert_request(body: ResponseBody, earlier: Sequence[Message], pictures: ImageUrls) -> ConvertedRequest:
    """Convert a body whose input continues the messages `earlier`. It decodes pictures, so run it in a thread if the body is
    large.

    Raises:
        ApiError: The request is invalid or unsupported.
    """
    forms.refuse_unsupported(body)
    items = forms.items_of(body)
    messages = [*earlier, *messages_of(items, earlier, pictures)]
    check_pairs(messages)
    tools = _offered(body)
    system = [
        text_of(item.content, "input")
        for item in items
        if isinstance(item, forms.MessageItem) and item.role in ("system", "developer")
    ]
    definitions = tuple(tool.definition for tool in tools.values()) if body.tool_choice != "none" else ()
    parsed = ParsedRequest(
        model=body.model,
        context=Context(
            instructions="\n\n".join([*([body.instructions] if body.instructions else []), *system]),
            tools=definitions,
            parameters=_parameters(body),
            messages=messages,
        ),
        pictures=pictures.base64,
        options=_options(body, tools),
        stops=(),
    )
    return ConvertedRequest(parsed=parsed, tools=tools)


# --- messages ---------------------------------------------------------------------------------------------------------


def messages_of(items: Sequence[forms.Item], earlier: Sequence[Message], pictures: ImageUrls) -> list[Message]:
    """Return the messages of items, without instructions; the pictures are added to `pictures`.

    Raises:
        ApiError: An item is unsupported, or there is no message at all.
    """
    messages: list[Message] = []
    names = {call.id: call.tool for each in earlier if isinstance(each, AssistantMessage) for call in each.calls}
    for number, item in enumerate(items):
        place = f"input[{number}]"
        match item:
            case forms.MessageItem(role="user"):
                messages.append(_user_message(item, pictures, place))
            case forms.MessageItem(role="assistant"):
                messages.append(AssistantMessage(text=text_of(item.content, place), calls=()))
            case forms.FunctionCallItem():
                tool = offered_name(item.namespace, item.name)
                _add_call(messages, ToolCall(id=item.call_id, tool=tool, arguments=item.arguments))
                names[item.call_id] = tool
            case forms.CustomCallItem():
                arguments = msgspec.json.encode({"input": item.input}).decode()
                _add_call(messages, ToolCall(id=item.call_id, tool=item.name, arguments=arguments))
                names[item.call_id] = item.name
            case forms.FunctionOutputItem() | forms.CustomOutputItem():
                text = text_of(item.output, place, pictures_are_named=True)
                messages.append(ToolMessage(id=item.call_id, tool=names.get(item.call_id, ""), text=text))
            case _:
                pass
    if not messages and not earlier:
        raise bad_request("input: send at least one user message.", "input")
    return messages


def _user_message(item: forms.MessageItem, pictures: ImageUrls, place: str) -> UserMessage:
    if isinstance(item.content, str):
        return UserMessage(text=item.content)
    attached = []
    for number, part in enumerate(item.content):
        where = f"{place}.content[{number}]"
        if isinstance(part, forms.InputImage):
            if part.image_url is None:
                raise bad_request(f"{where}: send the picture itself as a base64 `data:` URL.", where, "invalid_image_url")
            attached.append(pictures.add(part.image_url, f"{where}.image_url"))
    texts = [part for part in item.content if not isinstance(part, forms.InputImage)]
    return UserMessage(text=text_of(texts, place), attachments=tuple(attached))


def _add_call(messages: list[Message], call: ToolCall) -> None:
    """Add a call to the assistant's message that it belongs to."""
    if messages and isinstance(messages[-1], AssistantMessage):
        messages[-1] = msgspec.structs.replace(messages[-1], calls=(*messages[-1].calls, call))
    else:
        messages.append(AssistantMessage(text="", calls=(call,)))


def text_of(content: str | Sequence[forms.Part], place: str, *, pictures_are_named: bool = False) -> str:
    """Return the text of a content. With `pictures_are_named` a picture becomes a placeholder: a tool's output is text.

    Raises:
        ApiError: A part is neither text nor, with `pictures_are_named`, a picture.
    """
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        match part:
            case forms.InputText() | forms.OutputText() | forms.PlainText():
                texts.append(part.text)
            case forms.RefusalText():
                texts.append(part.refusal)
            case forms.InputImage() if pictures_are_named:
                texts.append("[A picture, which cannot be shown to this model.]")
            case _:
                raise bad_request(f"{place}: only text and pictures of a user are supported.", place)
    return "\n".join(texts)


# --- tools and options ------------------------------------------------------------------------------------------------


def offered_name(namespace: str | None, name: str) -> str:
    """Return the name under which a tool is offered to a model."""
    return f"{namespace}__{name}" if namespace else name


def _offered(body: ResponseBody) -> dict[str, OfferedTool]:
    tools = {offered_name(tool.namespace, tool.name): tool for tool in _client_tools(body.tools or (), None)}
    check_depth(tool.definition.parameters for tool in tools.values())
    return tools


def _client_tools(tools: Sequence[forms.ResponseTool], namespace: str | None) -> Iterator[OfferedTool]:
    """Yield the tools that the client runs."""
    for tool in tools:
        if tool.type == "namespace" and namespace is None and tool.name:
            yield from _client_tools(tool.tools or (), tool.name)
        elif tool.type in ("function", "custom"):
            name = offered_name(namespace, tool.name or "")
            if not chat_schema.is_function_name(name):
                raise bad_request(
                    "tools: a tool needs a name of up to 64 letters, digits, underscores and hyphens.", "tools"
                )
            parameters = _TEXT if tool.type == "custom" else tool.parameters or _NOTHING
            definition = ToolDefinition(name=name, description=tool.description or "", parameters=parameters)
            yield OfferedTool(kind=tool.type, name=tool.name or "", namespace=namespace, definition=definition)


def _options(body: ResponseBody, tools: Mapping[str, OfferedTool]) -> RequestOptions:
    choice = body.tool_choice
    if isinstance(choice, forms.ChosenTool) and (choice.name is None or choice.name not in tools):
        raise bad_request(f"tool_choice names {choice.name or choice.type}, which is none of the tools.", "tool_choice")
    name = choice.name if isinstance(choice, forms.ChosenTool) else None
    if (name or choice == "required") and not tools:
        raise bad_request("tool_choice is only allowed when tools are specified.", "tool_choice")
    return RequestOptions(
        require_tool=name is not None or choice == "required",
        tool=name,
        single_tool_call=bool(tools) and body.parallel_tool_calls is False,
        response_format=_format(body),
    )


def _format(body: ResponseBody) -> ResponseFormat | None:
    match body.text.format if body.text is not None else None:
        case forms.ObjectFormat():
            return ResponseFormat()
        case forms.SchemaFormat() as wanted:
            check_depth([wanted.schema])
            description = wanted.description or ""
            return ResponseFormat(name=wanted.name, schema=wanted.schema, description=description, strict=wanted.strict)
        case _:
            return None


def _parameters(body: ResponseBody) -> dict[str, Any]:
    """Return the sampling options under the names of `ChatRequest`."""
    given = {"temperature": body.temperature, "top_p": body.top_p, "max_tokens": body.max_output_tokens}
    return {name: value for name, value in given.items() if value is not None}
