"""The output interface of the terminal client, and its implementation for plain streams."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol, TextIO

from gateway.support.printable import printable, without_escapes, wrapped
from gateway.support.sentences import diff_lines

PROMPT = "› "

UNBOUNDED = 1_000_000
"""Columns of a stream that is no terminal."""

_STYLE = re.compile(r"\x1b\[([0-9;]*)m")
_FIRST_COLOUR = 30
"""The lowest parameter of a style that is a colour; those below are weights and the like (ECMA-48, 8.3.117)."""

_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[2m"}


def coloured_diff(text: str) -> str:
    """Return a unified diff as printable lines, in green, red and dim."""
    lines = ((_COLOURS.get(sign, ""), printable(line)) for sign, line in diff_lines(text))
    return "".join(f"{colour}{line}\x1b[0m\n" if colour else f"{line}\n" for colour, line in lines)


def without_colours(text: str) -> str:
    """Return output of this program without its colours; bold, dim and underlined text stays so."""

    def weights(style: re.Match[str]) -> str:
        kept = [each for each in style[1].split(";") if int(each or 0) < _FIRST_COLOUR]
        return f"\x1b[{';'.join(kept)}m" if kept else ""

    return _STYLE.sub(weights, text)


class Renderer(Protocol):
    """Permanent lines, and at most one answer that grows at their end."""

    def stream(self, text: str) -> None:
        """Append to the streaming answer."""

    def finish(self) -> None:
        """End the answer; the next output begins on a new line."""

    def line(self, text: str) -> None:
        """Write a text on its own lines."""

    def document(self, text: str) -> None:
        """Write Markdown on its own lines."""

    def dim(self, text: str) -> None:
        """Write a dim remark on its own line; the text must be printable."""

    def verbatim(self, text: str) -> None:
        """Write the output of a program on its own lines, not wrapped, so that it can be copied."""

    def diff(self, text: str) -> None:
        """Write a unified diff like `verbatim`, in colours if possible."""

    def picture(self, drawing: str, caption: str) -> None:
        """Write a picture, the escape sequence of which ends on a new line, or its caption if that is impossible."""

    def running(self, tail: str) -> None:
        """Show the last lines of a running tool's output, which must be printable, in place of the ones before, if possible;
        "" for none."""

    def prompt(self) -> None:
        """Show the prompt."""

    def entered(self, held: str | None) -> None:
        """Handle a message that was entered; a `held` id waits for `taken` and is shown where it is answered."""

    def taken(self, name: str) -> None:
        """Show a held message: it is answered from here on, or never will be."""

    def flush(self) -> None:
        """Show what was written so far."""


class PlainRenderer:
    """Unformatted text on any stream.

    `styled` allows escape sequences, all generated here; remarks are wrapped to `columns`.
    """

    def __init__(self, out: TextIO, *, styled: bool, columns: Callable[[], int] = lambda: UNBOUNDED) -> None:
        self._out = out
        self._styled = styled
        self._columns = columns
        self._at_line_start = True
        """True if the cursor is at the beginning of a line."""
        self._prompted = False

    def stream(self, text: str) -> None:
        if shown := printable(text):
            if self._prompted:
                self.finish()
            self._out.write(shown)
            self._at_line_start = shown.endswith("\n")

    def finish(self) -> None:
        """Move to the beginning of a line; remove an unused prompt if possible."""
        if self._prompted and self._styled:
            self._out.write("\r\x1b[K")
        elif not self._at_line_start:
            self._out.write("\n")
        self._prompted, self._at_line_start = False, True

    def line(self, text: str) -> None:
        self._write(wrapped(printable(text), self._columns()))

    def document(self, text: str) -> None:
        """Write the Markdown source."""
        self._write(printable(text))

    def dim(self, text: str) -> None:
        """Write the text, dim if styles are allowed."""
        self.finish()
        text = wrapped(text, self._columns())
        self._out.write(f"\x1b[2m{text}\x1b[0m\n" if self._styled else f"{text}\n")

    def verbatim(self, text: str) -> None:
        self._write(without_escapes(text))

    def diff(self, text: str) -> None:
        self._write(coloured_diff(text) if self._styled else printable(text))

    def picture(self, drawing: str, caption: str) -> None:
        self.dim(caption)

    def running(self, tail: str) -> None:
        """Do nothing: lines that were written cannot be replaced."""

    def prompt(self) -> None:
        """Write the prompt unless it is there already."""
        if not self._prompted:
            self.finish()
            self._out.write(PROMPT)
            self._prompted, self._at_line_start = True, False
            self.flush()

    def entered(self, held: str | None) -> None:
        """The terminal has echoed the input and its line break."""
        self._prompted, self._at_line_start = False, True

    def taken(self, name: str) -> None:
        """Do nothing: the message is shown where it was typed."""

    def flush(self) -> None:
        self._out.flush()

    def _write(self, lines: str) -> None:
        self.finish()
        self._out.write(lines.rstrip("\n") + "\n")
