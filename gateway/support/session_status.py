"""The text of `/status`: pure functions from values to Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sessions.events.events import MAIN_AGENT, Failure
from sessions.events.messages import Usage


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The values that `/status` shows.

    `uptime` and `age` are in seconds, `window` and `context` in tokens, None if unknown. `answers` is the
    `provider:model` that answers, None if there is none. `last_error` is the newest turn's, `flush` describes the last
    memory flush, `memory` what can be searched and how, `facts` counts them, `noted` is the note that receives the last
    summary (or empty), `notes_owed` counts the sections still to be written to the notes and `notes_trouble` says why they
    are not, `troubles` are the gateway's problems, `refused` what plugins are not allowed to do. `agent` is shown only if
    it is not `main`.
    """

    version: str
    uptime: float
    model: str
    answers: str | None
    key: str
    agent: str = MAIN_AGENT
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
    channels: Sequence[str] = ()
    cluster: str = ""


def describe(status: SessionStatus) -> str:
    """Return the text of `/status`."""
    is_well = not (status.troubles or status.refused or status.notes or status.last_error)
    lines = [
        f"**Exuvia {status.version}**, up {span(status.uptime)}{', all is well' if is_well else ''}",
        f"- Model: {status.model}",
        f"- Tokens: {status.usage.input:,} in ({status.usage.cached:,} cached), {status.usage.output:,} out",
        f"- Context: {context_used(status.context, status.window)}{_unsized(status)}",
        f"- 🧹 Compactions: {status.compactions}{f', {status.taken_back} reverted' if status.taken_back else ''}",
        f"- Last flush: {status.flush}",
        *_owed(status),
        *([f"- Memory: {status.memory}"] if status.memory else []),
        *([f"- Facts: {status.facts}"] if status.facts else []),
        *([f"- Agent: {status.agent}"] if status.agent != MAIN_AGENT else []),
        f"- Session: `{status.key}` ({status.session}), {span(status.age)} old, {count_of(status.turns, 'turn')},"
        f" {count_of(status.events, 'event')}",
        f"- Queue: {status.mode}, {status.waiting} waiting of {status.queue_limit}"
        f"{', a turn is running' if status.running else ''}",
    ]
    if status.channels:
        lines.append(f"- Channels: {'; '.join(status.channels)}")
    if status.cluster:
        lines.append(f"- Cluster: {status.cluster}")
    if (error := status.last_error) is not None:
        lines.append(f"- The last turn failed: {error.sentence} ({error.code})")
    lines += [f"- Trouble: {sentence}" for sentence in status.troubles]
    lines += [f"- Plugin: {sentence}" for sentence in status.refused]
    lines += [f"- Configuration: {sentence}" for sentence in status.notes]
    return "\n".join(lines)


def context_used(context: int | None, window: int | None) -> str:
    """Return the tokens used of the window with their share, `unknown` where one is not known."""
    used = "unknown" if context is None else f"{context:,}"
    if window is None:
        return f"{used} tokens; the window is unknown"
    if context is None:
        return f"unknown of {window:,} tokens"
    return f"{used} of {window:,} tokens ({100 * context / window:.0f} %)"


def _owed(status: SessionStatus) -> list[str]:
    """Describe what the background task still has to write to the notes."""
    if not status.notes_owed:
        done = "done" if status.noted else "none, since the last summary goes into no note"
        return [f"- Summary task: {done}"] if status.compactions else []
    return [f"- Summary task: {status.notes_trouble or 'running'} ({count_of(status.notes_owed, 'section')} to write)"]


def _unsized(status: SessionStatus) -> str:
    """Explain how to set an unknown window."""
    if status.window is not None or status.answers is None:
        return ""
    return f'; set it in config.toml under [agent]: `context_windows = {{ "{status.answers}" = 128000 }}`'


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 turn` and `1,200 turns`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(seconds: float) -> str:
    """Return a duration in its two largest units."""
    whole = max(0, int(seconds))
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, whole = divmod(whole, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
