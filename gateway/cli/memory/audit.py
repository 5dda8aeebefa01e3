"""`exuvia memory audit`: what is wrong with the notes, and which of them nobody needed. It reads only."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO

import msgspec

from gateway.config.keys import load_config
from gateway.conversations.notes.workspace_memory import chosen_sources
from gateway.support.home import Home
from gateway.support.printable import escaped, printable
from plugins.api.memory.chunks import Chunk
from plugins.api.memory.scope import EVERYTHING
from plugins.api.memory.source import Source
from plugins.memory.note_audit import Finding, findings
from plugins.memory.recall_usage import NoteUsage, used
from plugins.memory.sources.transcripts import Transcripts
from plugins.support.workspace import is_private

WELL, WRONG = 0, 1

NEW = timedelta(days=7)
"""A note that is not older has had no time to be recalled."""


class Unused(msgspec.Struct, frozen=True, kw_only=True):
    """The notes that were neither recalled nor read through the memory's tools since `since`, the oldest event that was
    looked at; empty where that is too short a time to say so."""

    since: str
    notes: tuple[str, ...]


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in so many notes. That one was not recalled is nothing wrong."""

    notes: int
    findings: tuple[Finding, ...]
    never_recalled: Unused


def audit_notes(
    home: Home, file: Path | None, environment: Mapping[str, str], out: TextIO, *, now: datetime, as_json: bool
) -> int:
    """Print what is wrong with the notes. Exit code 1 if something is."""
    config = load_config(file or home.config, environment=environment, overrides={})
    texts, chunks = _notes([source for source in chosen_sources(home, config) if source.name != Transcripts.name])
    audit = Audit(
        notes=len(texts),
        findings=tuple(findings(texts, chunks)),
        never_recalled=_unused(list(texts), home.workspace(config.agent.workspace), used(home.sessions), now),
    )
    if as_json:
        out.write(escaped(msgspec.json.encode(audit).decode()) + "\n")
    else:
        _print(audit, out)
    return WRONG if audit.findings else WELL


def _notes(sources: Sequence[Source]) -> tuple[dict[str, str], list[Chunk]]:
    texts: dict[str, str] = {}
    chunks: list[Chunk] = []
    for source in sources:
        for path in source.there({}).stamps:
            reading = source.read(path, "")
            if path not in texts and reading is not None:
                texts[path] = source.excerpt(path, 1, sys.maxsize, EVERYTHING) or ""
                chunks += reading.chunks
    return texts, chunks


def _unused(paths: Sequence[str], workspace: Path, recalls: NoteUsage, now: datetime) -> Unused:
    """`MEMORY.md` is left out: it is shown at the beginning of each session."""
    since = datetime.fromisoformat(recalls.since) if recalls.since else now
    if now - since < NEW:
        return Unused(since=recalls.since, notes=())
    old = (path for path in paths if not is_private(tuple(path.split("/"))) and now - _written(workspace / path, now) >= NEW)
    return Unused(since=recalls.since, notes=tuple(path for path in old if path not in recalls.paths))


def _written(place: Path, now: datetime) -> datetime:
    try:
        return datetime.fromtimestamp(place.stat().st_mtime, UTC)
    except OSError:
        return now


def _print(audit: Audit, out: TextIO) -> None:
    for finding in audit.findings:
        out.write(printable(f"{finding.kind:<10} {finding.sentence}\n"))
        out.writelines(f"{'':<11}{printable(place)}\n" for place in finding.places)
    unused = audit.never_recalled
    if unused.notes:
        out.write(f"(Not recalled since {unused.since[:10]}, from when on the sessions were looked at:)\n")
        out.writelines(f"{'':<11}{printable(path)}\n" for path in unused.notes)
    count = len(audit.findings)
    found = f"{count} things are" if count > 1 else "One thing is" if count else "Nothing is"
    out.write(f"{found} wrong with {audit.notes} {'note' if audit.notes == 1 else 'notes'}.\n")
