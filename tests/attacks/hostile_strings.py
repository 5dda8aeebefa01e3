"""Strings that make a regular expression slow if it can be, put together from its own parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import msgspec

_CHARACTERS = " a1A_-.\n/#*`\"'(:,;<>@|=?!\\\t年あé🙂\u3000"
_SUFFIXES = ("", "\x00", "\n", "a", " b", "\n\x00")
_GENERAL = ("ab", "a ", "a\n", " \n", "a1", "aA", "Aa", "a.", "a-", "a_", "- ", "[", "{", "](", "<!--", "``", "```\n", "年 ")
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
_ITEMS = 10
"""Items of a sequence that are repeated together at most."""

_LONG = 64
"""A repetition of at most so many is no pump."""


class Hostile(msgspec.Struct, frozen=True, gc=False):
    """A hostile string of any length: a prefix, something that is repeated, and a suffix."""

    before: str
    pump: str
    suffix: str

    def text(self, size: int) -> str:
        """Return the string of about so many characters."""
        return self.before + self.pump * max(1, (size - len(self.before) - len(self.suffix)) // len(self.pump)) + self.suffix


def hostile_strings(pattern: str, flags: int = 0) -> list[Hostile]:
    """Return the hostile strings for a pattern."""
    made = _Maker(pattern, flags)
    general = ((before, pump) for before in ("", "a") for pump in (*made.characters, *_GENERAL))
    pumps = dict.fromkeys((*made.pumps(), *general))
    return [Hostile(before, pump, suffix) for (before, pump), suffix in product(pumps, _SUFFIXES) if pump]


class _Maker:
    """Samples of the parts of a parsed pattern."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._parsed = parser.parse(pattern, flags & ~re.DEBUG)
        self._groups: dict[int, list[Any]] = {}
        literals: dict[str, None] = {}
        self._literals(self._parsed, literals)
        self.characters = list(dict.fromkeys([*_CHARACTERS, *literals]))[:120]

    def pumps(self) -> Iterator[tuple[str, str]]:
        """Yield a prefix for each part of the pattern with a repeatable text that the part matches."""
        for before, run in self._runs(self._parsed, ""):
            for start in dict.fromkeys(("", before)):
                for each in self._samples(run):
                    yield start, each

    def _literals(self, sequence: Any, found: dict[str, None]) -> None:
        for code, argument in sequence:
            if code in (op.LITERAL, op.NOT_LITERAL):
                found[chr(argument)] = None
            elif code is op.RANGE:
                found[chr(argument[0])] = None
            elif code is op.IN:
                self._literals(argument, found)
            for inner in _inside(code, argument):
                self._literals(inner, found)
            if code is op.SUBPATTERN and argument[0]:
                self._groups[argument[0]] = [argument[3]]

    def _runs(self, sequence: Any, before: str) -> Iterator[tuple[str, Sequence[Any]]]:
        """Every run of items of every sequence, with a sample of what stands before it."""
        items = _words(sequence)
        above = before
        for start, item in enumerate(items):
            for end in range(start + 1, min(len(items), start + _ITEMS) + 1):
                yield above, [each for word in items[start:end] for each in word]
            for inner in _inside(*item[0]):
                yield from self._runs(inner, above)
            above += self._sample(item)

    def _samples(self, run: Sequence[Any]) -> Iterator[str]:
        if len(run) == 1 and (width := self._one(run[0])) is not None:
            yield from width
            return
        yield from dict.fromkeys(self._sample(run, turn) for turn in range(4))
        yield from dict.fromkeys(self._sample(run, turn, 0) for turn in range(2))

    def _one(self, item: Any) -> list[str] | None:
        """The characters that an item takes, if it takes single ones."""
        code, argument = item
        if code in _REPEATS:
            inner = list(argument[2])
            return self._one(inner[0]) if len(inner) == 1 and argument[1] > _LONG else None
        if code is op.SUBPATTERN and len(argument[3]) == 1:
            return self._one(argument[3][0])
        if code in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            return [each for each in self.characters if _takes(item, each)][:24]
        return None

    def _sample(self, sequence: Any, turn: int = 0, least: int = 1) -> str:
        """A text that a sequence takes; `turn` chooses among characters and branches, `least` is how often what may be
        missing stands there."""
        return "".join(self._piece(item, turn, least) for item in sequence)

    def _piece(self, item: Any, turn: int, least: int) -> str:
        code, argument = item
        if code in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            taken = [chr(argument)] if code is op.LITERAL else [each for each in self.characters if _takes(item, each)]
            return taken[turn % len(taken)] if taken else ""
        if code in (op.ASSERT, op.ASSERT_NOT):
            return ""
        inner: list[Any] = self._groups.get(argument, []) if code is op.GROUPREF else list(_inside(code, argument))
        times = 1
        if code in _REPEATS:
            times = min(max(argument[0], least), argument[1])
        return self._sample(inner[turn % len(inner)], turn, least) * times if inner else ""


def _words(sequence: Any) -> list[list[Any]]:
    """The items of a sequence, letters that follow each other as one."""
    words: list[list[Any]] = []
    for item in sequence:
        if item[0] is op.LITERAL and words and words[-1][0][0] is op.LITERAL:
            words[-1].append(item)
        else:
            words.append([item])
    return words


def _inside(code: Any, argument: Any) -> Iterator[Any]:
    """The sequences that an item holds."""
    if code is op.BRANCH:
        yield from argument[1]
    elif code is op.SUBPATTERN:
        yield argument[3]
    elif code in _REPEATS:
        yield argument[2]
    elif code is op.ATOMIC_GROUP:
        yield argument
    elif code in (op.ASSERT, op.ASSERT_NOT):
        yield argument[1]
    elif code is op.GROUPREF_EXISTS:
        yield from filter(None, argument[1:])


_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}


def _takes(item: Any, character: str) -> bool:
    """Return True if an item that stands for one character takes this one."""
    code, argument = item
    if code is op.ANY:
        return character != "\n"
    if code in (op.LITERAL, op.NOT_LITERAL):
        return (ord(character) == argument) is (code is op.LITERAL)
    if code is op.RANGE:
        return bool(argument[0] <= ord(character) <= argument[1])
    if code is op.CATEGORY:
        return re.match(_CATEGORIES[argument], character) is not None
    if argument[0][0] is op.NEGATE:
        return not any(_takes(each, character) for each in argument[1:])
    return any(_takes(each, character) for each in argument)
