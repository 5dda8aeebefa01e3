"""Normalisation of spelling variants: width, accents and vowel signs."""

from __future__ import annotations

import re
import unicodedata

_ALIKE = {
    # Optional: the soft hyphen, joiners, the Arabic and Hebrew vowel signs, the Arabic lengthening stroke.
    **dict.fromkeys((0xAD, 0x200C, 0x200D, 0xFE0F, 0x0640, 0x0670, 0x093C)),
    **dict.fromkeys((*range(0x0591, 0x05BE), 0x05BF, 0x05C1, 0x05C2, 0x05C4, 0x05C5, 0x05C7)),
    **dict.fromkeys((*range(0x0610, 0x061B), *range(0x064B, 0x0660), *range(0x06D6, 0x06EE))),
    # Interchangeable.
    **str.maketrans("أإآٱىیکёЁँ\u05be", "ااااييكеЕं-"),
    **{zero + digit: str(digit) for zero in (0x0660, 0x06F0, 0x0966, 0x09E6, 0x0BE6, 0x0E50) for digit in range(10)},
}
MARKS = 30
"""Maximum marks on one letter, the limit of Unicode's stream-safe text (UAX #15). Normalization sorts them in quadratic time
without releasing the interpreter lock."""

_MARK = r"(?:[^\w\s\x00-\x7f]|[\uff9e\uff9f])"
_MARKS = re.compile(f"({_MARK}{{{MARKS}}}){_MARK}++")

_ACCENT = re.compile("[\u0300-\u036f]")
_LETTERS = str.maketrans({"œ": "oe", "æ": "ae", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i"})
_SPELT_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})


def alike(text: str) -> str:
    """Return the text in one spelling of each letter and digit (NFKC and more), without optional signs.

    Upper case and accents are kept, up to thirty accents on a letter.
    """
    if text.isascii():
        return text
    whole = text.encode("utf-8", "replace").decode()  # a lone surrogate is not a character, and SQLite rejects it
    return unicodedata.normalize("NFKC", _MARKS.sub(r"\1", whole)).translate(_ALIKE)


def plain(word: str) -> str:
    """Return a word without accents, in ASCII letters where possible."""
    if word.isascii():
        return word
    few = _MARKS.sub(r"\1", word) if len(word) > MARKS else word
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", few))).translate(_LETTERS)


def spelt_out(word: str) -> str:
    """Return a lower-case word with umlauts spelt out, such as mueller for müller; otherwise like `plain`."""
    return plain(word.translate(_SPELT_OUT))
