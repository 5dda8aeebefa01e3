"""`Secret`, a value that is never printed, and the removal of secrets from texts.

Servers and plugins may repeat secrets in their messages. All secrets that the gateway knows are recorded here, so that
`scrubbed` can remove them from events, frames, replies and log lines. A replaced secret stays recorded; of tokens that a
server renews, only the last ones do.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping

HIDDEN = "(hidden)"
"""The text that replaces a secret."""

SHORTEST = 8
"""The minimum length of a secret that is removed from texts; shorter ones would match parts of other words."""

RENEWALS = 4
"""Secrets of one source that stay recorded: requests that are under way may still show a previous one."""

_PLACEHOLDERS = frozenset({"lm-studio", "llama-cpp", "no-key-needed", "no-key-required", "not-needed", "sk-no-key-required"})
"""Keys for servers that require none."""

_NAMES = re.compile(r"(?:\A|_)(?:APIKEY|CREDENTIALS?|KEY|PASSWORD|PASSWD|PAT|SECRET|TOKEN)(?:_|\Z)", re.I)
_PLACES = re.compile(r"_(?:DIR|FILE|PATH)\Z|\APATH_", re.I)
"""Names of variables that contain a path instead of the secret itself."""

_PASSWORD_IN_URL = re.compile(r"[a-z]://[^/@\s:]*:([^/@\s]+)@")

_lasting: set[str] = set()
_renewed: dict[str, list[str]] = {}
"""The secrets without a source, and those of each source, the newest last. Both are changed under the lock."""

_lock = threading.Lock()

_whole: frozenset[str] = frozenset()
_parts: tuple[str, ...] = ()
"""The texts of all secrets, and what is taken out of other texts, the longest first. Both are replaced whole: another thread
may be reading them."""


class Secret:
    """A key or token. Its value appears in no `repr`, log, error or JSON; call `reveal()` to get it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the value."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def revealed(headers: Mapping[str, Secret]) -> dict[str, str]:
    """Return headers with their values."""
    return {name: value.reveal() for name, value in headers.items()}


def hide(secret: Secret, source: str = "") -> None:
    """Record a secret, so that `scrubbed` removes it. For a header value such as `Bearer …` this includes the part after the
    scheme.

    Args:
        secret: The secret.
        source: Where it comes from, if it is replaced again and again, such as an access token: only the last `RENEWALS`
            secrets of a source stay recorded. By default the secret stays recorded until the process ends.
    """
    global _whole, _parts
    text = secret.reveal()
    with _lock:
        if not text or text in _lasting:
            return
        if source:
            _renewed[source] = [*(each for each in _renewed.get(source, ()) if each != text), text][-RENEWALS:]
        else:
            _lasting.add(text)
        whole = frozenset(_lasting).union(*_renewed.values())
        parts = {part for each in whole for part in _removed(each)}
        _whole, _parts = whole, tuple(sorted(parts, key=len, reverse=True))


def _removed(text: str) -> Iterator[str]:
    """Yield what is removed from texts because of a secret."""
    words = text.split()
    for part in (text, words[1]) if len(words) == 2 else (text,):
        if len(part) >= SHORTEST and part not in _PLACEHOLDERS:
            yield part


def hide_keys_of(environment: Mapping[str, str]) -> None:
    """Record the secrets in environment variables: values of variables with such names, and passwords in URLs."""
    for name, value in environment.items():
        text = value.strip()
        if match := _PASSWORD_IN_URL.search(text):
            hide(Secret(match[1]))
        elif _NAMES.search(name) and not _PLACES.search(name) and not text.startswith(("/", "~", ".")):
            hide(Secret(text))


def is_secret(text: str) -> bool:
    """Return True if the text is a recorded secret, however short."""
    return text in _whole


def held_back(text: str) -> int:
    """Return the length of the end of a text that may be the beginning of a secret, so that it must not be shown before the
    next piece of the text is known."""
    longest = 0
    for secret in _parts:
        # A beginning of SHORTEST characters or more is tried only where the first ones occur.
        at = text.find(secret[:SHORTEST], max(len(text) - len(secret) + 1, 0))
        while at >= 0 and len(text) - at > longest:
            if secret.startswith(text[at:]):
                longest = len(text) - at
            at = text.find(secret[:SHORTEST], at + 1)
        for length in range(min(SHORTEST - 1, len(text)), longest, -1):
            if text.endswith(secret[:length]):
                longest = length
                break
    return longest


def scrubbed(text: str) -> str:
    """Return the text with secrets replaced. Takes about 20 ns per secret for a short text."""
    for secret in _parts:
        text = text.replace(secret, HIDDEN)
    return text
