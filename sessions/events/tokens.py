"""Estimates of tokens without a tokenizer: a fast one, `estimate`, and one by kind of text, `TokenFeatures`.

`estimate` uses the length alone: English has about four characters per token, an unspaced script about one. The length in
UTF-8 distinguishes them, because outside ASCII a character takes one to three extra bytes.

Features are computed from the classes of characters and the transitions between them. The weights were fitted to the counts
of tiktoken's `o200k_base` for general text: programs, manuals, logs, numbers and hashes in ASCII, and translations into 30
languages. `Calibration` learns how another tokenizer differs.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from operator import mul

import msgspec

from sessions.events.messages import AssistantMessage, Message, ToolMessage
from sessions.events.vision import AttachmentVisibility

MESSAGE = 4
"""Tokens of overhead for each message: role and separators."""


def estimate(text: str) -> int:
    """Return the estimated number of tokens of a text; 0 only if it is empty."""
    characters = len(text)
    beyond = 0 if text.isascii() else len(text.encode("utf-8", "replace")) - characters
    return (characters + 2 * beyond + 3) // 4


class TokenFeatures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Estimated tokens by kind: `head` (instructions, tools and parameters before the messages); and of the messages `words`
    in Latin letters, `marks` (digits, punctuation, white space), `unspaced` scripts (Han, kana, Hangul), other `scripts`,
    `frames` (roles, ids and separators), and `pictures`. A difference of two may have negative values."""

    head: int = 0
    words: int = 0
    marks: int = 0
    unspaced: int = 0
    scripts: int = 0
    frames: int = 0
    pictures: int = 0

    @property
    def total(self) -> int:
        """The sum of all fields."""
        return self.head + self.words + self.marks + self.unspaced + self.scripts + self.frames + self.pictures

    @property
    def numbers(self) -> tuple[int, ...]:
        """The values in the order of the fields."""
        return (self.head, self.words, self.marks, self.unspaced, self.scripts, self.frames, self.pictures)

    def __add__(self, other: TokenFeatures) -> TokenFeatures:  # written out for speed: called a dozen times a turn
        return TokenFeatures(
            head=self.head + other.head,
            words=self.words + other.words,
            marks=self.marks + other.marks,
            unspaced=self.unspaced + other.unspaced,
            scripts=self.scripts + other.scripts,
            frames=self.frames + other.frames,
            pictures=self.pictures + other.pictures,
        )

    def __sub__(self, other: TokenFeatures) -> TokenFeatures:
        return TokenFeatures(
            head=self.head - other.head,
            words=self.words - other.words,
            marks=self.marks - other.marks,
            unspaced=self.unspaced - other.unspaced,
            scripts=self.scripts - other.scripts,
            frames=self.frames - other.frames,
            pictures=self.pictures - other.pictures,
        )


def _span(first: int, last: int) -> bytes:
    return bytes(range(first, last + 1))


# Outside ASCII the first byte of a character in UTF-8 identifies the script; the following bytes become x and cost nothing.
_KINDS = {
    b"a": string.ascii_lowercase.encode(),
    b"A": string.ascii_uppercase.encode(),
    b"0": string.digits.encode(),
    b".": string.punctuation.encode(),
    b" ": b" \t",
    b"n": b"\n\r",
    b"c": _span(0x00, 0x08) + _span(0x0B, 0x0C) + _span(0x0E, 0x1F) + b"\x7f",  # controls
    b"L": _span(0xC2, 0xCB),  # Latin letters with accents
    b"C": _span(0xCC, 0xD4),  # Greek, Cyrillic
    b"S": _span(0xD5, 0xDF),  # Armenian, Hebrew, Arabic
    b"I": _span(0xE0, 0xE1),  # the scripts of India and Southeast Asia, Georgian
    b"M": _span(0xE2, 0xE2),  # dashes, quotation marks, arrows
    b"K": _span(0xE3, 0xE3),  # kana
    b"H": _span(0xE4, 0xE9),  # Han
    b"G": _span(0xEA, 0xED),  # Hangul
    b"X": _span(0xEE, 0xF4),  # emoji and rare characters
}
_TABLE = bytes(next((kind[0] for kind, those in _KINDS.items() if byte in those), b"x"[0]) for byte in range(256))

_LONG = 12 * b"a"
"""More lowercase letters than a word has: several words, or none."""

_WORDS = {b"a": 0.1, b"A": 0.22, b" a": 0.54, b".a": 0.86, b"Aa": 0.65, _LONG: 1.8, b"L": 1.45}
_MARKS = {b"0": 0.74, b".": 0.05, b" ": 0.13, b"n": 0.58, b"c": 1.0, b"M": 0.95}
_MARKS |= {b"0a": 0.42, b"A0": 2.2, b"0A": 2.7, b"a.": 0.23, b" .": 1.4, b"0.": 0.18, b"n.": 0.91}
_UNSPACED = {b"K": 0.63, b"H": 0.8, b"G": 0.73}
_SCRIPTS = {b"C": 0.36, b"S": 0.4, b"I": 0.45, b"X": 1.62}
"""Tokens for each character of a class, and for each transition between two classes, which is where tokens begin and end. A
word is one token with the space before it and a row of dashes is one, but in base64 and hashes every transition breaks a
token."""

EXACT = 16 * 1024
"""Length in characters of the beginning of a text that is counted completely. Of each following `BLOCK` only the first
`PART` is counted, and scaled."""

BLOCK, PART = 8 * 1024, 1024

CALL = 10
"""Tokens of overhead for each tool call or result: the id that links them, and the names."""


def text_features(text: str) -> TokenFeatures:
    """Return the features of a text; all zero only if it is empty. A longer text never has a smaller total."""
    found = _weighed(text[:EXACT])
    for start in range(EXACT, len(text), BLOCK):
        length = min(BLOCK, len(text) - start)
        scale = max(1.0, length / PART)
        part = _weighed(text[start : start + min(PART, length)])
        found = [known + scale * more for known, more in zip(found, part, strict=True)]
    words, marks, unspaced, scripts = map(_whole, found)
    return TokenFeatures(words=words, marks=marks, unspaced=unspaced, scripts=scripts)


def _weighed(text: str) -> list[float]:
    """Return the tokens of words, marks, unspaced and other scripts."""
    kinds = text.encode("utf-8", "replace").translate(_TABLE)
    weights = (_WORDS, _MARKS) if len(kinds) == len(text) else (_WORDS, _MARKS, _UNSPACED, _SCRIPTS)
    found = [sum(map(mul, costs.values(), map(kinds.count, costs)), 0.0) for costs in weights]
    return found + [0.0] * (4 - len(found))


def _whole(tokens: float) -> int:
    """Round up, so that no text counts as zero tokens."""
    return int(tokens + 0.999)


def message_features(message: Message) -> TokenFeatures:
    """Return the features of a message without its attachments."""
    if isinstance(message, AssistantMessage):
        parts = [message.text, message.opaque or "", *(f"{call.tool} {call.arguments}" for call in message.calls)]
        return text_features("".join(parts)) + TokenFeatures(frames=MESSAGE + CALL * len(message.calls))
    return text_features(message.text) + TokenFeatures(frames=CALL if isinstance(message, ToolMessage) else MESSAGE)


def head_features(canonical: str) -> TokenFeatures:
    """Return the features of the instructions, notes, tools and parameters, given as canonical JSON."""
    return TokenFeatures(head=text_features(canonical).total)


def attachment_features(seen: Iterable[AttachmentVisibility]) -> TokenFeatures:
    """Return the features of the attachments that are shown to a model."""
    sizes = [(each.form == "picture", each.tokens) for each in seen]
    pictures = sum(tokens for is_picture, tokens in sizes if is_picture)
    return TokenFeatures(pictures=pictures, words=sum(tokens for _, tokens in sizes) - pictures)
