"""Where the terminal client writes: `Renderer` is what a screen needs of it, and `PlainRenderer` any stream of
characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TextIO

from gateway.support.printable import printable, wrapped

PROMPT = "› "

UNBOUNDED = 1_000_000
"""Columns of what is no terminal."""


class Renderer(Protocol):
    """Lines that stay, and at most one answer at a time that grows at the end of them."""

    def stream(self, text: str) -> None:
        """More of the answer that is being written."""

    def finish(self) -> None:
        """Nothing more comes of that answer; what comes next begins a line."""

    def line(self, text: str) -> None:
        """A text on lines of its own."""

    def document(self, text: str) -> None:
        """A whole text in Markdown on lines of its own."""

    def dim(self, text: str) -> None:
        """A remark on a line of its own, less prominent. The text is printable already."""

    def prompt(self) -> None:
        """Invite the person to write."""

    def entered(self, held: str | None) -> None:
        """The person has written something, which ended the line. What is `held`, under a name, waits for `taken`, to stand
        where it is answered."""

    def taken(self, name: str) -> None:
        """What was held under this name is answered from here on, or will never be."""

    def flush(self) -> None:
        """Show what was written so far."""


class PlainRenderer:
    """Text as it is, on a terminal or anything else. `styled` allows escape sequences, which are all our own; remarks are
    broken at words to fit into `columns`."""

    def __init__(self, out: TextIO, *, styled: bool, columns: Callable[[], int] = lambda: UNBOUNDED) -> None:
        self._out = out
        self._styled = styled
        self._columns = columns
        self._fresh = True
        """The cursor stands at the beginning of a line."""
        self._prompted = False

    def stream(self, text: str) -> None:
        """Write it where the cursor is."""
        if shown := printable(text):
            if self._prompted:
                self.finish()
            self._out.write(shown)
            self._fresh = shown.endswith("\n")

    def finish(self) -> None:
        """Go to the beginning of a line, and take an unanswered prompt away where that can be done."""
        if self._prompted and self._styled:
            self._out.write("\r\x1b[K")
        elif not self._fresh:
            self._out.write("\n")
        self._prompted, self._fresh = False, True

    def line(self, text: str) -> None:
        """Write it without what a terminal must not be given."""
        self._write(wrapped(printable(text), self._columns()))

    def document(self, text: str) -> None:
        """Write the Markdown itself."""
        self._write(printable(text))

    def dim(self, text: str) -> None:
        """Write it, dim if styles are allowed."""
        self.finish()
        text = wrapped(text, self._columns())
        self._out.write(f"\x1b[2m{text}\x1b[0m\n" if self._styled else f"{text}\n")

    def prompt(self) -> None:
        """Write the prompt unless it stands there."""
        if not self._prompted:
            self.finish()
            self._out.write(PROMPT)
            self._prompted, self._fresh = True, False
            self.flush()

    def entered(self, held: str | None) -> None:
        """The terminal itself has shown what was typed, and the end of its line."""
        self._prompted, self._fresh = False, True

    def taken(self, name: str) -> None:
        """It stands where it was typed."""

    def flush(self) -> None:
        """Hand it to the system."""
        self._out.flush()

    def _write(self, lines: str) -> None:
        self.finish()
        self._out.write(lines.rstrip("\n") + "\n")
