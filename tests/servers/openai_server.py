"""A fake of OpenAI's chat completions, strict where the real one is, and faulty where a test says so.

Written from OpenAI's API reference (chat completions, streaming, error codes). It refuses a request whose tool calls and
results do not pair, with the real service's words and status.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

KEY = "sk-test-0123456789"

Json = dict[str, Any]


class Fault:
    """Something other than an answer. `status` and `headers` with `body`; or, after `pieces` of the answer, `end` is one of
    cut (the connection closes inside a chunk), reset, close (a clean end without the terminator), hang. `events` are sent
    instead of the answer's pieces."""

    def __init__(
        self,
        *,
        status: int = 200,
        body: bytes = b"",
        media: str = "application/json",
        headers: dict[str, str] | None = None,
        end: str = "",
        pieces: int = 1,
        events: list[bytes] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.media = media
        self.headers = headers or {}
        self.end = end
        self.pieces = pieces
        self.events = events


class Raw:
    """An event stream with exactly these bytes."""

    def __init__(self, content: bytes, *, chunk: int = 0, delay: float = 0) -> None:
        self.content = content
        self.chunk = chunk
        self.delay = delay


class Says:
    """An ordinary answer: text in words, tool calls in fragments, usage, `[DONE]`."""

    def __init__(self, text: str = "", *calls: tuple[str, str], finish: str = "", delay: float = 0) -> None:
        self.text = text
        self.calls = calls
        self.finish = finish or ("tool_calls" if calls else "stop")
        self.delay = delay


Answer = Fault | Raw | Says


def refusal(message: str, code: str | None, kind: str = "invalid_request_error") -> bytes:
    """An error body in OpenAI's form."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def echo(body: Json) -> Answer:
    """Repeats the last message of the person."""
    return Says(next(m["content"] for m in reversed(body["messages"]) if m["role"] == "user"))


class OpenAIServer:
    """Answers each request with what `answers` gives, in order, the last for ever; or with what `respond` makes of it."""

    def __init__(self, *answers: Answer, respond: Callable[[Json], Answer] = echo) -> None:
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.disconnects = 0
        self._answers = list(answers)
        self._respond = respond

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[OpenAIServer]:
        """Listen on a free port; `url` is then the base URL."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._complete)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            yield self
        finally:
            await runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return _error(401, "Incorrect API key provided: sk-wrong.", "invalid_api_key")
        body: Json = await request.json()
        self.requests.append(body)
        if (wrong := what_is_wrong(body)) is not None:
            return _error(400, wrong, None)
        answer = self._answers[min(len(self.requests), len(self._answers)) - 1] if self._answers else self._respond(body)
        try:
            return await self._give(request, body, answer)
        except (ConnectionError, asyncio.CancelledError):
            self.disconnects += 1
            raise

    async def _give(self, request: web.Request, body: Json, answer: Answer) -> web.StreamResponse:
        if isinstance(answer, Fault) and not answer.end:
            headers = {"Content-Type": answer.media, **answer.headers}
            return web.Response(status=answer.status, body=answer.body, headers=headers)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        if isinstance(answer, Raw):
            size = answer.chunk or len(answer.content) or 1
            for start in range(0, len(answer.content), size):
                await response.write(answer.content[start : start + size])
                await asyncio.sleep(answer.delay)
            return response
        if isinstance(answer, Fault):
            return await self._break(request, response, body, answer)
        for event in events_of(body, answer):
            await response.write(event)
            if answer.delay:
                await asyncio.sleep(answer.delay)
        return response

    async def _break(
        self, request: web.Request, response: web.StreamResponse, body: Json, fault: Fault
    ) -> web.StreamResponse:
        pieces = events_of(body, Says("one two three four five"))[: fault.pieces]
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


def events_of(body: Json, answer: Says) -> list[bytes]:
    """The events of an ordinary answer."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": f"{body['model']}-2026-01-01"}

    def event(delta: Json, finish: str | None = None) -> bytes:
        chunk = {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        return b"data: " + json.dumps({**chunk, "usage": None}).encode() + b"\n\n"

    events = [event({"role": "assistant", "content": "" if answer.text else None})]
    words = answer.text.split(" ")
    if answer.text:
        events += [event({"content": word + (" " if n < len(words) - 1 else "")}) for n, word in enumerate(words)]
    for index, (tool, arguments) in enumerate(answer.calls):
        opening = {"index": index, "id": f"call_{index}", "type": "function"}
        events.append(event({"tool_calls": [{**opening, "function": {"name": tool, "arguments": ""}}]}))
        for start in range(0, len(arguments), 5):
            piece = {"index": index, "function": {"arguments": arguments[start : start + 5]}}
            events.append(event({"tool_calls": [piece]}))
    events.append(event({}, answer.finish))
    if body.get("stream_options", {}).get("include_usage"):
        tokens = len(json.dumps(body["messages"])) // 4
        usage = {
            "prompt_tokens": tokens,
            "completion_tokens": len(words),
            "total_tokens": tokens + len(words),
            "prompt_tokens_details": {"cached_tokens": tokens // 2},
        }
        events.append(b"data: " + json.dumps({**head, "choices": [], "usage": usage}).encode() + b"\n\n")
    return [*events, b"data: [DONE]\n\n"]


def what_is_wrong(body: Json) -> str | None:
    """What the real service would refuse about a request, in its words; None if nothing."""
    owed: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in owed:
                return (
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
                    " 'tool_calls'."
                )
            owed.remove(message["tool_call_id"])
            continue
        if owed:
            return (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
                f" 'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(owed)}"
            )
        owed = [call["id"] for call in message.get("tool_calls", ())]
    return "The following tool_call_ids did not have response messages" if owed else None


def _error(status: int, message: str, code: str | None) -> web.Response:
    return web.Response(status=status, body=refusal(message, code), content_type="application/json")
