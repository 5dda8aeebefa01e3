"""Where the terminal client writes: `Paper` is what a screen needs of it, and `PlainPaper` any stream of characters."""

from __future__ import annotations

from typing import Protocol, TextIO

from gateway.terminal.printable import printable

PROMPT = "› "


class Paper(Protocol):
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

    def entered(self) -> None:
        """The person has written something, which ended the line."""

    def flush(self) -> None:
        """Show what was written so far."""


class PlainPaper:
    """Text as it is, on a terminal or anything else. `styled` allows escape sequences, which are all our own."""

    def __init__(self, out: TextIO, *, styled: bool) -> None:
        self._out = out
        self._styled = styled
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
        self.finish()
        self._out.write(printable(text).rstrip("\n") + "\n")

    def document(self, text: str) -> None:
        """Write the Markdown itself."""
        self.line(text)

    def dim(self, text: str) -> None:
        """Write it, dim if styles are allowed."""
        self.finish()
        self._out.write(f"\x1b[2m{text}\x1b[0m\n" if self._styled else f"{text}\n")

    def prompt(self) -> None:
        """Write the prompt unless it stands there."""
        if not self._prompted:
            self.finish()
            self._out.write(PROMPT)
            self._prompted, self._fresh = True, False
            self.flush()

    def entered(self) -> None:
        """The terminal itself has shown what was typed, and the end of its line."""
        self._prompted, self._fresh = False, True

    def flush(self) -> None:
        """Hand it to the system."""
        self._out.flush()
