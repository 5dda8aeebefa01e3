"""A fake of Google's Gemini API, strict where the real one is, and faulty where a test says so.

Written from Google's documentation: the API reference (`models.streamGenerateContent`, `Content`, `FunctionCall`,
`GenerateContentResponse`), the pages on function calling, thought signatures, rate limits and troubleshooting, and Google's
error model (`google.rpc.Status`, `ErrorInfo`, `RetryInfo`, `QuotaFailure`). What it refuses it refuses with the real
service's words and status.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.servers.openai_server import Fault, Raw

KEY = "AIzaTest0123456789"
UNSIGNED = "skip_thought_signature_validator"

Json = dict[str, Any]


class Says:
    """An ordinary answer: text in words, whole calls, usage. `signed` says whether the model signs as the third
    generation does: the first call of a reply, else a last part without text."""

    def __init__(
        self, text: str = "", *calls: tuple[str, Json], finish: str = "STOP", signed: bool = True, delay: float = 0
    ) -> None:
        self.text = text
        self.calls = calls
        self.finish = finish
        self.signed = signed
        self.delay = delay


Answer = Fault | Raw | Says


def refusal(code: int, message: str, status: str, *details: Json) -> bytes:
    """An error body in Google's form."""
    error: Json = {"code": code, "message": message, "status": status}
    return json.dumps({"error": error | ({"details": list(details)} if details else {})}, indent=2).encode()


def quota(seconds: str, quota_id: str) -> bytes:
    """The body of a 429, as the free tier gives it."""
    kind = "type.googleapis.com/google.rpc."
    return refusal(
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        "RESOURCE_EXHAUSTED",
        {"@type": f"{kind}QuotaFailure", "violations": [{"quotaId": quota_id, "quotaValue": "20"}]},
        {"@type": f"{kind}RetryInfo", "retryDelay": seconds},
    )


def echo(body: Json) -> Answer:
    """Repeats the last text of the person."""
    texts = [part["text"] for content in body["contents"] for part in content["parts"] if "text" in part]
    return Says(texts[-1])


class GeminiServer:
    """Answers each request with what `answers` gives, in order, the last for ever; or with what `respond` makes of it."""

    def __init__(self, *answers: Answer, respond: Callable[[Json], Answer] = echo) -> None:
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.url = ""
        self.disconnects = 0
        self.signatures: set[str] = set()
        self._answers = list(answers)
        self._respond = respond

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[GeminiServer]:
        """Listen on a free port; `url` is then the base URL."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1beta/models/{model}:streamGenerateContent", self._generate)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        self.paths.append(request.path_qs)
        if request.headers.get("x-goog-api-key") != KEY:
            return _bad_key()
        body: Json = await request.json()
        self.requests.append(body)
        model = request.match_info["model"]
        if (wrong := self._what_is_wrong(model, body)) is not None:
            return _refused(400, wrong, "INVALID_ARGUMENT")
        answer = self._answers[min(len(self.requests), len(self._answers)) - 1] if self._answers else self._respond(body)
        try:
            return await self._give(request, model, answer)
        except (ConnectionError, asyncio.CancelledError):
            self.disconnects += 1
            raise

    def _what_is_wrong(self, model: str, body: Json) -> str | None:
        signatures = self.signatures if model.startswith("gemini-3") else None
        return what_is_wrong(body, signatures)

    async def _give(self, request: web.Request, model: str, answer: Answer) -> web.StreamResponse:
        if isinstance(answer, Fault) and not answer.end:
            headers = {"Content-Type": answer.media, **answer.headers}
            return web.Response(status=answer.status, body=answer.body, headers=headers)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if isinstance(answer, Raw):
            size = answer.chunk or len(answer.content) or 1
            for start in range(0, len(answer.content), size):
                await response.write(answer.content[start : start + size])
                await asyncio.sleep(answer.delay)
            return response
        if isinstance(answer, Fault):
            return await self._break(request, response, model, answer)
        for event in self.events_of(model, answer):
            await response.write(event)
            if answer.delay:
                await asyncio.sleep(answer.delay)
        return response

    async def _break(
        self, request: web.Request, response: web.StreamResponse, model: str, fault: Fault
    ) -> web.StreamResponse:
        pieces = self.events_of(model, Says("one two three four five"))[: fault.pieces]
        for event in fault.events if fault.events is not None else pieces:
            await response.write(event)
        transport = request.transport
        assert transport is not None
        if fault.end == "hang":
            await asyncio.sleep(60)
        elif fault.end == "cut":
            transport.write(b"1000\r\ndata: {")  # the beginning of a chunk that does not come
            transport.close()
        elif fault.end == "reset":
            await asyncio.sleep(0.05)  # a reset drops what has not been read yet
            transport.abort()
        return response

    def events_of(self, model: str, answer: Says) -> list[bytes]:
        """The events of an ordinary answer."""
        words = [word + " " for word in answer.text.split(" ")]
        words[-1] = words[-1][:-1]
        parts: list[Json] = [{"text": word} for word in words if word]
        calls = len(answer.calls)
        for index, (tool, arguments) in enumerate(answer.calls):
            part: Json = {"functionCall": {"id": f"g{len(self.requests)}{index}", "name": tool, "args": arguments}}
            parts.append(part | (self._signed() if answer.signed and index == 0 else {}))
        last: Json = {"text": ""} | (self._signed() if answer.signed and not calls else {})
        usage: Json = {"promptTokenCount": 40, "cachedContentTokenCount": 10, "candidatesTokenCount": len(parts)}
        usage |= {"thoughtsTokenCount": 100, "totalTokenCount": 140 + len(parts)}
        chunks: list[Json] = [{"content": {"parts": [part], "role": "model"}, "index": 0} for part in parts]
        chunks.append({"content": {"parts": [last], "role": "model"}, "finishReason": answer.finish, "index": 0})
        told = {"usageMetadata": usage, "modelVersion": f"{model}-001", "responseId": "r"}
        return [b"data: " + json.dumps({"candidates": [chunk], **told}).encode() + b"\r\n\r\n" for chunk in chunks]

    def _signed(self) -> Json:
        signature = f"c2lnbmF0dXJl{len(self.signatures):04d}"
        self.signatures.add(signature)
        return {"thoughtSignature": signature}


_MEMBERS = {
    "text": {"text", "thoughtSignature"},
    "functionCall": {"functionCall", "thoughtSignature"},
    "functionResponse": {"functionResponse"},
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")


def what_is_wrong(body: Json, signatures: set[str] | None) -> str | None:
    """What the real service would refuse about a request, in its words; None if nothing. `signatures` are those that the
    model gave, None for a model that demands none."""
    if unknown := set(body) - {"contents", "systemInstruction", "tools", "generationConfig"}:
        return f'Invalid JSON payload received. Unknown name "{unknown.pop()}": Cannot find field.'
    contents = body.get("contents")
    if not contents:
        return "* GenerateContentRequest.contents: contents is not specified\n"
    options = {"temperature", "topP", "topK", "maxOutputTokens"}
    if unknown := set(body.get("generationConfig", {})) - options:
        name = unknown.pop()
        return f"Invalid JSON payload received. Unknown name \"{name}\" at 'generation_config': Cannot find field."
    for tool in body.get("tools", ()):
        for declared in tool["functionDeclarations"]:
            if not _NAME.fullmatch(declared["name"]):
                return "GenerateContentRequest.tools[0].function_declarations[0].name: Invalid function name."
    return _wrong_parts(contents) or _wrong_turns(contents) or _wrong_signature(contents, signatures)


def _wrong_parts(contents: list[Json]) -> str | None:
    for index, content in enumerate(contents):
        if content["role"] not in ("user", "model"):
            return "Please use a valid role: user, model."
        if not content["parts"]:
            return f"* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty.\n"
        for part in content["parts"]:
            kind = next((name for name in _MEMBERS if name in part), "")
            if set(part) - _MEMBERS.get(kind, set()):
                return 'Invalid JSON payload received. Unknown name at "contents.parts": Cannot find field.'
            if not (kind and (part[kind] or "thoughtSignature" in part)):
                return "Unable to submit request because it must have a text parameter."
            if kind == "functionCall" and not isinstance(part[kind]["args"], dict):
                return "Invalid value at 'contents.parts.function_call.args' (type.googleapis.com/google.protobuf.Struct)"
    return None


def _wrong_turns(contents: list[Json]) -> str | None:
    """Roles alternate, but for a person's words behind the results of calls."""
    before: Json | None = None
    for content in contents:
        calls, results = _of(before, "functionCall"), _of(content, "functionResponse")
        if results and not calls:
            return "Please ensure that function response turn comes immediately after a function call turn."
        if [(c.get("id"), c["name"]) for c in calls] != [(r.get("id"), r["name"]) for r in results]:
            return (
                "Please ensure that the number of function response parts is equal to the number of function call parts"
                " of the function call turn."
            )
        if _of(content, "functionCall") and (before is None or before["role"] == "model"):
            return (
                "Please ensure that function call turn comes immediately after a user turn or after a function response"
                " turn."
            )
        same = content["role"] == (before or {"role": "model"})["role"]
        if same and not _of(before, "functionResponse"):
            return "Please ensure that multiturn requests alternate between user and model."
        before = content
    if before is not None and before["role"] == "model":
        return "Please ensure that single turn requests end with a user role or the role field is empty."
    return None


def _wrong_signature(contents: list[Json], signatures: set[str] | None) -> str | None:
    """The first call of each step since the person last spoke must be signed, and no signature may be another's."""
    if signatures is None:
        return None
    spoke = [n for n, content in enumerate(contents) if content["role"] == "user" and "text" in content["parts"][-1]]
    for index, content in enumerate(contents):
        given = [part["thoughtSignature"] for part in content["parts"] if "thoughtSignature" in part]
        if set(given) - signatures - {UNSIGNED}:
            return "Corrupted thought signature."
        signed = [bool(part.get("thoughtSignature")) for part in content["parts"] if "functionCall" in part]
        if index > max(spoke, default=0) and signed and not signed[0]:
            name = _of(content, "functionCall")[0]["name"]
            return (
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work"
                " correctly, and missing thought_signature may lead to degraded model performance. Additional data,"
                f" function call `default_api:{name}` , position {index + 1}."
            )
    return None


def _of(content: Json | None, kind: str) -> list[Json]:
    return [part[kind] for part in content["parts"] if kind in part] if content else []


def _bad_key() -> web.Response:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
    body = refusal(400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT", info)
    return web.Response(status=400, body=body, content_type="application/json")


def _refused(code: int, message: str, status: str) -> web.Response:
    return web.Response(status=code, body=refusal(code, message, status), content_type="application/json")
