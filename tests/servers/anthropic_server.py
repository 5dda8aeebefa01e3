"""A fake of Anthropic's Messages API, as strict as the real one, with the faults that a test asks for.

Written from Anthropic's documentation: the API reference (`POST /v1/messages`), the pages on streaming, stop reasons,
errors, tool use, extended thinking, preserved thinking (a block's signature binds it to all that stood before it) and
prompt caching (marks, the look-back of twenty blocks); the list of models. What it refuses it refuses with the real
service's words and status.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from plugins.testing.servers.faulty_server import Fault, FaultyServer, Json, RawResponse, ServerResponse, json_response
from tests.servers.anthropic_rules import signature, what_is_wrong

KEY = "sk-ant-api03-test-0123456789"
LOOK_BACK = 20
VERSIONS = ("2023-06-01", "2026-10-21")
"""The one of the documentation, and the one that the vendor's newest client names."""


class Says(ServerResponse):
    """A reply: thinking, text word by word, tool calls in fragments. `parts` are the blocks themselves instead; thinking
    blocks are signed here."""

    def __init__(
        self,
        text: str = "",
        *calls: tuple[str, str],
        thoughts: str = "",
        parts: list[Json] | None = None,
        stop: str = "",
        delay: float = 0,
    ) -> None:
        said = [{"type": "text", "text": text}] if text else []
        thought = [{"type": "thinking", "thinking": thoughts}] if thoughts else []
        called = [
            {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": text} for n, (name, text) in enumerate(calls)
        ]
        self.parts: list[Json] = [*thought, *said, *called] if parts is None else parts
        self.stop = stop or ("tool_use" if any(part["type"] == "tool_use" for part in self.parts) else "end_turn")
        self.delay = delay


Answer = Fault | RawResponse | Says


def refusal(message: str, kind: str = "invalid_request_error", **more: Any) -> bytes:
    """Return an error body in Anthropic's format."""
    error = {"type": kind, "message": message, **more}
    return json.dumps({"type": "error", "error": error, "request_id": "req_test"}).encode()


def event(kind: str, **content: Any) -> bytes:
    """Return an encoded event; the real service pads some with spaces."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **content})[:-1]}   }}\n\n".encode()


class AnthropicServer(FaultyServer[Says]):
    """The fake; see `FaultyServer`. It records the messages of its refusals and has a cache of prefixes."""

    PATH = "/v1/messages"

    def __init__(self, *answers: Answer, respond: Callable[[Json], Answer] | None = None) -> None:
        super().__init__(*answers, respond=respond)
        self.refusals: list[str] = []
        self._cache: set[str] = set()

    def key_refused(self, request: web.Request) -> web.Response | None:
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if request.headers.get("x-api-key", bearer) != KEY:
            return json_response(401, refusal("invalid x-api-key", "authentication_error"))
        if request.headers.get("anthropic-version") not in VERSIONS:
            return json_response(400, refusal("anthropic-version: a valid version is required"))
        return None

    def refused(self, request: web.Request, body: Json) -> web.Response | None:
        if (wrong := what_is_wrong(body)) is None:
            return None
        self.refusals.append(wrong)
        return json_response(400, refusal(wrong))

    def listing(self, request: web.Request) -> Json | web.Response:
        if not 1 <= int(request.query.get("limit", "20")) <= 1000:
            return json_response(400, refusal("limit: must be between 1 and 1000"))
        models = [("claude-big-20270101", 3_000_000, 256_000), ("claude-test-20260101", 200_000, 64_000)]
        data = [
            {
                "type": "model",
                "id": name,
                "display_name": name.title(),
                "created_at": "2026-01-01T00:00:00Z",
                "max_input_tokens": window,
                "max_tokens": output,
                "capabilities": {"batch": {"supported": True}},
            }
            for name, window, output in models
        ]
        return {"data": data, "has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]}

    def says(self, text: str) -> Says:
        return Says(text)

    def echo(self, body: Json) -> Says:
        blocks = [b for m in reversed(body["messages"]) if m["role"] == "user" for b in m["content"] if b["type"] == "text"]
        return Says(blocks[0]["text"])

    def pieces(self, request: web.Request, body: Json, answer: Says) -> list[bytes]:
        return events_of(body, answer, self._usage(body))

    def _usage(self, body: Json) -> Json:
        """Return the tokens that were read from the cache, written to it, and neither; a token is four characters."""
        prefixes, sizes, marks = _blocks(body)
        read = max(
            (n + 1 for mark in marks for n in range(max(0, mark - LOOK_BACK), mark + 1) if prefixes[n] in self._cache),
            default=0,
        )
        upto = max(marks, default=-1) + 1
        self._cache |= {prefixes[mark] for mark in marks}
        return {
            "input_tokens": sum(sizes[upto:]),
            "cache_creation_input_tokens": sum(sizes[read:upto]),
            "cache_read_input_tokens": sum(sizes[:read]),
            "output_tokens": 1,
        }


def _blocks(body: Json) -> tuple[list[str], list[int], list[int]]:
    """Return for each block, in the order of the cache, the hash of all up to it and its size; and the marked blocks."""
    said = [(message["role"], block) for message in body["messages"] for block in message["content"]]
    ordered = [("tool", t) for t in body.get("tools", [])] + [("system", t) for t in body.get("system", [])] + said
    state, prefixes, sizes = hashlib.sha256(), [], []
    for kind, block in ordered:
        text = json.dumps([kind, {name: value for name, value in block.items() if name != "cache_control"}])
        state.update(text.encode())
        prefixes.append(state.hexdigest())
        sizes.append(len(text) // 4)
    return prefixes, sizes, [n for n, (_, block) in enumerate(ordered) if "cache_control" in block]


def events_of(body: Json, answer: Says, usage: Json | None = None) -> list[bytes]:
    """Yield the events of a reply."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": f"{body['model']}-20260101", "content": []}
    start = {**head, "stop_reason": None, "stop_sequence": None, "usage": usage or {"input_tokens": 3, "output_tokens": 1}}
    events = [event("message_start", message=start)]
    for index, part in enumerate(answer.parts):
        events += _block_events(index, part, signature(body, answer.parts[:index]))
        if index == 0:
            events.append(event("ping"))
    words = sum(len(str(part).split()) for part in answer.parts)
    end = {"stop_reason": answer.stop, "stop_sequence": None}
    return [*events, event("message_delta", delta=end, usage={"output_tokens": words}), event("message_stop")]


def _block_events(index: int, part: Json, signed: str) -> list[bytes]:
    def delta(kind: str, **content: str) -> bytes:
        return event("content_block_delta", index=index, delta={"type": kind, **content})

    match part["type"]:
        case "text":
            words = part["text"].split(" ")
            start: Json = {"type": "text", "text": ""}
            deltas = [delta("text_delta", text=w + " " * (n < len(words) - 1)) for n, w in enumerate(words)]
        case "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            halves = [part["thinking"][:5], part["thinking"][5:]]
            deltas = [*(delta("thinking_delta", thinking=half) for half in halves if half)]
            deltas.append(delta("signature_delta", signature=signed))
        case "tool_use":
            start = {**part, "input": {}}
            fragments = [part["input"][n : n + 5] for n in range(0, len(part["input"]), 5)]
            deltas = [delta("input_json_delta", partial_json=fragment) for fragment in ("", *fragments)]
        case _:
            start, deltas = part, []
    began = event("content_block_start", index=index, content_block=start)
    return [began, *deltas, event("content_block_stop", index=index)]
