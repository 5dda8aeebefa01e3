"""`Units`: what a request holds, in tokens by kind of text, before anything is known of the model's own tokenizer.

Counted from the classes of characters alone. The weights were fitted to what tiktoken's `o200k_base` makes of general text:
programs, manuals and logs in ASCII, and translations into 30 languages. `Calibration` learns how another tokenizer differs.
"""

from __future__ import annotations

import string
from collections.abc import Iterable

import msgspec

from sessions.messages import AssistantMessage, Message, ToolMessage
from sessions.sight import Seen


class Units(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Tokens, by our own weights: `head` of what stands before the messages; of the messages `words` in Latin letters,
    `marks` (digits, punctuation, white space), `unspaced` scripts (Han, kana, Hangul), other `scripts`, `frames` (roles,
    ids and separators), `pictures`. A difference of two has negative numbers too."""

    head: int = 0
    words: int = 0
    marks: int = 0
    unspaced: int = 0
    scripts: int = 0
    frames: int = 0
    pictures: int = 0

    @property
    def total(self) -> int:
        """All together."""
        return sum(self.numbers)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers in the order of the fields."""
        return (self.head, self.words, self.marks, self.unspaced, self.scripts, self.frames, self.pictures)

    def __add__(self, other: Units) -> Units:
        return _units(a + b for a, b in zip(self.numbers, other.numbers, strict=True))

    def __sub__(self, other: Units) -> Units:
        return _units(a - b for a, b in zip(self.numbers, other.numbers, strict=True))


def _units(numbers: Iterable[int]) -> Units:
    return Units(**dict(zip(Units.__struct_fields__, numbers, strict=True)))


_BYTE = bytes(range(256))


def _span(first: int, last: int) -> bytes:
    return _BYTE[first : last + 1]


_WORDS = (
    (string.ascii_lowercase.encode(), 0.21),
    (string.ascii_uppercase.encode(), 0.35),
    (_span(0xC2, 0xCB), 1.0),
)
_MARKS = (
    (string.digits.encode(), 0.65),
    (string.punctuation.encode(), 0.45),
    (b" \t", 0.12),
    (b"\n\r", 1.0),
    (_span(0x00, 0x08) + _span(0x0B, 0x0C) + _span(0x0E, 0x1F) + b"\x7f", 1.0),
    (_span(0xE2, 0xE2), 0.9),
)
_UNSPACED = ((_span(0xE3, 0xE3), 0.62), (_span(0xE4, 0xE9), 0.77), (_span(0xEA, 0xED), 0.69))
_SCRIPTS = (
    (_span(0xCC, 0xD4), 0.36),
    (_span(0xD5, 0xDF), 0.4),
    (_span(0xE0, 0xE1), 0.42),
    (_span(0xEE, 0xF4), 1.7),
)
"""By kind of text: bytes, and what a character that begins with one of them costs. Beyond ASCII the first byte of a
character in UTF-8 tells the script."""

MESSAGE = 4
"""Tokens of a message's frame."""

CALL = 10
"""Tokens of a call's or a result's frame: the id that joins them, and their names."""


def of_text(text: str) -> Units:
    """A text's units; none only for an empty one. A longer text never has less."""
    if not text:
        return Units()
    if text.isascii():
        words, marks = _weighed(text.encode(), _WORDS[:2]), _weighed(text.encode(), _MARKS[:5])
        return Units(words=words, marks=marks) if words or marks else Units(words=1)
    data = text.encode("utf-8", "replace")
    words, marks = _weighed(data, _WORDS), _weighed(data, _MARKS)
    unspaced, scripts = _weighed(data, _UNSPACED), _weighed(data, _SCRIPTS)
    return Units(words=words, marks=marks, unspaced=unspaced, scripts=scripts)


def _weighed(data: bytes, classes: tuple[tuple[bytes, float], ...]) -> int:
    """Rounded up, so that no text weighs nothing."""
    return int(sum(weight * (len(data) - len(data.translate(None, those))) for those, weight in classes) + 0.999)


def of_message(message: Message) -> Units:
    """The units of a message, without its attachments."""
    if isinstance(message, AssistantMessage):
        parts = [message.text, message.opaque or "", *(f"{call.tool} {call.arguments}" for call in message.calls)]
        return of_text("".join(parts)) + Units(frames=MESSAGE + CALL * len(message.calls))
    return of_text(message.text) + Units(frames=CALL if isinstance(message, ToolMessage) else MESSAGE)


def of_head(canonical: str) -> Units:
    """The units of what stands before the messages: instructions, notes, tools and parameters, as canonical JSON."""
    return Units(head=of_text(canonical).total)


def of_files(seen: Iterable[Seen]) -> Units:
    """The units of the attachments that a model is shown."""
    sizes = [(each.form == "picture", each.tokens) for each in seen]
    pictures = sum(tokens for is_picture, tokens in sizes if is_picture)
    return Units(pictures=pictures, words=sum(tokens for _, tokens in sizes) - pictures)
