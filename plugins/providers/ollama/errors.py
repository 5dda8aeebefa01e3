"""The errors of an Ollama server: `{"error": "…"}`, with a status or as a line of the stream.

Sources: Ollama's API documentation (errors) and its releases: since 0.30 some messages contain JSON of the inference engine.
"""

from __future__ import annotations

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
)
from plugins.support.http_errors import StatusRefused, error_message, error_object

_QUOTA_EXHAUSTED = "usage limit"
_OUT_OF_MEMORY = "more system memory"


def error_for(  # noqa: PLR0911 - one for each kind
    status: int, body: bytes, *, model: str | None = None, after: float | None = None
) -> ProviderError:
    """Return the error for an error status; implements `VendorErrors.error_for`."""
    inner = engine_error(body)
    words = error_message(inner)
    if openai_errors.is_overflow(inner):
        return ContextOverflow(f"The conversation is too long for the model: {words}")
    if model is not None and status == 403 and openai_errors.is_missing(status, body):
        return NoSuchModel(f"Ollama has no model {model!r}, or the key has no access to it: {words}")
    if model is not None and status == 404:
        if not error_object(body):
            return NoSuchModel(f"There is no model {model!r}: the address is not that of an Ollama server.")
        hint = "`ollama pull` fetches a model, `ollama list` shows the installed ones"
        return NoSuchModel(f"Ollama has no model {model!r}: {words}. {hint}.")
    if status in (401, 403):
        return CredentialsRefused(f"Ollama refused the key, or requires one: {words}")
    if status < 400 or status in (404, 405):
        return BadRequest(f"Ollama refused the request ({status}): the address is not that of an Ollama server.")
    return openai_errors.error_for(status, inner, after=after, vendor="Ollama")


def stream_error(error: object) -> ProviderError:
    """Return the error for an error on a line of a stream."""
    body = msgspec.json.encode({"error": error})
    words = error_message(engine_error(body))
    if is_overflow(body):
        return ContextOverflow(f"The conversation is too long for the model: {words}")
    if _QUOTA_EXHAUSTED in words:
        return RateLimited(f"Ollama interrupted the reply: {words}")
    if openai_errors.rejects_images(engine_error(body)):
        return BadRequest(f"The model accepts no images: {words}")
    return StreamCut(f"Ollama interrupted the reply: {words}")


def can_retry(refused: StatusRefused) -> bool:
    """Return True if the same request may succeed in a moment."""
    words = error_message(engine_error(refused.body))
    no_images = openai_errors.rejects_images(engine_error(refused.body))
    return not (is_overflow(refused.body) or no_images or _QUOTA_EXHAUSTED in words or _OUT_OF_MEMORY in words)


def is_overflow(body: bytes) -> bool:
    """Return True if the body of an error says that the request is too long."""
    return openai_errors.is_overflow(engine_error(body))


def engine_error(body: bytes) -> bytes:
    """Return the error of the engine if Ollama's message contains it as JSON; else the body unchanged."""
    message = error_object(body).get("message")
    if isinstance(message, str) and "{" in message:
        inner = message[message.index("{") :].encode("utf-8", "replace")
        if isinstance(error_object(inner).get("message"), str):
            return inner
    return body
