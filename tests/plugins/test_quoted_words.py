"""An error's code against its words: a refusal for another reason may quote what a person wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugins.providers.hosted import embedding_errors, openai_errors
from plugins.support.errors import BadRequest, ContextOverflow, NoSuchModel, ProviderError
from plugins.support.http_errors import StatusRefused
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
async def test_a_refusal_with_a_code_is_not_mistaken_for_what_it_quotes(vendor: Vendor, words: str) -> None:
    for body in refusals(vendor, words):
        async with vendor.serving(Fault(status=400, body=body)) as (client, server):
            with pytest.raises(ProviderError) as raised:
                await client.ask()
            assert type(raised.value) is BadRequest
            assert len(server.requests) == 1


def codeless(vendor: Vendor, words: str) -> bytes:
    """A refusal whose code, if it has one, says nothing of why."""
    ways = {
        ANTHROPIC.name: anthropic_server.refusal(words),
        GEMINI.name: gemini_server.refusal(400, words, "INVALID_ARGUMENT"),
        OLLAMA.name: ollama_server.refusal(words),
    }
    return ways.get(vendor.name, openai_server.refusal(words, None))


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
@pytest.mark.parametrize(
    "words",
    [
        QUOTED,
        PAYLOAD,
        NO_MODEL,
        *(f"Flagged: {phrase}" for phrase in ("it says input is too long", "“1. Prompt is too long”", "“Unknown model”")),
        "The model refused to say why the one that was asked for does not exist",
    ],
)
async def test_a_refusal_without_a_code_is_not_mistaken_for_what_it_quotes(vendor: Vendor, words: str) -> None:
    async with vendor.serving(Fault(status=400, body=codeless(vendor, words))) as (client, _):
        with pytest.raises(ProviderError) as raised:
            await client.ask()
        assert type(raised.value) is BadRequest


@pytest.mark.parametrize("vendor", [OPENAI, RESPONSES, ANTHROPIC, GEMINI], ids=lambda vendor: vendor.name)
async def test_an_error_inside_a_stream_is_not_mistaken_for_what_it_quotes(vendor: Vendor) -> None:
    for body in refusals(vendor, QUOTED):
        async with vendor.serving(RawResponse(vendor.framed(body))) as (client, _):
            with pytest.raises(ProviderError) as raised:
                await client.ask()
            assert type(raised.value) is not ContextOverflow


MAXIMUM = "This model's maximum context length is 8 tokens."


@pytest.mark.parametrize(
    "error",
    [
        {"message": MAXIMUM, "type": "BadRequestError", "code": 400},
        {"message": MAXIMUM, "type": "invalid_request_error", "code": "invalid_request_error"},
        {"message": "Range of input length should be [1, 8]", "code": "invalid_parameter_error", "type": "InvalidParameter"},
        {"message": MAXIMUM, "type": "invalid_request_prompt", "code": "3051"},
        {"message": MAXIMUM, "type": None, "code": "400"},
        {"message": MAXIMUM, "code": "Client specified an invalid argument"},
        {"message": MAXIMUM, "type": "server_error", "code": "prompt_too_long"},
        {"message": "litellm.ContextWindowExceededError: prompt is too long", "type": "ContextWindowExceededError"},
        {"message": MAXIMUM, "status": "INVALID_ARGUMENT", "code": 400},
        {"message": MAXIMUM, "type": "ValidationException"},
    ],
)
def test_with_a_general_code_the_message_decides(error: dict[str, Any]) -> None:
    assert type(openai_errors.error_for(400, json.dumps({"error": error}).encode(), model="m")) is ContextOverflow


SENTENCES = (
    """
This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.
This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens.
This model's maximum prompt length is 131072 but the request contains 537812 tokens.
'max_tokens' or 'max_completion_tokens' is too large: 900. This model's maximum context length is 1024 tokens and your \
request has 500 input tokens.
litellm.BadRequestError: OpenAIException - This model's maximum context length is 8192 tokens.
Error code: 400 - context_length_exceeded: This model's maximum context length is 8192 tokens
Requested token count exceeds the model's maximum context length of 8 tokens.
Your input exceeds the context window of this model. Please adjust your input and try again.
The input token count (1179782) exceeds the maximum number of tokens allowed (1048576).
The input token count exceeds the maximum number of tokens allowed 1048576.
Request payload size exceeds the limit: 20971520 bytes.
Prompt contains 40960 tokens and 0 draft tokens, too large for model with 32768 maximum context length
Please reduce the length of the messages or completion.
Request too large for model `llama-3` in organization `org` on tokens per minute (TPM): Limit 6000, Requested 7000
Invalid request: Your request exceeded model token limit: 8192
invalid params, context window exceeds limit (2013)
<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]
The decoder prompt (length 9) is longer than the maximum model length of 8.
The input (9 tokens) is longer than the model's context length (8 tokens).
request (9 tokens) exceeds the available context size (8 tokens), try increasing it
the request exceeds the available context size. try increasing the context size or enable context shift
Requested tokens (9) exceed context window of 8
Trying to keep the first 9 tokens when context the overflows. However, the model is loaded with context length of only 8
The number of tokens to keep from the initial prompt is greater than the context length.
ValidationException: Input is too long for requested model.
prompt is too long: 208310 tokens > 200000 maximum
input length and `max_tokens` exceed context limit: 198981 + 21333 > 200000
the input length exceeds the context length
prompt too long; exceeded max context length by 17 tokens (ref: 1)
""".replace("\\\n", "")
    .strip()
    .splitlines()
)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_vendors_own_sentence_needs_no_code(sentence: str) -> None:
    assert (
        type(openai_errors.error_for(400, json.dumps({"error": {"message": sentence}}).encode(), model="m"))
        is ContextOverflow
    )


MISSING_SENTENCES = """
The model `nobody-9000` does not exist or you do not have access to it.
The requested model 'nobody-9000' does not exist.
litellm.NotFoundError: OpenAIException - The model `nobody-9000` does not exist.
Error code: 404 - The model nobody-9000 does not exist or your team 9 does not have access to it.
Model Not Exist
Model not found, inaccessible, and/or not deployed
Model "nobody-9000" not found. Please specify a valid model.
model: nobody-9000 was not found
model 'nobody-9000' not found, make sure the correct model ID was used
models/nobody-9000 is not found for API version v1beta, or is not supported for generateContent.
nobody-9000 is not a valid model ID
Invalid model: nobody-9000
Invalid model 'nobody-9000'. Permitted models can be found in the documentation.
invalid params, unknown model 'nobody-9000' (2013)
No such model: nobody-9000
""".strip().splitlines()


@pytest.mark.parametrize("sentence", MISSING_SENTENCES)
def test_a_vendors_own_sentence_for_an_unknown_model_needs_no_code(sentence: str) -> None:
    body = json.dumps({"error": {"message": sentence}}).encode()
    assert type(openai_errors.error_for(400, body, model="nobody-9000")) is NoSuchModel
    assert type(openai_errors.stream_error({"message": sentence}, "nobody-9000")) is NoSuchModel


def test_an_embedding_server_that_quotes_a_text_has_the_model() -> None:
    refused = StatusRefused(400, json.dumps({"detail": "Flagged: 'the model is not supported'"}).encode())
    assert type(embedding_errors.error_for(refused.status, refused.body, model="m")) is BadRequest
    refused = StatusRefused(400, json.dumps({"detail": "Model m is not supported. Supported models are [n]."}).encode())
    assert type(embedding_errors.error_for(refused.status, refused.body, model="m")) is NoSuchModel
