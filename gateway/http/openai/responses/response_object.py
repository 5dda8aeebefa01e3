"""Builds the response object, and the events of its stream while the answer comes.

The object and the events are those of "The response object" and "Streaming events" in OpenAI's API reference.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from gateway.http.openai.api_errors import ApiError
from gateway.http.openai.responses.request_conversion import OfferedTool
from gateway.http.openai.responses.response_schema import ResponseBody
from plugins.api.chat import CallDraft
from sessions.events.events import StopReason
from sessions.events.messages import Usage

Json: TypeAlias = dict[str, Any]

_encode = msgspec.json.Encoder().encode

_INCOMPLETE: dict[StopReason, str] = {"length": "max_output_tokens", "refused": "content_filter"}
"""The reasons why a response is incomplete."""

_ERRORS = frozenset({"rate_limit_exceeded", "server_error", "context_length_exceeded"})
"""The codes of a failed response that clients know."""


class ResponseHeader(msgspec.Struct, kw_only=True):
    """What is known of a response before its answer.

    Attributes:
        id: The id of the response.
        created: The Unix time in seconds.
        model: The answering `provider:model`, once it is known.
        stored: True if the response can be continued and returned later.
        conversation: The key of its session; "" without one.
    """

    id: str
    created: int
    model: str
    stored: bool
    conversation: str = ""

    def accept(self, headers: Mapping[str, str]) -> None:
        """Take the id from the headers of an accepted message."""
        if "X-Exuvia-Seq" in headers:
            self.id = f"resp_{headers['X-Exuvia-Session-Id']}_{headers['X-Exuvia-Seq']}"
        else:
            self.stored = False


class _ItemForm(msgspec.Struct, frozen=True, kw_only=True):
    """How an item that grows is written: the names of its events, and the extra fields of those about its text."""

    part: str
    text: str
    index: str
    extra: Json = {}

    def new(self, id_: str, text: str | None, status: str) -> Json:
        """Return an item with one part, or with none if `text` is None."""
        parts = [] if text is None else [self.new_part(text)]
        if self is _REASONING:
            return {"id": id_, "type": "reasoning", "status": status, "summary": parts}
        return {"id": id_, "type": "message", "status": status, "role": "assistant", "content": parts}

    def new_part(self, text: str) -> Json:
        """Return the part of an item."""
        if self is _REASONING:
            return {"type": "summary_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


_MESSAGE = _ItemForm(part="content_part", text="output_text", index="content_index", extra={"logprobs": []})
_REASONING = _ItemForm(part="reasoning_summary_part", text="reasoning_summary_text", index="summary_index")


class ResponseBuilder:
    """One response in the making: each method returns the events that clients of a stream receive.

    Args:
        head: Its header, which may change until the first event.
        body: The request.
        tools: The offered tools, by the names that the model uses.
    """

    def __init__(self, head: ResponseHeader, body: ResponseBody, tools: Mapping[str, OfferedTool]) -> None:
        self.head = head
        self.response: Json = {}
        """The complete response, once it has ended."""
        self._body = body
        self._tools = tools
        self._output: list[Json] = []
        self._texts: list[str] = []
        self._form: _ItemForm | None = None
        """The form of the item that grows."""
        self._item = ""
        self._sequence = 0
        self._begun = False

    @property
    def stream(self) -> bool:
        """True if the client requests a stream."""
        return bool(self._body.stream)

    def begin(self) -> bytes:
        """Return the first events."""
        if self._begun:
            return b""
        self._begun = True
        first = self._event("response.created", response=self._object("in_progress"))
        return first + self._event("response.in_progress", response=self._object("in_progress"))

    def text(self, text: str) -> bytes:
        """Add a piece of the answer."""
        return self._add(_MESSAGE, text)

    def reasoning(self, text: str) -> bytes:
        """Add a piece of the model's reasoning, if the request asks for a summary of it."""
        if not (self._body.reasoning and self._body.reasoning.wants_summary):
            return b""
        return self._add(_REASONING, text if self._form is _REASONING else text.lstrip("\n"))

    def end(self, calls: Sequence[CallDraft], stop: StopReason, usage: Usage | None) -> bytes:
        """Complete the response."""
        events = [self.begin()]
        reason = _INCOMPLETE.get(stop)
        status = "completed" if reason is None else "incomplete"
        events.append(self._end_item(status))
        for call in calls:
            events += self._call(call)
        self.response = self._object(status, usage=usage_of(usage))
        if reason is not None:
            self.response["incomplete_details"] = {"reason": reason}
        events.append(self._event(f"response.{status}", response=self.response))
        return b"".join(events)

    def fail(self, refused: ApiError) -> bytes:
        """End the response with an error."""
        error = refused.body["error"]
        code = error["code"] if error["code"] in _ERRORS else "server_error"
        self.response = {**self._object("failed"), "error": {"code": code, "message": error["message"]}}
        return self.begin() + self._event("response.failed", response=self.response)

    # --- items --------------------------------------------------------------------------------------------------------

    @property
    def _at(self) -> Json:
        return {"output_index": len(self._output)}

    def _in_part(self, form: _ItemForm) -> Json:
        return {"item_id": self._item, **self._at, form.index: 0}

    def _add(self, form: _ItemForm, text: str) -> bytes:
        """Add a piece to the item of this form that grows, or to a new one."""
        begin, opened = self.begin(), b""
        if self._form is not form:
            opened = self._end_item("completed")
            self._form, self._item = form, f"{'rs' if form is _REASONING else 'msg'}_{secrets.token_hex(12)}"
            item = form.new(self._item, None, "in_progress")
            opened += self._event("response.output_item.added", **self._at, item=item)
            opened += self._event(f"response.{form.part}.added", **self._in_part(form), part=form.new_part(""))
        self._texts.append(text)
        return begin + opened + self._event(f"response.{form.text}.delta", **self._in_part(form), delta=text, **form.extra)

    def _end_item(self, status: str) -> bytes:
        """Complete the item that grows, if there is one."""
        if (form := self._form) is None:
            return b""
        text = "".join(self._texts)
        item = form.new(self._item, text, status)
        done = (
            self._event(f"response.{form.text}.done", **self._in_part(form), text=text, **form.extra),
            self._event(f"response.{form.part}.done", **self._in_part(form), part=form.new_part(text)),
            self._event("response.output_item.done", **self._at, item=item),
        )
        self._output.append(item)
        self._form, self._texts = None, []
        return b"".join(done)

    def _call(self, call: CallDraft) -> list[bytes]:
        """Return the events of a tool call; one without an id from the provider gets a random one."""
        item, field, kind = self._call_item(call)
        value, place = item[field], {"item_id": item["id"], **self._at}
        begun = {**item, field: "", "status": "in_progress"}
        events = [
            self._event("response.output_item.added", **self._at, item=begun),
            self._event(f"response.{kind}.delta", **place, delta=value),
            self._event(f"response.{kind}.done", **place, **{field: value, "name": item["name"]}),
            self._event("response.output_item.done", **self._at, item=item),
        ]
        self._output.append(item)
        return events

    def _call_item(self, call: CallDraft) -> tuple[Json, str, str]:
        """Return a call as an item, its field with the input, and the name of the events about that field."""
        tool = self._tools.get(call.tool)
        item: Json = {
            "id": f"fc_{secrets.token_hex(12)}",
            "type": "function_call",
            "status": "completed",
            "call_id": call.id or f"call_{secrets.token_hex(12)}",
            "name": tool.name if tool is not None else call.tool,
        }
        if tool is not None and tool.namespace is not None:
            item["namespace"] = tool.namespace
        if tool is not None and tool.kind == "custom":
            item |= {"id": f"ctc_{secrets.token_hex(12)}", "type": "custom_tool_call", "input": _input_of(call.arguments)}
            return item, "input", "custom_tool_call_input"
        item["arguments"] = call.arguments or "{}"
        return item, "arguments", "function_call_arguments"

    # --- the object ---------------------------------------------------------------------------------------------------

    def _object(self, status: str, *, usage: Json | None = None) -> Json:
        head, body = self.head, self._body
        text_format = msgspec.to_builtins(body.text.format) if body.text and body.text.format else {"type": "text"}
        choice = body.tool_choice or "auto"
        return {
            "id": head.id,
            "object": "response",
            "created_at": head.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": None,
            "model": head.model,
            "output": list(self._output),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "conversation": {"id": head.conversation} if head.conversation else None,
            "reasoning": {"effort": None, "summary": body.reasoning.summary if body.reasoning else None},
            "service_tier": "default",
            "store": head.stored,
            "temperature": body.temperature,
            "text": {"format": text_format},
            "tool_choice": choice if isinstance(choice, str) else msgspec.to_builtins(choice),
            "tools": [_without_null(msgspec.to_builtins(tool)) for tool in body.tools or ()],
            "top_logprobs": 0,
            "top_p": body.top_p,
            "truncation": "disabled",
            "usage": usage,
            "user": body.user,
            "metadata": body.metadata or {},
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), _encode(event))


def usage_of(usage: Usage | None) -> Json | None:
    """Return token counts in the format of responses; None if the provider does not report them."""
    if usage is None:
        return None
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output,
    }


def _input_of(arguments: str) -> str:
    """Return the text that a custom tool was called with: the model should write it as `{"input": …}`."""
    try:
        return str(msgspec.json.decode(arguments)["input"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return arguments


def _without_null(value: Any) -> Any:
    """Return a JSON value without the fields of its objects that are null."""
    if isinstance(value, dict):
        return {name: _without_null(each) for name, each in value.items() if each is not None}
    return [_without_null(each) for each in value] if isinstance(value, list) else value
