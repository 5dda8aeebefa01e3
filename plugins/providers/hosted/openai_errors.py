"""What errors mean in OpenAI's API, whether they come as a status or inside a stream, and from whichever server.

Only an error's own words are looked at, never those of a message: a person may write anything.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

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
from plugins.support.http_errors import StatusRefused, error_message, error_object, names_another_reason

_OVERFLOW_CODES = frozenset(
    {
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "string_above_max_length",
        "tokens_limit_reached",
    }
)
_OVERFLOW_WORDS = (
    "context length exceeded",
    "context window exceeds",
    "exceed context window",
    "exceeded model token limit",
    "exceeds the available context size",
    "exceeds the context window",
    "exceeds the maximum number of tokens",
    "greater than the context length",
    "input is too long",
    "loaded with context length of only",
    "longer than the maximum model length",
    "longer than the model's context length",
    "maximum context length",
    "maximum prompt length",
    "prompt is too long",
    "range of input length should be",
    "reduce the length of the messages",
    "request too large for",  # more than the account may send in a minute: waiting does not help, a shorter one does
    "too many tokens in the prompt",
)
"""How OpenAI, Gemini, xAI, Mistral, Groq, Kimi, Qwen, vLLM, SGLang, llama.cpp and LM Studio say it, in lower case."""

_ABOUT_LENGTH = re.compile(r"context|exceed|large|length|limit|long|max|size|token|window", re.I)
"""What a code has in it that may be that of a request that is too long."""

_MISSING_CODES = frozenset({"model_not_found", "invalid_model", "DeploymentNotFound"})
_MISSING_WORDS = re.compile(
    r"\bmodel\b(?:(?!\bmodel\b).){0,200}?\b(not found|does not exist|not exist)\b|not a valid model"
    r"|\b(invalid|unknown|no such) model\b",
    re.I,
)
"""How OpenAI, Mistral, DeepSeek, OpenRouter, Groq, xAI, Google, vLLM and LM Studio say that there is no such model: some
with a status 400 or 403."""

_ABOUT_MODELS = re.compile(r"access|deployment|exist|found|model|permission", re.I)

_RIGHT = r"\b(?:access|allowed|permission|permitted)\b"
_BARRED_WORDS = re.compile(
    r"\bmodel\b(?:(?!\bmodel\b).){0,200}?\b(access|allowed|available|enabled|permission|permitted|subscription|upgrade)\b"
    rf"|{_RIGHT}(?:(?!{_RIGHT}).){{0,200}}?\bmodel\b",
    re.I,
)
"""How a status 403 says that the key is good, and not for this model."""

_BLIND_WORDS = "image input"

UNREADABLE = "invalid_encrypted_content"
"""The code of the refusal of reasoning that was sent back and cannot be decrypted."""


def meaning(  # noqa: PLR0911 - one for each kind
    status: int, body: bytes, *, model: str | None = None, after: float | None = None
) -> ProviderError:
    """What an error status means. `model` is the one that was asked for an answer, `after` how many seconds the server asks
    to wait."""
    words = error_message(body)
    if model is not None and is_missing(status, body):
        return missing("The provider", model, body)
    if status in (401, 403):
        return CredentialsRefused(f"The provider refused the key: {words}")
    if is_overflow(body) or status == 413:
        return ContextOverflow(f"The conversation is too long for the model: {words}")
    if status in (402, 429):
        return RateLimited(f"The provider takes no request now: {words}", retry_after=after)
    if is_blind(body):
        return BadRequest(f"The model takes no picture: {words}")
    if status >= 500 or status in (408, 409):
        return Unreachable(f"The provider failed ({status}): {words}")
    if status < 400:
        return BadRequest(f"The provider answered {status} instead of a reply: its address is not the one to ask.")
    return BadRequest(f"The provider refused the request ({status}): {words}")


def in_stream(error: Any, model: str) -> ProviderError:
    """What an error object inside the stream of a model's answer means. Some servers give the status it would have had as
    its code."""
    body = msgspec.json.encode({"error": error})
    code = error_code(body)
    status = int(code[:9]) if code.isdecimal() else 404 if says_missing(body) else 0
    if 400 <= status < 500:
        return meaning(status, body, model=model)
    sentence = f"The provider broke off: {error_message(body)}"
    if is_overflow(body):
        return ContextOverflow(sentence)
    if "rate_limit" in code or code == "insufficient_quota":
        return RateLimited(sentence)
    if code == "invalid_api_key":
        return CredentialsRefused(sentence)
    if code.startswith(("invalid_", "image_")) or code.endswith("_policy"):
        return BadRequest(sentence)
    return StreamCut(sentence) if code in ("", "server_error") or code.isdecimal() else Unreachable(sentence)


def worth_another_attempt(refused: StatusRefused) -> bool:
    """Whether the same request may succeed in a moment, for a status after which some do."""
    hopeless = error_code(refused.body) == "insufficient_quota" or is_blind(refused.body)
    return not hopeless and not is_overflow(refused.body)


def missing(who: str, model: str, body: bytes) -> NoSuchModel:
    """The error for a model that is not there; a body that speaks of no model may be that of any server."""
    what = f"{who} has no model {model!r}"
    if not says_missing(body):
        what += ", or not for this key" if _is_barred(body) else ", or its address is not the one to ask"
    return NoSuchModel(f"{what}: {error_message(body)}")


def is_missing(status: int, body: bytes) -> bool:
    """Whether a request for a model's answer was refused because the model is not there, or not for this key."""
    return status == 404 or (status == 403 and _is_barred(body)) or (400 <= status < 500 and says_missing(body))


def says_missing(body: bytes) -> bool:
    """Whether an error's body says that the model is not there."""
    error = error_object(body)
    if {str(error.get("code")), str(error.get("type"))} & _MISSING_CODES:
        return True
    return _MISSING_WORDS.search(str(error.get("message", ""))) is not None and not names_another_reason(body, _ABOUT_MODELS)


def _is_barred(body: bytes) -> bool:
    return _BARRED_WORDS.search(str(error_object(body).get("message", ""))) is not None


def is_overflow(body: bytes, *more_words: str) -> bool:
    """Whether an error's body says that the request was too long, by its code, or in one of the known phrases (or of
    `more_words`, in lower case) where no code says something else."""
    error = error_object(body)
    if {str(error.get("code")), str(error.get("type"))} & _OVERFLOW_CODES:
        return True
    message = str(error.get("message", "")).lower()
    told = any(words in message for words in (*_OVERFLOW_WORDS, *more_words))
    return told and not names_another_reason(body, _ABOUT_LENGTH)


def is_blind(body: bytes) -> bool:
    """Whether an error's body says that the model sees no pictures, which llama.cpp and Ollama tell as their own failure."""
    return _BLIND_WORDS in str(error_object(body).get("message", "")).lower()


def error_code(body: bytes) -> str:
    """The error's own code or type; empty if it has none."""
    error = error_object(body)
    return str(error.get("code") or error.get("type") or "")
