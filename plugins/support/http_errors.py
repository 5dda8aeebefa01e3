"""Reading HTTP error responses: the status, the requested delay, and a message for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from plugins.support.errors import ProviderError
from plugins.support.secrets import scrubbed

RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed."""

SENTENCE = 300
"""The maximum length of a provider's message in characters."""

_GENERAL = frozenset(
    {
        "api", "argument", "arguments", "bad", "client", "engine", "entity", "error", "exception", "failed", "failure",
        "generation", "http", "inference", "input", "internal", "invalid", "model", "param", "parameter", "parameters",
        "provider", "request", "runtime", "server", "service", "status", "unknown", "unprocessable", "upstream",
        "validation",
    }
)  # fmt: skip
"""Words of error codes that do not name a reason, such as `invalid_request_error` or `BadRequestError`."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")

_SECONDS = re.compile(r"([0-9]{1,9}(?:\.[0-9]+)?)s")


class StatusRefused(ProviderError):
    """The server responded with an error status. Providers read `status` and `body` and raise a more specific error."""

    code = "bad_request"

    def __init__(self, status: int, body: bytes, *, retry_after: float | None = None) -> None:
        super().__init__(f"The server answered {status}: {error_message(body)}", retry_after=retry_after)
        self.status = status
        self.body = body
        self.retryable = status in RETRIED


def short_reason(error: ProviderError) -> str:
    """Return the reason of an error without the server's message, which may quote the person's text."""
    what = error.code.replace("_", " ")
    refused = error if isinstance(error, StatusRefused) else error.__cause__
    return f"{what}, status {refused.status}" if isinstance(refused, StatusRefused) else what


def requested_delay(headers: Mapping[str, str], body: bytes, now: float) -> float | None:
    """Return the delay in seconds that an error response asks for in its headers or body; `now` is the Unix time."""
    wait = retry_after(headers.get("retry-after"), headers.get("retry-after-ms"), now)
    return retry_info_delay(body) if wait is None else wait


def retry_after(header: str | None, millis: str | None, now: float) -> float | None:
    """Return the delay in seconds of `Retry-After` (seconds or an HTTP date) or `retry-after-ms`; `now` is the Unix time."""
    for text, unit in ((millis, 1000.0), (header, 1.0)):
        try:
            seconds = float(text or "") / unit
        except ValueError:
            continue
        if 0 <= seconds < 1e9:
            return seconds
    try:
        return max(0.0, parsedate_to_datetime(header or "").timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def retry_info_delay(body: bytes) -> float | None:
    """Return the delay in seconds of a `RetryInfo` in an error body (`google.rpc.RetryInfo`, Google's error model)."""
    delays = (_SECONDS.fullmatch(str(detail.get("retryDelay"))) for detail in error_details(body))
    return next((float(seconds[1]) for seconds in delays if seconds), None)


def error_details(body: bytes) -> list[dict[str, Any]]:
    """Return the objects in the `details` of a JSON error."""
    details = error_object(body).get("details")
    return [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []


def error_object(body: bytes) -> dict[str, Any]:
    """Return the error object of a JSON body, or {} if there is none.

    Accepts `{"error": {…}}`, the same in a list, `{"error": "…"}`, and the object itself.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return {}
    if isinstance(value, list) and value:
        value = value[0]
    error = value.get("error", value) if isinstance(value, dict) else None
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def names_another_reason(body: bytes, about: re.Pattern[str]) -> bool:
    """Return True if a code of an error names a reason that `about` does not match.

    The message is ignored, since it may quote a person's text.
    """
    return any(not _is_general(name) and not about.search(name) for name in _names(error_object(body)))


def _names(error: Mapping[str, Any]) -> list[str]:
    details = error.get("details")
    objects = [error, *(each for each in (details if isinstance(details, list) else [details]) if isinstance(each, dict))]
    names = (each.get(key) for each in objects for key in ("code", "type", "status", "reason", "error_code"))
    return [name for name in names if isinstance(name, str)]


def _is_general(name: str) -> bool:
    """Return True if a code names no reason; neither does a sentence or a number in its place."""
    return " " in name or name.startswith("invalid_request") or {word.lower() for word in _WORD.findall(name)} <= _GENERAL


def error_message(body: bytes) -> str:
    """Return the message of an error body as one line, or the beginning of the body.

    Secrets are removed before the text is shortened, since servers repeat rejected keys.
    """
    error = error_object(body)
    message = error.get("message") or error.get("detail")
    text = scrubbed(message if isinstance(message, str) else body.decode("utf-8", "replace"))[: 16 * SENTENCE]
    words = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return words[:SENTENCE] or "nothing"
