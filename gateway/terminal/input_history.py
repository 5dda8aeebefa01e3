"""The input history file: bounded, and readable by its owner only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from prompt_toolkit.history import History

KEPT = 1000
"""The number of entries that the file keeps, newest first."""

LARGEST = 512 * 1024
"""The size in bytes at which the file is rewritten with the newest entries, at most half of that size."""

LONGEST = 10_000
"""Characters of the longest entry that is stored."""


def history_file(environment: Mapping[str, str]) -> Path:
    """Return the path: in the XDG state folder, `~/.local/state` by default."""
    state = environment.get("XDG_STATE_HOME", "")
    folder = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return folder / "exuvia" / "chat_history"


class InputHistory(History):
    """An input history with one JSON string per line.

    Entries that begin with a space are not stored; errors of the file are ignored.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def append_string(self, string: str) -> None:
        """Store an entry unless it repeats the previous one."""
        if string.startswith(" ") or not string.strip() or string == next(iter(self.get_strings()[-1:]), None):
            return
        super().append_string(string)

    def load_history_strings(self) -> Iterable[str]:
        """Return the stored entries, newest first."""
        return reversed(self._read())

    def store_string(self, string: str) -> None:
        """Append an entry; shorten a file that grew too large."""
        if len(string) > LONGEST:
            return
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(msgspec.json.encode(string) + b"\n")
                too_large = file.tell() > LARGEST
            if too_large:
                self._shorten()
        except OSError:
            # A chat without a history is better than none.
            return

    def _read(self) -> list[str]:
        try:
            lines = self._file.read_bytes().splitlines()[-KEPT:]
        except OSError:
            return []
        return [entry for line in lines if (entry := _entry(line)) is not None]

    def _shorten(self) -> None:
        """Replace the file by one with the newest entries."""
        fresh = self._file.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, 0o600), "wb") as file:
            file.write(b"".join(reversed(list(_newest(self._read())))))
        fresh.replace(self._file)


def _newest(entries: list[str]) -> Iterator[bytes]:
    """Return the lines of the last entries, newest first."""
    room = LARGEST // 2
    for entry in reversed(entries):
        line = msgspec.json.encode(entry) + b"\n"
        room -= len(line)
        if room < 0:
            return
        yield line


def _entry(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=str)
    except msgspec.MsgspecError:
        return None
