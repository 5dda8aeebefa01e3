"""The folder of hermes-agent, `~/.hermes`: `state.db`, `memories`, `cron/jobs.json`, `skills`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.conversations.imports.readers.import_values import LeftOut, SourceInvalid, SourceItem, SourceNote
from gateway.conversations.imports.readers.linear_messages import MessageCollector, jobs_of
from gateway.conversations.imports.readers.source_text import calls_in, clean, moment
from gateway.conversations.imports.readers.source_workspace import NOTE_BYTES, read_plain, skills_in_folder
from gateway.conversations.imports.readers.sqlite_copy import opened_copy, table_columns

_NOTES = {"memories/MEMORY.md": "MEMORY.md", "memories/USER.md": "memory/USER.md", "SOUL.md": "SOUL.md"}


def read_hermes(path: Path) -> Iterator[SourceItem]:
    """Yield what a folder, or its `state.db` alone, holds. Raises SourceInvalid."""
    root = path / ".hermes" if (path / ".hermes").is_dir() else path
    database = root / "state.db" if root.is_dir() else root
    if not database.is_file() and not (root / "memories").is_dir():
        raise SourceInvalid(f"{path} has no state.db; it is no folder of hermes-agent.")
    if database.is_file():
        yield from _conversations(database)
    if root.is_dir():
        yield from _notes(root)
        yield from jobs_of(root / "cron" / "jobs.json", "hermes")
        yield from _skills(root / "skills")


def _conversations(database: Path) -> Iterator[SourceItem]:
    with opened_copy(database) as connection:
        tables = table_columns(connection)
        columns = tables.get("sessions", set())
        if not {"id", "started_at"} <= columns or not {"session_id", "role", "content"} <= tables.get("messages", set()):
            raise SourceInvalid(f"{database.name} is no database of hermes-agent.")
        connection.row_factory = _as_dict
        active = "active" in tables["messages"]
        for session in connection.execute("SELECT * FROM sessions ORDER BY started_at, id").fetchall():
            yield from _conversation(connection, session, active=active)


def _as_dict(cursor: Any, row: Any) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def _conversation(connection: Any, session: dict[str, Any], *, active: bool) -> Iterator[SourceItem]:
    title = clean(session.get("title"), 300) or clean(session.get("display_name"), 300)
    name, model = (
        clean(session.get("session_key"), 100) or clean(session.get("source"), 60),
        clean(session.get("model"), 100),
    )
    collected = MessageCollector(title or str(session["id"]))
    rewound = 0
    for row in connection.execute("SELECT * FROM messages WHERE session_id = ? ORDER BY id", (session["id"],)):
        if active and not row["active"] and not row.get("compacted"):
            rewound += 1
            continue
        if row["role"] == "tool":
            collected.add_result(row.get("tool_call_id"), row["content"])
            continue
        reasoning, calls = clean(row.get("reasoning")), calls_in(row["content"], row.get("tool_calls"))
        at, id_ = moment(row.get("timestamp")), str(row["id"])
        collected.add(row["role"], row["content"], id_=id_, at=at, model=model, reasoning=reasoning, calls=calls)
    if rewound:
        yield LeftOut(kind="messages", reason="taken back there", name=title, count=rewound)
    archived, began = bool(session.get("archived")), moment(session["started_at"])
    yield from collected.items(str(session["id"]), at=began, title=title, name="" if title else name, archived=archived)


def _notes(root: Path) -> Iterator[SourceItem]:
    for name, path in _NOTES.items():
        if not (root / name).is_file():
            continue
        try:
            text = read_plain(root / name, NOTE_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            yield LeftOut(kind="notes", reason=getattr(error, "strerror", "") or "it is not UTF-8", name=name)
        else:
            if text.strip():
                yield SourceNote(path=path, text=text)


def _skills(folder: Path) -> Iterator[SourceItem]:
    """Yield the skills, in folders of their own or by category, without those that came with the program."""
    try:
        manifest = read_plain(folder / ".bundled_manifest", NOTE_BYTES).decode("utf-8", "replace")
    except OSError:
        manifest = ""
    bundled = {line.partition(":")[0].strip() for line in manifest.splitlines()}
    categories = sorted(each for each in folder.glob("*") if each.is_dir() and not (each / "SKILL.md").exists())
    for place in (folder, *categories):
        for skill in skills_in_folder(place):
            if getattr(skill, "name", "") not in bundled:
                yield skill
