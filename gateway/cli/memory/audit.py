"""`exuvia memory audit`: problems of the notes, and notes that were never recalled. Read-only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO

import msgspec

from gateway.cli.options import PROBLEM, SUCCESS, Invocation, print_json
from gateway.conversations.notes.workspace_memory import chosen_sources
from gateway.support.printable import printable
from gateway.support.session_status import count_of
from gateway.support.storage import session_logs
from plugins.api.memory.chunks import Chunk
from plugins.api.memory.scope import EVERYTHING
from plugins.api.memory.source import Source
from plugins.memory.note_audit import Finding, NoteUsage, findings, used_documents
from plugins.memory.sources.transcripts import Transcripts
from plugins.support.workspace import is_private

NEW = timedelta(days=7)
"""The age below which a note is not reported as never recalled."""


class Unused(msgspec.Struct, frozen=True, kw_only=True):
    """Notes neither recalled nor read through the memory's tools since `since`, the oldest event examined.

    Empty if that period is too short.
    """

    since: str
    notes: tuple[str, ...]


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The findings about a number of notes. A note that was never recalled is not a problem."""

    notes: int
    findings: tuple[Finding, ...]
    never_recalled: Unused


def audit_notes(call: Invocation, now: datetime) -> int:
    """Print the problems of the notes. Return 1 if there is one."""
    home, config = call.home, call.settings().current
    sources = chosen_sources(home, config, call.agent)
    texts, chunks = _notes([source for source in sources if source.name != Transcripts.name])
    usage = used_documents(session_logs(home), agent=call.agent)
    audit = Audit(
        notes=len(texts),
        findings=tuple(findings(texts, chunks)),
        never_recalled=_unused(list(texts), home.workspace(config.agent.workspace), usage, now),
    )
    if call.as_json:
        print_json(audit, call.out)
    else:
        _print(audit, call.out)
    return PROBLEM if audit.findings else SUCCESS


def _notes(sources: Sequence[Source]) -> tuple[dict[str, str], list[Chunk]]:
    texts: dict[str, str] = {}
    chunks: list[Chunk] = []
    for source in sources:
        for path in source.list_documents({}).stamps:
            reading = source.read(path, "")
            if path not in texts and reading is not None:
                texts[path] = source.excerpt(path, 1, sys.maxsize, EVERYTHING) or ""
                chunks += reading.chunks
    return texts, chunks


def _unused(paths: Sequence[str], workspace: Path, recalls: NoteUsage, now: datetime) -> Unused:
    """Return the notes never recalled, without `MEMORY.md`, which is shown at the beginning of each session."""
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
        out.write(f"(Not recalled since {unused.since[:10]}, the oldest event examined:)\n")
        out.writelines(f"{'':<11}{printable(path)}\n" for path in unused.notes)
    out.write(f"{count_of(len(audit.findings), 'problem')} in {count_of(audit.notes, 'note')}.\n")
