"""The backups of a home, as far as they were written by `exuvia backup` from it: `HOME/backups.json`.

An erasure brings its log beside each of them, and names them in its receipt.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from gateway.backup.manifest import ledger_of
from gateway.support.home import Home
from gateway.support.storage import fact_logs
from sessions.files.fsync import replace_file
from sessions.store.log_writer import stamp
from sessions.store.protocols import START

MOST = 100
"""The number of backups that are remembered; the oldest is forgotten first."""


def note_backup(home: Home, place: Path, now: datetime) -> None:
    """Remember that a backup was written to a folder or file at this time. Raises OSError."""
    known = known_backups(home)
    known.pop(str(place), None)
    newest = dict(list({**known, str(place): stamp(now)}.items())[-MOST:])
    replace_file(home.backups, msgspec.json.format(msgspec.json.encode(newest), indent=1) + b"\n")


def known_backups(home: Home) -> dict[str, str]:
    """Return the times of the known backups by their places, the newest last. An unreadable list is empty."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(home.backups.read_bytes(), type=dict[str, str])
    return {}


def note_in_backups(home: Home) -> tuple[str, ...]:
    """Write the log of the erasures beside each known backup, and return what remains in them as sentences. Blocks; raises
    SessionsError."""
    with fact_logs(home).read(home.deletions.stem) as lines:
        ledger = b"".join(line for line in lines.forward(START) if line.endswith(b"\n"))
    return tuple(_note(Path(place), at, ledger) for place, at in known_backups(home).items())


def _note(place: Path, at: str, ledger: bytes) -> str:
    """Write the log beside one backup, and return the sentence about it."""
    is_folder = place.is_dir()
    try:
        place.stat()
        replace_file(ledger_of(place), ledger)
    except OSError:
        return (
            f"The backup {place} of {at} cannot be reached now and may have it; if it is restored, name this home's"
            " deletions.jsonl with --ledger."
        )
    if is_folder:
        return f"The backup {place} of {at} has it until the next `exuvia backup` there; `exuvia restore` erases it again."
    return f"The archive {place} of {at} has it until it is deleted; `exuvia restore` erases it again."
