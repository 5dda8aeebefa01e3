"""Output of a program as plain text: UTF-8 is decoded, and what only a terminal would act on is removed."""

from __future__ import annotations

import codecs
import re

MAX_SEQUENCE = 4096
"""Maximum characters of an escape sequence; a longer one is shown as text."""

_SEQUENCE = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links, the clipboard
    r"|[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    r"|[ -/]*[0-OQ-WYZ\\`-~]"  # two characters, or a few
    r")"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)\Z")
_OVERSTRUCK = re.compile(r"[^\n\x08]\x08")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class TerminalText:
    """Converts the bytes of one stream to text, piece by piece.

    Invalid UTF-8 becomes U+FFFD. Of a line that is overwritten after a carriage return, such as a progress bar, the last
    version remains, as far as a piece contains them all.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""
        self._within_line = False

    def feed(self, data: bytes, *, last: bool = False) -> str:
        """Return the text of the next bytes; `last` at the end of the stream."""
        text = self._rest + self._decode(data, last)
        self._rest = ""
        if not last:
            text = self._hold_back(text)
        text = _SEQUENCE.sub("", text).replace("\r\n", "\n")
        if "\r" in text:
            text = self._overwrite(text)
        if "\x08" in text:
            text = _OVERSTRUCK.sub("", text)
        text = _CONTROLS.sub("", text)
        if text:
            self._within_line = not text.endswith("\n")
        return text

    def _hold_back(self, text: str) -> str:
        """Keep the beginning of an escape sequence or a line ending at the end of the text for the next piece."""
        start = len(text)
        if unfinished := _UNFINISHED.search(text, max(0, len(text) - MAX_SEQUENCE)):
            start = unfinished.start()
        kept = text[:start].rstrip("\r")
        self._rest = "\r" * (len(kept) < start) + text[start:]
        return kept

    def _overwrite(self, text: str) -> str:
        lines = [line.rstrip("\r") for line in text.split("\n")]
        again = self._within_line and "\r" in lines[0]  # what is overwritten has been returned
        return "\n" * again + "\n".join(line.rpartition("\r")[2] for line in lines)
