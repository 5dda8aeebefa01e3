"""The state folder of OpenClaw, `~/.openclaw`.

The conversations of each agent are rows of `agents/ID/agent/openclaw-agent.sqlite`; in older versions they were files
`agents/ID/sessions/*.jsonl` with the same events. Events form a tree by `parentId`. In the database, those of a kilobyte or
more are compressed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from gateway.conversations.imports.readers.import_values import LeftOut, SourceInvalid, SourceItem, SourceRoute
from gateway.conversations.imports.readers.linear_messages import (
    MessageCollector,
    job_item,
    jobs_of,
    json_file,
    json_lines,
)
from gateway.conversations.imports.readers.source_text import calls_in, clean, decoded, moment, reasoning_of
from gateway.conversations.imports.readers.source_workspace import notes_in, skills_in_folder
from gateway.conversations.imports.readers.sqlite_copy import opened_copy, table_columns

NOT_NOTES = ("skills", "node_modules", "sessions")

EVENT_BYTES = 4 * 1024 * 1024
"""Maximum bytes of an event that is stored compressed, as OpenClaw has it."""


def read_openclaw(path: Path) -> Iterator[SourceItem]:
    """Yield what a state folder holds. Raises SourceInvalid."""
    root = path / ".openclaw" if (path / ".openclaw").is_dir() else path
    agents = sorted(each for each in (root / "agents").iterdir() if each.is_dir()) if (root / "agents").is_dir() else []
    if not agents and not (root / "workspace").is_dir():
        raise SourceInvalid(f"{path} has neither agents nor a workspace; it is no folder of OpenClaw.")
    for agent in agents:
        yield from _conversations(agent)
    for folder in sorted(root.glob("workspace*")):
        into = "" if folder.name == "workspace" else f"memory/openclaw/{folder.name}/"
        yield from notes_in(folder, into=into, passing=NOT_NOTES)
        yield from skills_in_folder(folder / "skills")
    yield from skills_in_folder(root / "skills")
    yield from jobs_of(root / "cron" / "jobs.json", "OpenClaw")
    yield from _stored_jobs(root / "state" / "openclaw.sqlite")
    yield from _routes(root / "openclaw.json")


def _conversations(agent: Path) -> Iterator[SourceItem]:
    names = dict(_session_keys(agent / "sessions" / "sessions.json"))
    known: set[str] = set()
    for file in (agent / "agent" / "openclaw-agent.sqlite", agent / "openclaw-agent.sqlite"):
        if file.is_file():
            yield from _stored(file, agent.name, known)
    for file in sorted((agent / "sessions").glob("*.jsonl")):
        if file.stem in known or file.is_symlink():
            continue
        try:
            yield from _conversation(file.stem, names.get(file.stem, agent.name), json_lines(file))
        except OSError as error:
            yield LeftOut(kind="conversations", reason=error.strerror or str(error), name=file.name)


def _session_keys(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the id and the key of each session of the index."""
    try:
        index = json_file(path)
    except ValueError:
        return
    for key, entry in index.items() if isinstance(index, dict) else ():
        if isinstance(entry, dict) and isinstance(entry.get("sessionId"), str):
            yield entry["sessionId"], clean(key, 100)


def _stored(file: Path, agent: str, known: set[str]) -> Iterator[SourceItem]:
    with opened_copy(file) as connection:
        tables = table_columns(connection)
        if not {"session_id", "seq", "event_json"} <= tables.get("transcript_events", set()):
            yield LeftOut(kind="conversations", reason="its tables are not known", name=file.name)
            return
        names = {}
        if {"current_session_id", "session_key"} <= tables.get("session_nodes", set()):
            names = dict(connection.execute("SELECT current_session_id, session_key FROM session_nodes"))
        sessions = [row[0] for row in connection.execute("SELECT DISTINCT session_id FROM transcript_events ORDER BY 1")]
        compressed = "event_zstd" if "event_zstd" in tables["transcript_events"] else "NULL"
        sql = f"SELECT event_json, {compressed} FROM transcript_events WHERE session_id = ? ORDER BY seq"  # noqa: S608 - no input
        for session in sessions:
            known.add(session)
            rows = connection.execute(sql, (session,))
            yield from _conversation(session, clean(names.get(session), 100) or agent, _events(rows))


def _events(rows: Any) -> Iterator[dict[str, Any]]:
    for text, compressed in rows:
        content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else _decompressed(compressed)
        event: Any = {"type": "unreadable"}
        with suppress(ValueError):
            event = decoded(content, Any)
        if isinstance(event, dict):
            yield event


def _decompressed(content: object) -> bytes:
    """Return what was compressed by zstd, cut where it is too large; nothing if it is damaged."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 - only where something is compressed
    else:
        from backports import zstd  # noqa: PLC0415 - only where something is compressed

    try:
        return zstd.ZstdDecompressor().decompress(content, EVENT_BYTES) if isinstance(content, bytes) else b""
    except zstd.ZstdError:
        return b""


def _conversation(session: str, key: str, events: Iterator[dict[str, Any]]) -> Iterator[SourceItem]:
    collected, began, unreadable = MessageCollector(key), "", 0
    for event in events:
        unreadable += event.get("type") == "unreadable"
        began = began or (moment(event.get("timestamp")) if event.get("type") == "session" else "")
        message = event.get("message")
        inside = message if event.get("type") == "message" and isinstance(message, dict) else {}
        parent = event.get("parentId")
        if inside.get("role") == "toolResult":
            above = clean(parent, 100)
            failed = inside.get("isError") is True
            call, id_ = inside.get("toolCallId"), clean(event.get("id"), 100)
            collected.add_result(call, inside.get("content"), failed=failed, id_=id_, parent=above)
            continue
        collected.add(
            inside.get("role"),
            inside.get("content"),
            id_=clean(event.get("id"), 100),
            parent=clean(parent, 100) if isinstance(parent, str) else None,
            at=moment(inside.get("timestamp") or event.get("timestamp")),
            model=clean(inside.get("model"), 100),
            reasoning=reasoning_of(inside.get("content")),
            calls=calls_in(inside.get("content")),
        )
    if unreadable:
        yield LeftOut(kind="messages", reason="damaged", name=key, count=unreadable)
    yield from collected.items(session, at=began, name=key)


def _stored_jobs(file: Path) -> Iterator[SourceItem]:
    if not file.is_file():
        return
    with opened_copy(file) as connection:
        if "job_json" not in table_columns(connection).get("cron_jobs", set()):
            return
        for id_, enabled, text in connection.execute("SELECT job_id, enabled, job_json FROM cron_jobs ORDER BY job_id"):
            try:
                job = msgspec.json.decode(text)
            except (msgspec.MsgspecError, RecursionError, UnicodeError):
                yield LeftOut(kind="schedules", reason="it is not valid JSON", name=clean(id_, 100))
                continue
            if isinstance(job, dict):
                yield job_item({**job, "id": id_, "enabled": bool(enabled)})


def _routes(config: Path) -> Iterator[SourceItem]:
    """Yield the bindings of the configuration. Nothing else of it is read, since it holds keys."""
    if not config.is_file():
        return
    try:
        document = json_file(config)
    except ValueError:
        yield LeftOut(kind="routes", reason="the configuration is not plain JSON", name=config.name)
        return
    bindings = document.get("bindings") if isinstance(document, dict) else None
    for binding in bindings if isinstance(bindings, list) else []:
        match = binding.get("match") if isinstance(binding, dict) else None
        if isinstance(match, dict) and (channel := clean(match.get("channel"), 60)):
            peer = match.get("peer")
            fields = peer if isinstance(peer, dict) else {}
            sender = clean(fields.get("id"), 100)
            where = {"sender": sender} if fields.get("kind") in ("dm", "direct") else {"chat": sender}
            yield SourceRoute(agent=clean(binding.get("agentId"), 60) or "main", channel=channel, **where)
    yield LeftOut(kind="settings", reason="keys, tokens and other settings are not read", name=config.name)
