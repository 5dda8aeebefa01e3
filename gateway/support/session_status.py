"""`/status`: the state of one session in words. Pure: values in, Markdown out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sessions.events.events import Failure
from sessions.events.messages import Usage


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What `/status` shows. `uptime` and `age` are seconds, `window` and `context` tokens, None where unknown.
    `answers` is the `provider:model` that answers, None if none can. `last_error` is that of the newest turn,
    `flush` the last one in words, `memory` what can be found and how, `facts` how many there are, `noted` the note that the
    last summary goes into, empty for none, `notes_owed` how many sections the notes still lack and `notes_trouble` why,
    `troubles` what is wrong with the gateway, `refused` what plugins may not do."""

    version: str
    uptime: float
    model: str
    answers: str | None
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
    mode: str
    running: bool
    last_error: Failure | None
    compactions: int = 0
    taken_back: int = 0
    flush: str = "none yet"
    memory: str = ""
    facts: str = ""
    noted: str = ""
    notes_owed: int = 0
    notes_trouble: str = ""
    refused: Sequence[str] = ()
    notes: Sequence[str] = ()
    troubles: Sequence[str] = ()


def describe(status: SessionStatus) -> str:
    """The text of `/status`."""
    is_well = not (status.troubles or status.refused or status.notes or status.last_error)
    lines = [
        f"**Exuvia {status.version}**, up {span(status.uptime)}{', all is well' if is_well else ''}",
        f"- Model: {status.model}",
        f"- Tokens: {status.usage.input:,} in ({status.usage.cached:,} cached), {status.usage.output:,} out",
        f"- Context: {context_used(status.context, status.window)}{_unsized(status)}",
        f"- 🧹 Compactions: {status.compactions}{f', {status.taken_back} taken back' if status.taken_back else ''}",
        f"- Last flush: {status.flush}",
        *_owed(status),
        *([f"- Memory: {status.memory}"] if status.memory else []),
        *([f"- Facts: {status.facts}"] if status.facts else []),
        f"- Session: `{status.key}` ({status.session}), {span(status.age)} old, {count_of(status.turns, 'turn')},"
        f" {count_of(status.events, 'event')}",
        f"- Queue: {status.mode}, {status.waiting} waiting of {status.queue_limit}"
        f"{', a turn is running' if status.running else ''}",
    ]
    if (error := status.last_error) is not None:
        lines.append(f"- The last turn failed: {error.sentence} ({error.code})")
    lines += [f"- Trouble: {sentence}" for sentence in status.troubles]
    lines += [f"- Plugin: {sentence}" for sentence in status.refused]
    lines += [f"- Configuration: {sentence}" for sentence in status.notes]
    return "\n".join(lines)


def context_used(context: int | None, window: int | None) -> str:
    """Tokens used of the window, with their share; `unknown` where one is."""
    used = "unknown" if context is None else f"{context:,}"
    if window is None:
        return f"{used} tokens of a window that is unknown"
    if context is None:
        return f"unknown of {window:,} tokens"
    return f"{used} of {window:,} tokens ({100 * context / window:.0f} %)"


def _owed(status: SessionStatus) -> list[str]:
    """What the background task has still to write into the notes."""
    if not status.notes_owed:
        done = "done" if status.noted else "none, since the last summary goes into no note"
        return [f"- Summary task: {done}"] if status.compactions else []
    return [f"- Summary task: {status.notes_trouble or 'running'} ({count_of(status.notes_owed, 'section')} to write)"]


def _unsized(status: SessionStatus) -> str:
    """How a window that is unknown is made known."""
    if status.window is not None or status.answers is None:
        return ""
    return f'; say it in config.toml, under [agent]: `context_windows = {{ "{status.answers}" = 128000 }}`'


def count_of(number: int, noun: str) -> str:
    """A number with its noun, as in `1 turn` and `1,200 turns`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(seconds: float) -> str:
    """A duration as a person says it, in its two largest units."""
    whole = max(0, int(seconds))
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, whole = divmod(whole, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
