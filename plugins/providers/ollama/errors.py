"""What errors of an Ollama server mean. They come as `{"error": "…"}`, with a status or as a line of the stream.

After Ollama's API documentation (errors), and what its releases say: since 0.30 some of the texts are JSON of the engine
below, as text.
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
    Unreachable,
)
from plugins.support.http_errors import StatusRefused, error_message, error_object

_OVERFLOW_WORDS = ("input length exceeds", "exceeded max context length")
"""How Ollama itself and its cloud say it; its engine speaks like OpenAI's."""
_USED_UP = "usage limit"
_TOO_SMALL = "more system memory"


def meaning(  # noqa: PLR0911 - one for each kind
    status: int, body: bytes, *, model: str | None = None, after: float | None = None
) -> ProviderError:
    """What an error status means. `model` is the one that was asked for an answer, `after` how many seconds the server asks
    to wait."""
    words = error_message(engine_words(body))
    if is_overflow(body) or status == 413:
        return ContextOverflow(f"The conversation is too long for the model: {words}")
    if model is not None and status == 403 and openai_errors.is_missing(status, body):
        return NoSuchModel(f"Ollama has no model {model!r}, or not for this key: {words}")
    if status in (401, 403):
        return CredentialsRefused(f"Ollama refuses the key, or wants one: {words}")
    if status in (402, 429):
        return RateLimited(f"Ollama takes no request now: {words}", retry_after=after)
    if openai_errors.is_blind(engine_words(body)):
        return BadRequest(f"The model takes no picture: {words}")
    if status >= 500 or status in (408, 409, 499):
        return Unreachable(f"Ollama failed ({status}): {words}")
    if model is not None and status == 404:
        if not error_object(body):
            return NoSuchModel(f"There is no model {model!r}: the address is not that of an Ollama server.")
        ways = "`ollama pull` fetches a model, `ollama list` shows those that are there"
        return NoSuchModel(f"Ollama has no model {model!r}: {words}. {ways}.")
    if status < 400 or status in (404, 405):
        words = "the address is not that of an Ollama server"
    return BadRequest(f"Ollama refused the request ({status}): {words}.")


def in_stream(error: object) -> ProviderError:
    """What the error on a line of the stream means."""
    body = msgspec.json.encode({"error": error})
    words = error_message(engine_words(body))
    if is_overflow(body):
        return ContextOverflow(f"The conversation is too long for the model: {words}")
    if _USED_UP in words:
        return RateLimited(f"Ollama broke off: {words}")
    if openai_errors.is_blind(engine_words(body)):
        return BadRequest(f"The model takes no picture: {words}")
    return StreamCut(f"Ollama broke off: {words}")


def worth_another_attempt(refused: StatusRefused) -> bool:
    """Whether the same request may succeed in a moment, for a status after which some do."""
    words = error_message(engine_words(refused.body))
    blind = openai_errors.is_blind(engine_words(refused.body))
    return not (is_overflow(refused.body) or blind or _USED_UP in words or _TOO_SMALL in words)


def is_overflow(body: bytes) -> bool:
    """Whether an error's body says that the request was too long."""
    return openai_errors.is_overflow(engine_words(body), *_OVERFLOW_WORDS)


def engine_words(body: bytes) -> bytes:
    """The error of the engine below, where the text of Ollama's holds one as JSON; else the body as it is."""
    message = error_object(body).get("message")
    if isinstance(message, str) and "{" in message:
        inner = message[message.index("{") :].encode("utf-8", "replace")
        if isinstance(error_object(inner).get("message"), str):
            return inner
    return body
