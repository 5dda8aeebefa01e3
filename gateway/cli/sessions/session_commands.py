"""`exuvia sessions list|show|export|verify|forget|compactions`.

Each command prints and returns an exit code: 0 success, 1 a problem was found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, TextIO

import msgspec

from gateway.cli.options import PROBLEM, SUCCESS, print_json
from gateway.support.errors import GatewayError
from gateway.support.home import Home
from gateway.support.printable import one_line, printable
from gateway.support.session_export import ExportFormat, exported
from gateway.support.session_status import count_of
from gateway.support.storage import acknowledged_in, attachments_of, remove_from_catalog, session_logs
from gateway.support.stored_sessions import (
    Entry,
    SessionUnknown,
    entry_of,
    find_session,
    session_listings,
)
from plugins.api.command import CompactionEntry
from sessions.attachments.attachment_refs import AttachmentFault, check_attachments
from sessions.catalog.durability_check import describe_loss
from sessions.events.errors import JournalDamaged, SessionsError, StorageFailed, UnknownSession
from sessions.events.events import ContextCompacted
from sessions.files.home_lock import HomeLock
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript
from sessions.store.reading import StoredLog

TOOL_CHARACTERS = 200
"""Characters of a tool's output in a transcript; `--json` and `export` have all of it."""

LINE = 300
"""Characters of an identifier or check that are printed; `--json` has all of it."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying one journal.

    `line` counts from 1. `unfinished` is the length in bytes of a torn last line, which was never acknowledged.
    """

    session: str
    file: str
    whole: bool
    events: int = 0
    bytes: int = 0
    unfinished: int = 0
    line: int | None = None
    reason: str = ""
    attachments: tuple[AttachmentFault, ...] = ()
    """The faults of the attachments that the journal names."""


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """A session whose loss was accepted; `events` is the number that remain, 0 if the journal is missing."""

    session: str
    events: int


class NothingToForget(GatewayError):
    """The journal of a session to be forgotten is complete."""


def list_sessions(home: Home, out: TextIO, *, as_json: bool) -> int:
    """Print one line for each session, the most recent last, with the person if there are several."""
    found = session_listings(session_logs(home))
    if as_json:
        print_json(found, out)
        return SUCCESS
    several = len({each.person for each in found if each.readable}) > 1
    rows = [("KEY", *(("PERSON",) if several else ()), "SESSION", "EVENTS", "LAST AT", "BYTES", "")]
    for each in found:
        note = "" if each.readable else "unreadable; see `exuvia sessions verify`"
        whose = (one_line(each.person, 64),) if several else ()
        named = (one_line(each.key, 64), *whose, one_line(each.session, 64))
        rows.append((*named, str(each.events), one_line(each.at, 64), str(each.bytes), note))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows if found else ():
        out.write("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() + "\n")
    return SUCCESS


def show_session(home: Home, name: str, out: TextIO, *, person: str | None, as_json: bool, limit: int | None) -> int:
    """Print the transcript of a session, or its last `limit` entries. Raises JournalDamaged."""
    log = find_session(session_logs(home), name, person)
    entries = deque((entry for event in log.events() if (entry := entry_of(event))), maxlen=limit)
    if as_json:
        print_json(list(entries), out)
    for entry in () if as_json else entries:
        out.write(printable(_paragraph(entry)) + "\n\n")
    return SUCCESS


def forget_sessions(home: Home, names: Sequence[str], out: TextIO, *, as_json: bool) -> int:
    """Accept the loss of journals, or of their ends, by session id.

    A session whose journal is missing is forgotten; one that lost its end continues after its last event. Raises HomeLocked,
    SessionUnknown, NothingToForget, StorageFailed, JournalDamaged; sessions named before the failing one are done then.
    """
    forgotten, logs = [], session_logs(home)
    with HomeLock(home.lock):
        heads = acknowledged_in(home)
        for name in names:
            if name not in heads:
                raise SessionUnknown(f"The catalog has no session {name!r}; `exuvia sessions verify` lists what is missing.")
            events = StoredLog(logs, name).verify().events if logs.stamp(name) is not None else 0
            if not describe_loss(events, heads[name]):
                raise NothingToForget(f"Nothing is missing from {name}: its journal has every acknowledged event.")
            remove_from_catalog(home, (name,))
            forgotten.append(Forgotten(session=name, events=events))
            if not as_json:
                rest = f"It continues from event {events}." if events else "Its journal is missing or empty."
                out.write(f"The loss in {name} was accepted. {rest}\n")
    if as_json:
        print_json(forgotten, out)
    return SUCCESS


def export_session(home: Home, name: str, out: BinaryIO, *, person: str | None, form: ExportFormat) -> int:
    """Write a session in a format. Raises SessionUnknown, JournalDamaged, StorageFailed."""
    out.writelines(exported([find_session(session_logs(home), name, person)], form))
    return SUCCESS


def verify_sessions(home: Home, name: str | None, out: TextIO, *, as_json: bool) -> int:
    """Verify the sequence, checksums and attachments of one journal or of all, and print file, line and reason of faults."""
    heads, unread = _acknowledged(home)  # before the journals, which may be growing
    logs = session_logs(home)
    if name is None:
        sessions = sorted({*heads, *(session for session, _ in logs.listed())})
    else:
        sessions = [name if name in heads else find_session(logs, name).session]
    verdicts = []
    known: dict[str, str] = {}
    for session in sessions:
        faults: tuple[AttachmentFault, ...] = ()
        with suppress(SessionsError), logs.read(session) as lines:
            faults = tuple(check_attachments(lines, attachments_of(home), known))
        verdict = _against(heads.get(session, 0), _verdict(StoredLog(logs, session)))
        verdicts.append(msgspec.structs.replace(verdict, attachments=faults))
        if not as_json:
            out.writelines(f"{line}\n" for line in (_verdict_line(verdicts[-1]), *map(_fault_line, faults)))
    damaged = sum(not verdict.whole for verdict in verdicts)
    lost = sum(reason != "" for reason in known.values())
    if as_json:
        print_json(verdicts, out)
    else:
        attachments = f" Attachments: {len(known)} checked, {lost} missing or altered." if known else ""
        out.write(f"{len(verdicts)} checked, {damaged} damaged.{attachments}{unread}\n")
    return PROBLEM if damaged or lost else SUCCESS


def _acknowledged(home: Home) -> tuple[dict[str, int], str]:
    """Return the last acknowledged event of each session from the catalog, and a remark if it cannot be read."""
    try:
        return acknowledged_in(home), ""
    except StorageFailed as error:
        return {}, f" {error} Truncated journals cannot be detected."


def _against(head: int, verdict: Verdict) -> Verdict:
    """Return the verdict, as damaged if the journal ends before the last acknowledged event."""
    if not verdict.whole or not (reason := describe_loss(verdict.events, head)):
        return verdict
    return msgspec.structs.replace(verdict, whole=False, line=verdict.events + 1, reason=reason)


def _verdict(log: StoredLog) -> Verdict:
    verdict = Verdict(session=log.session, file=log.reader.location(log.session), whole=True)
    replace = msgspec.structs.replace
    try:
        verified = log.verify()
    except UnknownSession:  # of which only the catalog knows
        return verdict
    except JournalDamaged as damage:
        events, size = damage.good_seq, damage.good_end
        return replace(verdict, whole=False, events=events, bytes=size, line=damage.line, reason=damage.reason)
    except StorageFailed as error:
        return replace(verdict, whole=False, line=0, reason=str(error))
    return replace(verdict, events=verified.events, bytes=verified.last.offset, unfinished=verified.torn)


def _verdict_line(verdict: Verdict) -> str:
    if not verdict.whole:
        place = f", line {verdict.line}" if verdict.events or verdict.bytes else ""
        return f"DAMAGED {printable(verdict.file)}{place}: {one_line(verdict.reason, 300)}"
    tail = f", and {verdict.unfinished} of an incomplete last line" if verdict.unfinished else ""
    return f"whole   {one_line(verdict.session, 64)}: {verdict.events} events, {verdict.bytes} bytes{tail}"


def _fault_line(fault: AttachmentFault) -> str:
    name = f" ({one_line(fault.name, 100)})" if fault.name else ""
    return f"LOST    attachment {fault.sha256}{name}, named in line {fault.seq}: it {fault.reason}"


def _paragraph(entry: Entry) -> str:
    head = f"#{entry.seq} {entry.at} {entry.who}"
    match entry.who:
        case "tool":
            return f"{head} ({entry.detail}): {one_line(entry.text, TOOL_CHARACTERS)}"
        case "assistant":
            return "\n".join([head, *filter(None, (entry.text, entry.detail))])
        case _:
            return f"{head}\n{entry.text}"


# --- compactions ------------------------------------------------------------------------------------------------------


def list_compactions(home: Home, name: str, out: TextIO, *, person: str | None, as_json: bool) -> int:
    """Print every compaction of a session, reverted ones included, oldest first. Raises SessionUnknown, JournalDamaged."""
    entries = _compactions(find_session(session_logs(home), name, person))
    if as_json:
        print_json(entries, out)
    elif not entries:
        out.write("No compactions in this session.\n")
    for entry in () if as_json else entries:
        out.writelines(f"{printable(line)}\n" for line in _compaction_lines(entry))
    return SUCCESS


def _compactions(log: StoredLog) -> list[CompactionEntry]:
    from gateway.conversations.commands.context_report import entry_of_cut  # noqa: PLC0415 - for this command only

    transcript, compacted = Transcript(), dict[int, tuple[ContextCompacted, str]]()
    for event in log.events():
        transcript = evolve(transcript, event)
        if isinstance(event.event, ContextCompacted):
            compacted[event.seq] = event.event, event.at
    return [entry_of_cut(transcript, cut, *compacted[cut.seq]) for cut in transcript.cuts]


def _compaction_lines(entry: CompactionEntry) -> Iterator[str]:
    state = "in force" if entry.in_force else "reverted"
    yield f"{entry.number}. {entry.at} ({entry.why}), {state}"
    asked = f" ({one_line(entry.model, LINE)})" if entry.model else ""
    yield (
        f"   {count_of(entry.messages, 'message')}, {entry.tokens_before:,} → {entry.tokens_after:,} tokens,"
        f" by {one_line(entry.by, LINE)}{asked}"
    )
    if entry.failed:
        yield f"   the model's summary was rejected: {one_line(entry.failed, LINE)}"
    for check in entry.checks:
        yield f"   check: {one_line(check, LINE)}"
    for what, found in (("kept", entry.kept), ("lost", entry.lost)):
        for identifier in found:
            yield f"   {what} {one_line(identifier, LINE)}"
