"""The errors of Anthropic's API, as a status or inside a stream.

Source: Anthropic's page on errors and rate limits. Only the error's own text is examined, never that of a message.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plugins.providers.hosted import openai_errors
from plugins.support.errors import NoSuchModel, ProviderError, RateLimited, StreamCut
from plugins.support.http_errors import StatusRefused, error_message, error_object

_NO_MONEY = ("credit balance is too low", "reached your specified api usage limits")
"""The words for an exhausted account, sent with status 400."""

_THIS_MODEL = "permission to use the specified resource"
"""The words of a 403 for a resource without access, according to the page on errors: in a chat request, the model."""

_SPENT = "enforced_spend_limit_reached"
"""The detail of a 429 that lasts until the end of the month."""

_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
}
"""The status that corresponds to an error inside a stream; all others are failures of the service."""


def error_for(status: int, body: bytes, *, model: str | None = None, after: float | None = None) -> ProviderError:
    """Return the error for an error status; implements `VendorErrors.error_for`."""
    words = error_message(body)
    if model is not None and _is_missing(status, body):
        return NoSuchModel(f"Anthropic has no model {model!r}, or the key has no access to it: {words}")
    if any(phrase in _message(body) for phrase in _NO_MONEY):
        return RateLimited(f"Anthropic accepts no requests now: {words}", retry_after=after)
    return openai_errors.error_for(status, body, after=after, vendor="Anthropic")


def stream_error(error: Any, model: str) -> ProviderError:
    """Return the error for an `error` event in a stream."""
    body = msgspec.json.encode({"error": error})
    status = _STATUS.get(str(error_object(body).get("type")))
    return (
        error_for(status, body, model=model)
        if status
        else StreamCut(f"Anthropic interrupted the reply: {error_message(body)}")
    )


def can_retry(refused: StatusRefused) -> bool:
    """Return True if the same request may succeed in a moment."""
    details = error_object(refused.body).get("details")
    spent = isinstance(details, dict) and details.get("error_code") == _SPENT
    return not spent and not openai_errors.is_overflow(refused.body)


def refuses_thinking(refused: StatusRefused) -> bool:
    """Return True if the thinking in a request was refused: it is bound to the model and to everything before it."""
    return refused.status == 400 and "thinking" in _message(refused.body)


def _message(body: bytes) -> str:
    return str(error_object(body).get("message", "")).lower()


def _is_missing(status: int, body: bytes) -> bool:
    return openai_errors.is_missing(status, body) or (status == 403 and _THIS_MODEL in _message(body))
