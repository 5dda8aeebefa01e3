"""Replay of a recorded coding agent's session with pruning. The recording is optional and not part of the repository.

The format is that of badlogic/pi-mono: one JSON object per line. The agent's own compactions are replayed at the same
positions with the same summaries.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.process import ROOT
from benchmarks.pruned_session import BEGAN, PrunedSession
from sessions.events.events import CallRef, RequestedCall

DATA = ROOT.parent / "shared" / "data" / "agent-session.jsonl"

WINDOW = 200_000
"""The context window of the agent's model, in tokens."""


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a recorded session."""
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def without_compactions(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the session without the agent's own compactions."""
    return [line for line in lines if line["type"] != "compaction"]


async def replay(lines: list[dict[str, Any]], session: PrunedSession) -> PrunedSession:
    """Replay recorded lines in an empty session and return it."""
    replayed = _Replay(session)
    for index, line in enumerate(lines):
        await replayed.take(index, line)
    return session


class _Replay:
    """The state of a replay: the seq of each recorded line, and the calls without a result."""

    def __init__(self, session: PrunedSession) -> None:
        self.session = session
        self._began: datetime | None = None
        self._seqs: dict[int, int] = {}
        self._calls: dict[str, CallRef] = {}

    async def take(self, index: int, line: dict[str, Any]) -> None:
        match line["type"]:
            case "compaction":
                kept = (seq for at, seq in self._seqs.items() if at >= line["firstKeptEntryIndex"])
                self.session.compact(next(kept), line["summary"])
            case "message":
                at = datetime.fromisoformat(line["timestamp"])
                self._began = self._began or at
                now = self.session.clock.now()
                later = max(timedelta(milliseconds=1), BEGAN + (at - self._began) - now)
                self.session.clock.move(later.total_seconds())
                await self._message(index, line["message"])

    async def _message(self, index: int, message: dict[str, Any]) -> None:
        match message["role"]:
            case "user":
                self._seqs[index] = self.session.hear(_text(message))
            case "assistant":
                await self.session.send()
                calls = [_call(part) for part in message["content"] if part["type"] == "toolCall"]
                refs = self.session.reply(_text(message), *calls)
                self._calls |= {call.id: ref for call, ref in zip(calls, refs, strict=True)}
            case "toolResult" if message["toolCallId"] in self._calls:
                self.session.give(self._calls.pop(message["toolCallId"]), _text(message))


def _call(part: dict[str, Any]) -> RequestedCall:
    arguments = msgspec.json.encode(part["arguments"]).decode()
    return RequestedCall(id=part["id"], tool=part["name"], arguments=arguments)


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content if part["type"] == "text")
