"""A fake of OpenAI's Responses API, as strict as the real one, with the faults that a test asks for.

Written from OpenAI's documentation: the API reference (`POST /v1/responses`, its streaming events, the response object,
error codes) and the pages on streaming responses, function calling, reasoning (encrypted reasoning items, `store: false`),
conversation state and prompt caching; the list of parameters, items and events is that of the official client's types, and
the words of the refusals are as people quote them in their reports. Reasoning comes back sealed: it is refused for another
model, for another organization, and in front of anything but what it led to. From a `compact_threshold` on an answer begins
with a compaction, sealed as well.
"""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from plugins.testing.servers.faulty_server import FaultyServer, Json, ServerResponse, json_response
from tests.servers.openai_responses_rules import Wrong, sealed, what_is_wrong

KEYS = {"sk-test-0123456789": "org-one", "sk-test-9876543210": "org-two"}
"""The organization of each key."""
KEY = next(iter(KEYS))


class Says(ServerResponse):
    """A reply: reasoning (its summary, if that is known), text word by word, tool calls in fragments. `parts` are the items
    themselves instead: `{"type": "reasoning"}`, a `message` with `text`, `refusal`, `phase`, a `function_call` with `name`,
    `arguments`. `incomplete` is the reason for an early end."""

    def __init__(
        self,
        text: str = "",
        *calls: tuple[str, str],
        thoughts: bool | str = False,
        parts: list[Json] | None = None,
        incomplete: str = "",
        delay: float = 0,
    ) -> None:
        said = [{"type": "message", "text": text}] if text else []
        called = [{"type": "function_call", "name": name, "arguments": arguments} for name, arguments in calls]
        summary = [{"type": "summary_text", "text": part} for part in str(thoughts).split("\n\n")]
        thought: Json = {"type": "reasoning"} | ({"summary": summary} if isinstance(thoughts, str) else {})
        self.parts: list[Json] = [*([thought] * bool(thoughts)), *said, *called] if parts is None else parts
        self.incomplete = incomplete
        self.delay = delay


def refusal(message: str, code: str | None, kind: str = "invalid_request_error", param: str | None = None) -> bytes:
    """Return an error body in OpenAI's format."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()


def event(kind: str, number: int = 0, /, **content: Any) -> bytes:
    """Return an encoded event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': number, **content})}\n\n".encode()


class ResponsesServer(FaultyServer[Says]):
    """The fake; see `FaultyServer`. A token is four characters; what a request has in common with the one before it under
    the same `prompt_cache_key` was cached."""

    PATH = "/v1/responses"
    BASE = "/v1"

    def __init__(self, *answers: Any, **options: Any) -> None:
        super().__init__(*answers, **options)
        self.refusals: list[Wrong] = []
        self._cached: dict[str | None, list[str]] = {}
        self._answers_made = 0

    def key_refused(self, request: web.Request) -> web.Response | None:
        if _organization(request):
            return None
        return json_response(401, refusal("Incorrect API key provided: sk-wrong.", "invalid_api_key"))

    def refused(self, request: web.Request, body: Json) -> web.Response | None:
        wrong = what_is_wrong(body, _organization(request))
        if wrong is None:
            return None
        self.refusals.append(wrong)
        return json_response(400, refusal(wrong.message, wrong.code, param=wrong.param))

    def listing(self, request: web.Request) -> Json | web.Response:
        return {"object": "list", "data": [{"id": "gpt-test", "object": "model", "created": 1, "owned_by": "openai"}]}

    def says(self, text: str) -> Says:
        return Says(text)

    def echo(self, body: Json) -> Says:
        said = next(i["content"] for i in reversed(body["input"]) if i.get("role") == "user")
        return Says(said if isinstance(said, str) else " ".join(part.get("text", "") for part in said))

    def pieces(self, request: web.Request, body: Json, answer: Says) -> list[bytes]:
        self._answers_made += 1
        parts = [{"type": "compaction"}] * _compacts(body) + answer.parts
        answer = Says(parts=parts, incomplete=answer.incomplete, delay=answer.delay)
        items = items_of(body, answer, _organization(request), self._answers_made)
        return events_of(response_to(body), items, answer.incomplete, self._usage(body, items))

    def _usage(self, body: Json, items: list[Json]) -> Json:
        head = [json.dumps([body["model"], body.get("instructions"), body.get("tools")])]
        pieces = [*head, *(json.dumps(item) for item in body["input"])]
        before, self._cached[body.get("prompt_cache_key")] = self._cached.get(body.get("prompt_cache_key"), []), pieces
        common = 0
        while common < min(len(before), len(pieces)) and before[common] == pieces[common]:
            common += 1
        read, written = len("".join(pieces)) // 4, len(json.dumps(items)) // 4
        cached = len("".join(pieces[:common])) // 4
        return {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": read - cached},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": written // 2},
            "total_tokens": read + written,
        }


def _compacts(body: Json) -> bool:
    """Return True if the service compacts the request."""
    tokens = len(json.dumps([body["input"], body.get("instructions"), body.get("tools")])) // 4
    return any(tokens >= entry["compact_threshold"] for entry in body.get("context_management", ()))


def _organization(request: web.Request) -> str:
    return KEYS.get(request.headers.get("Authorization", "").removeprefix("Bearer "), "")


def response_to(body: Json) -> Json:
    """Return the response object at its creation."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": f"{body['model']}-2026-01-01",
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None} | body.get("reasoning", {}),
        "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0),
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": body.get("tools", []),
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "metadata": {},
    }


def items_of(body: Json, answer: Says, organization: str = "org-one", number: int = 1) -> list[Json]:
    """Return the finished items of a reply, with reasoning only if it was requested."""
    items: list[Json] = []
    for n, part in enumerate(reversed(answer.parts)):
        place = f"{number}_{len(answer.parts) - 1 - n}"
        match part["type"]:
            case "reasoning":
                item: Json = {"id": f"rs_{place}", "type": "reasoning", "summary": [], **part}
                if not body.get("reasoning", {}).get("summary"):
                    item["summary"] = []
                if "reasoning.encrypted_content" in body.get("include", []) and "encrypted_content" not in part:
                    led_to = next((i for i in reversed(items) if i["type"] != "reasoning"), {"type": "nothing"})
                    item["encrypted_content"] = sealed(body["model"], organization, led_to)
            case "compaction":
                item = {"id": f"cmp_{place}", **part}
                item.setdefault("encrypted_content", sealed(body["model"], organization, {"type": "all before"}))
            case "message":
                text = {"type": "output_text", "text": part.get("text", ""), "annotations": [], "logprobs": []}
                content = [{"type": "refusal", "refusal": part["refusal"]}] if "refusal" in part else [text]
                phase = {"phase": part["phase"]} if "phase" in part else {}
                done = {"type": "message", "status": "completed", "role": "assistant", "content": content}
                item = {"id": f"msg_{place}", **done, **phase}
            case _:
                item = {"id": f"fc_{place}", "call_id": f"call_{place}", "status": "completed", **part}
        items.append(item)
    items.reverse()
    return items


def events_of(response: Json, items: list[Json], incomplete: str = "", usage: Json | None = None) -> list[bytes]:
    """Yield the events of a reply with these items."""
    told: list[tuple[str, Json]] = [("response.created", {"response": response})]
    told.append(("response.in_progress", {"response": response}))
    for index, item in enumerate(items):
        told += [(kind, {"output_index": index, **content}) for kind, content in _item_events(item)]
    status = "incomplete" if incomplete else "completed"
    end = {**response, "status": status, "output": items, "usage": usage}
    end["incomplete_details"] = {"reason": incomplete} if incomplete else None
    told.append((f"response.{status}", {"response": end}))
    return [event(kind, number, **content) for number, (kind, content) in enumerate(told)]


def _item_events(item: Json) -> list[tuple[str, Json]]:
    growing = {**item, "status": "in_progress"} if "status" in item else dict(item)
    place: Json = {"item_id": item["id"]}
    grown: list[tuple[str, Json]] = []
    if item["type"] == "message":
        growing["content"] = []
        for n, part in enumerate(item["content"]):
            grown += _part_events(part, {**place, "content_index": n})
    elif item["type"] == "function_call":
        growing["arguments"] = ""
        kind, text = "response.function_call_arguments", item["arguments"]
        for start in range(0, len(text), 5):
            grown.append((f"{kind}.delta", {**place, "delta": text[start : start + 5], "obfuscation": "xY"}))
        grown.append((f"{kind}.done", {**place, "arguments": text}))
    elif item["type"] == "reasoning":
        growing["summary"] = []
        for n, part in enumerate(item["summary"] or ()):
            grown += _summary_events(part, {**place, "summary_index": n})
    if item.get("encrypted_content"):
        growing["encrypted_content"] = "gAAAAnot whole"
    return [("response.output_item.added", {"item": growing}), *grown, ("response.output_item.done", {"item": item})]


def _summary_events(part: Json, place: Json) -> list[tuple[str, Json]]:
    kind, words = "response.reasoning_summary", part["text"].split(" ")
    pieces = [word + " " * (n < len(words) - 1) for n, word in enumerate(words)]
    return [
        (f"{kind}_part.added", {**place, "part": {**part, "text": ""}}),
        *((f"{kind}_text.delta", {**place, "delta": piece, "obfuscation": "q"}) for piece in pieces),
        (f"{kind}_text.done", {**place, "text": part["text"]}),
        (f"{kind}_part.done", {**place, "part": part}),
    ]


def _part_events(part: Json, place: Json) -> list[tuple[str, Json]]:
    field = "refusal" if part["type"] == "refusal" else "text"
    kind = "response.refusal" if field == "refusal" else "response.output_text"
    more: Json = {} if field == "refusal" else {"logprobs": []}
    words = part[field].split(" ")
    pieces = [word + " " * (n < len(words) - 1) for n, word in enumerate(words)]
    return [
        ("response.content_part.added", {**place, "part": {**part, field: ""}}),
        *((f"{kind}.delta", {**place, "delta": piece, "obfuscation": "aB3", **more}) for piece in pieces),
        (f"{kind}.done", {**place, field: part[field], **more}),
        ("response.content_part.done", {**place, "part": part}),
    ]
