"""What a check asks of an error: that it is one of the house's, fit for a person, and the one that is meant."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from plugins.errors import ProviderError

SENTENCE = 500
"""Characters that a person reads at most."""


async def error_of(asked: Awaitable[Any], *meant: type[ProviderError], secret: str = "") -> ProviderError:
    """The error with which something ends that must fail, in one of the kinds that are `meant`, as one line for a person in
    which `secret` does not stand."""
    error = await _raised(asked)
    names = " or ".join(kind.__name__ for kind in meant)
    assert type(error) in meant, f"{type(error).__name__} was raised ({error}), and {names} is meant."
    check_sentence(str(error), secret)
    return error


async def _raised(asked: Awaitable[Any]) -> ProviderError:
    try:
        answer = await asked
    except ProviderError as error:
        return error
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} was raised, which is no ProviderError: {error}") from error
    raise AssertionError(f"It answered {str(answer)[:100]!r} where there was no answer.")


def check_sentence(sentence: str, secret: str = "") -> None:
    """Whether a sentence can be shown to a person."""
    assert sentence.strip(), "The error says nothing."
    assert sentence.isprintable(), f"The error is not one line of text: {sentence!r}"
    assert len(sentence) <= SENTENCE, f"The error has {len(sentence)} characters: {sentence[:100]!r}…"
    assert not secret or secret not in sentence, "The error shows the key."
