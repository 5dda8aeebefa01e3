"""`exuvia sessions list|show|export|verify|forget`: what the journals of a home say. Each function prints and returns an
exit code: 0 well, 1 something wrong was found, 2 it could not be done."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TextIO

import msgspec

from gateway.journals.session_files import (
    SUFFIX,
    Entry,
    SessionUnknown,
    entry_of,
    find_journal,
    journals,
    recorded,
    session_listings,
)
from gateway.support.errors import GatewayError
from gateway.support.home import Home
from gateway.support.printable import escaped, one_line, printable
from sessions.attachments.attachment_refs import AttachmentFault, check_attachments
from sessions.catalog.durability_check import acknowledged_heads, describe_loss, forget
from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.files.home_lock import HomeLock
from sessions.files.verify import verify_journal

WELL, WRONG, IMPOSSIBLE = 0, 1, 2

TOOL_CHARACTERS = 200
"""How much of a tool's output a transcript shows; `--json` and `export` have all of it."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the check of one journal found. `line` counts from 1. `unfinished` is the length in bytes of a last line that
    was being written when the gateway stopped, or is being written now; nothing in it was ever acknowledged."""

    session: str
    file: str
    whole: bool
    events: int = 0
    bytes: int = 0
    unfinished: int = 0
    line: int | None = None
    reason: str = ""
    attachments: tuple[AttachmentFault, ...] = ()
    """What is wrong with the files that it names."""


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """A session of which what is missing is forgotten; `events` is how many it has left, 0 if its journal is gone."""

    session: str
    events: int


class NothingToForget(GatewayError):
    """A session was to be forgotten whose journal is whole."""


def list_sessions(folder: Path, out: TextIO, *, as_json: bool) -> int:
    """One line for each session, the one that was used last at the end; whose it is, where there are several people."""
    found = session_listings(folder)
    if as_json:
        print_json(found, out)
        return WELL
    several = len({each.person for each in found if each.readable}) > 1
    rows = [("KEY", *(("PERSON",) if several else ()), "SESSION", "EVENTS", "LAST AT", "BYTES", "")]
    for each in found:
        note = "" if each.readable else "cannot be read; see `exuvia sessions verify`"
        whose = (one_line(each.person, 64),) if several else ()
        named = (one_line(each.key, 64), *whose, one_line(each.session, 64))
        rows.append((*named, str(each.events), one_line(each.at, 64), str(each.bytes), note))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows if found else ():
        out.write("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() + "\n")
    return WELL


def show_session(folder: Path, name: str, out: TextIO, *, as_json: bool, limit: int | None) -> int:
    """The transcript of a session, or only its last `limit` entries; JournalDamaged at a line that is no event."""
    path = find_journal(folder, name)
    entries = deque((entry for event in recorded(path) if (entry := entry_of(event))), maxlen=limit)
    if as_json:
        print_json(list(entries), out)
    for entry in () if as_json else entries:
        out.write(printable(_paragraph(entry)) + "\n\n")
    return WELL


def forget_sessions(folder: Path, names: Sequence[str], out: TextIO, *, as_json: bool) -> int:
    """Let go of what is missing of sessions, by their ids: one whose journal is gone is forgotten, one that lost its end
    goes on from where it ends. No gateway may run on the home meanwhile. Raises HomeLocked, SessionUnknown, NothingMissing,
    StorageFailed, JournalDamaged; what was named before is forgotten then."""
    home = Home(folder.parent)
    forgotten = []
    with HomeLock(home.lock):
        heads = acknowledged_heads(home.catalog)
        for name in names:
            if name not in heads:
                raise SessionUnknown(
                    f"The catalog knows no session {name!r}; `exuvia sessions verify` names what is missing."
                )
            path = folder / f"{name}{SUFFIX}"
            events = verify_journal(path).events if path.exists() else 0
            if not describe_loss(events, heads[name]):
                raise NothingToForget(f"Nothing is missing of {name}: its journal has all that was acknowledged.")
            forget(home.catalog, name)
            forgotten.append(Forgotten(session=name, events=events))
            if not as_json:
                goes_on = f"It goes on from event {events}." if events else "Its journal is gone or empty."
                out.write(f"What is missing of {name} is forgotten. {goes_on}\n")
    if as_json:
        print_json(forgotten, out)
    return WELL


def export_session(folder: Path, name: str, out: BinaryIO, *, markdown: bool) -> int:
    """A session as Markdown, or as its journal's own bytes up to the last line that has an end."""
    path = find_journal(folder, name)
    if not markdown:
        _copy_lines(path, out)
        return WELL
    out.write(f"# Session {path.stem}\n".encode())
    for event in recorded(path):
        if (entry := entry_of(event)) is not None:
            out.write(_section(entry).encode())
    return WELL


def verify_sessions(folder: Path, name: str | None, out: TextIO, *, as_json: bool) -> int:
    """Check sequence and sums of one journal or of all, and the attachments that they name: file, line and reason are told
    where something is not as it was written."""
    home = Home(folder.parent)
    heads, unread = _acknowledged(home.catalog)  # before the journals, which may be growing
    if name is None:
        paths = _expected(folder, heads)
    else:
        paths = [folder / f"{name}{SUFFIX}" if name in heads else find_journal(folder, name)]
    verdicts = []
    known: dict[str, str] = {}
    for path in paths:
        faults = tuple(check_attachments(path, home.attachments, known)) if path.exists() else ()
        verdict = _against(heads.get(path.stem, 0), _verdict(path))
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
    return WRONG if damaged or lost else WELL


def _acknowledged(catalog: Path) -> tuple[dict[str, int], str]:
    """How far each session went by the catalog, and what to say if that cannot be read."""
    try:
        return acknowledged_heads(catalog), ""
    except StorageFailed as error:
        return {}, f" {error} Whether a journal lost its end could not be told."


def _expected(folder: Path, heads: Mapping[str, int]) -> list[Path]:
    """The journals that are there, and those that should be."""
    found = journals(folder)
    return sorted({*found, *(folder / f"{session}{SUFFIX}" for session in heads)})


def _against(head: int, verdict: Verdict) -> Verdict:
    """The verdict, unless the journal is whole but ends before what was acknowledged."""
    if not verdict.whole or not (reason := describe_loss(verdict.events, head)):
        return verdict
    return msgspec.structs.replace(verdict, whole=False, line=verdict.events + 1, reason=reason)


def _verdict(path: Path) -> Verdict:
    try:
        verified = verify_journal(path)
    except UnknownSession:  # of which only the catalog knows
        return Verdict(session=path.stem, file=str(path), whole=True)
    except JournalDamaged as damage:
        return Verdict(
            session=path.stem,
            file=str(path),
            whole=False,
            events=damage.good_seq,
            bytes=damage.good_end,
            line=damage.line,
            reason=damage.reason,
        )
    except StorageFailed as error:
        return Verdict(session=path.stem, file=str(path), whole=False, events=0, bytes=0, line=0, reason=str(error))
    return Verdict(
        session=path.stem,
        file=str(path),
        whole=True,
        events=verified.events,
        bytes=verified.last.offset,
        unfinished=verified.torn,
    )


def _verdict_line(verdict: Verdict) -> str:
    if not verdict.whole:
        place = f", line {verdict.line}" if verdict.events or verdict.bytes else ""
        return f"DAMAGED {printable(verdict.file)}{place}: {one_line(verdict.reason, 300)}"
    tail = f", and {verdict.unfinished} of a line that was never finished" if verdict.unfinished else ""
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


def _section(entry: Entry) -> str:
    text = printable(entry.text)
    if entry.who == "tool":
        fence = "`" * max(3, _longest_run(text) + 1)
        text = f"{fence}\n{text}\n{fence}"
    calls = [f"- `{line.replace('`', chr(39))}`" for line in entry.detail.splitlines() if entry.who == "assistant"]
    return "\n".join([f"\n## {entry.who} · {entry.at} · #{entry.seq}\n", *filter(None, (text, *calls)), ""])


def _longest_run(text: str) -> int:
    """The length of the longest run of backticks, which a fence around the text must exceed."""
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest


def _copy_lines(path: Path, out: BinaryIO) -> None:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                out.write(line)


def print_json(value: object, out: TextIO) -> None:
    """Any value that msgspec encodes, indented, for people and programs."""
    out.write(escaped(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n")
