"""Unknown models, as each vendor reports them: an error of its own that names the model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugins.providers.anthropic import errors as anthropic_errors
from plugins.providers.gemini import errors as gemini_errors
from plugins.providers.hosted import openai_errors
from plugins.providers.ollama import errors as ollama_errors
from plugins.support.errors import BadRequest, CredentialsRefused, NoSuchModel, ProviderError
from plugins.testing.servers import openai_server
from plugins.testing.servers.faulty_server import Fault
from tests.plugins.provider_harness import question
from tests.plugins.vendors import ANTHROPIC, GEMINI, OLLAMA, OPENAI, RESPONSES, VENDORS, Vendor
from tests.servers import anthropic_server, gemini_server, ollama_server

MISSING = "nobody-9000"
OPENAIS = openai_server.refusal(f"The model `{MISSING}` does not exist or you do not have access to it.", "model_not_found")
ABSENT = {
    OPENAI.name: OPENAIS,
    RESPONSES.name: OPENAIS,
    ANTHROPIC.name: anthropic_server.refusal(f"model: {MISSING}", "not_found_error"),
    GEMINI.name: gemini_server.refusal(404, f"models/{MISSING} is not found for API version v1beta.", "NOT_FOUND"),
    OLLAMA.name: ollama_server.refusal(f"model '{MISSING}' not found"),
}


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
async def test_an_unknown_model_is_named_and_requested_once(vendor: Vendor) -> None:
    refused = Fault(status=404, body=ABSENT[vendor.name])
    async with vendor.serving(refused) as (client, server):
        with pytest.raises(NoSuchModel, match=f"model '{MISSING}'"):
            await client.ask(question(model=MISSING))
        assert len(server.requests) == 1


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
async def test_a_404_that_names_no_model_may_be_a_wrong_address(vendor: Vendor) -> None:
    page = Fault(status=404, body=b"<h1>Not Found</h1>", media="text/html")
    async with vendor.serving(page) as (client, _):
        with pytest.raises(NoSuchModel, match=rf"model '{vendor.model}'.*(address|key)"):
            await client.ask()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "Model Not Exist", "type": "invalid_request_error", "code": "invalid_request_error"}),
        (400, {"message": f"{MISSING} is not a valid model ID", "code": 400}),
        (400, {"message": f"Invalid model: {MISSING}", "type": "invalid_model", "code": "1500"}),
        (403, {"message": f"Project `p` does not have access to model `{MISSING}`", "code": "model_not_found"}),
        (404, {"message": f"The model `{MISSING}` does not exist.", "type": "NotFoundError", "code": 404}),
    ],
)
def test_compatible_servers_report_unknown_models_with_other_statuses(status: int, error: dict[str, Any]) -> None:
    refused = openai_errors.error_for(status, json.dumps({"error": error}).encode(), model=MISSING)
    assert type(refused) is NoSuchModel
    assert "the provider has no model 'nobody-9000':" in str(refused).lower()


@pytest.mark.parametrize(
    "message",
    [
        "You do not have access to the model.",
        "this model requires a subscription, upgrade for access",
        "Your API key does not have permission to use the model small-9000.",
    ],
)
@pytest.mark.parametrize("errors", [openai_errors, anthropic_errors, gemini_errors, ollama_errors])
def test_a_valid_key_without_access_to_the_model_is_not_refused(errors: Any, message: str) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    assert type(errors.error_for(403, body, model=MISSING)) is NoSuchModel
    assert ", or the key has no access to it: " in str(errors.error_for(403, body, model=MISSING))
    assert type(errors.error_for(403, body)) is CredentialsRefused  # nobody asked for a model


def test_anthropic_reports_a_resource_without_access() -> None:
    words = "Your API key does not have permission to use the specified resource."
    body = anthropic_server.refusal(words, "permission_error")
    assert type(anthropic_errors.error_for(403, body, model=MISSING)) is NoSuchModel


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.", BadRequest),
        (400, "This model does not support image input.", BadRequest),
        (400, "Unsupported parameter: 'temperature' is not supported with this model.", BadRequest),
        (403, "Country, region, or territory not supported", CredentialsRefused),
    ],
)
def test_other_refusals_are_no_missing_model(status: int, message: str, kind: type[ProviderError]) -> None:
    assert type(openai_errors.error_for(status, openai_server.refusal(message, None), model=MISSING)) is kind


@pytest.mark.parametrize(
    ("errors", "error"),
    [
        (openai_errors, {"message": f"model '{MISSING}' not found", "code": "model_not_found"}),
        (openai_errors, {"message": "The model does not exist.", "code": 404}),
        (anthropic_errors, {"type": "not_found_error", "message": f"model: {MISSING}"}),
        (gemini_errors, {"code": 404, "message": f"models/{MISSING} is not found", "status": "NOT_FOUND"}),
    ],
)
def test_an_unknown_model_is_recognized_inside_a_stream(errors: Any, error: dict[str, Any]) -> None:
    refused = errors.stream_error(error, MISSING)
    assert type(refused) is NoSuchModel
    assert MISSING in str(refused)


@pytest.mark.parametrize("errors", [openai_errors, anthropic_errors, gemini_errors, ollama_errors])
def test_a_404_without_a_requested_model_is_no_missing_model(errors: Any) -> None:
    assert type(errors.error_for(404, b'{"error": {"message": "Not Found"}}')) is BadRequest
