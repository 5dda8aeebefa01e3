"""The chat providers, each with its fake, for tests that run with all of them.

A new provider is another entry of `VENDORS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from plugins.api.chat import ChatProvider, ChatRequest
from plugins.providers.anthropic import request as anthropic_request
from plugins.providers.anthropic.chat import Anthropic
from plugins.providers.gemini import request as gemini_request
from plugins.providers.gemini.chat import Gemini
from plugins.providers.ollama import protocol as ollama_wire
from plugins.providers.ollama.chat import Ollama
from plugins.providers.openai import chat_completions as openai_wire
from plugins.providers.openai import responses as openai_responses
from plugins.providers.openai.chat import OpenAI
from plugins.testing.servers import openai_server
from plugins.testing.servers.faulty_server import Fault, FaultyServer, Json, RawResponse, ServerResponse
from tests.plugins.provider_harness import Harness, ProviderClient
from tests.servers import anthropic_rules, anthropic_server, gemini_server, ollama_server
from tests.servers import openai_responses_rules as responses_rules
from tests.servers import openai_responses_server as responses_server


class Vendor(NamedTuple):
    """A provider and its fake. `says` makes a reply of text, calls (a tool and its arguments, an object or any text) and
    thinking. `refusal` is an error body for a status. `overflows` are the ways in which it reports that a conversation is
    too long, `broken` an error inside a stream, `limited` one for too many requests there. `lines` is True for a stream of
    lines instead of events. `refuses` returns the fake's message about a request, `thoughts` the reasoning that a request's
    body sends back. `empty` are parts of a stream without content, `thinking` is one with reasoning."""

    name: str
    harness: Harness[Any]
    says: Callable[..., ServerResponse]
    refusal: Callable[[int, str], bytes]
    overflows: tuple[Fault | RawResponse, ...]
    broken: bytes
    limited: bytes
    refuses: Callable[[ChatRequest], Any]
    thoughts: Callable[[Json], list[str]]
    empty: tuple[bytes, ...]
    thinking: bytes
    lines: bool = False

    def framed(self, data: bytes) -> bytes:
        """Return data as an event or a line of the stream."""
        data = data.replace(b"\n", b"")
        return data + b"\n" if self.lines else b"data: " + data + b"\n\n"

    @property
    def model(self) -> str:
        """The model of its requests."""
        return self.harness.model

    @property
    def key(self) -> str:
        """The key that the fake accepts."""
        return self.harness.key

    @property
    def kind(self) -> type[ChatProvider]:
        """The class of the provider."""
        return self.harness.kind

    def server(self, *answers: Any) -> FaultyServer[Any]:
        """Return the fake, which gives these answers."""
        server: FaultyServer[Any] = self.harness.server(*answers)
        return server

    def asking(self, url: str, **options: Any) -> AbstractAsyncContextManager[ProviderClient]:
        """Open the provider with the server at this address."""
        return self.harness.asking(url, **options)

    def serving(
        self, *answers: Any, **options: Any
    ) -> AbstractAsyncContextManager[tuple[ProviderClient, FaultyServer[Any]]]:
        """Open the provider and its fake, which gives these answers."""
        return self.harness.serving(*answers, **options)


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


# --- OpenAI -----------------------------------------------------------------------------------------------------------


def _openai_says(text: str = "", *calls: tuple[str, Any], thoughts: str = "") -> ServerResponse:
    return openai_server.ScriptedResponse(text, *((tool, _text(arguments)) for tool, arguments in calls), reasoning=thoughts)


def _openai_refuses(request: ChatRequest) -> Any:
    body = openai_wire.Encoder().body(request, max_tokens=None, max_tokens_key="max_tokens")
    return openai_server.what_is_wrong(json.loads(body))


_OPENAI_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded", 500: "server_error"}

OPENAI = Vendor(
    name="openai",
    harness=Harness(OpenAI, openai_server.OpenAIServer, model="gpt-test", key=openai_server.KEY),
    says=_openai_says,
    refusal=lambda status, words: openai_server.refusal(words, _OPENAI_CODES.get(status)),
    overflows=(
        Fault(status=400, body=openai_server.refusal("Maximum context length is 8 tokens.", "context_length_exceeded")),
        Fault(
            status=429, body=openai_server.refusal("Request too large for gpt-test on TPM", "rate_limit_exceeded", "tokens")
        ),
        RawResponse(b"data: " + openai_server.refusal("too long", "context_length_exceeded") + b"\n\n"),
    ),
    broken=openai_server.refusal("The server had an error", None, "server_error"),
    limited=openai_server.refusal("slow down", "rate_limit_exceeded"),
    refuses=_openai_refuses,
    thoughts=lambda _: [],
    empty=(
        b'{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}',
        b'{"choices":[{"index":0,"delta":{"content":"","reasoning_content":"","tool_calls":[]}}]}',
        b'{"choices":[],"usage":{"prompt_tokens":7}}',
        b"{}",
    ),
    thinking=b'{"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"Well, "}}]}',
)

# --- OpenAI's responses -----------------------------------------------------------------------------------------------


def _responses_says(text: str = "", *calls: tuple[str, Any], thoughts: str = "") -> ServerResponse:
    said = ((tool, _text(arguments)) for tool, arguments in calls)
    return responses_server.Says(text, *said, thoughts=thoughts)


def _responses_refuses(request: ChatRequest) -> Any:
    body = openai_responses.ResponsesEncoder().body(request)
    return responses_rules.what_is_wrong(json.loads(body), "org-one")


def _responses_error(message: str, code: str) -> bytes:
    return json.dumps({"type": "error", "code": code, "message": message, "param": None}).encode()


RESPONSES = OPENAI._replace(
    name="responses",
    harness=Harness(OpenAI, responses_server.ResponsesServer, model="gpt-test", key=responses_server.KEY, api="responses"),
    says=_responses_says,
    overflows=(
        Fault(status=400, body=openai_server.refusal("Your input exceeds the window.", "context_length_exceeded")),
        RawResponse(b"data: " + _responses_error("Your input exceeds the window.", "context_length_exceeded") + b"\n\n"),
    ),
    broken=_responses_error("The server had an error", "server_error"),
    limited=_responses_error("slow down", "rate_limit_exceeded"),
    refuses=_responses_refuses,
    thoughts=lambda body: [item["encrypted_content"] for item in body["input"] if item.get("type") == "reasoning"],
    empty=(
        b'{"type":"response.in_progress","response":{"status":"in_progress"}}',
        b'{"type":"response.output_text.delta","output_index":0,"delta":""}',
        b'{"type":"keepalive"}',
    ),
    thinking=b'{"type":"response.reasoning_summary_text.delta","output_index":7,"summary_index":0,"delta":"Well, "}',
)

# --- Anthropic --------------------------------------------------------------------------------------------------------


def _anthropic_says(text: str = "", *calls: tuple[str, Any], thoughts: str = "") -> ServerResponse:
    return anthropic_server.Says(text, *((tool, _text(arguments)) for tool, arguments in calls), thoughts=thoughts)


_ANTHROPIC_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 500: "api_error"}
_TOO_LONG = "prompt is too long: 208310 tokens > 200000 maximum"

ANTHROPIC = Vendor(
    name="anthropic",
    harness=Harness(Anthropic, anthropic_server.AnthropicServer, model="claude-test", key=anthropic_server.KEY),
    says=_anthropic_says,
    refusal=lambda status, words: anthropic_server.refusal(words, _ANTHROPIC_KINDS.get(status, "invalid_request_error")),
    overflows=(
        Fault(status=400, body=anthropic_server.refusal(_TOO_LONG)),
        Fault(
            status=400,
            body=anthropic_server.refusal("input length and `max_tokens` exceed context limit: 198981 + 21333 > 200000"),
        ),
        Fault(status=413, body=anthropic_server.refusal("Request exceeds the maximum size", "request_too_large")),
        RawResponse(anthropic_server.event("error", error={"type": "invalid_request_error", "message": _TOO_LONG})),
    ),
    broken=anthropic_server.refusal("Overloaded", "overloaded_error"),
    limited=anthropic_server.refusal("Too many requests", "rate_limit_error"),
    refuses=lambda request: anthropic_rules.what_is_wrong(json.loads(anthropic_request.Encoder().body(request))),
    thoughts=lambda body: [b["thinking"] for m in body["messages"] for b in m["content"] if b["type"] == "thinking"],
    empty=(
        b'{"type":"ping"}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}',
        b'{"type":"message_delta","delta":{},"usage":{"output_tokens":7}}',
    ),
    thinking=b'{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Well, "}}',
)

# --- Gemini -----------------------------------------------------------------------------------------------------------


def _gemini_says(text: str = "", *calls: tuple[str, Any], thoughts: str = "") -> ServerResponse:
    return gemini_server.Says(text, *calls, thoughts=thoughts)


def _gemini_refuses(request: ChatRequest) -> Any:
    body = gemini_request.Encoder().body(request, max_tokens=None)
    return gemini_server.what_is_wrong(json.loads(body), set())


def _gemini_thoughts(body: Json) -> list[str]:
    signed = [part.get("thoughtSignature") for content in body["contents"] for part in content["parts"]]
    return [signature for signature in signed if signature and signature != gemini_server.UNSIGNED]


_TOO_MANY = "The input token count (1179782) exceeds the maximum number of tokens allowed (1048576)."

GEMINI = Vendor(
    name="gemini",
    harness=Harness(Gemini, gemini_server.GeminiServer, model="gemini-3-test", key=gemini_server.KEY),
    says=_gemini_says,
    refusal=gemini_server.refusal,
    overflows=(
        Fault(status=400, body=gemini_server.refusal(400, _TOO_MANY)),
        Fault(status=400, body=gemini_server.refusal(400, "Request payload size exceeds the limit: 20971520 bytes.")),
        RawResponse(b"data: " + gemini_server.refusal(400, _TOO_MANY).replace(b"\n", b"") + b"\n\n"),
    ),
    broken=gemini_server.refusal(503, "The model is overloaded."),
    limited=gemini_server.quota("26s", "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
    refuses=_gemini_refuses,
    thoughts=_gemini_thoughts,
    empty=(
        b'{"candidates":[{"content":{"role":"model","parts":[{"text":""}]},"index":0}]}',
        b'{"usageMetadata":{"promptTokenCount":7}}',
    ),
    thinking=b'{"candidates":[{"content":{"role":"model","parts":[{"text":"Well, ","thought":true}]},"index":0}]}',
)

# --- Ollama -----------------------------------------------------------------------------------------------------------


def _ollama_says(text: str = "", *calls: tuple[str, Any], thoughts: str = "") -> ServerResponse:
    return ollama_server.Says(text, *calls, thinking=thoughts)


def _ollama_server(*answers: Any) -> FaultyServer[Any]:
    return ollama_server.OllamaServer(*answers, key=ollama_server.KEY)


def _ollama_refuses(request: ChatRequest) -> Any:
    body = ollama_wire.Encoder().body(request, window=1_000_000, max_tokens=None)
    return ollama_server.what_is_wrong(json.loads(body), ("tools", "thinking"), old=False)


_OLLAMA_OVERFLOWS = (
    ollama_server.engine_refusal(
        "request (9 tokens) exceeds the available context size (8 tokens)", "exceed_context_size_error"
    ),
    ollama_server.refusal("the input length exceeds the context length"),
    ollama_server.refusal("prompt too long; exceeded max context length by 17 tokens (ref: 1)"),
)

OLLAMA = Vendor(
    name="ollama",
    harness=Harness(Ollama, _ollama_server, model=ollama_server.MODEL, key=ollama_server.KEY, context_window=1_000_000),
    says=_ollama_says,
    refusal=lambda status, words: ollama_server.refusal(words),
    overflows=(
        *(Fault(status=status, body=body) for status in (400, 500) for body in _OLLAMA_OVERFLOWS),
        *(RawResponse(body + b"\n") for body in _OLLAMA_OVERFLOWS),
    ),
    broken=ollama_server.refusal("llama runner process has terminated"),
    limited=ollama_server.refusal("you have reached your weekly usage limit"),
    refuses=_ollama_refuses,
    thoughts=lambda body: [message["thinking"] for message in body["messages"] if "thinking" in message],
    empty=(
        b'{"model":"m","message":{"role":"assistant","content":""},"done":false}',
        b'{"model":"m","message":{"role":"assistant","content":"","thinking":"","tool_calls":[]},"done":false}',
        b"{}",
    ),
    thinking=b'{"model":"m","message":{"role":"assistant","content":"","thinking":"Well, "},"done":false}',
    lines=True,
)

VENDORS = (OPENAI, RESPONSES, ANTHROPIC, GEMINI, OLLAMA)
