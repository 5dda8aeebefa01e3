"""Where a home's gateway listens: a note for programs on this machine, as `exuvia status` and `exuvia chat`.

It is derived, written at each start and removed at the end. One that a killed gateway left is not believed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog

from gateway.support.errors import sentence_of
from gateway.support.small_files import read_at_most

LONGEST = 4096
"""Bytes of a note; more is none of ours."""

log = structlog.get_logger("exuvia")


class InstanceAddress(msgspec.Struct, frozen=True):
    """`host` and `port` that are listened on, and the number of the process that does."""

    host: str
    port: int
    process: int


@contextlib.contextmanager
def noted(path: Path, host: str, port: int) -> Iterator[None]:
    """Leave a note that this process listens there, as long as the block runs. If it cannot be written the gateway serves
    all the same, and programs ask where the configuration says."""
    note = InstanceAddress(host, port, os.getpid())
    new = path.with_name(f"{path.name}.new")
    try:
        new.touch(mode=0o600)
        new.write_bytes(msgspec.json.encode(note) + b"\n")
        new.replace(path)
    except OSError as error:
        log.warning("address_not_noted", reason=sentence_of(error))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def found(path: Path) -> InstanceAddress | None:
    """What the note says, if its process still lives; None otherwise."""
    note = _read(path)
    return note if note is not None and _lives(note.process) else None


def left(path: Path) -> InstanceAddress | None:
    """What the note says that a gateway left which did not come to its end, as when it was killed; None otherwise."""
    note = _read(path)
    return None if note is None or _lives(note.process) else note


def _read(path: Path) -> InstanceAddress | None:
    try:
        return msgspec.json.decode(read_at_most(path, LONGEST) or b"", type=InstanceAddress)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (OSError, OverflowError):
        return False
    return True
