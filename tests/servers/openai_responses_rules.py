"""The checks of OpenAI's Responses API on requests, with its messages; `openai_responses_server` names the sources."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

Json = dict[str, Any]

_FIELDS = frozenset(
    {
        "access_programs", "background", "context_management", "conversation", "image", "include", "input", "instructions",
        "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation", "parallel_tool_calls",
        "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning",
        "safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature", "text", "tool_choice",
        "tools", "top_logprobs", "top_p", "truncation", "user",
    }
)  # fmt: skip
_MOVED = {"max_tokens": "max_output_tokens", "messages": "input", "reasoning_effort": "reasoning.effort"}
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_KEYS = {
    "message": {"type", "role", "content", "phase", "id", "status"},
    "function_call": {"type", "id", "call_id", "name", "arguments", "status"},
    "function_call_output": {"type", "id", "call_id", "output", "status"},
    "reasoning": {"type", "id", "summary", "encrypted_content", "content"},
    "compaction": {"type", "id", "encrypted_content"},
}
_DEMANDED = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": ("id", "summary"),
    "compaction": ("encrypted_content",),
}
_ROLES = ("assistant", "system", "developer", "user")
_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")


class Wrong(NamedTuple):
    """A fault, with the parameter's path and the error's code."""

    message: str
    param: str | None = None
    code: str | None = None


def reasons(model: str) -> bool:
    """Return True if this model of the fake reasons."""
    return not model.removeprefix("ft:").startswith(("gpt-3.5", "gpt-4", "chatgpt-4o", "gpt-5-chat", "custom-plain"))


def sealed(model: str, organization: str, follows: Json) -> str:
    """Return encrypted reasoning: it contains the model, the organization, and what the reasoning led to."""
    return "gAAAA" + base64.b64encode(json.dumps([model, organization, _plain(follows)]).encode()).decode()


def what_is_wrong(body: Json, organization: str) -> Wrong | None:
    """Return the service's message about the first fault of a request; None if there is none."""
    for wrong in (*_fields(body), *_options(body), *_context_management(body), *_tools(body)):
        return wrong
    items = _items(body)
    for check in (_forms(items), _pairs(items), _thoughts(items, body["model"], organization)):
        for wrong in check:
            return wrong
    return None


def _fields(body: Json) -> Iterator[Wrong]:
    for name in body:
        if name in _MOVED:
            words = f"Unsupported parameter: '{name}'. In the Responses API, this parameter has moved to '{_MOVED[name]}'."
            yield Wrong(words, name, "unsupported_parameter")
        elif name not in _FIELDS:
            yield Wrong(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    if not body.get("model"):
        yield Wrong("you must provide a model parameter")
    if not body.get("input"):
        yield Wrong("Missing required parameter: 'input'.", "input", "missing_required_parameter")


def _options(body: Json) -> Iterator[Wrong]:
    thinks = reasons(body["model"])
    for n, value in enumerate(body.get("include", ())):
        if value != "reasoning.encrypted_content":
            yield Wrong(f"Invalid value: '{value}'.", f"include[{n}]", "invalid_value")
        elif not thinks:
            yield Wrong("Encrypted content is not supported with this model.", "include")
    summary = body.get("reasoning", {}).get("summary")
    if summary and not thinks:
        yield _unsupported("reasoning.summary")
    elif summary and body["model"].endswith("-unverified"):
        words = "Your organization must be verified to generate reasoning summaries. Please go to: the settings."
        yield Wrong(words, "reasoning.summary", "unsupported_value")
    effort = body.get("reasoning", {}).get("effort")
    if effort and not thinks:
        yield _unsupported("reasoning.effort")
    elif effort and effort not in _EFFORTS:
        words = f"Unsupported value: '{effort}' is not supported with the '{body['model']}' model."
        yield Wrong(words, "reasoning.effort", "unsupported_value")
    for name in ("temperature", "top_p"):
        if name in body and thinks:
            yield _unsupported(name)
    if (limit := body.get("max_output_tokens", 16)) < 16:
        words = f"integer below minimum value. Expected a value >= 16, but got {limit} instead."
        yield Wrong(f"Invalid 'max_output_tokens': {words}", "max_output_tokens", "integer_below_min_value")
    yield from _too_long(body.get("prompt_cache_key", ""), "prompt_cache_key", 64)


def _context_management(body: Json) -> Iterator[Wrong]:
    for n, entry in enumerate(body.get("context_management", ())):
        path = f"context_management[{n}]"
        if entry.get("type") != "compaction":
            yield Wrong(f"Invalid value: '{entry.get('type')}'. Supported values are: 'compaction'.", f"{path}.type")
        if (least := entry.get("compact_threshold", 1000)) < 1000:
            words = f"integer below minimum value. Expected a value >= 1000, but got {least} instead."
            path = f"{path}.compact_threshold"
            yield Wrong(f"Invalid '{path}': {words}", path, "integer_below_min_value")


def _unsupported(name: str) -> Wrong:
    return Wrong(f"Unsupported parameter: '{name}' is not supported with this model.", name)


def _too_long(text: str, path: str, limit: int) -> Iterator[Wrong]:
    if len(text) > limit:
        words = f"Expected a string with maximum length {limit}, but got a string with length {len(text)} instead."
        yield Wrong(f"Invalid '{path}': string too long. {words}", path, "string_above_max_length")


def _tools(body: Json) -> Iterator[Wrong]:
    for n, tool in enumerate(body.get("tools", ())):
        for name in ("type", "name", "parameters"):
            if name not in tool:
                path = f"tools[{n}].{name}"
                yield Wrong(f"Missing required parameter: '{path}'.", path, "missing_required_parameter")
        yield from _bad_name(tool.get("name", "x"), f"tools[{n}].name")
        if tool.get("strict", True) and tool.get("parameters", {}).get("additionalProperties") is not False:
            words = "In context=(), 'additionalProperties' is required to be supplied and to be false."
            path = f"tools[{n}].parameters"
            yield Wrong(f"Invalid schema for function '{tool.get('name')}': {words}", path, "invalid_function_parameters")


def _bad_name(name: str, path: str) -> Iterator[Wrong]:
    yield from _too_long(name, path, 64)
    if not _NAME.fullmatch(name):
        words = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        yield Wrong(f"Invalid '{path}': {words}", path, "invalid_value")


# --- the items --------------------------------------------------------------------------------------------------------


def _items(body: Json) -> list[Json]:
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return [{"type": "message", **item} if "role" in item else item for item in items]


def _forms(items: list[Json]) -> Iterator[Wrong]:
    for n, item in enumerate(items):
        kind, path = str(item.get("type")), f"input[{n}]"
        if kind not in _KEYS:
            yield Wrong(f"Invalid value: '{kind}'.", path, "invalid_value")
            return
        for name in sorted(item.keys() - _KEYS[kind]):
            yield Wrong(f"Unknown parameter: '{path}.{name}'.", f"{path}.{name}", "unknown_parameter")
        for name in _DEMANDED[kind]:
            if item.get(name) is None:
                words = f"Missing required parameter: '{path}.{name}'."
                yield Wrong(words, f"{path}.{name}", "missing_required_parameter")
        yield from _message(item, path) if kind == "message" else _parts_of_calls(item, path)


def _message(item: Json, path: str) -> Iterator[Wrong]:
    if item["role"] not in _ROLES:
        yield Wrong(f"Invalid value: '{item['role']}'. Supported values are: {', '.join(_ROLES)}.", path, "invalid_value")
    supported = ("output_text", "refusal") if item["role"] == "assistant" else ("input_text", "input_image", "input_file")
    for n, part in enumerate(item["content"] if isinstance(item["content"], list) else ()):
        if part.get("type") not in supported:
            words = f"Invalid value: '{part.get('type')}'. Supported values are: {', '.join(supported)}."
            yield Wrong(words, f"{path}.content[{n}]", "invalid_value")
        if part.get("type") == "input_image" and not _PICTURE.fullmatch(str(part.get("image_url"))):
            words = "Expected a base64-encoded data URL with an image MIME type"
            yield Wrong(f"Invalid '{path}.content[{n}].image_url'. {words}.", "input", "invalid_value")
    if item.get("phase") not in (None, "commentary", "final_answer"):
        yield Wrong(f"Invalid value: '{item['phase']}'.", f"{path}.phase", "invalid_value")


def _parts_of_calls(item: Json, path: str) -> Iterator[Wrong]:
    if "call_id" in item:
        yield from _too_long(item["call_id"], f"{path}.call_id", 64)
    if item["type"] == "function_call":
        yield from _bad_name(item["name"], f"{path}.name")
        if not isinstance(item["arguments"], str):
            words = "expected a string, but got an object instead."
            yield Wrong(f"Invalid type for '{path}.arguments': {words}", f"{path}.arguments", "invalid_type")
        if not item.get("id", "fc").startswith("fc"):
            yield Wrong(f"Invalid '{path}.id': '{item['id']}'. Expected an ID that begins with 'fc'.", f"{path}.id")


def _pairs(items: list[Json]) -> Iterator[Wrong]:
    """Check that calls and outputs match by their ids, in any place, the call first."""
    owed: dict[str, bool] = {}
    for item in items:
        if item["type"] == "function_call":
            if item["call_id"] in owed:
                yield _twice(item["call_id"])
            owed[item["call_id"]] = True
        elif item["type"] == "function_call_output":
            if item["call_id"] not in owed:
                yield Wrong(f"No tool call found for function call output with call_id {item['call_id']}.", "input")
            elif not owed[item["call_id"]]:
                yield _twice(item["call_id"])
            owed[item["call_id"]] = False
    for call_id, owing in owed.items():
        if owing:
            yield Wrong(f"No tool output found for function call {call_id}.", "input")


def _twice(id_: str) -> Wrong:
    return Wrong(f"Duplicate item found with id {id_}. Remove duplicate items from your input and try again.", "input")


def _thoughts(items: list[Json], model: str, organization: str) -> Iterator[Wrong]:
    seen: set[str] = set()
    for n, item in enumerate(items):
        if item["type"] == "compaction":
            yield from _verified(item, model, organization)
        if item["type"] != "reasoning":
            continue
        if not reasons(model):
            yield Wrong("Reasoning input items can only be provided to a reasoning or computer use model.", "input")
        if item["id"] in seen:
            yield _twice(item["id"])
        seen.add(item["id"])
        if item.get("content"):
            words = f"Expected an array with maximum length 0, but got an array with length {len(item['content'])} instead."
            path = f"input[{n}].content"
            yield Wrong(f"Invalid '{path}': array too long. {words}", path, "array_above_max_length")
        yield from _sealed(item, items[n + 1 :], model, organization)


def _sealed(item: Json, behind: list[Json], model: str, organization: str) -> Iterator[Wrong]:
    if not item.get("encrypted_content"):
        words = "Items are not persisted when `store` is set to false."
        yield Wrong(f"Item with id '{item['id']}' not found. {words}", "input")
        return
    yield from _verified(item, model, organization)
    *_, led_to = _opened(item)
    following = next((i for i in behind if i["type"] != "reasoning"), None)
    if following is None or _plain(following) != led_to:
        yield Wrong(f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.", "input")


def _verified(item: Json, model: str, organization: str) -> Iterator[Wrong]:
    if _opened(item)[:2] != [model, organization]:
        words = f"The encrypted content for item {item.get('id')} could not be verified."
        yield Wrong(words, None, "invalid_encrypted_content")


def _opened(item: Json) -> list[Any]:
    """Return the model and the organization of encrypted content, and what it led to."""
    try:
        return list(json.loads(base64.b64decode(item["encrypted_content"].removeprefix("gAAAA"))))
    except ValueError:
        return [None, None, None]


def _plain(item: Json) -> list[Any]:
    """Return what identifies an item of a reply, with or without its ids."""
    if item["type"] == "function_call":
        return ["function_call", item["name"], item["arguments"]]
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    text = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    return [item["type"], item.get("role"), text, item.get("phase")]
