"""What must be kept letter by letter: paths, addresses, versions, tickets, hashes, dates, amounts, names of code.

They are told by their shape, word by word, so that the time grows with the text and with nothing else: each pattern below
is tried on one word of bounded length, or has bounds of its own.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

LONGEST = 400
"""Characters of the longest word that is looked at; what is longer is no name but data."""

Kind: TypeAlias = Literal["exact", "quoted"]


class FoundIdentifier(msgspec.Struct, frozen=True):
    """An identifier, where it begins in its text, and whether its own shape tells it (`exact`) or marks around it do."""

    text: str
    start: int
    kind: Kind = "exact"


# Unspaced scripts end a word, because Latin names stand in the middle of their sentences.
_WORD = re.compile(r"[^\s\"'`<>(){}\[\]|,;“”„«»「」『』《》\u2014\u2026\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]+(?:\(\))?")
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December|Januar|Februar|M\u00e4rz|Mai"
    r"|Juni|Juli|Oktober|Dezember|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Okt|Nov|Dec|Dez)\b\.?|janvier|f\u00e9vrier|mars|avril"
    r"|mai|juin|juillet|ao\u00fbt|septembre|octobre|novembre|d\u00e9cembre|enero|febrero|marzo|abril|mayo|junio|julio|agosto"
    r"|septiembre|octubre|noviembre|diciembre)(?!\w)"
)
_PHRASE = re.compile(
    r"`(?P<code>[^`\n]{2,120})`"
    r"|[\"“„«](?P<name>[^\W\d_][^\"“”„«»\n]{1,58})[\"”“»]"
    r"|[「『《](?P<title>[^「」『』《》\n]{1,60})[」』》]"
    r"|(?P<exact>(?<![0-9A-Za-z_.,])(?=\d)(?:\d{2,4}\u5e74\d{1,2}\u6708(?:\d{1,2}\u65e5)?"
    rf"|\d{{1,2}}\.? (?:de )?{_MONTH}(?: (?:de )?\d{{4}}\b)?"
    r"|\d[\d.,]{0,15}+ ?(?:\u20ac|\u00a3|\u00a5|\u5143|(?:USD|EUR|GBP|CHF|JPY|CNY|RMB|INR)\b))"
    rf"|\b{_MONTH} \d{{1,2}}\b(?:,? \d{{4}}\b)?"
    r"|[$\u20ac\u00a3\u00a5] ?\d[\d.,]{0,15}(?<=\d)"
    r"|(?<!\w)\+\d{1,3}(?:[ -]\d{1,8}){2,6}\b)"
)
_DATED = re.compile(r"\d{1,4}([./-])\d{1,2}(?:\1\d{1,4})?")
_MEASURE = re.compile(r"[~<>=+-]{0,2}\d+(?:[.,]\d+)?[A-Za-z%\u00b0\u00b5]{1,3}")
_YEAR = re.compile(r"(?:19|20)\d\d")
_NUMBER = re.compile(r"[#\u2116]?\d+(?:[.,:/_-]\d+){0,40}")
_FILE = re.compile(
    r"[\w@.-]*[\w-]\.(?:c|cc|cfg|conf|cpp|cs|css|csv|db|dockerfile|docx|env|gguf|gif|go|gz|h|hpp|html|ini|ipynb|java|jpe?g|js|json"
    r"|jsonl|jsx|kt|lock|log|lua|md|mjs|mp[34]|odt|parquet|pdf|php|plist|png|pptx|proto|py|r|rb|rs|rst|scss|service|sh|sql|sqlite"
    r"|svg|swift|tar|tex|tf|tgz|toml|ts|tsx|txt|vue|wav|whl|xlsx|xml|ya?ml|zip)",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"(?:[A-Za-z0-9-]{1,63}\.){1,8}"
    r"(?:com|org|net|io|dev|app|ai|co|edu|gov|info|local|internal|lan|test|example|eu|de|fr|es|it|nl|ch|at|uk|us|cn|jp|kr|in|br|ru)"
)
_MAIL = re.compile(r"[^@/]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_ROOTED = re.compile(r"(?:[~.]{0,2}/|[A-Za-z]:[\\/]|\\\\)[^/\\]")
_SYMBOL = re.compile(r"_*[^\W_]+(?:_[^\W_]+)+_*|[a-z]+[A-Z]\w*|\w+(?:::\w+)+|--[a-z][\w-]+|[@$][A-Za-z_][\w/.-]+|[\w.]+\(\)")
_HUMPS = re.compile(r"[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+")
_ERRORS = frozenset(errno.errorcode.values())
_EDGE = ".:!?*~&=_-#"


def identifiers(text: str) -> Iterator[FoundIdentifier]:
    """The identifiers of a text, as often as they stand in it; those that take several words first."""
    phrases = [found for phrase in _PHRASE.finditer(text) for found in _of_phrase(phrase)]
    yield from phrases
    taken = ((found.start, found.start + len(found.text)) for found in phrases if found.kind == "exact")
    begin, end = next(taken, (len(text), 0))
    for word in _WORD.finditer(text):
        whole = word[0]
        while word.start() >= end > 0:
            begin, end = next(taken, (len(text), 0))
        if word.start() >= begin:
            continue  # a part of a phrase
        if whole.isalpha() and whole.isascii() and (whole.islower() or whole.istitle()):
            continue  # most words of a text; the patterns below would say the same
        if len(whole) <= LONGEST and (trimmed := _trimmed(whole)) and _is_exact(trimmed):
            yield FoundIdentifier(trimmed, word.start() + whole.index(trimmed))


def is_named(identifier: str, text: str) -> bool:
    """Whether a text names an identifier: it stands there, and not as a part of a longer word or number."""
    at = text.find(identifier)
    while at >= 0:
        end = at + len(identifier)
        if not _goes_on(text[at - 1 : at], identifier[0]) and not _goes_on(text[end : end + 1], identifier[-1]):
            return True
        at = text.find(identifier, at + 1)
    return False


def _goes_on(beside: str, edge: str) -> bool:
    """Whether the character beside a name belongs to the same word as the edge of the name."""
    return beside.isascii() and beside.isalnum() and edge.isascii() and edge.isalnum()


def _of_phrase(phrase: re.Match[str]) -> Iterator[FoundIdentifier]:
    group = phrase.lastgroup or ""
    text = phrase[group].strip()
    if not text:
        return
    start = phrase.start(group) + phrase[group].index(text)
    if group == "exact" or (group == "code" and not any(map(str.isspace, text))):
        yield FoundIdentifier(text, start)
    elif group != "name" or text[0].isupper():
        yield FoundIdentifier(text, start, "quoted")


def _trimmed(word: str) -> str:
    """A word without the punctuation around it, but with what is part of a name: `#12`, `--flag`, `./run`, `_x`, `-1`."""
    word = word.rstrip(_EDGE.replace("_", "\\")).lstrip("*=!?:&")
    return word if word[:1] in "-_#~." else word.lstrip(_EDGE)


def _is_exact(word: str) -> bool:
    """Whether the shape of a word says that it must be kept letter by letter."""
    if any(map(str.isdigit, word)):
        return _is_numbered(word)
    if "/" in word or "\\" in word:
        return _is_place(word)
    if "@" in word and _MAIL.fullmatch(word):
        return True
    if "." in word and (_FILE.fullmatch(word) or _HOST.fullmatch(word)):
        return True
    return word in _ERRORS or _SYMBOL.fullmatch(word) is not None or _HUMPS.fullmatch(word) is not None


def _is_numbered(word: str) -> bool:
    """Whether a word with digits in it is more than a quantity."""
    if _NUMBER.fullmatch(word):
        digits = sum(map(str.isdigit, word))
        if word[0] in "#\u2116":
            return True
        if digits == len(word):
            return digits >= 4 and not _YEAR.fullmatch(word)
        return digits >= 3 or _DATED.fullmatch(word) is not None
    if not any(map(str.isalpha, word)):
        return sum(map(str.isdigit, word)) >= 4
    return len(word) >= 3 and _MEASURE.fullmatch(word) is None


def _is_place(word: str) -> bool:
    """Whether a word with slashes, but no digits, is a path or an address rather than `and/or`."""
    if "://" in word or _ROOTED.match(word) is not None:
        return True
    last = word.rpartition("/")[2]
    return word.count("/") >= 2 or "_" in word or "\\" in word or _FILE.fullmatch(last) is not None
