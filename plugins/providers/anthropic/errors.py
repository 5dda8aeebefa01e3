"""What errors of Anthropic's API mean, whether they come as a status or inside a stream.

After Anthropic's page on errors and rate limits. Only an error's own words are looked at, never those of a message.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plugins.providers.hosted import openai_errors
from plugins.support.errors import (
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    NoSuchModel,
    ProviderError,
    RateLimited,
    StreamCut,
    Unreachable,
)
from plugins.support.http_errors import StatusRefused, error_message, error_object

_NO_ROOM = "exceed context limit"
"""How a request is refused whose answer would not fit; one that is too long itself is told as by others."""

_NO_MONEY = ("credit balance is too low", "reached your specified api usage limits")
"""These come as a status 400."""

_THIS_MODEL = "permission to use the specified resource"
"""How a 403 says it, after the page on errors; what a request for an answer names is the model."""

_SPENT = "enforced_spend_limit_reached"
"""The detail of a 429 that ends with the month."""

_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
}
"""The status that an error inside a stream would have had; others mean that the service broke down."""


def meaning(  # noqa: PLR0911 - one for each kind
    status: int, body: bytes, *, model: str | None = None, after: float | None = None
) -> ProviderError:
    """What an error status means. `model` is the one that was asked for an answer, `after` how many seconds the server asks
    to wait."""
    words = error_message(body)
    if model is not None and _is_missing(status, body):
        return NoSuchModel(f"Anthropic has no model {model!r}, or not for this key: {words}")
    if status in (401, 403):
        return CredentialsRefused(f"Anthropic refused the key: {words}")
    if is_overflow(body) or status == 413:
        return ContextOverflow(f"The conversation is too long for the model: {words}")
    if status in (402, 429) or any(told in _message(body) for told in _NO_MONEY):
        return RateLimited(f"Anthropic takes no request now: {words}", retry_after=after)
    if status >= 500 or status in (408, 409):
        return Unreachable(f"Anthropic failed ({status}): {words}")
    if status < 400:
        return BadRequest(f"The server answered {status} instead of a reply: its address is not the one to ask.")
    return BadRequest(f"Anthropic refused the request ({status}): {words}")


def in_stream(error: Any, model: str) -> ProviderError:
    """What the error of an `error` event in a model's answer means."""
    body = msgspec.json.encode({"error": error})
    status = _STATUS.get(str(error_object(body).get("type")))
    return meaning(status, body, model=model) if status else StreamCut(f"Anthropic broke off: {error_message(body)}")


def worth_another_attempt(refused: StatusRefused) -> bool:
    """Whether the same request may succeed in a moment, for a status after which some do."""
    details = error_object(refused.body).get("details")
    spent = isinstance(details, dict) and details.get("error_code") == _SPENT
    return not spent and not is_overflow(refused.body)


def is_overflow(body: bytes) -> bool:
    """Whether an error's body says that the request was too long."""
    return openai_errors.is_overflow(body, _NO_ROOM)


def refuses_thoughts(refused: StatusRefused) -> bool:
    """Whether a request was refused for the thoughts in it: they are bound to the model and to all that stood before."""
    return refused.status == 400 and "thinking" in _message(refused.body)


def _message(body: bytes) -> str:
    return str(error_object(body).get("message", "")).lower()


def _is_missing(status: int, body: bytes) -> bool:
    return openai_errors.is_missing(status, body) or (status == 403 and _THIS_MODEL in _message(body))
