"""What errors mean in Google's Gemini API, whether they come as a status or inside a stream.

After the API's troubleshooting page and Google's error model (`google.rpc.Status`): the status says little (a wrong key is
a 400), the reason and the pause to make stand in `details`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plugins.providers.hosted import openai_errors
from plugins.support.errors import ContextOverflow, CredentialsRefused, ProviderError, StreamCut
from plugins.support.http_errors import StatusRefused, error_details, error_message, retry_info_delay

_PAYLOAD = "payload size exceeds the limit"


def meaning(status: int, body: bytes, *, model: str | None = None, after: float | None = None) -> ProviderError:
    """What an error status means. `model` is the one that was asked for an answer, `after` how many seconds the server asks
    to wait, where a header said so."""
    words = error_message(body)
    if any(str(detail.get("reason", "")).startswith("API_KEY_") for detail in error_details(body)):
        return CredentialsRefused(f"The provider refused the key: {words}")
    if openai_errors.is_overflow(body, _PAYLOAD):
        return ContextOverflow(f"The conversation is too long for the provider: {words}")
    return openai_errors.meaning(status, body, model=model, after=after)


def in_stream(error: Any, model: str) -> ProviderError:
    """What an error object inside the stream of a model's answer means."""
    body = msgspec.json.encode({"error": error})
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and 400 <= code < 500:
        return meaning(code, body, model=model, after=retry_info_delay(body))
    return StreamCut(f"The provider broke off: {error_message(body)}")


def worth_another_attempt(refused: StatusRefused) -> bool:
    """Whether the same request may succeed in a moment: not where the day's quota is used up, of which Google says all
    the same that a pause of seconds will do."""
    used_up = any("PerDay" in str(violation.get("quotaId")) for violation in _violations(refused.body))
    return not used_up and openai_errors.worth_another_attempt(refused)


def _violations(body: bytes) -> list[dict[str, Any]]:
    found = (detail.get("violations") for detail in error_details(body))
    return [violation for listed in found if isinstance(listed, list) for violation in listed if isinstance(violation, dict)]
