"""`Secret`: a value that prints as nothing. Configuration resolves references into it; providers call `reveal`.

Others repeat what they were given: servers the key that they refuse, plugins their own settings. So the texts of all secrets
that the gateway holds are known here, and `scrubbed` takes them out of a text before it becomes an event, a frame, an answer
or a log line. A secret stays known after it was replaced by another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "(hidden)"
"""What stands in place of a secret."""

SHORTEST = 8
"""Characters of the shortest secret that is taken out of a text: a shorter one would be taken out of other words."""

_PLACEHOLDERS = frozenset({"lm-studio", "llama-cpp", "no-key-needed", "no-key-required", "not-needed", "sk-no-key-required"})
"""Keys for servers that want none."""

_NAMES = re.compile(r"(?:\A|_)(?:APIKEY|CREDENTIALS?|KEY|PASSWORD|PASSWD|PAT|SECRET|TOKEN)(?:_|\Z)", re.I)
_PLACES = re.compile(r"_(?:DIR|FILE|PATH)\Z|\APATH_", re.I)
"""Names of variables that hold a secret, and of those that say where one is."""

_PASSWORD_IN_URL = re.compile(r"[a-z]://[^/@\s:]*:([^/@\s]+)@")

_whole: frozenset[str] = frozenset()
_parts: tuple[str, ...] = ()
"""The texts of all secrets, and what is taken out of other texts, the longest first. Both are replaced whole: another thread
may be reading them."""


class Secret:
    """A key or token. Its text appears nowhere unless `reveal()` is called: not in `repr`, logs, errors or JSON."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one request that needs it."""
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


def hide(secret: Secret) -> None:
    """Have this secret's text taken out of whatever is `scrubbed` from here on, and what follows the scheme of a header."""
    global _whole, _parts
    text = secret.reveal()
    if not text or text in _whole:
        return
    words = text.split()
    found = {text, words[1]} if len(words) == 2 else {text}
    kept = {each for each in found if len(each) >= SHORTEST and each not in _PLACEHOLDERS}
    _whole, _parts = _whole | {text}, tuple(sorted({*_parts, *kept}, key=len, reverse=True))


def hide_keys_of(environment: Mapping[str, str]) -> None:
    """Hide what stands in variables that hold a secret by their names, and passwords in addresses, whoever reads them."""
    for name, value in environment.items():
        text = value.strip()
        if match := _PASSWORD_IN_URL.search(text):
            hide(Secret(match[1]))
        elif _NAMES.search(name) and not _PLACES.search(name) and not text.startswith(("/", "~", ".")):
            hide(Secret(text))


def is_secret(text: str) -> bool:
    """Return True if the text is just that of a secret, however short."""
    return text in _whole


def scrubbed(text: str) -> str:
    """Return the text without the secrets in it. Costs some 20 nanoseconds for each secret and short text."""
    for secret in _parts:
        text = text.replace(secret, HIDDEN)
    return text
