"""Detection of identifiers that must be kept exactly: paths, addresses, versions, tickets, hashes, dates, amounts, symbols.

They are recognised by their shape, word by word. Each pattern is applied to one word of bounded length or is bounded itself,
so the time is linear in the length of the text.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

MAX_WORD_CHARACTERS = 400
"""Maximum characters of a word that is examined; longer ones are data."""

Kind: TypeAlias = Literal["exact", "quoted"]


class FoundIdentifier(msgspec.Struct, frozen=True):
    """An identifier with its position; `kind` is `exact` if recognised by its shape, `quoted` if by the marks around it."""

    text: str
    start: int
    kind: Kind = "exact"


# Scripts without spaces end a word, since Latin names occur in the middle of their sentences.
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
    """Yield all identifiers of a text with repetitions; those of several words first."""
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
            continue  # fast path for most words, with the same result as the patterns below
        if len(whole) <= MAX_WORD_CHARACTERS and (trimmed := _trimmed(whole)) and _is_exact(trimmed):
            yield FoundIdentifier(trimmed, word.start() + whole.index(trimmed))


def is_named(identifier: str, text: str) -> bool:
    """Return True if a text contains an identifier that is not part of a longer word or number."""
    at = text.find(identifier)
    while at >= 0:
        end = at + len(identifier)
        if not _continues_word(text[at - 1 : at], identifier[0]) and not _continues_word(
            text[end : end + 1], identifier[-1]
        ):
            return True
        at = text.find(identifier, at + 1)
    return False


def _continues_word(beside: str, edge: str) -> bool:
    """Return True if the character next to an identifier belongs to the same word."""
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
    """Strip punctuation around a word, keeping what belongs to names: `#12`, `--flag`, `./run`, `_x`, `-1`."""
    word = word.rstrip(_EDGE.replace("_", "\\")).lstrip("*=!?:&")
    return word if word[:1] in "-_#~." else word.lstrip(_EDGE)


def _is_exact(word: str) -> bool:
    """Return True if the shape of a word marks it as an identifier."""
    if any(map(str.isdigit, word)):
        return _is_numbered(word)
    if "/" in word or "\\" in word:
        return _is_path(word)
    if "@" in word and _MAIL.fullmatch(word):
        return True
    if "." in word and (_FILE.fullmatch(word) or _HOST.fullmatch(word)):
        return True
    return word in _ERRORS or _SYMBOL.fullmatch(word) is not None or _HUMPS.fullmatch(word) is not None


def _is_numbered(word: str) -> bool:
    """Return True if a word with digits is more than a quantity."""
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


def _is_path(word: str) -> bool:
    """Return True if a word with slashes but no digits is a path or address rather than `and/or`."""
    if "://" in word or _ROOTED.match(word) is not None:
        return True
    last = word.rpartition("/")[2]
    return word.count("/") >= 2 or "_" in word or "\\" in word or _FILE.fullmatch(last) is not None
