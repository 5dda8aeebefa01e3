"""A fake of an Ollama server's `POST /api/chat`, as strict as the real one, with the faults that a test asks for.

Written from Ollama's API documentation (chat, streaming, tool calling, thinking, errors, context length, the list of models
and the details of one) and the words of its releases 0.12 to 0.40. It refuses what those refuse: an unknown model, arguments
that are no object, options of a wrong type, tools or thoughts for a model that has none, and a request that does not fit its
window when `truncate` is false.
When it is not, or before 0.12.6 whatever it is, the beginning of the conversation is dropped without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from plugins.testing.servers.faulty_server import (
    Fault,
    FaultyServer,
    Json,
    RawResponse,
    ServerResponse,
    is_picture,
    json_response,
)

KEY = "0123456789abcdef.test-key"
MODEL = "model-test:8b"


class Says(ServerResponse):
    """A reply: thinking and text word by word, each call on a line of its own, and the counts."""

    def __init__(
        self, text: str = "", *calls: tuple[str, Json], thinking: str = "", finish: str = "stop", delay: float = 0
    ) -> None:
        self.text = text
        self.calls = calls
        self.thinking = thinking
        self.finish = finish
        self.delay = delay


Answer = Fault | RawResponse | Says


def refusal(message: str) -> bytes:
    """Return an error body in Ollama's format."""
    return json.dumps({"error": message}).encode()


def engine_refusal(message: str, kind: str) -> bytes:
    """Return an error of the inference engine as releases since 0.30 send it: JSON as the text of an error."""
    return refusal(json.dumps({"error": {"code": 400, "message": message, "type": kind}}))


class OllamaServer(FaultyServer[Says]):
    """The fake; see `FaultyServer`. It requires `key`; `can` are its model's capabilities besides chat; `old` is a release
    before 0.12.6."""

    PATH = "/api/chat"
    LIST = "/api/tags"
    MEDIA = "application/x-ndjson"

    def __init__(
        self,
        *answers: Answer,
        respond: Callable[[Json], Answer] | None = None,
        key: str = "",
        can: tuple[str, ...] = ("tools", "thinking"),
        old: bool = False,
    ) -> None:
        super().__init__(*answers, respond=respond)
        self._key = key
        self._can = can
        self._old = old
        self.window = 8_192

    def key_refused(self, request: web.Request) -> web.Response | None:
        right = not self._key or request.headers.get("Authorization") == f"Bearer {self._key}"
        return None if right else json_response(401, refusal("unauthorized"))

    def refused(self, request: web.Request, body: Json) -> web.Response | None:
        if (wrong := what_is_wrong(body, self._can, old=self._old)) is None:
            return None
        status, words = wrong
        return json_response(status, refusal(words))

    def listing(self, request: web.Request) -> Json | web.Response:
        details = {"format": "gguf", "family": "llama", "parameter_size": "8.0B", "quantization_level": "Q4_K_M"}
        names = [MODEL, "gone:1b"]
        return {"models": [{"name": name, "model": name, "size": 4_661_224_676, "details": details} for name in names]}

    def add_more(self, app: web.Application) -> None:
        app.router.add_post("/api/show", self._show)

    async def _show(self, request: web.Request) -> web.Response:
        if (refused := self.key_refused(request)) is not None:
            return refused
        if (await request.json()).get("model") != MODEL:
            return json_response(404, refusal("model not found"))
        info = {
            "general.architecture": "llama",
            "general.parameter_count": 8_030_261_248,
            "llama.context_length": self.window,
        }
        return web.json_response({"details": {"family": "llama"}, "model_info": info, "capabilities": ["completion"]})

    def says(self, text: str) -> Says:
        return Says(text)

    def echo(self, body: Json) -> Says:
        return Says(next(m["content"] for m in reversed(body["messages"]) if m["role"] == "user"))

    def pieces(self, request: web.Request, body: Json, answer: Says) -> list[bytes]:
        return lines_of(body, answer)


def lines_of(body: Json, answer: Says) -> list[bytes]:
    """Yield the lines of a reply."""
    head = {"model": body["model"], "created_at": "2026-01-01T00:00:00.000000Z"}

    def line(message: Json, **more: Any) -> bytes:
        value = {**head, "message": {"role": "assistant", "content": "", **message}, "done": False, **more}
        return json.dumps(value).encode() + b"\n"

    lines = [line({"thinking": word}) for word in _words(answer.thinking)]
    lines += [line({"content": word}) for word in _words(answer.text)]
    for index, (tool, arguments) in enumerate(answer.calls):
        call = {"id": f"call_{index:08x}", "function": {"index": index, "name": tool, "arguments": arguments}}
        lines.append(line({"tool_calls": [call]}))
    window, tokens = _options(body).get("num_ctx", 4096), _tokens(body)
    counts = {
        "total_duration": 4_883_583_458,
        "load_duration": 1_334_875,
        "prompt_eval_count": min(tokens, window),
        "prompt_eval_cached_count": min(tokens, window) // 2,
        "eval_count": len(answer.text.split()),
    }
    return [*lines, line({}, done=True, done_reason=answer.finish, **counts)]


def what_is_wrong(body: Json, can: tuple[str, ...], *, old: bool) -> tuple[int, str] | None:
    """Return the status and the message with which the real server refuses a request; None if it accepts it."""
    model = body.get("model")
    if model and model != MODEL:
        return 404, f"model '{model}' not found"
    wrong = "model is required" if not model else _wrong_type(body)
    if body.get("tools") and "tools" not in can:
        wrong = f"registry.ollama.ai/library/{model} does not support tools"
    if body.get("think") and "thinking" not in can:
        wrong = f'"{model}" does not support thinking'
    if wrong is not None:
        return 400, wrong
    window = _options(body).get("num_ctx", 4096)
    if _tokens(body) > window and body.get("truncate") is False and not old:
        words = f"request ({_tokens(body)} tokens) exceeds the available context size ({window} tokens), try increasing it"
        return 400, json.loads(engine_refusal(words, "exceed_context_size_error"))["error"]
    return None


def _wrong_type(body: Json) -> str | None:
    """Return the message of Go's decoder, or of the check of options, about a value of a wrong type."""
    field = "json: cannot unmarshal %s into Go struct field ChatRequest.%s"
    for message in body["messages"]:
        if not isinstance(message.get("content", ""), str):
            return field % ("array", "messages.content of type string")
        if not all(is_picture("image/png", image) for image in message.get("images", ())):
            return "illegal base64 data at input byte 0"
        for call in message.get("tool_calls", ()):
            if not isinstance(call["function"]["arguments"], dict):
                return field % ("string", "messages.tool_calls.function.arguments of type map[string]interface {}")
    if not isinstance(body.get("think", True), bool) and body["think"] not in ("high", "medium", "low"):
        return f'invalid think value: "{body["think"]}" (must be "high", "medium", "low", true, or false)'
    for name in ("num_ctx", "num_predict", "seed"):
        if not isinstance(_options(body).get(name, 1), int):
            return f'option "{name}" must be of type integer'
    return None


def _options(body: Json) -> Json:
    return body.get("options") or {}


def _tokens(body: Json) -> int:
    return len(json.dumps([body["messages"], body.get("tools")])) // 4


def _words(text: str) -> list[str]:
    return [word + " " for word in text.split(" ")[:-1]] + text.split(" ")[-1:] if text else []
