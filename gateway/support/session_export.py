"""Exports of sessions: as Markdown to read, as JSON for programs, and the journals themselves. All functions block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from gateway.support.printable import printable
from gateway.support.stored_sessions import Entry, entry_of
from sessions.store.header import read_header
from sessions.store.protocols import START
from sessions.store.reading import StoredLog

ExportFormat: TypeAlias = Literal["jsonl", "json", "markdown"]

MEDIA = {"jsonl": "application/jsonl", "json": "application/json", "markdown": "text/markdown"}
"""The media type of each format."""

SUFFIXES = {"jsonl": "jsonl", "json": "json", "markdown": "md"}
"""The suffix of the name of a file in each format."""


def exported(logs: Iterable[StoredLog], form: ExportFormat) -> Iterator[bytes]:
    """Yield the sessions of these logs in a format, in pieces. Raises JournalDamaged, UnknownSession, StorageFailed.

    `jsonl` has the lines of the journals up to the last complete one, unverified.
    """
    match form:
        case "jsonl":
            for log in logs:
                yield from _whole_lines(log)
        case "markdown":
            for log in logs:
                yield f"# Session {log.session}\n".encode()
                yield from (_section(entry).encode() for entry in _entries(log))
        case "json":
            yield b"["
            for number, log in enumerate(logs):
                yield b",\n" if number else b"\n"
                yield from _json(log)
            yield b"\n]\n"


def _entries(log: StoredLog) -> Iterator[Entry]:
    return (entry for event in log.events() if (entry := entry_of(event)) is not None)


def _json(log: StoredLog) -> Iterator[bytes]:
    """Yield a session as a JSON object with its entries."""
    with log.read() as lines:
        header = read_header(lines)
    about = {"session": header.session, "key": header.key, "person": header.person, "opened": header.at}
    about |= {"parent": header.parent} if header.parent else {}
    yield msgspec.json.encode(about)[:-1] + b',"entries":['
    for number, entry in enumerate(_entries(log)):
        yield (b",\n  " if number else b"\n  ") + msgspec.json.encode(entry)
    yield b"\n]}"


def _section(entry: Entry) -> str:
    text = printable(entry.text)
    if entry.who == "tool":
        fence = "`" * max(3, _longest_run(text) + 1)
        text = f"{fence}\n{text}\n{fence}"
    calls = [f"- `{line.replace('`', chr(39))}`" for line in entry.detail.splitlines() if entry.who == "assistant"]
    return "\n".join([f"\n## {entry.who} · {entry.at} · #{entry.seq}\n", *filter(None, (text, *calls)), ""])


def _longest_run(text: str) -> int:
    """Return the length of the longest run of backticks, which a code fence must exceed."""
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest


def _whole_lines(log: StoredLog) -> Iterator[bytes]:
    with log.read() as lines:
        for line in lines.forward(START):
            if line.endswith(b"\n"):
                yield line
