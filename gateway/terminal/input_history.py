"""What a person typed in earlier runs, for the up arrow: a file of its own, bounded, for nobody else's eyes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from prompt_toolkit.history import History

KEPT = 1000
"""Entries that the file keeps, the newest."""

LARGEST = 512 * 1024
"""Bytes of the file at which it is written anew, with the newest entries that fill at most half of them."""

LONGEST = 10_000
"""Characters of the longest entry that is kept: a pasted book is not typed again."""


def history_file(environment: Mapping[str, str]) -> Path:
    """Where it is: the XDG state folder, `~/.local/state` if none is set."""
    state = environment.get("XDG_STATE_HOME", "")
    folder = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return folder / "exuvia" / "chat_history"


class InputHistory(History):
    """One JSON string a line. What begins with a space is not kept, nor anything where the file cannot be written."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def append_string(self, string: str) -> None:
        """Keep an entry, unless it is the one before once more."""
        if string.startswith(" ") or not string.strip() or string == next(iter(self.get_strings()[-1:]), None):
            return
        super().append_string(string)

    def load_history_strings(self) -> Iterable[str]:
        """The entries of earlier runs, newest first."""
        return reversed(self._read())

    def store_string(self, string: str) -> None:
        """Write one more entry; a file that grew too large keeps the newest ones."""
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
        """Write the newest entries into a new file, and let it take the old one's place."""
        fresh = self._file.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, 0o600), "wb") as file:
            file.write(b"".join(reversed(list(_newest(self._read())))))
        fresh.replace(self._file)


def _newest(entries: list[str]) -> Iterator[bytes]:
    """The lines of the last entries, newest first."""
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
