"""The history and the completions of the input line."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

from gateway.protocol.client_frames import CommandLine, SessionSummary
from gateway.support.printable import one_line
from gateway.terminal.local_commands import OWN_COMMANDS
from plugins.support.text.nesting import nested

KEPT = 1000
"""The number of entries that the file keeps, newest first."""

LARGEST = 512 * 1024
"""The size in bytes at which the file is rewritten with the newest entries, at most half of that size."""

MENTION = re.compile(r"(?:^|(?<=\s))@([^\s@]*)\Z")
"""A path that is being typed after `@`."""

LONGEST = 10_000
"""Characters of the longest entry that is stored."""


def history_file(environment: Mapping[str, str]) -> Path:
    """Return the path: in the XDG state folder, `~/.local/state` by default."""
    state = environment.get("XDG_STATE_HOME", "")
    folder = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return folder / "exuvia" / "chat_history"


class InputHistory(History):
    """An input history in a file with one JSON string per line: bounded, and readable by its owner only.

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


class Completions(Completer):
    """Completion of commands, of conversations after `/switch`, and of paths after `/attach` and `@`.

    `commands` and `sessions` are called each time, since they can change.
    """

    def __init__(
        self, *, commands: Callable[[], Sequence[CommandLine]], sessions: Callable[[], Sequence[SessionSummary]]
    ) -> None:
        self._commands = commands
        self._sessions = sessions
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions at the cursor."""
        before = document.text_before_cursor
        name, space, argument = before.partition(" ")
        if (named := MENTION.search(before)) is not None:
            yield from self._paths.get_completions(Document(named[1]), complete_event)
        if not before.startswith("/") or "\n" in before:
            return
        if not space:
            yield from self._names(name)
        elif name == "/switch":
            wanted = argument.casefold()
            for depth, each in nested(self._sessions()):
                name = each.title or each.beginning
                if wanted in f"{each.session} {name}".casefold():
                    meta = f"{_day(each.at)}{', waits for your answer' if each.question is not None else ''}"
                    title = f"{'  ' * (depth - 1)}{'└ ' if depth else ''}{one_line(name or each.session, 60)}"
                    yield Completion(each.session, -len(argument), display=title, display_meta=meta)
        elif name == "/attach":
            yield from self._paths.get_completions(Document(argument), complete_event)

    def _names(self, typed: str) -> Iterable[Completion]:
        known = {command.name: command for command in (*self._commands(), *OWN_COMMANDS)}
        for name, command in sorted(known.items()):
            if f"/{name}".startswith(typed):
                text = f"/{name}" if command.usage.strip() == f"/{name}" else f"/{name} "
                yield Completion(
                    text, -len(typed), display=one_line(command.usage, 40), display_meta=one_line(command.summary, 80)
                )


def _day(at: str) -> str:
    """Return a time (RFC 3339) as a short local date and time; "" if it is none."""
    try:
        return datetime.fromisoformat(at).astimezone().strftime("%d %b %H:%M")
    except ValueError:
        return ""
