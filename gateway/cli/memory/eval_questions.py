"""Questions and the notes that answer them, for `exuvia memory eval`: JSON lines, or TOML with `[[questions]]`.

{"question": "Which editor is it?", "answers": ["MEMORY.md#L3-L5", {"session": "20261121-031241-7k2m9q", "seq": 12}]}
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gateway.support.errors import GatewayError
from gateway.support.small_files import read_at_most
from plugins.api.memory.chunks import Chunk
from plugins.support.workspace import parse_citation

_TABLE = re.compile(r"\s*\[\[\s*questions\s*\]\]")


class InvalidQuestions(GatewayError):
    """An invalid file of questions; `str(error)` names the file and the line."""


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event of a session."""

    session: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9-]{1,64}$")]
    seq: Annotated[int, msgspec.Meta(ge=1)]


class Place(msgspec.Struct, frozen=True):
    """A range of lines of a document, from 1; the whole document if none is given."""

    path: str
    first: int = 1
    last: int | None = None

    def is_in(self, chunk: Chunk) -> bool:
        """Return True if a chunk contains one of the lines."""
        return self.path == chunk.path and chunk.last >= self.first and (self.last is None or chunk.first <= self.last)


MOST = 16 * 1024 * 1024
"""Bytes of a file of questions."""


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    answers: Annotated[tuple[Annotated[str, msgspec.Meta(min_length=1)] | Turn, ...], msgspec.Meta(min_length=1)]


class EvalQuestion(msgspec.Struct, frozen=True):
    """A question with at least one place that answers it."""

    question: str
    answers: frozenset[Place]


def read_questions(file: Path) -> list[EvalQuestion]:
    """Return the questions of a file, at least one. Raises OSError or InvalidQuestions."""
    try:
        content = read_at_most(file, MOST)
        if content is None:
            raise InvalidQuestions(f"{file} is larger than {MOST >> 20} MB.")
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidQuestions(f"{file} is not UTF-8.") from error
    entries = _tables(file, text) if file.suffix == ".toml" else _lines(file, text)
    asked = [_asked(file, line, entry) for line, entry in entries]
    if not asked:
        raise InvalidQuestions(f"{file} contains no questions.")
    return asked


def _lines(file: Path, text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidQuestions(f"{file}, line {number}: invalid JSON: {error}.") from error


def _tables(file: Path, text: str) -> Iterator[tuple[int, Any]]:
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidQuestions(f"{file} is not valid TOML: {error}.") from error
    tables = found.pop("questions", [])
    if found or not isinstance(tables, list):
        raise InvalidQuestions(f"{file}, line 1: it must hold [[questions]] and nothing else.")
    starts = [number for number, line in enumerate(text.split("\n"), 1) if _TABLE.match(line)]
    yield from ((starts[at] if at < len(starts) else 1, table) for at, table in enumerate(tables))


def _asked(file: Path, line: int, entry: Any) -> EvalQuestion:
    try:
        written = msgspec.convert(entry, _Written)
    except msgspec.ValidationError as error:
        raise InvalidQuestions(f"{file}, line {line}: {error}.") from error
    return EvalQuestion(written.question, frozenset(_place(file, line, answer) for answer in written.answers))


def _place(file: Path, line: int, answer: str | Turn) -> Place:
    if isinstance(answer, Turn):
        return Place(f"sessions/{answer.session}.jsonl", answer.seq, answer.seq)
    cited = parse_citation(answer)
    if cited is None:
        if "#" in answer:
            raise InvalidQuestions(f"{file}, line {line}: {answer} is neither a path nor path#Lfirst-Llast.")
        return Place(answer)
    path, first, last = cited
    if not 1 <= first <= last:
        raise InvalidQuestions(f"{file}, line {line}: {answer} ends before it begins.")
    return Place(path, first, last)
