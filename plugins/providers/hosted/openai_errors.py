"""The errors of OpenAI's API and compatible servers, as a status or inside a stream.

Only the error's own text is examined, never that of a message, in which a person may write anything.
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
_OVERFLOW_SENTENCES = (
    r"(this (model|endpoint)'s )?maximum (context|prompt) length",
    r"'max_tokens' or 'max_completion_tokens' is too large: \d+\. this model's maximum context length",
    r"requested token count exceeds the model's maximum context length",
    r"(your |the )?input( length| token count)?( \(\d+\))? exceeds the (context (window|length)|maximum number of tokens)",
    r"request payload size exceeds the limit",
    r"prompt contains \d+ tokens.{0,80}? maximum context length",
    r"please reduce the length of the messages",
    r"request too large for",  # more than the limit per minute: only a shorter request succeeds
    r"(your )?request exceeded model token limit",
    r"context (window exceeds limit|length exceeded)",
    r"range of input length should be",
    r"the [a-z ]{1,20} \([a-z0-9 ]{1,40}\) is (longer than the (maximum model|model's context) length|too long to fit)",
    r"(the )?request( \(\d+ tokens\))? exceeds the available context size",
    r"requested tokens \(\d+\) exceed context window",
    r"trying to keep the first \d+ tokens when context the overflows",
    r"the number of tokens to keep from the initial prompt is greater than the context length",
    r"(input|prompt) is too long",
    r"too many tokens in the prompt",
    r"input length and `?max_tokens`? exceed context limit",
    r"prompt too long; exceeded max context length",
)
"""How the messages of OpenAI, Gemini, xAI, Mistral, Groq, Kimi, MiniMax, Qwen, vLLM, SGLang, llama.cpp, LM Studio, Bedrock,
Anthropic and Ollama begin. Inside a message the same words may be a person's, which the server quotes."""

_ERROR_NAMES = (
    r"\s*(<\d{3}> |error code: \d{3} - |[\w.]{0,80}?(error|exception|parameter|exceeded)[\w.]{0,80}(:| -) "
    r"|invalid (request:|params,) ){0,4}"
)
"""The names of errors that proxies put before a message."""

_OVERFLOW = re.compile(f"{_ERROR_NAMES}({'|'.join(_OVERFLOW_SENTENCES)})", re.I)

_ABOUT_LENGTH = re.compile(r"context|exceed|large|length|limit|long|max|size|token|window", re.I)
"""Matches error codes that may mean that a request is too long."""

_MISSING_CODES = frozenset({"model_not_found", "invalid_model", "DeploymentNotFound"})
_NAME = r"['\"`]?[^\s'\"`]{1,200}['\"`]?"
_MISSING = re.compile(
    rf"{_ERROR_NAMES}((the )?((requested|specified) )?models?(/| |: )({_NAME} )?((is|was) )?"
    rf"(not found|does not exist|not exist)|{_NAME} is not a valid model|(invalid|unknown|no such) model\b)",
    re.I,
)
"""How the messages of OpenAI, Mistral, DeepSeek, OpenRouter, Groq, xAI, Google, vLLM and LM Studio about an unknown model
begin; some send them with status 400 or 403. Inside a message the same words may be a person's, which the server quotes."""

_ABOUT_MODELS = re.compile(r"access|deployment|exist|found|model|permission", re.I)

_RIGHT = r"\b(?:access|allowed|permission|permitted)\b"
_BARRED_WORDS = re.compile(
    r"\bmodel\b(?:(?!\bmodel\b).){0,200}?\b(access|allowed|available|enabled|permission|permitted|subscription|upgrade)\b"
    rf"|{_RIGHT}(?:(?!{_RIGHT}).){{0,200}}?\bmodel\b",
    re.I,
)
"""The words of a status 403 for a valid key without access to the model."""

_IMAGE_WORDS = "image input"

UNREADABLE_REASONING = "invalid_encrypted_content"
"""The error code if reasoning in the request cannot be decrypted."""


def error_for(  # noqa: PLR0911 - one for each kind
    status: int, body: bytes, *, model: str | None = None, after: float | None = None, vendor: str = "The provider"
) -> ProviderError:
    """Return the error for an error status; implements `VendorErrors.error_for`. `vendor` is the subject of the message."""
    words = error_message(body)
    if model is not None and is_missing(status, body):
        return missing_model(vendor, model, body)
    if status in (401, 403):
        return CredentialsRefused(f"{vendor} refused the key: {words}")
    if is_overflow(body) or status == 413:
        return ContextOverflow(f"The conversation is too long for the model: {words}")
    if status in (402, 429):
        return RateLimited(f"{vendor} accepts no requests now: {words}", retry_after=after)
    if rejects_images(body):
        return BadRequest(f"The model accepts no images: {words}")
    if status >= 500 or status in (408, 409, 499):
        return Unreachable(f"{vendor} failed ({status}): {words}")
    if status < 400:
        return BadRequest(f"{vendor} answered {status} instead of a reply: its address is wrong.")
    return BadRequest(f"{vendor} refused the request ({status}): {words}")


def stream_error(error: Any, model: str) -> ProviderError:
    """Return the error for an error object inside a stream. Some servers put the corresponding status into its code."""
    body = msgspec.json.encode({"error": error})
    code = error_code(body)
    status = int(code[:9]) if code.isdecimal() else 404 if says_missing(body) else 0
    if 400 <= status < 500:
        return error_for(status, body, model=model)
    sentence = f"The provider interrupted the reply: {error_message(body)}"
    if is_overflow(body):
        return ContextOverflow(sentence)
    if "rate_limit" in code or code == "insufficient_quota":
        return RateLimited(sentence)
    if code == "invalid_api_key":
        return CredentialsRefused(sentence)
    if code.startswith(("invalid_", "image_")) or code.endswith("_policy"):
        return BadRequest(sentence)
    return StreamCut(sentence) if code in ("", "server_error") or code.isdecimal() else Unreachable(sentence)


def can_retry(refused: StatusRefused) -> bool:
    """Return True if the same request may succeed in a moment."""
    permanent = error_code(refused.body) == "insufficient_quota" or rejects_images(refused.body)
    return not permanent and not is_overflow(refused.body)


def missing_model(vendor: str, model: str, body: bytes) -> NoSuchModel:
    """Return the error for an unknown model; a body that does not mention a model may come from any server."""
    sentence = f"{vendor} has no model {model!r}"
    if not says_missing(body):
        sentence += ", or the key has no access to it" if _is_barred(body) else ", or the address is wrong"
    return NoSuchModel(f"{sentence}: {error_message(body)}")


def is_missing(status: int, body: bytes) -> bool:
    """Return True if a request was refused because the model is unknown or the key has no access to it."""
    return status == 404 or (status == 403 and _is_barred(body)) or (400 <= status < 500 and says_missing(body))


def says_missing(body: bytes) -> bool:
    """Return True if the body of an error says that the model is unknown: by its code, or by beginning with one of the known
    sentences if the code says nothing else."""
    error = error_object(body)
    if {str(error.get("code")), str(error.get("type"))} & _MISSING_CODES:
        return True
    return _MISSING.match(str(error.get("message", ""))) is not None and not names_another_reason(body, _ABOUT_MODELS)


def _is_barred(body: bytes) -> bool:
    return _BARRED_WORDS.search(str(error_object(body).get("message", ""))) is not None


def is_overflow(body: bytes) -> bool:
    """Return True if the body of an error says that the request is too long: by its code, or by beginning with one of the
    known sentences if the code says nothing else."""
    error = error_object(body)
    if {str(error.get("code")), str(error.get("type"))} & _OVERFLOW_CODES:
        return True
    return _OVERFLOW.match(str(error.get("message", ""))) is not None and not names_another_reason(body, _ABOUT_LENGTH)


def rejects_images(body: bytes) -> bool:
    """Return True if the body of an error says that the model accepts no images, which llama.cpp and Ollama report as an
    internal error."""
    return _IMAGE_WORDS in str(error_object(body).get("message", "")).lower()


def error_code(body: bytes) -> str:
    """Return the code or type of an error; empty if it has none."""
    error = error_object(body)
    return str(error.get("code") or error.get("type") or "")
