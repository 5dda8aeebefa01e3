"""The address of the gateway that runs on a home, for local programs such as `exuvia status` and `exuvia chat`.

The file is derived, written at each start and removed at the end. A file left by a process that was killed is ignored.
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
"""Bytes of the largest valid file."""

log = structlog.get_logger("exuvia")


class InstanceAddress(msgspec.Struct, frozen=True):
    """The `host` and `port` that a process listens on, and its process id."""

    host: str
    port: int
    process: int


@contextlib.contextmanager
def publish(path: Path, host: str, port: int) -> Iterator[None]:
    """Publish the address of this process while the block runs.

    If the file cannot be written the gateway serves anyway, and local programs use the configured address.
    """
    address = InstanceAddress(host, port, os.getpid())
    new = path.with_name(f"{path.name}.new")
    try:
        new.touch(mode=0o600)
        new.write_bytes(msgspec.json.encode(address) + b"\n")
        new.replace(path)
    except OSError as error:
        log.warning("address_not_noted", reason=sentence_of(error))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def running_instance(path: Path) -> InstanceAddress | None:
    """Return the published address if its process is alive, else None."""
    address = _read(path)
    return address if address is not None and _is_alive(address.process) else None


def crashed_instance(path: Path) -> InstanceAddress | None:
    """Return the address published by a process that did not exit cleanly, such as one that was killed, else None."""
    address = _read(path)
    return None if address is None or _is_alive(address.process) else address


def _read(path: Path) -> InstanceAddress | None:
    try:
        return msgspec.json.decode(read_at_most(path, LONGEST) or b"", type=InstanceAddress)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (OSError, OverflowError):
        return False
    return True
