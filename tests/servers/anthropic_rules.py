"""The checks of Anthropic's Messages API on requests, with its messages; `anthropic_server` names the sources."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from plugins.testing.servers.faulty_server import Json, is_picture

_FIELDS = frozenset(
    {
        "model", "messages", "max_tokens", "stream", "system", "tools", "tool_choice", "thinking", "output_config",
        "temperature", "top_p", "top_k", "stop_sequences", "metadata",
    }
)  # fmt: skip
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_UNSAMPLED = ("claude-sonnet-5", "claude-opus-5", "claude-opus-4-7")
_THOUGHTS = ("thinking", "redacted_thinking")


def what_is_wrong(body: Json) -> str | None:
    """Return the service's message about the first fault of a request; None if there is none."""
    messages = merged(body.get("messages", []))
    for wrong in (*_fields(body), *_sampling(body), *_marks(body), *_blocks(messages), *_order(messages), *_pairs(messages)):
        return wrong
    if any(b["type"].startswith("tool_") for m in messages for b in m["content"]) and not body.get("tools"):
        return "Requests which include `tool_use` or `tool_result` blocks must define tools."
    return next(_thoughts(body, messages), None)


def merged(messages: list[Json]) -> list[Json]:
    """Merge consecutive turns of the same role, as the service does."""
    turns: list[Json] = []
    for message in messages:
        if turns and turns[-1]["role"] == message["role"]:
            turns[-1]["content"] = turns[-1]["content"] + message["content"]
        else:
            turns.append(dict(message))
    return turns


def signature(body: Json, before: list[Json]) -> str:
    """Return the signature of thinking in a reply after the parts `before`: it depends on the whole request."""
    turns = merged(body["messages"])
    bound = [body.get("system"), body.get("tools"), turns, [part["type"] for part in before]]
    return hashlib.sha256(json.dumps(_unmarked(bound)).encode()).hexdigest()


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmarked(inner) for name, inner in value.items() if name != "cache_control"}
    return [_unmarked(inner) for inner in value] if isinstance(value, list) else value


def _fields(body: Json) -> Iterator[str]:
    for name in body:
        if name not in _FIELDS:
            yield f"{name}: Extra inputs are not permitted"
    if "max_tokens" not in body:
        yield "max_tokens: Field required"
    if not body.get("messages"):
        yield "messages: at least one message is required"
    for n, tool in enumerate(body.get("tools", [])):
        if "type" not in tool["input_schema"]:
            yield f"tools.{n}.custom.input_schema.type: Field required"


def _sampling(body: Json) -> Iterator[str]:
    temperature, top_p = body.get("temperature"), body.get("top_p")
    thinks = body.get("thinking", {}).get("type", "disabled") != "disabled"
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if value is not None and body["model"].startswith(_UNSAMPLED):
            yield f"`{name}` is deprecated for this model."
    if temperature is not None and not 0 <= temperature <= 1:
        yield "temperature: range: 0..1"
    if temperature not in (None, 1) and thinks:
        yield "`temperature` may only be set to 1 when thinking is enabled."
    if temperature is not None and top_p is not None:
        yield "`temperature` and `top_p` cannot both be specified for this model. Please use only one."


def _marks(body: Json) -> Iterator[str]:
    blocks = [*body.get("tools", []), *body.get("system", []), *(b for m in body["messages"] for b in m["content"])]
    marked = sum("cache_control" in block for block in blocks)
    if marked > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {marked}."
    if any("cache_control" in block and block.get("type") in _THOUGHTS for block in blocks):
        yield "thinking.cache_control: Extra inputs are not permitted"
    if any(not block["text"] for block in body.get("system", [])):
        yield "system: text content blocks must be non-empty"


def _blocks(messages: list[Json]) -> Iterator[str]:
    for m, message in enumerate(messages):
        for n, block in enumerate(message["content"]):
            place = f"messages.{m}.content.{n}.{block['type']}"
            match block["type"]:
                case "text" if not block["text"]:
                    yield "messages: text content blocks must be non-empty"
                case "text" if not block["text"].strip():
                    yield "messages: text content blocks must contain non-whitespace text"
                case "image" if not is_picture(block["source"].get("media_type"), block["source"].get("data")):
                    yield f"{place}.source: Could not process image"
                case "tool_use" if not isinstance(block["input"], dict):
                    yield f"{place}.input: Input should be a valid dictionary"
                case "tool_use" if not _NAME.fullmatch(block["name"]):
                    yield f"{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
                case "tool_use" if not _NAME.fullmatch(block["id"]):
                    yield f"{place}.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                case "tool_result" if block.get("is_error") and not block.get("content"):
                    yield f"{place}: content cannot be empty if `is_error` is true"


def _order(messages: list[Json]) -> Iterator[str]:
    if messages[0]["role"] != "user":
        yield 'messages: first message must use the "user" role'
    if messages[-1]["role"] != "user":
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    for m, message in enumerate(messages):
        if not message["content"]:
            yield f"messages.{m}: all messages must have non-empty content except for the optional final assistant message"


def _pairs(messages: list[Json]) -> Iterator[str]:
    for m, message in enumerate(messages):
        called = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        after = messages[m + 1]["content"] if m + 1 < len(messages) else []
        results = [block["tool_use_id"] for block in after if block["type"] == "tool_result"]
        if missing := [id_ for id_ in called if id_ not in results]:
            yield (
                f"messages.{m}: `tool_use` ids were found without `tool_result` blocks immediately after:"
                f" {', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next"
                " message."
            )
        for id_ in results:
            if id_ not in called:
                yield (
                    f"messages.{m + 1}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {id_}. Each"
                    " `tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
        if len(set(called)) < len(called):
            yield f"messages.{m}: `tool_use` ids must be unique"


def _thoughts(body: Json, messages: list[Json]) -> Iterator[str]:
    for m, message in enumerate(messages):
        for n, block in enumerate(message["content"]):
            before = {**body, "messages": messages[:m]}
            if block["type"] == "thinking" and block["signature"] != signature(before, message["content"][:n]):
                yield f"messages.{m}.content.{n}: Invalid `signature` in `thinking` block"
    going_on = any(block["type"] == "tool_result" for block in messages[-1]["content"])
    first = messages[-2]["content"][0]["type"] if going_on else "thinking"
    if body.get("thinking", {}).get("type") == "enabled" and first not in _THOUGHTS:
        yield (
            f"messages.{len(messages) - 2}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`."
            " When `thinking` is enabled, a final `assistant` message must start with a thinking block."
        )
