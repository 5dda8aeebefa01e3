"""The backups of a home, as far as they were written by `exuvia backup` from it: `HOME/backups.json`.

An erasure brings its log beside each of them, and names them in its receipt.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from gateway.backup.manifest import ERASED
from gateway.support.home import Home
from sessions.files.fsync import replace_file
from sessions.store.log_writer import stamp

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


def update_ledgers(home: Home, ledger: bytes) -> tuple[list[str], list[str]]:
    """Write the log of the erasures beside each known backup. Blocks.

    Returns:
        The places where it was written, and those that cannot be reached now.
    """
    written, missed = list[str](), list[str]()
    for place in known_backups(home):
        folder = Path(place) if Path(place).is_dir() else Path(place).parent
        try:
            if not Path(place).exists():
                raise FileNotFoundError(place)
            replace_file(folder / ERASED, ledger)
            written.append(place)
        except OSError:
            missed.append(place)
    return written, missed
