"""What a terminal can show, by its own answers.

The queries are that of kitty's graphics protocol ("Querying support"), the size of a cell (xterm's `CSI 16 t`) and the
primary device attributes (DA1), which every terminal answers and whose attribute 4 is sixel. There is no query for iTerm2's
inline pictures; its name is in the environment.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import termios
import time
import tty
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

Protocol: TypeAlias = Literal["kitty", "iterm", "sixel"]

ANSWER_SECONDS = 1.0
"""Seconds for which the terminal's answers are awaited. They take one round trip."""

ANSWER_BYTES = 4096
"""Bytes that are read of what the terminal answers and what is typed meanwhile."""

CELL = (8, 16)
"""Width and height of a cell in pixels if the terminal does not say."""

ITERM_PROGRAMS = ("iTerm.app", "WezTerm", "mintty")

KITTY_QUERY = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"
_CELL_SIZE = b"\x1b[16t"
_DEVICE = b"\x1b[c"
_ERASE_LINE = b"\r\x1b[K"

_KITTY_ANSWER = re.compile(rb"\x1b_Gi=31;([^\x1b]{0,200})\x1b\\")
_CELL_ANSWER = re.compile(rb"\x1b\[6;(\d{1,4});(\d{1,4})t")
_DEVICE_ANSWER = re.compile(rb"\x1b\[\?([0-9;]{0,100})c")


class Graphics(msgspec.Struct, frozen=True):
    """A protocol that the terminal has, and the width and height of a cell in pixels."""

    protocol: Protocol
    cell: tuple[int, int] = CELL


class Detected(msgspec.Struct, frozen=True):
    """What the terminal can show, if anything, and what a person typed meanwhile."""

    graphics: Graphics | None
    typed: bytes = b""


def detect(
    reading: int, writing: int, environment: Mapping[str, str], *, protocol: Protocol | None, seconds: float = ANSWER_SECONDS
) -> Detected:
    """Ask a terminal what it can show. Blocks until it has answered.

    Args:
        reading: The descriptor of the terminal's input.
        writing: The descriptor of its output.
        environment: The environment variables.
        protocol: A protocol that it is known to have; None to find out.
        seconds: The longest time to wait.
    """
    inside = "TMUX" in environment or "STY" in environment  # a multiplexer answers for itself
    queries = _CELL_SIZE + _DEVICE if inside else KITTY_QUERY + _CELL_SIZE + _DEVICE + _ERASE_LINE
    before = termios.tcgetattr(reading)
    try:
        tty.setcbreak(reading, termios.TCSANOW)
        os.write(writing, queries)
        answers = _read_answers(reading, seconds)
    finally:
        termios.tcsetattr(reading, termios.TCSANOW, before)
    cell = _window_cell(writing) or _cell_in(answers) or CELL
    found = protocol or _protocol_in(answers, environment, inside=inside)
    typed = answers
    for pattern in (_KITTY_ANSWER, _CELL_ANSWER, _DEVICE_ANSWER):
        typed = pattern.sub(b"", typed)
    return Detected(Graphics(found, cell) if found else None, typed)


def _read_answers(reading: int, seconds: float) -> bytes:
    """Return what arrives until the last query is answered."""
    answers, deadline = b"", time.monotonic() + seconds
    while not _DEVICE_ANSWER.search(answers) and len(answers) < ANSWER_BYTES:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready or not (piece := os.read(reading, ANSWER_BYTES - len(answers))):
            break
        answers += piece
    return answers


def _protocol_in(answers: bytes, environment: Mapping[str, str], *, inside: bool) -> Protocol | None:
    kitty, device = _KITTY_ANSWER.search(answers), _DEVICE_ANSWER.search(answers)
    if kitty is not None and kitty[1] == b"OK":
        return "kitty"
    programs = (environment.get("TERM_PROGRAM"), "iTerm.app" if environment.get("LC_TERMINAL") == "iTerm2" else None)
    if not inside and any(program in ITERM_PROGRAMS for program in programs):
        return "iterm"
    return "sixel" if device is not None and b"4" in device[1].split(b";")[1:] else None


def _window_cell(writing: int) -> tuple[int, int] | None:
    """Return the size of a cell as the terminal's size has it; most terminals set it."""
    try:
        rows, columns, width, height = struct.unpack("HHHH", fcntl.ioctl(writing, termios.TIOCGWINSZ, bytes(8)))
    except OSError:
        return None
    return (width // columns, height // rows) if columns and rows and width >= columns and height >= rows else None


def _cell_in(answers: bytes) -> tuple[int, int] | None:
    found = _CELL_ANSWER.search(answers)
    height, width = (int(found[1]), int(found[2])) if found else (0, 0)
    return (width, height) if width and height else None
