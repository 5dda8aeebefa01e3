"""`/status`: the state of one session in words. Pure: values in, Markdown out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sessions.messages import Usage


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What `/status` shows. `uptime` and `age` are seconds, `window` and `context` tokens, None where unknown."""

    version: str
    uptime: float
    model: str
    key: str
    session: str
    age: float
    turns: int
    events: int
    usage: Usage
    context: int | None
    window: int | None
    waiting: int
    queue_limit: int
    running: bool
    refused: Sequence[str]


def describe(status: SessionStatus) -> str:
    """The text of `/status`."""
    lines = [
        f"**Exuvia {status.version}**, up {span(status.uptime)}",
        f"- Model: {status.model}",
        f"- Tokens: {status.usage.input:,} in ({status.usage.cached:,} cached), {status.usage.output:,} out",
        f"- Context: {context_used(status.context, status.window)}",
        f"- Session: `{status.key}` ({status.session}), {span(status.age)} old, {status.turns} turns,"
        f" {status.events} events",
        f"- Queue: {status.waiting} waiting of {status.queue_limit}{', a turn is running' if status.running else ''}",
    ]
    lines += [f"- Plugin: {sentence}" for sentence in status.refused]
    return "\n".join(lines)


def context_used(context: int | None, window: int | None) -> str:
    """Tokens used of the window, with their share; `unknown` where one is."""
    used = "unknown" if context is None else f"{context:,}"
    if window is None:
        return f"{used} tokens of a window that is unknown"
    if context is None:
        return f"unknown of {window:,} tokens"
    return f"{used} of {window:,} tokens ({100 * context / window:.0f} %)"


def span(seconds: float) -> str:
    """A duration as a person says it, in its two largest units."""
    whole = max(0, int(seconds))
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, whole = divmod(whole, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
