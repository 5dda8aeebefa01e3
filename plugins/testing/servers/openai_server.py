"""A fake of OpenAI's chat completions API, as strict as the real one.

Written from OpenAI's API reference (chat completions, streaming, error codes); error messages are quoted from bug
reports. It rejects unknown arguments, tool calls without results, invalid function names and invalid pictures. A test
runs OpenAI's own Python client against it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import ClassVar

import msgspec
from aiohttp import web

from plugins.testing.servers.faulty_server import (
    HANG,
    Fault,
    FaultyServer,
    Json,
    RawResponse,
    ServerResponse,
    is_picture,
    json_response,
)

KEY = "sk-test-0123456789"


class ScriptedResponse(ServerResponse):
    """A successful answer: text word by word, tool calls in fragments, usage, `[DONE]`. `counts` is the reported number
    of input tokens, by default a quarter of the characters; `cost` is reported besides, as by OpenRouter. `reasoning` is
    sent before the text, word by word, as `reasoning_content`, in the way of DeepSeek and other compatible servers."""

    def __init__(
        self,
        text: str = "",
        *calls: tuple[str, str],
        finish: str = "",
        delay: float = 0,
        counts: int | None = None,
        reasoning: str = "",
        cost: object = None,
    ) -> None:
        self.text = text
        self.cost = cost
        self.reasoning = reasoning
        self.counts = counts
        self.calls = calls
        self.finish = finish or ("tool_calls" if calls else "stop")
        self.delay = delay


Answer = Fault | RawResponse | ScriptedResponse


def refusal(message: str, code: str | None, kind: str = "invalid_request_error") -> bytes:
    """Return an error body in OpenAI's format."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


class Recording(msgspec.Struct, frozen=True):
    """A received form: its text fields, and the name, media type and content of its file."""

    path: str
    fields: dict[str, list[str]]
    name: str
    media: str
    content: bytes


class OpenAIServer(FaultyServer[ScriptedResponse]):
    """The fake. `models` are the models that it lists, with extra fields of compatible servers; `props` is what
    llama-server reports about itself. `transcripts` are the answers to recordings, the last one repeatedly; `recordings`
    has those that were received. With `thinks` it refuses conversations in which a message with tool calls lacks its
    `reasoning_content`, as DeepSeek does in thinking mode."""

    PATH = "/v1/chat/completions"
    BASE = "/v1"
    KEY: ClassVar[str] = KEY
    MODEL: ClassVar[str] = "gpt-test"
    TRANSCRIBES: ClassVar[str] = "gpt-test-transcribe"

    def __init__(self, *answers: Answer, respond: Callable[[Json], Answer] | None = None) -> None:
        super().__init__(*answers, respond=respond)
        self.models: dict[str, Json] = {self.MODEL: {}}
        self.props: Json | None = None
        self.thinks = False
        self.transcripts: list[str | Fault] = ["Hello there."]
        self.recordings: list[Recording] = []

    def key_refused(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization") == f"Bearer {self.KEY}":
            return None
        return json_response(401, refusal("Incorrect API key provided: sk-wrong.", "invalid_api_key"))

    def refused(self, request: web.Request, body: Json) -> web.Response | None:
        wrong = what_is_wrong(body)
        if wrong is None and self.thinks:
            called = (message for message in body["messages"] if message.get("tool_calls"))
            if any("reasoning_content" not in message for message in called):
                wrong = "The `reasoning_content` in the thinking mode must be passed back to the API."
        return None if wrong is None else json_response(400, refusal(wrong, None))

    def listing(self, request: web.Request) -> Json | web.Response:
        usual = {"object": "model", "created": 1_686_935_002, "owned_by": "openai"}
        return {"object": "list", "data": [{"id": name, **usual, **more} for name, more in self.models.items()]}

    def add_more(self, app: web.Application) -> None:
        app.router.add_get("/props", self._props)
        for task in ("transcriptions", "translations"):
            app.router.add_post(f"{self.BASE}/audio/{task}", self._transcribe)

    async def _props(self, request: web.Request) -> web.Response:
        return web.Response(status=404) if self.props is None else web.json_response(self.props)

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        if (refused := self.key_refused(request)) is not None:
            return refused
        recording = await _recording(request)
        if (wrong := _wrong_recording(recording)) is not None:
            return json_response(400, refusal(wrong, None))
        self.recordings.append(recording)
        text = self.transcripts[min(len(self.recordings), len(self.transcripts)) - 1]
        if isinstance(text, Fault):
            if text.end == "silence":
                await asyncio.sleep(HANG)
            return web.Response(status=text.status, body=text.body, headers={"Content-Type": text.media, **text.headers})
        return _transcript(recording, text)

    def says(self, text: str) -> ScriptedResponse:
        return ScriptedResponse(text)

    def echo(self, body: Json) -> ScriptedResponse:
        return ScriptedResponse(next(m["content"] for m in reversed(body["messages"]) if m["role"] == "user"))

    def pieces(self, request: web.Request, body: Json, answer: ScriptedResponse) -> list[bytes]:
        return events_of(body, answer)


_FORM_FIELDS = frozenset(
    {
        "model",
        "response_format",
        "language",
        "prompt",
        "temperature",
        "stream",
        "timestamp_granularities[]",
        "include[]",
        "chunking_strategy",
    }
)


async def _recording(request: web.Request) -> Recording:
    form = await request.post()
    fields: dict[str, list[str]] = {}
    name = media = ""
    content = b""
    for key, value in form.items():
        if isinstance(value, web.FileField):
            name, media, content = value.filename, value.content_type, value.file.read()
            value.file.close()
        elif isinstance(value, str):
            fields.setdefault(key, []).append(value)
    return Recording(request.path, fields, name, media, content)


def _wrong_recording(recording: Recording) -> str | None:
    """Return why the real service would reject a recording; None if it would not."""
    fields = recording.fields
    if unknown := set(fields) - _FORM_FIELDS:
        return f"Unknown parameter: '{unknown.pop()}'."
    if "model" not in fields or not recording.content:
        return "you must provide a model parameter" if recording.content else "Audio file is too short."
    if recording.name.rpartition(".")[2] not in ("flac", "mp3", "mp4", "mpeg", "mpga", "m4a", "ogg", "wav", "webm"):
        return "Unrecognized file format."
    if "timestamp_granularities[]" in fields and fields.get("response_format") not in (["verbose_json"], ["json"]):
        return "Timestamp granularities are only available with response_format verbose_json."
    return None


def _transcript(recording: Recording, text: str) -> web.Response:
    """Return a transcript in the requested format."""
    usage = {"type": "tokens", "input_tokens": 14, "output_tokens": 4, "total_tokens": 18}
    match recording.fields.get("response_format", ["json"])[0]:
        case _ if recording.fields.get("stream") == ["true"]:
            words = re.findall(r"\S+\s*", text)
            events: list[Json] = [{"type": "transcript.text.delta", "delta": word} for word in words]
            events.append({"type": "transcript.text.done", "text": text, "usage": usage})
            body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
            return web.Response(body=body, content_type="text/event-stream")
        case "text":
            return web.Response(text=f"{text}\n")
        case "srt":
            return web.Response(text=f"1\n00:00:00,000 --> 00:00:01,000\n{text}\n")
        case "vtt":
            return web.Response(text=f"WEBVTT\n\n00:00.000 --> 00:01.000\n{text}\n")
        case "verbose_json":
            segment = {"id": 0, "seek": 0, "start": 0.0, "end": 1.0, "text": text, "tokens": [1], "temperature": 0.0}
            segment |= {"avg_logprob": -0.1, "compression_ratio": 1.0, "no_speech_prob": 0.0}
            more = {"task": "transcribe", "language": "english", "duration": 1.0, "segments": [segment]}
            return web.json_response({"text": text, **more, "usage": {"type": "duration", "seconds": 1}})
        case _:
            return web.json_response({"text": text, "usage": usage})


def events_of(body: Json, answer: ScriptedResponse) -> list[bytes]:
    """Return the events of a successful answer."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": f"{body['model']}-2026-01-01"}

    def event(delta: Json, finish: str | None = None) -> bytes:
        chunk = {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        return b"data: " + json.dumps({**chunk, "usage": None}).encode() + b"\n\n"

    events = [event({"role": "assistant", "content": "" if answer.text else None})]
    if answer.reasoning:
        thoughts = re.findall(r"\S+\s*|\s+", answer.reasoning)
        events += [event({"content": None, "reasoning_content": thought}) for thought in thoughts]
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
        tokens = len(json.dumps(body["messages"])) // 4 if answer.counts is None else answer.counts
        usage = {
            "prompt_tokens": tokens,
            "completion_tokens": len(words),
            "total_tokens": tokens + len(words),
            "prompt_tokens_details": {"cached_tokens": tokens // 2},
        }
        if answer.cost is not None:
            usage["cost"] = answer.cost
        events.append(b"data: " + json.dumps({**head, "choices": [], "usage": usage}).encode() + b"\n\n")
    return [*events, b"data: [DONE]\n\n"]


_FIELDS = frozenset(
    {
        "model", "messages", "stream", "stream_options", "tools", "tool_choice", "temperature", "top_p", "max_tokens",
        "max_completion_tokens", "reasoning_effort", "seed", "stop", "presence_penalty", "frequency_penalty",
        "parallel_tool_calls", "response_format",
    }
)  # fmt: skip
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def what_is_wrong(body: Json) -> str | None:
    """Return the real service's error message for a request; None if it is valid."""
    if unknown := set(body) - _FIELDS:
        return f"Unrecognized request argument supplied: {unknown.pop()}"
    if not body["messages"]:
        return "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
    for n, message in enumerate(body["messages"]):
        for wrong in _wrong_message(message, f"messages[{n}]"):
            return wrong
    return _wrong_pair(body)


def _wrong_message(message: Json, place: str) -> Iterator[str]:
    content, calls = message.get("content"), message.get("tool_calls")
    if message["role"] not in ("system", "user", "assistant", "tool"):
        yield f"Invalid value: '{message['role']}'. Supported values are: 'system', 'assistant', 'user', and 'tool'."
    for part in content if isinstance(content, list) else ():
        media, _, base64 = part.get("image_url", {}).get("url", "").removeprefix("data:").partition(";base64,")
        if part.get("type") != "text" and not is_picture(media, base64):
            yield f"Invalid '{place}.content': expected text, or a base64-encoded data URL with an image MIME type."
    if content is None and not calls:
        yield f"Invalid value for 'content': expected a string, got null. ({place})"
    if calls is not None and not calls:
        yield f"Invalid '{place}.tool_calls': empty array. Expected an array with minimum length 1."
    for n, call in enumerate(calls or ()):
        function = call["function"]
        if not _NAME.fullmatch(function["name"]):
            yield (
                f"Invalid '{place}.tool_calls[{n}].function.name': string does not match pattern. Expected a string that"
                " matches the pattern '^[a-zA-Z0-9_-]+$'."
            )
        if not isinstance(function["arguments"], str) or len(call["id"]) > 40:
            yield f"Invalid type for '{place}.tool_calls[{n}]'."


def _wrong_pair(body: Json) -> str | None:
    """Return an error message if calls and results do not match; None if they do."""
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
