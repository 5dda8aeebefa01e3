"""What it means that a server refuses to embed: too much at once, or what the same refusal means for a chat model."""

from __future__ import annotations

import re

from plugins.providers.hosted import openai_errors
from plugins.support.errors import BadRequest, ContextOverflow, NoSuchModel, ProviderError
from plugins.support.http_errors import StatusRefused, error_message, error_object

_SIZE = frozenset({400, 413, 422, 500})
"""Statuses with which servers say that a request holds too much."""

_TOO_MUCH = re.compile(
    r"too (long|many|large)|\bexceed(s|ing)?\b|context (length|size|window)|at most \d+ requests|larger than"
    r"|max(imum)? allowed|split into more batches|max \d+ tokens per request|input length",
    re.I,
)
"""How OpenAI, Google, Voyage, Mistral, Ollama, DashScope, llama.cpp, vLLM and TEI say it, of one text or of all together."""

_UNKNOWN = re.compile(r"\bmodel\b(?:(?!\bmodel\b).){0,200}?\bnot supported\b", re.I)
"""How Voyage says that it has no such model."""


def is_too_much(refused: StatusRefused) -> bool:
    """Whether a request was refused for its size, and not for its kind."""
    if openai_errors.is_overflow(refused.body) or refused.status == 413:
        return True
    error = error_object(refused.body)
    told = " ".join(str(error.get(name, "")) for name in ("message", "detail", "code", "type"))
    return refused.status in _SIZE and _TOO_MUCH.search(told) is not None


def may_be_too_much(error: ProviderError) -> bool:
    """Whether less might be taken: a request was refused for its size, or in words that say nothing of why."""
    if isinstance(error, ContextOverflow):
        return True
    cause = error.__cause__
    return type(error) is BadRequest and isinstance(cause, StatusRefused) and cause.status in _SIZE


def too_much(refused: StatusRefused) -> ContextOverflow:
    """The error for that."""
    return ContextOverflow(f"The server takes less at once: {error_message(refused.body)}")


def meaning(refused: StatusRefused, model: str) -> ProviderError:
    """What a refusal means that comes in OpenAI's form, or in Voyage's or Mistral's, which are nearly that."""
    if is_too_much(refused):
        return too_much(refused)
    if refused.status == 400 and _UNKNOWN.search(error_message(refused.body)):
        return NoSuchModel(f"The provider has no model {model!r}: {error_message(refused.body)}")
    return openai_errors.meaning(refused.status, refused.body, model=model, after=refused.retry_after)


def worth_another_attempt(refused: StatusRefused) -> bool:
    """Whether the same request may succeed in a moment, for a status after which some do."""
    return not is_too_much(refused) and openai_errors.worth_another_attempt(refused)
