"""The words of a text, in every script, as the keyword index sees them and as a question is looked up.

Each word is written as people may write it elsewhere: in lower case, without accents and vowel signs that are left out at
will, digits as 0 to 9, and by its stem. Scripts without spaces are cut into overlapping pairs of characters. Names such as
`handleWebSocket`, `two-part_names` and `src/app/pool.py` are found as a whole, however they are written, and by their parts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from plugins.memory.languages import ENGLISH, idle, language_of, stem

# What Python does not count as letters and yet stands inside of words: the vowel signs of India and its neighbours.
_SIGNS = (
    "\u0900-\u0963\u0966-\u0df3\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf\u0f18-\u0f39\u0f3e-\u0f84\u0f86-\u0fbc"
    "\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17dc-\u17e9\u0300-\u036f"
)
_WORD = re.compile(rf"[\w{_SIGNS}]+(?:[-./:@+\\]+[\w{_SIGNS}]+)*")
_PART = re.compile(rf"(?:[^\W_]|[{_SIGNS}])+")
_FOLDERS = (re.compile(r"[/\\]+"), re.compile(r"[/\\.:@]+"))
_CASES = re.compile(
    r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z]{2})(?=[0-9])|(?<=[0-9])(?=[A-Z]{2})"
)
_HAN = "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED = re.compile(f"([{_HAN}]+|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+)")
_PARTICLES = "을를이가은는의에도로와과만"

LONGEST = 64
"""Characters of a word, or of a name with its separators left out, that is kept: what is longer is no word."""

_ALIKE = {
    # Left out at will: the soft hyphen, joiners, the Arabic and Hebrew vowel signs, the Arabic lengthening stroke.
    **dict.fromkeys((0xAD, 0x200C, 0x200D, 0xFE0F, 0x0640, 0x0670, 0x093C)),
    **dict.fromkeys((*range(0x0591, 0x05BE), 0x05BF, 0x05C1, 0x05C2, 0x05C4, 0x05C5, 0x05C7)),
    **dict.fromkeys((*range(0x0610, 0x061B), *range(0x064B, 0x0660), *range(0x06D6, 0x06EE))),
    # Written the one way or the other.
    **str.maketrans("أإآٱىیکёЁँ\u05be", "ااااييكеЕं-"),
    **{zero + digit: str(digit) for zero in (0x0660, 0x06F0, 0x0966, 0x09E6, 0x0BE6, 0x0E50) for digit in range(10)},
}
_ACCENT = re.compile("[\u0300-\u036f]")
_LETTERS = str.maketrans({"œ": "oe", "æ": "ae", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i"})
_SPELT_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})


def indexed(text: str) -> str:
    """The text as the keyword index stores it: words apart, stems, parts of names and pairs of characters beside them."""
    return " ".join(_pieces(text))


def sought(question: str) -> list[str]:
    """The words by which a question is looked up, each once, in their order; those that questions are merely made of are
    left out unless nothing else is there."""
    found = [found[0] for found in _WORD.finditer(_alike(question))]
    language = _language(found)
    left_out = idle(language)
    told = [piece for word in found if word.casefold() not in left_out for piece in _terms(word, language)]
    told = [piece for piece in dict.fromkeys(told) if piece not in left_out]
    return told or list(dict.fromkeys(_pieces(question)))


def word_set(text: str) -> frozenset[str]:
    """The words of a text, for comparing it with another."""
    return frozenset(_pieces(text))


def quoted(word: str) -> str:
    """A word as a string of an FTS5 query, whatever it holds."""
    return '"' + word.replace('"', '""').replace("\0", " ") + '"'


def is_unspaced(word: str) -> bool:
    """Whether a word is of a script without spaces, of which the index has pairs of characters."""
    return _UNSPACED.match(word) is not None


def _pieces(text: str) -> Iterator[str]:
    words = _WORD.findall(_alike(text))
    language = _language(words)
    for word in words:
        yield from _terms(word, language)


def _alike(text: str) -> str:
    if text.isascii():
        return text
    whole = text.encode("utf-8", "replace").decode()  # half of a pair is no character, and SQLite takes none
    return unicodedata.normalize("NFKC", whole).translate(_ALIKE)


def _language(words: list[str]) -> str:
    return language_of([word.casefold() for word in words])


@lru_cache(20_000)
def _terms(word: str, language: str) -> tuple[str, ...]:
    """All that one word, or a name of several, is found by."""
    parts = _PART.findall(word)
    terms = [term for part in parts for term in _script_terms(part, language)]
    if len(parts) > 1:
        for name in dict.fromkeys([word, *(piece for folders in _FOLDERS for piece in folders.split(word))]):
            inside = _PART.findall(name)
            if len(inside) > 1:
                terms.append(_plain("".join(inside).casefold()))
    return tuple(term for term in dict.fromkeys(terms) if len(term) <= LONGEST)


def _script_terms(part: str, language: str) -> Iterator[str]:
    for at, run in enumerate(_UNSPACED.split(part)):
        if at % 2:
            yield from _pairs(run)
        elif run:
            yield from _spellings(run, language)


def _pairs(run: str) -> Iterator[str]:
    yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))
    if len(run) == 2 and run[1] in _PARTICLES:  # a Korean word of one syllable and what is hung on it
        yield run[0]


def _spellings(part: str, language: str) -> Iterator[str]:
    word = part.casefold()
    stemmed = _plain(stem(word, language))
    if word.isascii():
        yield word
        yield stemmed
        pieces = _CASES.split(part)
        if len(pieces) > 1:
            yield from map(str.casefold, pieces)
        return
    yield stemmed
    if "\u0590" < word[0] < "\u05ff" and word[0] in "הובלכמש" and len(word) > 3:  # Hebrew writes its small words in front
        yield word[1:]
    if language != ENGLISH and word[0] < "\u0250":
        yield _plain(word)
    yield _plain(word.translate(_SPELT_OUT)) if word[0] < "\u0250" else stemmed


def _plain(word: str) -> str:
    if word.isascii():
        return word
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", word))).translate(_LETTERS)
