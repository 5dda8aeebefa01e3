"""Files of questions with known answers, for `exuvia memory eval`.

Questions about the notes and sessions of a home are JSON lines or TOML with `[[questions]]`:

{"question": "Which editor is it?", "answers": ["MEMORY.md#L3-L5", {"session": "20261121-031241-7k2m9q", "seq": 12}]}

A file that is one JSON object may have notes of its own, of which its questions are asked:

{"today": "2026-11-22", "notes": {"memory/x.md": "…"}, "questions": [{"question": "…", "answers": ["memory/x.md#L5"]}]}

or conversations in the format of LoCoMo, whose turns become notes of their days:

{"conversations": [{"id": "26", "turns": [{"id": "D1:1", "date": "1:56 pm on 8 May, 2023", "speaker": "Ana", "text": "…"}],
 "questions": [{"question": "…", "relevant": ["D1:1"]}]}]}

A question without answers is one that must find nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gateway.support.errors import GatewayError
from gateway.support.small_files import read_at_most
from plugins.api.memory.chunks import Chunk
from plugins.support.workspace import FOLDER, MAIN, SHARED, parse_citation

_TABLE = re.compile(r"\s*\[\[\s*questions\s*\]\]")


_NOTE = re.compile(rf"{re.escape(MAIN)}|(?:{FOLDER}|{SHARED})/(?:[^./\0][^/\0]*/)*[^./\0][^/\0]*\.md")


class InvalidQuestions(GatewayError):
    """An invalid file of questions; `str(error)` names the file and the line or field."""


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


LARGEST_FILE = 16 * 1024 * 1024
"""Bytes of a file of questions."""


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    answers: tuple[Annotated[str, msgspec.Meta(min_length=1)] | Turn, ...]


class EvalQuestion(msgspec.Struct, frozen=True):
    """A question and the places that answer it; none if it must find nothing."""

    question: str
    answers: frozenset[Place]


class QuestionSet(msgspec.Struct, frozen=True, kw_only=True):
    """Questions, and the notes they are asked of by path; None for the notes and sessions of the home.

    `today` is the day on which they are asked, None for the current one.
    """

    questions: tuple[EvalQuestion, ...]
    notes: Mapping[str, str] | None = None
    today: date | None = None


def read_questions(file: Path) -> list[QuestionSet]:
    """Return the sets of a file, with at least one question together. Raises OSError or InvalidQuestions."""
    try:
        content = read_at_most(file, LARGEST_FILE)
        if content is None:
            raise InvalidQuestions(f"{file} is larger than {LARGEST_FILE >> 20} MB.")
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidQuestions(f"{file} is not UTF-8.") from error
    found = _sets(file, text)
    if not any(each.questions for each in found):
        raise InvalidQuestions(f"{file} contains no questions.")
    return [each for each in found if each.questions]


def _sets(file: Path, text: str) -> list[QuestionSet]:
    if file.suffix != ".toml" and (data := _json_object(text)) is not None:
        return _conversations(file, data) if "conversations" in data else [_notes_and_questions(file, data)]
    entries = _tables(file, text) if file.suffix == ".toml" else _json_lines(file, text)
    return [QuestionSet(questions=tuple(_asked(file, line, entry) for line, entry in entries))]


def _json_lines(file: Path, text: str) -> Iterator[tuple[int, Any]]:
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
        raise InvalidQuestions(f"{file}, line 1: it must contain [[questions]] and nothing else.")
    starts = [number for number, line in enumerate(text.split("\n"), 1) if _TABLE.match(line)]
    yield from ((starts[at] if at < len(starts) else 1, table) for at, table in enumerate(tables))


# --- one JSON object --------------------------------------------------------------------------------------------------


class _Notes(msgspec.Struct, frozen=True):
    questions: tuple[_Written, ...]
    notes: dict[str, str]
    today: date | None = None


class _Said(msgspec.Struct, frozen=True):
    id: str
    date: str
    speaker: str
    text: str


class _Relevant(msgspec.Struct, frozen=True):
    question: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    relevant: tuple[str, ...]


class _Conversation(msgspec.Struct, frozen=True):
    turns: Annotated[tuple[_Said, ...], msgspec.Meta(min_length=1)]
    questions: tuple[_Relevant, ...]


class _Conversations(msgspec.Struct, frozen=True):
    conversations: tuple[_Conversation, ...]


def _json_object(text: str) -> dict[str, Any] | None:
    """Return the object that a whole text is, with notes or conversations; None for anything else, such as JSON lines."""
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return data if isinstance(data, dict) and not data.keys().isdisjoint(("notes", "conversations")) else None


def _notes_and_questions(file: Path, data: Any) -> QuestionSet:
    try:
        found = msgspec.convert(data, _Notes)
    except msgspec.ValidationError as error:
        raise InvalidQuestions(f"{file}: {error}.") from error
    if wrong := next((path for path in found.notes if not _NOTE.fullmatch(path)), None):
        raise InvalidQuestions(f"{file}: {wrong} is no path of a note, such as {MAIN} or {FOLDER}/topic.md.")
    asked = (
        EvalQuestion(each.question, frozenset(_place(f"{file}, question {number}", answer) for answer in each.answers))
        for number, each in enumerate(found.questions, 1)
    )
    return QuestionSet(questions=tuple(asked), notes=found.notes, today=found.today)


def _conversations(file: Path, data: Any) -> list[QuestionSet]:
    try:
        return [_as_notes(each) for each in msgspec.convert(data, _Conversations).conversations]
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidQuestions(f"{file}: {error}.") from error


def _as_notes(conversation: _Conversation) -> QuestionSet:
    """Return a conversation as notes of its days. Each turn has a heading with the speaker and the time, and its text in one
    line, so that a citation refers to one turn. The questions are asked on its last day."""
    pages: dict[str, list[str]] = {}
    places: dict[str, Place] = {}
    days = []
    for turn in conversation.turns:
        clock, day = _time(turn.date)
        days.append(day)
        path = f"{FOLDER}/{day.isoformat()}.md"
        page = pages.setdefault(path, [])
        page += [f"## {' '.join(turn.speaker.split())}, {clock}", "", " ".join(turn.text.split()), ""]
        places[turn.id] = Place(path, len(page) - 1, len(page) - 1)
    asked = (
        EvalQuestion(each.question, frozenset(places[turn] for turn in each.relevant if turn in places))
        for each in conversation.questions
        if not each.relevant or not places.keys().isdisjoint(each.relevant)
    )
    notes = {path: "\n".join(page) for path, page in pages.items()}
    return QuestionSet(questions=tuple(asked), notes=notes, today=max(days))


def _time(text: str) -> tuple[str, date]:
    """Parse a time such as `1:56 pm on 8 May, 2023`. Raises ValueError."""
    clock, _, day = text.partition(" on ")
    return clock, datetime.strptime(" ".join(day.replace(",", " ").split()), "%d %B %Y").date()  # noqa: DTZ007 - only the date


# --- entries ----------------------------------------------------------------------------------------------------------


def _asked(file: Path, line: int, entry: Any) -> EvalQuestion:
    try:
        written = msgspec.convert(entry, _Written)
    except msgspec.ValidationError as error:
        raise InvalidQuestions(f"{file}, line {line}: {error}.") from error
    return EvalQuestion(written.question, frozenset(_place(f"{file}, line {line}", answer) for answer in written.answers))


def _place(where: str, answer: str | Turn) -> Place:
    if isinstance(answer, Turn):
        return Place(f"sessions/{answer.session}.jsonl", answer.seq, answer.seq)
    cited = parse_citation(answer)
    if cited is None:
        if "#" in answer:
            raise InvalidQuestions(f"{where}: {answer} is neither a path nor path#Lfirst-Llast.")
        return Place(answer)
    path, first, last = cited
    if not 1 <= first <= last:
        raise InvalidQuestions(f"{where}: {answer} ends before it begins.")
    return Place(path, first, last)
