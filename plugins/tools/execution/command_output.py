"""The output of a command: what the model is shown, and the file in the workspace with all of it.

A short output exists in memory alone. A longer one is written to `outputs/` in the person's folder of the workspace, from
where the tool `read` returns it in parts. Old files there are removed as new ones are made.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from plugins.support.safe_open import OutsideFolder, open_beneath
from plugins.support.workspace import meant
from plugins.tools.execution.terminal_text import TerminalText
from plugins.tools.file_target import open_target

FOLDER = "outputs"
"""The folder of output files, in the person's folder of the workspace."""

SHOWN_CHARACTERS = 24_000
"""Maximum characters of an output that the model is shown."""

TAIL_CHARACTERS = 16_000
"""How many of them are the end of a longer output; the others are its beginning."""

FILE_BYTES = 16 * 1024 * 1024
"""Maximum bytes of an output file; the rest of the output is lost, except its end."""

KEPT_SECONDS = 7 * 86_400.0
"""The age at which an output file is removed."""

KEPT_BYTES = 128 * 1024 * 1024
"""Maximum bytes of all output files of a person; the oldest are removed first."""

_NAME = re.compile(r"[0-9]{8}-[0-9]{6}-[a-z0-9-]{1,40}\.txt")
"""The names of output files. No other file is ever removed."""

_UNUSUAL = re.compile(r"[^a-z0-9]+")


class CommandOutput:
    """Collects the output of one command. Any thread may call its methods.

    Args:
        workspace: The workspace.
        person: The person whose folder receives the file.
        name: The name of the file, from `output_name`.
        at_once: Write to the file from the first piece on, not only when the output is long.
    """

    def __init__(self, workspace: Path, person: str, name: str, *, at_once: bool = False) -> None:
        self.path = f"{FOLDER}/{name}"
        """The path of the file as the person's `read` takes it, whether it exists or not."""
        self._workspace = workspace
        self._parts = meant((FOLDER, name), person)
        self._at_once = at_once
        self._feeding = threading.Lock()
        self._clean = TerminalText()
        self._lock = threading.Lock()
        self._start = self._end = ""
        self._characters = self._written = 0
        self._file: int | None = None
        self._fault = ""

    @property
    def is_long(self) -> bool:
        """True if the output is written to a file."""
        return self._at_once or self._characters > SHOWN_CHARACTERS

    def feed(self, data: bytes, *, last: bool = False) -> str:
        """Add bytes, and return their text. Blocks while the file is written."""
        with self._feeding:
            text = self._clean.feed(data, last=last)
            if text and (self._at_once or self._characters + len(text) > SHOWN_CHARACTERS):
                self._write(text)
            with self._lock:
                self._start += text[: SHOWN_CHARACTERS - len(self._start)]
                self._end = (self._end + text)[-TAIL_CHARACTERS:]
                self._characters += len(text)
            return text

    def finish(self) -> str:
        """End the output and close the file; return the last piece of text."""
        text = self.feed(b"", last=True)
        if self._file is not None:
            os.close(self._file)
            self._file = None
        return text

    def shown(self) -> str:
        """Return what the model is shown: all of a short output, else the beginning and the end, with a note in between."""
        with self._lock:
            if self._characters <= SHOWN_CHARACTERS:
                return self._start
            head = self._start[: SHOWN_CHARACTERS - TAIL_CHARACTERS]
            left_out = self._characters - len(head) - len(self._end)
            return f"{head}\n[{left_out:,} characters are left out here. {self._whereabouts()}]\n{self._end}"

    def since(self, position: int) -> tuple[str, int]:
        """Return what was added after a number of characters, without what is older than the end, and their number now."""
        with self._lock:
            new = self._characters - position
            return (self._end[-new:] if new else ""), self._characters

    def _whereabouts(self) -> str:
        if not self._written:
            return f"The output could not be written to a file{self._fault}."
        place = f"Read {self.path} for the whole output"
        if self._fault:
            return f"{place}, as far as it could be written{self._fault}."
        return f"{place}." if self._written < FILE_BYTES else f"{place}, up to {FILE_BYTES >> 10:,} KiB."

    def _write(self, text: str) -> None:
        """Write to the file, which is created now if this is the first piece."""
        if self._fault or self._written >= FILE_BYTES:
            return
        try:
            if self._file is None:
                self._file = _create(self._workspace, self._parts)
                text = self._start + text
            content = memoryview(text.encode()[: FILE_BYTES - self._written])
            while content:
                count = os.write(self._file, content)
                self._written += count
                content = content[count:]
        except (OSError, OutsideFolder) as error:
            self._fault = f" ({error.strerror if isinstance(error, OSError) else error})".replace(".)", ")")


def output_name(call: str) -> str:
    """Return the name of the output file of a call or job, which has the current time in it."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{_UNUSUAL.sub('-', call.lower())[-40:]}.txt"


def _create(workspace: Path, parts: tuple[str, ...]) -> int:
    """Create the file, after old ones have been removed."""
    remove_old(workspace, parts[:-1])
    with open_target(workspace, parts, make=True) as target:
        return target.create()


def remove_old(workspace: Path, folder: tuple[str, ...]) -> None:
    """Remove output files that are too old, and the oldest ones if all are too large together. Blocks."""
    try:
        opened = open_beneath(workspace, "/".join(folder))
    except (OSError, OutsideFolder):
        return
    try:
        room, now = KEPT_BYTES, time.time()
        for written, size, name in sorted(_output_files(opened), reverse=True):
            room -= size
            if room < 0 or now - written > KEPT_SECONDS:
                with suppress(OSError):
                    os.unlink(name, dir_fd=opened)
    finally:
        os.close(opened)


def _output_files(folder: int) -> Iterator[tuple[float, int, str]]:
    for name in os.listdir(folder):
        if _NAME.fullmatch(name):
            with suppress(OSError):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                yield found.st_mtime, found.st_size, name
