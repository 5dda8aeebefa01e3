"""Tokenisation of text in any script, for the keyword index and for queries.

Words are normalised: lower case, without accents and optional vowel signs, digits as 0 to 9, and stemmed. Scripts without
spaces are cut into overlapping pairs of characters. Names such as `handleWebSocket`, `two-part_names` and `src/app/pool.py`
are found as a whole, in any spelling, and by their parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from plugins.support.text.bounded_cache import bounded_cache
from plugins.support.text.spelling import alike, plain, spelt_out
from plugins.support.text.stemming import ENGLISH, LONGEST_WORD, SMALL_SIGNS, idle, language_of, porter_stem, stem

# Word characters that Python does not count as letters: the vowel signs of Indic and Southeast Asian scripts.
_SIGNS = (
    "\u0900-\u0963\u0966-\u0df3\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf\u0f18-\u0f39\u0f3e-\u0f84\u0f86-\u0fbc"
    "\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17dc-\u17e9\u0300-\u036f"
)
_WORD = re.compile(rf"[\w{_SIGNS}]+(?:[-./:@+\\]+[\w{_SIGNS}]+)*")
_PART = re.compile(rf"(?:[^\W_]|[{_SIGNS}])+")
_FOLDERS = (re.compile(r"[/\\]+"), re.compile(r"[/\\.:@]+"))
_CASES = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z]{2})(?=[0-9])|(?<=[0-9])(?=[A-Z]{2})")
_HAN = "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED = re.compile(f"([{_HAN}]+|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+)")
_PARTICLES = "을를이가은는의에도로와과만"


def indexed(text: str) -> str:
    """Return the text as the keyword index stores it: words with their stems, parts of names, and pairs of characters."""
    return " ".join(_pieces(text))


def sought(question: str) -> list[str]:
    """Return the distinct search terms of a question in order, without stop words unless there is nothing else."""
    found = [found[0] for found in _WORD.finditer(alike(question))]
    language = _language(found)
    left_out = idle(language)
    terms = [piece for word in found if word.casefold() not in left_out for piece in _terms(word, language)]
    terms = [piece for piece in dict.fromkeys(terms) if piece not in left_out]
    return terms or list(dict.fromkeys(_pieces(question)))


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, for comparison with another."""
    return frozenset(_pieces(text))


def words_in(text: str, language: str) -> frozenset[str]:
    """Return the words of a text, stemmed as `language`."""
    return frozenset(term for word in _WORD.findall(alike(text)) for term in _terms(word, language))


def language_in(text: str) -> str:
    """Return the language of a text, as it matters for stemming."""
    return _language(_WORD.findall(alike(text)))


def occurrences(text: str, question: str) -> list[tuple[int, int]]:
    """Return where the words of a question occur in a text, in any of their forms.

    Args:
        text: The text.
        question: The question.

    Returns:
        Start and end of each occurrence in characters, in order, without overlaps. Of a name such as `src/app/pool.py`, the
        parts that were asked for.
    """
    wanted, language = frozenset(map(porter_stem, sought(question))), language_in(text)
    spans: list[tuple[int, int]] = []
    for word in _WORD.finditer(text):
        if wanted.isdisjoint(map(porter_stem, _terms(alike(word[0]), language))):
            continue
        inside = [span for part in _PART.finditer(word[0]) for span in _spans(part, wanted, language)]
        for first, last in inside or [(0, len(word[0]))]:
            start, end = first + word.start(), last + word.start()
            if spans and start <= spans[-1][1]:  # pairs of characters overlap
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((start, end))
    return spans


def _spans(part: re.Match[str], wanted: frozenset[str], language: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of wanted terms in a part of a word; of a script without spaces, of each pair and each character."""
    at = part.start()
    for number, run in enumerate(_UNSPACED.split(part[0])):
        if number % 2:
            for length in (2, 1):
                for start in range(len(run) - length + 1):
                    if porter_stem(plain(alike(run[start : start + length]))) in wanted:
                        yield at + start, at + start + length
        elif run and not wanted.isdisjoint(map(porter_stem, _terms(alike(run), language))):
            yield at, at + len(run)
        at += len(run)


def quoted(word: str) -> str:
    """Return a word as a quoted string of an FTS5 query."""
    return '"' + word.replace('"', '""').replace("\0", " ") + '"'


def _pieces(text: str) -> list[str]:
    words = _WORD.findall(alike(text))
    language = _language(words)
    return [term for word in words for term in _terms(word, language)]


def _language(words: list[str]) -> str:
    return language_of([word.casefold() for word in words])


@bounded_cache(20_000)
def _terms(word: str, language: str) -> tuple[str, ...]:
    """Return all terms by which a word, or a compound name, is found."""
    parts = _PART.findall(word)
    terms = [term for part in parts for term in _script_terms(part, language)]
    if len(parts) > 1:
        for name in dict.fromkeys([word, *(piece for folders in _FOLDERS for piece in folders.split(word))]):
            inside = _PART.findall(name)
            if len(inside) > 1:
                terms.append(plain("".join(inside).casefold()))
    return tuple(dict.fromkeys(term[:LONGEST_WORD] for term in terms if term))


def _script_terms(part: str, language: str) -> Iterator[str]:
    for at, run in enumerate(_UNSPACED.split(part)):
        if at % 2:
            yield from _pairs(run)
        elif run:
            yield from _spellings(run, language)


def _pairs(run: str) -> Iterator[str]:
    yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))
    if len(run) > 1:
        # Many Chinese words are one character, whose neighbour differs in each text.
        yield from (sign for sign in run if "\u3400" <= sign <= "\u9fff" and sign not in SMALL_SIGNS)
    if len(run) == 2 and run[1] in _PARTICLES:  # a Korean word of one syllable with a particle
        yield run[0]


def _spellings(part: str, language: str) -> Iterator[str]:
    word = part.casefold()
    stemmed = plain(stem(word, language))
    if word.isascii():
        yield word
        yield stemmed
        pieces = _CASES.split(part)
        if len(pieces) > 1:
            yield from map(str.casefold, pieces)
        return
    yield stemmed
    if "\u0590" < word[0] < "\u05ff" and word[0] in "הובלכמש" and len(word) > 3:  # Hebrew prefixes its short function words
        yield word[1:]
    if language != ENGLISH and word[0] < "\u0250":
        yield plain(word)
    yield spelt_out(word) if word[0] < "\u0250" else stemmed
