"""The errors of Google's Gemini API, as a status or inside a stream.

Sources: the API's troubleshooting page and Google's error model (`google.rpc.Status`). The status says little (an invalid
key is a 400); the reason and the pause are in `details`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plugins.providers.hosted import openai_errors
from plugins.support.errors import ContextOverflow, CredentialsRefused, ProviderError, StreamCut
from plugins.support.http_errors import StatusRefused, error_details, error_message, retry_info_delay


def error_for(status: int, body: bytes, *, model: str | None = None, after: float | None = None) -> ProviderError:
    """Return the error for an error status; implements `VendorErrors.error_for`."""
    words = error_message(body)
    if any(str(detail.get("reason", "")).startswith("API_KEY_") for detail in error_details(body)):
        return CredentialsRefused(f"The provider refused the key: {words}")
    if openai_errors.is_overflow(body):
        return ContextOverflow(f"The conversation is too long for the provider: {words}")
    return openai_errors.error_for(status, body, model=model, after=after)


def stream_error(error: Any, model: str) -> ProviderError:
    """Return the error for an error object inside a stream."""
    body = msgspec.json.encode({"error": error})
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and 400 <= code < 500:
        return error_for(code, body, model=model, after=retry_info_delay(body))
    return StreamCut(f"The provider interrupted the reply: {error_message(body)}")


def can_retry(refused: StatusRefused) -> bool:
    """Return True if the same request may succeed in a moment. An exhausted daily quota does not, although Google names a
    pause of seconds for it."""
    quota_exhausted = any("PerDay" in str(violation.get("quotaId")) for violation in _violations(refused.body))
    return not quota_exhausted and openai_errors.can_retry(refused)


def _violations(body: bytes) -> list[dict[str, Any]]:
    found = (detail.get("violations") for detail in error_details(body))
    return [violation for listed in found if isinstance(listed, list) for violation in listed if isinstance(violation, dict)]
