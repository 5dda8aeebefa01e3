"""Conversations of programs that store a list of messages in the form of a model's API, and their scheduled jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from gateway.conversations.imports.readers.import_values import (
    Kind,
    LeftOut,
    SourceCall,
    SourceConversation,
    SourceFile,
    SourceItem,
    SourceMessage,
    SourceSchedule,
)
from gateway.conversations.imports.readers.source_text import (
    LONGEST_TEXT,
    clean,
    decoded,
    inline_files,
    moment,
    output_of,
    texts_of,
)
from gateway.conversations.imports.readers.source_workspace import read_plain

FILE_BYTES = 64 * 1024 * 1024
"""Maximum bytes of a JSON file that is read as a whole."""

REPLY_ROLES = {"user": False, "human": False, "assistant": True}


class MessageCollector:
    """Collects the messages of one conversation, each after its parent, and counts what is left out."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left = Counter[tuple[Kind, str]]()
        self._above: dict[str, str] = {}
        self._calls: dict[str, list[SourceCall]] = {}
        """The calls of each reply, by its id."""
        self._called: dict[str, tuple[str, int]] = {}
        """The last call with an id: its reply, and its position there."""
        self.messages: list[SourceMessage] = []

    def add(
        self,
        role: object,
        content: object,
        *,
        id_: str = "",
        parent: str | None = None,
        calls: Sequence[SourceCall] = (),
        files: Sequence[SourceFile | None] = (),
        at: str = "",
        model: str = "",
        reasoning: str = "",
    ) -> None:
        """Add a message of a person or a reply; anything else is counted. Without an id it gets one from its content, and
        without a parent it follows the message before it. A parent must have been added before."""
        text = "\n\n".join(filter(None, map(clean, texts_of(content))))
        self._read_blocks(content)
        files = [*files, *inline_files(content)]
        kept = self._kept(files if role in ("user", "human") else [None] * len(files))
        before = self.messages[-1].id if self.messages else ""
        after = before if parent is None else self._above.get(parent, "")
        reply = REPLY_ROLES.get(role) if isinstance(role, str) else None
        if reply is None or not (text or (reply and calls) or kept):
            if reply is None and role == "system" and text:
                self._left["messages", "system prompts"] += 1
            if id_:
                self._above[id_] = after
            return
        id_ = id_ or derived_id(str(role), at, text, *(call.id for call in calls if not text))
        while id_ in self._above:
            id_ = f"{id_}+"
        message = SourceMessage(id=id_, reply=reply, text=text, at=at, parent=after, files=kept)
        of_reply = {"model": model, "reasoning": reasoning} if reply else {}
        self.messages.append(msgspec.structs.replace(message, **of_reply))
        self._above[id_] = id_
        if reply and calls:
            self._calls[id_] = list(calls)
            self._called.update((call.id, (id_, index)) for index, call in enumerate(calls) if call.id)

    def add_result(
        self,
        call: object,
        content: object,
        *,
        failed: bool = False,
        files: Sequence[SourceFile | None] = (),
        id_: str = "",
        parent: str = "",
    ) -> None:
        """Add the result of the call with an id, or without one of the first open call of the last reply. Results without a
        call are counted. What follows the result `id_` follows the message above it."""
        if id_:
            self._above[id_] = self._above.get(parent, "") if parent else self.messages[-1].id if self.messages else ""
        last = self.messages[-1].id if self.messages else ""
        pending = (at for at, each in enumerate(self._calls.get(last, ())) if each.outcome == "unknown")
        where = self._called.get(call) if isinstance(call, str) and call else None
        reply, index = where or (last, next(pending, -1))
        if index < 0:
            self._left["messages", "outputs of tools whose call is missing"] += 1
            return
        done, output = self._calls[reply][index], output_of(content)
        output = f"{done.output}\n\n{output}" if done.output else output
        self._calls[reply][index] = msgspec.structs.replace(
            done,
            output=output[:LONGEST_TEXT],
            outcome="failed" if failed else "returned",
            files=(*done.files, *self._kept(files)),
        )

    def _kept(self, files: Sequence[SourceFile | None]) -> tuple[SourceFile, ...]:
        """Return the files; those whose bytes are missing are counted."""
        kept = tuple(each for each in files if each is not None)
        if missing := len(files) - len(kept):
            self._left["files", "pictures and files"] += missing
        return kept

    def _read_blocks(self, content: object) -> None:
        for block in content if isinstance(content, list) else []:
            kind = block.get("type") if isinstance(block, dict) else None
            if kind in ("tool_result", "toolResult"):
                of = block.get("tool_use_id") or block.get("id") or block.get("toolCallId")
                failed = bool(block.get("is_error") or block.get("isError"))
                self.add_result(of, block.get("content", block.get("output")), failed=failed)

    def items(
        self, id_: str, *, at: str = "", title: str = "", name: str = "", archived: bool = False
    ) -> Iterator[SourceItem]:
        """Yield the conversation, and what is left out of it."""
        for (kind, reason), count in self._left.items():
            yield LeftOut(kind=kind, reason=reason, name=title or name or self._name, count=count)
        if not self.messages:
            yield LeftOut(kind="conversations", reason="it has no messages", name=title or name or self._name)
            return
        messages = tuple(
            msgspec.structs.replace(each, calls=tuple(self._calls[each.id])) if each.id in self._calls else each
            for each in self.messages
        )
        yield SourceConversation(
            id=id_, messages=messages, leaf=messages[-1].id, title=title, name=name, at=at, archived=archived
        )


def derived_id(*parts: str) -> str:
    """Return an id for a message that has none."""
    return blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()


def json_file(path: Path) -> Any:
    """Return the first JSON value of a file; what follows it is ignored. Raises ValueError with a reason."""
    try:
        content = read_plain(path, FILE_BYTES)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    try:
        return decoded(content, Any)
    except ValueError:
        try:
            return json.JSONDecoder().raw_decode(content.decode("utf-8", "replace").lstrip("\ufeff \t\r\n"))[0]
        except (ValueError, RecursionError) as error:
            raise ValueError("it is not valid JSON") from error


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines; others, and lines of more than 16 MiB, are passed over. Raises OSError."""
    with path.open("rb") as stream:
        while line := stream.readline(16 * 1024 * 1024):
            if line.strip().startswith(b"{"):
                try:
                    value = decoded(line, Any)
                except ValueError:
                    continue
                if isinstance(value, dict):
                    yield value


def jobs_of(path: Path, program: str) -> Iterator[SourceItem]:
    """Yield the scheduled jobs of a file in the form of OpenClaw, nanobot, hermes or QwenPaw."""
    if not path.is_file():
        return
    try:
        document = json_file(path)
    except ValueError as error:
        yield LeftOut(kind="schedules", reason=str(error), name=f"{program}'s {path.name}")
        return
    jobs = document.get("jobs") if isinstance(document, dict) else document
    for job in jobs if isinstance(jobs, list) else []:
        if isinstance(job, dict):
            yield job_item(job)


def job_item(job: dict[str, Any]) -> SourceItem:
    """Return a job as a schedule, or why it is left out."""
    name = clean(job.get("name"), 100) or clean(job.get("id"), 100)
    text = _job_text(job)
    schedule = job.get("schedule")
    rule, zone = _rule(schedule if isinstance(schedule, dict) else {})
    if job.get("enabled") is False or job.get("state") == "paused":
        return LeftOut(kind="schedules", reason="switched off there", name=name)
    if not text:
        return LeftOut(kind="schedules", reason="it has no text", name=name)
    if not rule:
        return LeftOut(kind="schedules", reason="its time is not known", name=name)
    id_ = clean(job.get("id") or job.get("jobId"), 100) or derived_id(rule, text)
    return SourceSchedule(id=id_, rule=rule, text=text, zone=zone, name=name)


def _job_text(job: dict[str, Any]) -> str:
    payload = job.get("payload")
    fields = payload if isinstance(payload, dict) else {}
    text = clean(job.get("prompt")) or clean(job.get("text")) or clean(fields.get("message")) or clean(fields.get("text"))
    request = job.get("request")
    if text or not isinstance(request, dict):
        return text
    asked = request.get("input")
    blocks = asked if isinstance(asked, list) else [{"content": asked}]
    return "\n\n".join(clean(each) for block in blocks if isinstance(block, dict) for each in texts_of(block.get("content")))


def _rule(schedule: dict[str, Any]) -> tuple[str, str]:
    """Return the rule as a person types it, and its time zone; "" if it is not known."""
    zone = clean(schedule.get("tz") or schedule.get("timezone"), 60)
    line = clean(schedule.get("expr") or schedule.get("cron"), 200)
    if line:
        return line, zone
    every = schedule.get("everyMs") or schedule.get("every_ms") or 60_000 * _number(schedule.get("minutes"))
    if seconds := int(_number(every) // 1000):
        return f"every {seconds}s", ""
    at = moment(schedule.get("at") or schedule.get("atMs") or schedule.get("at_ms") or schedule.get("run_at"))
    return (f"{datetime.fromisoformat(at).astimezone(UTC):%Y-%m-%d %H:%M}", "UTC") if at else ("", "")


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
