"""Removes exact texts from lines of logs, wherever they are quoted: in answers to commands, notes that were loaded, passages
that were recalled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from gateway.conversations.erasure.tombstones import ERASED

SHORTEST = 12
"""Characters of the shortest text that is looked for: a shorter one is found by chance."""

MOST = 256
"""The number of texts that are looked for, the longest ones: each costs a search of all journals."""

FEW = 8
"""The number of texts that are looked for one by one: for more, a sample of each line is looked at first."""

LONGEST_BEGINNING = 64
"""Bytes of the beginnings of texts that a sample is compared with."""

_TEXT_FIELDS = frozenset(
    {"answer", "arguments", "checks", "content", "description", "detail", "diff", "failed", "focus", "headings", "kept"}
    | {"lost", "name", "note", "output", "query", "reason", "reasoning", "sentence", "summary", "text", "title", "told"}
    | {"what", "why"}
)
"""The fields that have a text of people, models or tools; the others are names and references."""

_ENVELOPE_FIELDS = frozenset({"seq", "at", "turn", "kind", "sum"})

_NO_SUM = b',"sum":"0000000000000000"}\n'


class TextScrubber:
    """Replaces texts in the lines of logs.

    Args:
        texts: The texts. Those that are too short are ignored; of long ones, each line is looked for too.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        found = {part.strip() for text in texts for part in (text, *text.splitlines())}
        longest = sorted((each for each in found if len(each) >= SHORTEST), key=len, reverse=True)
        self.texts = longest[:MOST]
        self.left_out = len(longest) - len(self.texts)
        """The number of texts that are not looked for, because there are too many."""
        self._forms = [form for text in self.texts for form in _forms(text)]
        self._bytes = [msgspec.json.encode(form)[1:-1] for form in self._forms]
        self._sample = _Sample(self._bytes) if len(self._bytes) > FEW else None

    def is_in(self, line: bytes) -> bool:
        """Return True if a line has one of the texts."""
        if self._sample is not None and not self._sample.may_have(line):
            return False
        return any(each in line for each in self._bytes)

    def __call__(self, line: bytes) -> bytes:
        """Return a line without the texts in the fields that have texts; the same object if it has none of them."""
        return self._scrubbed(line, _TEXT_FIELDS.__contains__) if self.is_in(line) else line

    def everywhere(self, line: bytes) -> bytes:
        """Return a line of a plugin's log without the texts, whatever its fields mean; the same object if it has none."""
        return self._scrubbed(line, _is_of_plugin) if self.is_in(line) else line

    def _scrubbed(self, line: bytes, has_text: Callable[[str], bool]) -> bytes:
        fields = msgspec.json.decode(line)
        before = {name: value for name, value in fields.items() if name != "sum"}
        scrubbed = {name: self._without(value, name, has_text) for name, value in before.items()}
        return line if scrubbed == before else msgspec.json.encode(scrubbed)[:-1] + _NO_SUM

    def without(self, text: str) -> str:
        """Return a text without the texts."""
        for form in self._forms:
            text = text.replace(form, ERASED)
        return text

    def _without(self, value: object, field: str, has_text: Callable[[str], bool]) -> object:
        if isinstance(value, str):
            return self.without(value) if has_text(field) else value
        if isinstance(value, list):
            return [self._without(item, field, has_text) for item in value]
        if isinstance(value, dict):
            return {name: self._without(item, name, has_text) for name, item in value.items()}
        return value


class _Sample:
    """A test of a line that costs the same for any number of texts.

    A line with a text has the beginning of it, as long as the shortest of the texts. Of each such beginning, all pieces of
    half the length are known. So one of the pieces of a line at regular distances is among them, if the distance is as long
    as the other half.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        beginning = min(LONGEST_BEGINNING, *map(len, texts))
        self._size = beginning // 2
        self._step = beginning - self._size + 1
        self._pieces = {text[at : at + self._size] for text in texts for at in range(self._step)}

    def may_have(self, line: bytes) -> bool:
        """Return False if a line certainly has none of the texts."""
        size = self._size
        return not self._pieces.isdisjoint([line[at : at + size] for at in range(0, len(line), self._step)])


def _is_of_plugin(field: str) -> bool:
    return field not in _ENVELOPE_FIELDS


def _forms(text: str) -> list[str]:
    """Return a text, and how it is written inside JSON that is itself a text, such as the arguments of a call."""
    escaped = msgspec.json.encode(text).decode()[1:-1]
    return [text] if escaped == text else [text, escaped]
