"""A person at a terminal who runs `exuvia chat`."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Mapping
from typing import Any, Self

from tests.gateway.gateways import TOKEN
from tests.waiting import deadline

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("EXUVIA")},
    "EXUVIA_TOKEN": TOKEN,
    "PYTHONIOENCODING": "utf-8",
    "TERM": "dumb",
}


async def start(
    url: str, *options: str, environment: Mapping[str, str] = ENVIRONMENT, **streams: Any
) -> asyncio.subprocess.Process:
    """Run `exuvia chat`, in pipes unless `streams` say otherwise."""
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    command = [sys.executable, "-m", "exuvia", "chat", "--url", url, *options]
    return await asyncio.create_subprocess_exec(*command, env=dict(environment), **(pipes | streams))


class Display:
    """The screen of a terminal with its scrollback, as lines; it implements what our programs use."""

    def __init__(self, columns: int, rows: int) -> None:
        self.size = (columns, rows)
        self._lines = [""]
        self._row = self._column = 0
        self._rest = ""

    @property
    def text(self) -> str:
        """All lines since the start."""
        return "\n".join(self._lines)

    def write(self, text: str) -> None:
        text = self._rest + text
        end = 0
        for match in _PIECE.finditer(text):
            end = match.end()
            if match["final"]:
                self._act(match["final"], match["number"])
            elif match["control"] == "\r":
                self._column = 0
            elif match["control"] == "\n":
                self._go(self._row + 1)
            elif match["text"]:
                self._put(match["text"])
        self._rest = text[end:]

    def _put(self, text: str) -> None:
        for letter in text:
            if self._column >= self.size[0]:
                self._go(self._row + 1)
                self._column = 0
            line = self._lines[self._row].ljust(self._column)
            self._lines[self._row] = line[: self._column] + letter + line[self._column + 1 :]
            self._column += 1

    def _act(self, final: str, number: str) -> None:
        count = int(number) if number.isdigit() else 1
        match final:
            case "A":
                self._row = max(self._row - count, len(self._lines) - self.size[1], 0)
            case "B":
                self._go(self._row + count)
            case "C":
                self._column += count
            case "D":
                self._column = max(0, self._column - count)
            case "J" | "K":
                self._lines[self._row] = self._lines[self._row][: self._column]
                if final == "J":
                    del self._lines[self._row + 1 :]
            case _:
                # Colours and modes.
                pass

    def _go(self, row: int) -> None:
        self._lines.extend([""] * (row - len(self._lines) + 1))
        self._row = row


_PIECE = re.compile(
    r"\x1b[_P][^\x1b]*\x1b\\|\x1b\](?:[^\x07\x1b]*)(?:\x07|\x1b\\)|\x1b\[(?P<number>[?0-9;]*)(?P<final>[A-Za-z])|\x1b[^\[_P\]]|(?P<control>[\r\n\x07\x08])|(?P<text>[^\x1b\r\n\x07\x08]+)"
)


class Terminal:
    """A terminal: `until` waits for output, `types` presses keys. `answer` is what it says of itself (DA1) if asked."""

    def __init__(self, columns: int = 80, rows: int = 24, *, answer: bytes = b"\x1b[?62;22c") -> None:
        self._answer = answer
        self.bytes = b""
        """All that was ever written to it."""
        self._display = Display(columns, rows)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._read_up_to = 0

    async def __aenter__(self) -> Self:
        self._near, self.far = pty.openpty()
        self.resize(*self._display.size)
        os.set_blocking(self._near, False)
        asyncio.get_running_loop().add_reader(self._near, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._near)
        os.close(self._near)
        os.close(self.far)

    async def chat(
        self, url: str, *options: str, environment: Mapping[str, str] = ENVIRONMENT
    ) -> asyncio.subprocess.Process:
        """Run `exuvia chat` in this terminal."""
        streams = {"stdin": self.far, "stdout": self.far, "stderr": self.far, "start_new_session": True}
        return await start(url, *options, environment=environment, **streams)

    def types(self, keys: str) -> None:
        os.write(self._near, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        self._display.size = (columns, rows)
        fcntl.ioctl(self._near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def echoes(self) -> bool:
        """Return True if the terminal echoes input itself, as for a shell."""
        return bool(termios.tcgetattr(self.far)[3] & termios.ECHO)

    @property
    def shown(self) -> str:
        """Return everything on the screen and in the scrollback."""
        return self._display.text

    async def sees(self, text: str) -> None:
        """Wait until the text is shown anywhere."""
        await self._find(text, 0)

    async def until(self, text: str) -> None:
        """Wait until the text is shown after what was waited for before, for output that is not redrawn."""
        self._read_up_to = await self._find(text, self._read_up_to)

    async def _find(self, text: str, start: int) -> int:
        try:
            async with deadline():
                while (found := self.shown.find(text, start)) < 0:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{text!r} is not in {self.shown[start:]!r}") from None
        return found + len(text)

    def _read(self) -> None:
        piece = os.read(self._near, 65536)
        self.bytes += piece
        if b"\x1b[c" in piece:
            os.write(self._near, self._answer)
        self._display.write(self._decode(piece))
