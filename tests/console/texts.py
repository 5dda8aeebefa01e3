"""The texts of the console: the arguments of `t`, `th` and `tn` in its scripts, and its dictionaries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gateway.http.console.pages import FOLDER

SCRIPTS = sorted(path for path in FOLDER.rglob("*.js") if "vendor" not in path.parts and path.parent.name != "languages")

_CALL = re.compile(r"(?<![\w.$])(t|th|tn)\(")
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`"""
    r"""|(?<=[(,=:!&|?{};\[])\s*/(?![/*])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*""",
    re.DOTALL,
)


class Call(NamedTuple):
    """A call of `t`, `th` or `tn`: where it is, and its arguments as they are written."""

    path: Path
    begin: int
    end: int
    arguments: list[str]
    name: str

    @property
    def literals(self) -> list[str]:
        """The arguments that are texts."""
        return self.arguments[1:3] if self.name == "tn" else self.arguments[:1]

    @property
    def key(self) -> str:
        """The entry of the dictionaries: the sentence, or the form for several."""
        return str(json.loads(self.literals[-1]))

    def __str__(self) -> str:
        line = self.path.read_text().count("\n", 0, self.begin) + 1
        return f"{self.path.relative_to(FOLDER)}:{line}"


def literals(source: str) -> Iterator[tuple[int, str]]:
    """The strings and templates of a script, with their places; comments and patterns are skipped."""
    for found in _TOKEN.finditer(source):
        if found[0][0] in "\"'`":
            yield found.start(), found[0]


def calls(path: Path) -> list[Call]:
    """All calls in a script."""
    source = path.read_text()
    inside = [(found.start(), found.end()) for found in _TOKEN.finditer(source) if not found[0].startswith("`")]
    return [
        Call(path, found.start(), *_arguments(source, found.end()), found[1])
        for found in _CALL.finditer(source)
        if not any(first <= found.start() < last for first, last in inside)
        and not source[: found.start()].endswith("function ")
    ]


def _arguments(source: str, at: int) -> tuple[int, list[str]]:
    """Return the end of a call, and its arguments."""
    depth, begin, found = 1, at, []
    while depth:
        if token := _TOKEN.match(source, at):
            at = token.end()
            continue
        letter = source[at]
        depth += (letter in "([{") - (letter in ")]}")
        if (letter == "," and depth == 1) or not depth:
            found.append(source[begin:at].strip())
            begin = at + 1
        at += 1
    return at, [each for each in found if each]


def dictionary(language: str) -> dict[str, Any]:
    """The dictionary of a language: an object that is written as JSON."""
    text = (FOLDER / "languages" / f"{language}.js").read_text()
    found: dict[str, Any] = json.loads(text.partition("export default ")[2].rstrip().removesuffix(";"))
    return found


_READABLE = re.compile(r"[A-Z][a-z]+(?:[ ,.:…!?].*)?|.*[a-z]{2,} [a-z]{2,} .*[.!?…]", re.DOTALL)
_CODE = re.compile(r"class(?:Name)?: *$|\bkey === *$|\?\.key !== *$|\.key !== *$|case *$|querySelector\w*\($")


def loose_texts(path: Path) -> Iterator[str]:
    """The literals of a script that read like a title or a sentence, and are no arguments of `t`, `th` or `tn`."""
    source = path.read_text()
    said = [(call.begin, call.end) for call in calls(path)]
    for at, literal in literals(source):
        text = literal[1:-1]
        is_said = any(begin <= at < end for begin, end in said)
        if _READABLE.fullmatch(text) and not is_said and not _CODE.search(source[max(0, at - 40) : at]):
            yield text
