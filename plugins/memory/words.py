"""The words of a text, in every script, as the keyword index sees them and as a question is looked up.

Scripts without spaces are cut into overlapping pairs of characters; `handleWebSocket` and `two-part_names` are found whole
and by their parts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_WORD = re.compile(r"[^\W_]+(?:['’_.:/-]+[^\W_]+)*")
_PART = re.compile(r"[^\W_]+")
_CASES = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_PAIR = 2

_STOP_WORDS = tuple(
    frozenset(words.split())
    for words in (
        # What questions are made of, a language each: in notes it tells nothing apart. Only the question's own language
        # counts, since "die" and "war" are German for "the" and "was".
        """a an the and or but if of in on at to for from by with about into over after before between out up down off as
        is are was were be been being am do does did doing done have has had having i you he she it we they me him her us
        them my your his its our their mine yours this that these those what which who whom whose when where why how than
        then so not no nor can could will would shall should may might must just there here any some all both each few more
        most other such own same too very s t d ll m re ve don also""",
        """der die das den dem des ein eine einen einem einer eines und oder aber ist sind war waren wie was wer wo wann
        warum welche welcher welches ich du er sie es wir ihr mein dein sein unser mit von zu zum zur im in am auf für nicht
        auch hat haben""",
        """le la les l un une des du de et ou mais est sont que qui quoi dont où quand comment pourquoi quel quelle je tu il
        elle nous vous ils elles mon ton son dans sur pour avec pas a""",
        """el la los las un una y o pero es son qué quién dónde cuándo cómo cuál que quien yo mi su de en por para con no del
        al a""",
        """и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по ее мне где когда кто почему
        какой""",
        "ما من في على إلى عن هل هو هي كان هذا هذه التي الذي متى أين كيف لماذا",
        "什么 怎么 哪里 什麼 怎麼 哪裡 です ます した して する ない こと もの どこ いつ だれ なに",
    )
)


def indexed(text: str) -> str:
    """The text as the keyword index stores it: words apart, parts of names and pairs of characters beside them."""
    return " ".join(_pieces(text))


def sought(question: str) -> list[str]:
    """The words by which a question is looked up, each once, in their order; those that questions are merely made of are
    left out unless nothing else is there."""
    pieces = list(dict.fromkeys(piece.casefold() for piece in _pieces(question)))
    idle = max(_STOP_WORDS, key=lambda words: sum(piece in words for piece in pieces))
    return [piece for piece in pieces if piece not in idle] or pieces


def word_set(text: str) -> frozenset[str]:
    """The words of a text, for comparing it with another."""
    return frozenset(piece.casefold() for piece in _pieces(text))


def quoted(word: str) -> str:
    """A word as a string of an FTS5 query, whatever it holds."""
    return '"' + word.replace('"', '""').replace("\0", " ") + '"'


def _pieces(text: str) -> Iterator[str]:
    for found in _WORD.finditer(unicodedata.normalize("NFKC", text)):
        for part in _PART.findall(found[0]):
            yield from _script_pieces(part)


def _script_pieces(part: str) -> Iterator[str]:
    end = 0
    for run in _UNSPACED.finditer(part):
        yield from _named(part[end : run.start()])
        characters = run[0]
        yield from (characters[at : at + _PAIR] for at in range(max(1, len(characters) - 1)))
        end = run.end()
    yield from _named(part[end:])


def _named(part: str) -> Iterator[str]:
    if part:
        yield part
        parts = _CASES.split(part)
        yield from parts if len(parts) > 1 else ()
