"""What errors mean in Google's Gemini API, whether they come as a status or inside a stream.

After the API's troubleshooting page and Google's error model (`google.rpc.Status`): the status says little (a wrong key is
a 400), the reason and the pause to make stand in `details`.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from plugins.chat import openai_errors
from plugins.errors import ContextOverflow, CredentialsRefused, ProviderError, StreamCut
from plugins.refusals import StatusRefused, error_object, plain_words

_PAYLOAD = "payload size exceeds the limit"
_SECONDS = re.compile(r"([0-9]{1,9}(?:\.[0-9]+)?)s")


def meaning(status: int, body: bytes, *, after: float | None = None) -> ProviderError:
    """What an error status means; `after` is how many seconds the server asks to wait, where a header said so."""
    words = plain_words(body)
    if any(str(detail.get("reason", "")).startswith("API_KEY_") for detail in _details(body)):
        return CredentialsRefused(f"The provider refused the key: {words}")
    if _PAYLOAD in words:
        return ContextOverflow(f"The conversation is too long for the provider: {words}")
    return openai_errors.meaning(status, body, after=_pause(body) if after is None else after)


def in_stream(error: Any) -> ProviderError:
    """What an error object inside a stream means."""
    body = msgspec.json.encode({"error": error})
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and 400 <= code < 500:
        return meaning(code, body)
    return StreamCut(f"The provider broke off: {plain_words(body)}")


def worth_another_attempt(refused: StatusRefused) -> bool:
    """Whether the same request may succeed in a moment: not where the day's quota is used up, of which Google says all
    the same that a pause of seconds will do."""
    if refused.retry_after is None:
        refused.retry_after = _pause(refused.body)  # Google sends no such header; the transport waits for what stands here
    used_up = any("PerDay" in str(violation.get("quotaId")) for violation in _violations(refused.body))
    return not used_up and openai_errors.worth_another_attempt(refused)


def _pause(body: bytes) -> float | None:
    """Seconds that a `RetryInfo` asks to wait."""
    told = (_SECONDS.fullmatch(str(detail.get("retryDelay"))) for detail in _details(body))
    return next((float(seconds[1]) for seconds in told if seconds), None)


def _violations(body: bytes) -> list[dict[str, Any]]:
    return [violation for detail in _details(body) for violation in _objects(detail.get("violations"))]


def _details(body: bytes) -> list[dict[str, Any]]:
    return _objects(error_object(body).get("details"))


def _objects(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
