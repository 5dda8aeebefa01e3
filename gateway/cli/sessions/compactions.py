"""`exuvia sessions compactions`: the compactions of a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from gateway.cli.sessions.session_commands import WELL, print_json
from gateway.conversations.commands.context_report import entry_of_cut
from gateway.journals.session_lookup import find_session
from gateway.support.home import Home
from gateway.support.printable import one_line, printable
from gateway.support.storage import session_logs
from plugins.api.command import CompactionEntry
from sessions.events.events import ContextCompacted
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript
from sessions.store.reading import StoredLog

LINE = 300
"""Characters of an identifier or check that are printed; `--json` has all of it."""


def list_compactions(home: Home, name: str, out: TextIO, *, as_json: bool) -> int:
    """Print every compaction of a session, reverted ones included, oldest first. Raises SessionUnknown, JournalDamaged."""
    entries = _entries(find_session(session_logs(home), name))
    if as_json:
        print_json(entries, out)
    elif not entries:
        out.write("No compactions in this session.\n")
    for entry in () if as_json else entries:
        out.writelines(f"{printable(line)}\n" for line in _lines(entry))
    return WELL


def _entries(log: StoredLog) -> list[CompactionEntry]:
    transcript, made = Transcript(), dict[int, tuple[ContextCompacted, str]]()
    for event in log.events():
        transcript = evolve(transcript, event)
        if isinstance(event.event, ContextCompacted):
            made[event.seq] = event.event, event.at
    return [entry_of_cut(transcript, cut, *made[cut.seq]) for cut in transcript.cuts]


def _lines(entry: CompactionEntry) -> Iterator[str]:
    state = "in force" if entry.in_force else "reverted"
    yield f"{entry.number}. {entry.at} ({entry.why}), {state}"
    asked = f" ({one_line(entry.model, LINE)})" if entry.model else ""
    yield (
        f"   {entry.messages} messages, {entry.tokens_before:,} → {entry.tokens_after:,} tokens,"
        f" by {one_line(entry.by, LINE)}{asked}"
    )
    if entry.failed:
        yield f"   the model's summary was rejected: {one_line(entry.failed, LINE)}"
    for check in entry.checks:
        yield f"   check: {one_line(check, LINE)}"
    for what, found in (("kept", entry.kept), ("lost", entry.lost)):
        for identifier in found:
            yield f"   {what} {one_line(identifier, LINE)}"
