"""Response objects in OpenAI's format: "The chat completion object" and "The chat completion chunk object" of its API
reference."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from plugins.api.chat import CallDraft, Reply
from sessions.events.events import StopReason
from sessions.events.messages import Usage

Json: TypeAlias = dict[str, Any]

_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"
"""The event that ends a stream."""

_FINISHES: dict[StopReason, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "refused": "content_filter",
    "cancelled": "stop",
}


class CompletionHeader(msgspec.Struct, kw_only=True):
    """The fields that all objects of one answer share: id, Unix time in seconds, and the answering `provider:model`."""

    id: str
    created: int
    model: str

    @classmethod
    def new(cls, created: int, model: str) -> CompletionHeader:
        """Return the header of an answer that begins now; `model` is used until the answering one is known."""
        return cls(id=f"chatcmpl-{secrets.token_hex(12)}", created=created, model=model)


def completion(head: CompletionHeader, reply: Reply) -> Json:
    """Return a complete answer."""
    message: Json = {"role": "assistant", "content": reply.text if reply.text or not reply.calls else None, "refusal": None}
    if reply.calls:
        message["tool_calls"] = [_call(number, call) for number, call in enumerate(reply.calls)]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISHES[reply.stop]}
    return {**_named(head, "chat.completion"), "choices": [choice], "usage": usage_of(reply.usage)}


class Chunks:
    """The events of one stream. With `with_usage`, the last chunk has the token counts, and all others null."""

    def __init__(self, head: CompletionHeader, *, with_usage: bool) -> None:
        self._head = head
        self._with_usage = with_usage
        self._begun = False

    def text(self, text: str) -> bytes:
        """Return the event for a piece of the answer."""
        return self._event({"content": text})

    def end(self, calls: Sequence[CallDraft], stop: StopReason, usage: Usage | None) -> bytes:
        """Return the events that follow the text."""
        events = [
            self._event({"tool_calls": [{"index": number, **_call(number, call)}]}) for number, call in enumerate(calls)
        ]
        events.append(self._event({}, _FINISHES[stop]))
        if self._with_usage:
            events.append(self._chunk([], usage_of(usage)))
        return b"".join([*events, DONE])

    def _event(self, delta: Json, finish: str | None = None) -> bytes:
        if not self._begun:
            self._begun = True
            delta = {"role": "assistant", "content": None if "tool_calls" in delta else "", **delta}
        return self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], None)

    def _chunk(self, choices: Sequence[Json], usage: Json | None) -> bytes:
        chunk = {**_named(self._head, "chat.completion.chunk"), "choices": choices}
        return event(chunk | {"usage": usage} if self._with_usage else chunk)


def event(value: Json) -> bytes:
    """Return a value as a server-sent event."""
    return b"data: %s\n\n" % _encode(value)


def usage_of(usage: Usage | None) -> Json | None:
    """Return token counts in OpenAI's format; None if the provider does not report them."""
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def _named(head: CompletionHeader, kind: str) -> Json:
    return {"id": head.id, "object": kind, "created": head.created, "model": head.model}


def _call(number: int, call: CallDraft) -> Json:
    """Return a tool call; one without an id from the provider gets a random one."""
    id_ = call.id or f"call_{number}_{secrets.token_hex(8)}"
    return {"id": id_, "type": "function", "function": {"name": call.tool, "arguments": call.arguments or "{}"}}
