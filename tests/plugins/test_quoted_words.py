"""An error's code against its words: a refusal for another reason may quote what a person wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugins.providers.hosted import openai_errors
from plugins.support.errors import BadRequest, ContextOverflow, ProviderError
from plugins.testing.servers import openai_server
from plugins.testing.servers.faulty_server import Fault, RawResponse
from tests.plugins.vendors import ANTHROPIC, GEMINI, OLLAMA, OPENAI, RESPONSES, VENDORS, Vendor
from tests.servers import anthropic_server, gemini_server, ollama_server

QUOTED = "Your prompt was flagged: 'maximum context length, prompt is too long, input length exceeds, exceed context limit'"
PAYLOAD = "Your prompt was flagged: 'Request payload size exceeds the limit'"
NO_MODEL = "Your prompt was flagged: 'tell me why the model does not exist'"
REASON = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "CONTENT_BLOCKED", "domain": "googleapis.com"}


def refusals(vendor: Vendor, words: str) -> list[bytes]:
    """Refusals with a code that says why, and it is not the length."""
    openai = [openai_server.refusal(words, code) for code in ("invalid_prompt", "content_filter", "data_inspection_failed")]
    ways = {
        OPENAI.name: openai,
        RESPONSES.name: openai,
        ANTHROPIC.name: [anthropic_server.refusal(words, "content_policy_violation")],
        GEMINI.name: [
            gemini_server.refusal(400, words, "FAILED_PRECONDITION"),
            gemini_server.refusal(400, words, "INVALID_ARGUMENT", REASON),
        ],
        OLLAMA.name: [ollama_server.engine_refusal(words, "invalid_prompt")],
    }
    return ways[vendor.name]


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
@pytest.mark.parametrize("words", [QUOTED, PAYLOAD, NO_MODEL])
async def test_a_refusal_whose_code_says_why_is_not_taken_for_what_it_quotes(vendor: Vendor, words: str) -> None:
    for body in refusals(vendor, words):
        async with vendor.serving(Fault(status=400, body=body)) as (client, server):
            with pytest.raises(ProviderError) as raised:
                await client.ask()
            assert type(raised.value) is BadRequest
            assert len(server.requests) == 1


@pytest.mark.parametrize("vendor", [OPENAI, RESPONSES, ANTHROPIC, GEMINI], ids=lambda vendor: vendor.name)
async def test_the_same_holds_inside_a_stream(vendor: Vendor) -> None:
    for body in refusals(vendor, QUOTED):
        async with vendor.serving(RawResponse(vendor.framed(body))) as (client, _):
            with pytest.raises(ProviderError) as raised:
                await client.ask()
            assert type(raised.value) is not ContextOverflow


@pytest.mark.parametrize(
    "error",
    [
        {"message": "This model's maximum context length is 8 tokens.", "type": "BadRequestError", "code": 400},
        {"message": "maximum context length", "type": "invalid_request_error", "code": "invalid_request_error"},
        {"message": "Range of input length should be [1, 8]", "code": "invalid_parameter_error", "type": "InvalidParameter"},
        {"message": "maximum context length", "type": "invalid_request_prompt", "code": "3051"},
        {"message": "maximum context length", "type": None, "code": "400"},
        {"message": "maximum context length", "code": "Client specified an invalid argument"},
        {"message": "maximum context length", "type": "server_error", "code": "prompt_too_long"},
        {"message": "litellm.ContextWindowExceededError: prompt is too long", "type": "ContextWindowExceededError"},
        {"message": "maximum context length", "status": "INVALID_ARGUMENT", "code": 400},
        {"message": "maximum context length", "type": "ValidationException"},
    ],
)
def test_a_code_that_says_nothing_of_why_leaves_it_to_the_words(error: dict[str, Any]) -> None:
    assert type(openai_errors.error_for(400, json.dumps({"error": error}).encode(), model="m")) is ContextOverflow
