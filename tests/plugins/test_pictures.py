"""Pictures in requests: each vendor's form, each vendor's price, and no byte encoded twice."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from plugins.api.chat import ChatRequest
from plugins.providers.anthropic import request as anthropic_request
from plugins.providers.gemini import request as gemini_request
from plugins.providers.hosted import openai_errors
from plugins.providers.hosted.images import anthropic_vision, crops, gemini_vision, open_model_vision, openai_vision
from plugins.providers.ollama import errors as ollama_errors
from plugins.providers.ollama import protocol as ollama_wire
from plugins.providers.openai import chat_completions as openai_wire
from plugins.providers.openai import responses as openai_responses
from plugins.support.errors import BadRequest
from plugins.support.http_errors import StatusRefused
from sessions.events.messages import AssistantMessage, Attachment, Message, UserMessage
from sessions.events.vision import VisionSupport
from sessions.state.context import Context
from tests.pictures import jpeg, png

CONTENTS = {"a" * 64: png(2, 3), "b" * 64: jpeg(4, 5)}
PNG, JPEG = (b64encode(content).decode() for content in CONTENTS.values())
ONE = Attachment(sha256="a" * 64, media="image/png", bytes=9, width=2, height=3)
TWO = Attachment(sha256="b" * 64, media="image/jpeg", bytes=9, width=4, height=5)

Body = Callable[[ChatRequest], bytes]

VENDORS: dict[str, tuple[Callable[[], Body], str]] = {
    "openai chat": (lambda: _with(openai_wire.Encoder(), max_tokens=None, max_tokens_key="m"), "messages"),
    "openai responses": (lambda: openai_responses.ResponsesEncoder().body, "input"),
    "anthropic": (lambda: anthropic_request.Encoder().body, "messages"),
    "gemini": (lambda: _with(gemini_request.Encoder(), max_tokens=None), "contents"),
    "ollama": (lambda: _with(ollama_wire.Encoder(), window=None, max_tokens=None), "messages"),
}


def _with(encoder: Any, **options: Any) -> Body:
    return lambda request: encoder.body(request, **options)


def request(*messages: Message) -> ChatRequest:
    context = Context(instructions="", tools=(), parameters={}, messages=messages)
    pictures = {digest: b64encode(content) for digest, content in CONTENTS.items()}
    return ChatRequest(model="m", context=context, purpose="answer", session="s", pictures=pictures)


def said(text: str, *pictures: Attachment) -> UserMessage:
    return UserMessage(text=text, attachments=pictures)


def sent(vendor: str, *messages: Message) -> list[Any]:
    encoder, field = VENDORS[vendor]
    found: list[Any] = json.loads(encoder()(request(*messages)))[field]
    return found


def base64_block(media: str, data: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


WORDS: dict[str, Any] = {
    "openai chat": {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{JPEG}"}},
            {"type": "text", "text": "Look!"},
        ],
    },
    "openai responses": {
        "role": "user",
        "content": [
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
            {"type": "input_image", "image_url": f"data:image/jpeg;base64,{JPEG}", "detail": "auto"},
            {"type": "input_text", "text": "Look!"},
        ],
    },
    "anthropic": {
        "role": "user",
        "content": [
            base64_block("image/png", PNG),
            base64_block("image/jpeg", JPEG),
            {"type": "text", "text": "Look!", "cache_control": {"type": "ephemeral"}},
        ],
    },
    "gemini": {
        "role": "user",
        "parts": [
            {"inlineData": {"mimeType": "image/png", "data": PNG}},
            {"inlineData": {"mimeType": "image/jpeg", "data": JPEG}},
            {"text": "Look!"},
        ],
    },
    "ollama": {"role": "user", "content": "Look!", "images": [PNG, JPEG]},
}


@pytest.mark.parametrize("vendor", VENDORS)
def test_images_are_sent_in_the_vendors_format(vendor: str) -> None:
    assert sent(vendor, said("Look!", ONE, TWO)) == [WORDS[vendor]]


@pytest.mark.parametrize("vendor", VENDORS)
def test_an_image_without_text_adds_no_empty_text(vendor: str) -> None:
    (message,) = sent(vendor, said("", ONE))
    assert not [part for part in message.get("content", message.get("parts")) if "text" in part]


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_growing_conversation_with_images_is_encoded_like_a_new_one(vendor: str) -> None:
    messages: list[Message] = [
        said("one", ONE),
        AssistantMessage(text="I see."),
        said("", TWO, ONE),
        AssistantMessage(text="That too."),
        said("plain"),
        AssistantMessage(text="Yes."),
        said("again", ONE),
    ]
    encode = VENDORS[vendor][0]()
    for count in range(1, len(messages) + 1, 2):
        assert encode(request(*messages[:count])) == VENDORS[vendor][0]()(request(*messages[:count]))


# --- what they cost ---------------------------------------------------------------------------------------------------


def cost(sight: VisionSupport | None, width: int, height: int) -> int:
    assert sight is not None
    return sight.tokens(width, height)


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        # The examples of OpenAI's page.
        ("gpt-4o", 1024, 1024, 765),
        ("gpt-4.1", 2048, 4096, 1105),
        ("gpt-4.1-mini", 1024, 1024, 1659),
        ("gpt-4.1-mini", 1800, 2400, 2353),
        # By its rules.
        ("gpt-5", 512, 512, 210),
        ("o3", 100, 100, 225),
        ("gpt-4o-mini", 512, 512, 8500),
        ("gpt-5.4", 32, 32, 2),
        ("gpt-7", 10_000, 10_000, 3000),
        ("gpt-5-nano", 1, 16_000, 1230),
    ],
)
def test_the_cost_of_an_image_at_openai_is_that_of_its_documentation(
    model: str, width: int, height: int, tokens: int
) -> None:
    assert cost(openai_vision(model), width, height) == tokens


def test_the_cost_of_an_image_elsewhere_is_that_of_the_documentation() -> None:
    assert cost(anthropic_vision("claude-sonnet-4-5"), 1000, 1000) == 36 * 36
    assert cost(anthropic_vision("claude-sonnet-4-5"), 8000, 8000) == 1568
    assert cost(anthropic_vision("claude-opus-4-8"), 8000, 8000) == 4784
    assert cost(anthropic_vision("claude-sonnet-5-5"), 280, 28) == 10
    assert crops(384, 384) == 258
    assert crops(960, 540) == 6 * 258
    assert cost(gemini_vision("gemini-2.5-flash"), 4000, 3000) == 258 * 6 * 4
    assert cost(gemini_vision("models/gemini-3.8-flash"), 4000, 3000) == 1120


@pytest.mark.parametrize("sight", [openai_vision("gpt-4o"), openai_vision("gpt-5-mini"), anthropic_vision("claude-3")])
def test_each_image_has_a_cost_within_the_vendors_limit(sight: VisionSupport) -> None:
    for width in (1, 31, 33, 767, 2049, 100_000):
        for height in (1, 32, 769, 65_535):
            assert 1 <= sight.tokens(width, height) <= 5000


def test_models_without_vision_are_known() -> None:
    for model in ("gpt-4-0613", "gpt-3.5-turbo", "o3-mini", "o1-mini", "gpt-4o-audio-preview", "gpt-oss-120b"):
        assert openai_vision(model) is None, model
    for model in ("gpt-4o-2024-11-20", "gpt-4-turbo", "o1", "o4-mini", "gpt-5.6", "ft:gpt-4o:me", "gpt-6-mini"):
        assert openai_vision(model) is not None, model
    for model in ("llama3.2", "qwen3", "gemma3:1b", "gemma-3-270m-it", "mistral", "deepseek-v3.1", "gpt-oss:20b"):
        assert open_model_vision(model, None) is None, model
    for model in ("llama3.2-vision", "LLaVA:7b", "qwen2.5vl:7b", "Qwen3-VL-8B", "gemma3:4b", "gemma3", "pixtral-12b"):
        assert open_model_vision(model, None) is not None, model
    assert open_model_vision("llama3.2", True) is not None
    assert open_model_vision("llava", False) is None


# --- what they are refused with ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "image input is not supported by this server",
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "Failed to create new sequence: failed to process inputs: this model is missing data required for image input",
        "this model does not support image input",
    ],
)
@pytest.mark.parametrize("status", [400, 500])
def test_a_model_that_accepts_no_images_is_not_asked_again(words: str, status: int) -> None:
    openai = json.dumps({"error": {"code": status, "message": words, "type": "server_error"}}).encode()
    ollama = json.dumps({"error": words}).encode()
    wrapped = json.dumps({"error": f"engine: {openai.decode()}"}).encode()
    assert isinstance(openai_errors.error_for(status, openai), BadRequest)
    assert not openai_errors.can_retry(StatusRefused(status, openai))
    for body in (ollama, wrapped):
        assert isinstance(ollama_errors.error_for(status, body), BadRequest)
        assert not ollama_errors.can_retry(StatusRefused(status, body))
    assert isinstance(ollama_errors.stream_error(words), BadRequest)
