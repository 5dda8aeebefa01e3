"""One-line descriptions of tool calls, recalled notes and the ends of turns, shared by the terminal and the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import msgspec

from gateway.support.printable import one_line, without_escapes
from sessions.events.events import MemoryRecalled, RequestedCall, ToolReturned, TurnEnded

CALL_CHARACTERS = 100
"""Characters of the longest line for a tool call."""

RETURNED_CHARACTERS = 44
"""Characters of a call on a line with its result, so that it fits a terminal of 80 columns."""

RESULT_CHARACTERS = 28
"""Characters of the longest result that stands on the line of its call."""

_MAIN = ("command", "path", "url", "query", "code")
"""Names of the argument that says most about a call; the console has the same list (`tool_calls.js`)."""


def call_line(call: RequestedCall) -> str:
    """Return a tool call on one line: its name and arguments."""
    arguments = _arguments(call)
    given = call.arguments
    if arguments is not None:
        shown = {name: str(value) for name, value in arguments.items()}
        given = " ".join(shown.values() if len(shown) == 1 else (f"{name}={text}" for name, text in shown.items()))
    return one_line(f"⚙ {call.tool} {given}", CALL_CHARACTERS)


def short_call(call: RequestedCall, limit: int = CALL_CHARACTERS) -> str:
    """Return a tool call on one line: its name and main argument; all arguments if none is known to be the main one."""
    arguments = _arguments(call) or {}
    main = next((arguments[name] for name in _MAIN if isinstance(arguments.get(name), str)), None)
    return one_line(call_line(call).removeprefix("⚙ ") if main is None else f"{call.tool} {main}", limit)


def arguments_of(call: RequestedCall) -> list[tuple[str, str]]:
    """Return the arguments of a call by name, each as text; one named `arguments` if they are not a JSON object."""
    arguments = _arguments(call)
    if arguments is None:
        return [("arguments", call.arguments)]
    texts = (value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in arguments.values())
    return list(zip(arguments, texts, strict=True))


def _arguments(call: RequestedCall) -> dict[str, object] | None:
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.MsgspecError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def recalled_line(event: MemoryRecalled) -> str:
    """Return the recalled notes on one line: `recalled memory/2026-11-20.md#L3-L5, MEMORY.md#L1-L2`."""
    places = (f"{hit.path}#L{hit.lines[0]}-L{hit.lines[1]}" for hit in event.hits)
    return one_line(f"· recalled {', '.join(places)}", 200)


def returned_line(call: RequestedCall | None, event: ToolReturned) -> str:
    """Return a call and its result on one line: `⚙ shell make test · exit 2 · 14 lines · 3.2 s`. `call` is None if it is not
    known."""
    mark = "⚙" if event.outcome == "returned" and not event.exit_code else "✗"
    parts = [short_call(call, RETURNED_CHARACTERS) if call else "a tool", *_result(event)]
    if event.millis is not None:
        parts.append(duration(event.millis))
    return f"{mark} {' · '.join(parts)}"


def thought_line(millis: int) -> str:
    """Return how long a model reasoned: `✻ thought for 12 s`."""
    return f"✻ thought for {duration(millis)}" if millis >= 1000 else "✻ thought"


def _result(event: ToolReturned) -> Iterator[str]:
    if event.exit_code is not None:
        yield f"exit {event.exit_code}"
    output = without_escapes(event.output).strip("\n")
    if event.diff:
        added, removed = changed_lines(event.diff)
        yield f"+{added:,} −{removed:,}"
    elif event.outcome != "returned":
        yield one_line(output, CALL_CHARACTERS) or event.outcome
    elif "\n" in output or len(output) > RESULT_CHARACTERS:
        count = output.count("\n") + 1
        yield f"{count:,} line{'s' * (count != 1)}"
    else:
        yield one_line(output, RESULT_CHARACTERS) or "nothing"


def changed_lines(diff: str) -> tuple[int, int]:
    """Return the numbers of added and of removed lines of a unified diff."""
    signs = [sign for sign, _ in diff_lines(diff)]
    return signs.count("+"), signs.count("-")


def diff_lines(diff: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a unified diff, each with its sign: `+`, `-`, a space, or `@` for a line that is not of a file."""
    inside = False
    for line in diff.removesuffix("\n").split("\n"):
        inside = inside or line.startswith("@@")
        yield (line[0] if inside and line[:1] in ("+", "-", " ") and line else "@"), line


def duration(millis: int) -> str:
    """Return a duration for people: `340 ms`, `2.1 s`, `3 min 5 s`, `2 h 4 min`."""
    if millis < 1000:
        return f"{millis} ms"
    if millis < 60_000:
        return f"{millis // 100 / 10:.1f} s"
    minutes, seconds = divmod(millis // 1000, 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {seconds} s"


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
