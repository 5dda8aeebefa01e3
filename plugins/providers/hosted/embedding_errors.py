"""Errors of embedding servers: requests that are too large, and otherwise the errors of chat requests."""

from __future__ import annotations

import re

from plugins.providers.hosted import openai_errors
from plugins.support.errors import BadRequest, ContextOverflow, NoSuchModel, ProviderError
from plugins.support.http_errors import StatusRefused, error_message, error_object

_SIZE_STATUSES = frozenset({400, 413, 422, 500})
"""The statuses with which servers refuse a request that is too large."""

_SIZE_WORDS = re.compile(
    r"too (long|many|large)|\bexceed(s|ing)?\b|context (length|size|window)|at most \d+ requests|larger than"
    r"|max(imum)? allowed|split into more batches|max \d+ tokens per request|input length",
    re.I,
)
"""The words of OpenAI, Google, Voyage, Mistral, Ollama, DashScope, llama.cpp, vLLM and TEI, for one text or the whole
request."""

_UNKNOWN_MODEL = re.compile(r"model \S{1,200} is not supported\b", re.I)
"""The beginning of Voyage's message about an unknown model."""


def is_too_large(refused: StatusRefused) -> bool:
    """Return True if a request was refused for its size."""
    if openai_errors.is_overflow(refused.body) or refused.status == 413:
        return True
    error = error_object(refused.body)
    words = " ".join(str(error.get(name, "")) for name in ("message", "detail", "code", "type"))
    return refused.status in _SIZE_STATUSES and _SIZE_WORDS.search(words) is not None


def may_be_too_large(error: ProviderError) -> bool:
    """Return True if a smaller request might succeed: it was refused for its size, or for no stated reason."""
    if isinstance(error, ContextOverflow):
        return True
    cause = error.__cause__
    return type(error) is BadRequest and isinstance(cause, StatusRefused) and cause.status in _SIZE_STATUSES


def error_for(status: int, body: bytes, *, model: str | None = None, after: float | None = None) -> ProviderError:
    """Return the error for an error status in OpenAI's format, or in Voyage's or Mistral's, which are similar."""
    if status == 400 and _UNKNOWN_MODEL.match(error_message(body)):
        return NoSuchModel(f"The provider has no model {model!r}: {error_message(body)}")
    return openai_errors.error_for(status, body, model=model, after=after)


can_retry = openai_errors.can_retry
