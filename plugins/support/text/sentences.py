"""Splitting text into sentences, and recognising decisions, wishes and corrections. Pure functions.

Sentences are recognised by marker words of several languages. A missing marker loses a sentence of an extract; a wrong one
takes up its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|[\r\n\x0b\x0c\u2028\u2029]+")
_SPLIT_REACH = 2_000
"""Maximum characters of a sentence; longer text is split there."""


def _any(*words: str, unspaced: str) -> re.Pattern[str]:
    """Return a pattern that matches any of the words, themselves patterns; `unspaced` needs no word boundaries."""
    return re.compile(rf"\b(?:{'|'.join(words)})\b|{unspaced}", re.IGNORECASE)


_DECIDED = _any(
    r"decid\w+|decisions?|agreed|chose|chosen|settled on|conclu\w+|(?:we'll|we will|let's) (?:use|go|keep|take)",
    r"go(?:ing)? with|switch(?:ed|ing)? to|from now on|henceforth",
    r"ab jetzt|künftig|entschieden|entscheidung|beschlossen|wir nehmen|nehmen wir",
    r"désormais|décidé\w*|décision|choisi\w*|on prend",
    r"a partir de ahora|decisión|elegido|usaremos|deciso|scelto|besloten",
    unspaced="从现在起|今后|决定|決定|选择|采用|改用|敲定|就用|結論|にする|にします",
)
_WISHED = _any(
    r"prefer\w*|always|never|must(?:n't)?|should(?:n't)?|do not|don't|avoid|remember|keep in mind",
    r"i (?:want|like|hate|need)|important|deadline|budget",
    r"immer|nie(?:mals)?|muss|müssen|nicht mehr|bevorzug\w*|möchte|merk dir|wichtig",
    r"toujours|jamais|préf\w+|il faut|évite\w*|ne pas|n'oublie",
    r"siempre|nunca|prefiero|debe\w*|evita\w*|recuerda|sempre|preferisco|devi|altijd|nooit|liever",
    unspaced="喜欢|偏好|总是|从不|必须|不要|记住|希望|务必|禁止|必ず|しないで|覚えて",
)
_CORRECTED = _any(
    r"correct(?:ion|ed)|actually|instead(?: of)?|rather than|no longer|not \S{1,80} but|(?:i|that) (?:was|is) wrong|i meant",
    r"changed (?:from|to)|renamed|moved (?:from|to)|replac\w+|(?:it|this|that)'s now|is now|sorry",
    r"korrektur|eigentlich|falsch|statt(?:dessen)?|sondern|nicht mehr|geändert",
    r"en fait|plutôt|au lieu de|n'est plus|corrigé\w*",
    r"en realidad|en lugar de|ya no|corrección|in realtà|invece",
    unspaced="其实|更正|不对|改成|改为|改到|而不是|不是|现在是|訂正|ではなく|間違",
)
_MARK = re.compile(r"^(?:[-*+•>]|\d{1,3}[.)、]|#{1,6}) +")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text in order, each on one line without list markers; skip empty ones."""
    for part in _END.split(text):
        for start in range(0, len(part), _SPLIT_REACH):
            if line := _MARK.sub("", one_line(part[start : start + _SPLIT_REACH])):
                yield line


def one_line(text: str) -> str:
    """Return the text with each run of whitespace as one space."""
    return " ".join(text.split())


def clipped(text: str, most: int) -> str:
    """Return the text cut to at most `most` characters, with an ellipsis if it was cut."""
    return text if len(text) <= most else text[: most - 2].rstrip() + " …"


def clipped_around(text: str, part: str, most: int) -> str:
    """Return at most `most` characters of a text, including `part`."""
    at = max(0, text.find(part))
    if len(text) <= most or at + len(part) <= most - 2:
        return clipped(text, most)
    start = max(0, min(at - most // 3, len(text) - most + 2))
    return "… " + clipped(text[start:], most - 2)


def is_decision(sentence: str) -> bool:
    """Return True if a sentence states a decision."""
    return _DECIDED.search(_plain(sentence)) is not None


def is_wish(sentence: str) -> bool:
    """Return True if a sentence states a wish or a rule."""
    return _WISHED.search(_plain(sentence)) is not None


def is_correction(sentence: str) -> bool:
    """Return True if a sentence corrects something said before."""
    return _CORRECTED.search(_plain(sentence)) is not None


def _plain(sentence: str) -> str:
    return sentence.replace("\u2019", "'")
