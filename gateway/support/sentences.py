"""One-line descriptions of tool calls, recalled notes and the ends of turns, shared by the terminal and the API."""

from __future__ import annotations

from typing import assert_never

import msgspec

from gateway.support.printable import one_line
from sessions.events.events import MemoryRecalled, RequestedCall, ToolReturned, TurnEnded

CALL_CHARACTERS = 100
"""Characters of the longest line for a tool call."""


def call_line(call: RequestedCall) -> str:
    """Return a tool call on one line: its name and arguments."""
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.MsgspecError, RecursionError):
        arguments = None
    given = call.arguments
    if isinstance(arguments, dict):
        shown = {name: str(value) for name, value in arguments.items()}
        given = " ".join(shown.values() if len(shown) == 1 else (f"{name}={text}" for name, text in shown.items()))
    return one_line(f"⚙ {call.tool} {given}", CALL_CHARACTERS)


def recalled_line(event: MemoryRecalled) -> str:
    """Return the recalled notes on one line: `recalled memory/2026-11-20.md#L3-L5, MEMORY.md#L1-L2`."""
    places = (f"{hit.path}#L{hit.lines[0]}-L{hit.lines[1]}" for hit in event.hits)
    return one_line(f"· recalled {', '.join(places)}", 200)


def result_line(event: ToolReturned) -> str:
    """Return a tool result on one line: its beginning and its size."""
    mark = "→" if event.outcome == "returned" else "✗"
    size = event.cut_from or len(event.output.encode())
    return one_line(f"{mark} {size:,} bytes: {event.output}", CALL_CHARACTERS)


def ending_sentence(event: TurnEnded) -> str | None:
    """Return the sentence to show for the end of a turn; None after an ordinary answer."""
    if event.error is not None:
        return one_line(event.error.sentence, 500)
    match event.outcome:
        case "replied" | "silent":
            return None
        case "cancelled":
            return "(stopped)"
        case "failed" | "abandoned":
            return "The turn failed for an unknown reason."
    assert_never(event.outcome)
