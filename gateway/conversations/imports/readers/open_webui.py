"""The database of Open WebUI, `webui.db`: chats, memories and notes of one user.

A chat is a tree of messages in `history`, whose `currentId` ends the branch that is shown. Calls of tools and reasoning
stand in the text, each in an element `details`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import msgspec

from gateway.conversations.imports.readers.export_files import ExportFiles
from gateway.conversations.imports.readers.import_values import (
    LeftOut,
    SourceCall,
    SourceConversation,
    SourceFact,
    SourceFile,
    SourceInvalid,
    SourceItem,
    SourceNote,
)
from gateway.conversations.imports.readers.linear_messages import MessageCollector
from gateway.conversations.imports.readers.source_text import call_of, clean, decoded, inline_file, moment
from gateway.conversations.imports.readers.source_workspace import note_path
from gateway.conversations.imports.readers.sqlite_copy import opened_copy, table_columns

_ATTRIBUTE = re.compile(r'(?<![a-z])([a-z]++)="([^"]*+)"')


def read_open_webui(path: Path) -> Iterator[SourceItem]:
    """Yield what the first user has. Raises SourceInvalid."""
    file = _database(path)
    if not file.is_file():
        raise SourceInvalid(f"{path} has no webui.db; it is no folder of Open WebUI.")
    uploads = ExportFiles(uploads_of(path)) if uploads_of(path).is_dir() else None
    with opened_copy(file) as connection:
        tables = table_columns(connection)
        if not {"id", "user_id", "title", "chat"} <= tables.get("chat", set()):
            raise SourceInvalid(f"{file.name} is no database of Open WebUI.")
        user = _first_user(connection, tables)
        others = connection.execute("SELECT count(*) FROM chat WHERE user_id != ?", (user,)).fetchone()[0]
        if others:
            yield LeftOut(kind="conversations", reason="of other users of Open WebUI", count=others)
        for id_ in [row[0] for row in connection.execute("SELECT id FROM chat WHERE user_id = ? ORDER BY id", (user,))]:
            yield from _chat(connection, id_, uploads, archived="archived" in tables["chat"])
        if {"id", "user_id", "content", "created_at"} <= tables.get("memory", set()):
            sql = "SELECT id, content, created_at FROM memory WHERE user_id = ? ORDER BY id"
            for id_, content, at in connection.execute(sql, (user,)):
                yield SourceFact(entry={"id": id_, "content": clean(content), "createdAt": moment(at) or None})
        if {"id", "user_id", "title", "data"} <= tables.get("note", set()):
            for id_, title, data in connection.execute("SELECT id, title, data FROM note WHERE user_id = ?", (user,)):
                yield from _note(str(id_), title, data)


def _database(path: Path) -> Path:
    inside = (path / "webui.db", path / "data" / "webui.db", path / "backend" / "data" / "webui.db")
    return next((each for each in inside if each.is_file()), path) if path.is_dir() else path


def uploads_of(path: Path) -> Path:
    """Return the folder with the files of all messages."""
    return _database(path).parent / "uploads"


def _files(listed: object, uploads: ExportFiles | None) -> Iterator[SourceFile | None]:
    """Yield the files of a message: pictures in the database itself, and those among the uploads; None for others."""
    for each in listed if isinstance(listed, list) else []:
        fields = each if isinstance(each, dict) else {}
        if found := inline_file(fields.get("url")):
            yield found
            continue
        id_ = clean(fields.get("id"), 100) or clean(fields.get("url"), 300).removesuffix("/content").rpartition("/")[2]
        place = uploads.named(f"{id_}_") if uploads is not None and id_ else ""
        yield SourceFile(name=clean(fields.get("name"), 200) or place, place=place) if place else None


def _first_user(connection: Any, tables: dict[str, set[str]]) -> str:
    """Return the user with the oldest account: the administrator."""
    if {"id", "created_at"} <= tables.get("user", set()):
        row = connection.execute('SELECT id FROM "user" ORDER BY created_at, id LIMIT 1').fetchone()
    else:
        row = connection.execute("SELECT user_id FROM chat ORDER BY created_at LIMIT 1").fetchone()
    return str(row[0]) if row else ""


def _chat(connection: Any, id_: str, uploads: ExportFiles | None, *, archived: bool) -> Iterator[SourceItem]:
    sql = f"SELECT title, chat, created_at, {'archived' if archived else '0'} FROM chat WHERE id = ?"  # noqa: S608 - no input
    title, text, at, is_archived = connection.execute(sql, (id_,)).fetchone()
    title = clean(title, 300)
    try:
        chat = decoded(str(text).encode("utf-8", "surrogatepass"), dict[str, Any])
    except ValueError as error:
        yield LeftOut(kind="conversations", reason=str(error), name=title)
        return
    history = chat.get("history")
    known = history.get("messages") if isinstance(history, dict) else None
    messages = known if isinstance(known, dict) else {}
    collected = MessageCollector(title)
    for node in _parents_first(messages):
        message = messages[node]
        model = clean(message.get("model"), 100)
        parent = clean(message.get("parentId"), 100)
        at_ = moment(message.get("timestamp"))
        parts = _parts(message.get("content"))
        files = list(_files(message.get("files"), uploads)) if message.get("role") == "user" else []
        for number, part in enumerate(parts, 1 - len(parts)):
            id_ = f"{node}/{number + len(parts)}" if number else node
            of_part: dict[str, Any] = {
                "reasoning": part.reasoning,
                "calls": [part.call] if part.call else [],
                "files": files,
            }
            collected.add(message.get("role"), part.text, id_=id_, parent=parent, at=at_, model=model, **of_part)
            parent = id_
    current = clean(history.get("currentId"), 100) if isinstance(history, dict) else ""
    for item in collected.items(str(id_), at=moment(at), title=title, archived=bool(is_archived)):
        shows = isinstance(item, SourceConversation) and any(each.id == current for each in item.messages)
        yield msgspec.structs.replace(item, leaf=current) if shows else item


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message: a text, and the call of a tool after it."""

    text: object
    reasoning: str = ""
    call: SourceCall | None = None


def _parts(content: object) -> list[_Part]:
    """Return the parts of a message, divided after each call of a tool."""
    if not isinstance(content, str) or "<details " not in content:
        return [_Part(text=content)]
    parts: list[_Part] = []
    texts: list[str] = []
    thoughts: list[str] = []
    for text, attributes, element in _details(content):
        texts.append(text.strip())
        kind = attributes.get("type", "")
        if kind == "reasoning":
            lines = element.partition("</summary>")[2].removesuffix("</details>").strip().split("\n")
            thoughts.append("\n".join(line.removeprefix("> ") for line in lines))
        elif kind == "tool_calls":
            parts.append(_Part(text=_joined(texts), reasoning=_joined(thoughts), call=_call(attributes)))
            texts, thoughts = [], []
        else:
            texts.append(element)
    if _joined(texts) or not parts:
        parts.append(_Part(text=_joined(texts), reasoning=_joined(thoughts)))
    return parts


def _joined(texts: list[str]) -> str:
    return "\n\n".join(filter(None, texts))


def _details(content: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yield the elements `details`, each with the text before it, and its attributes; last the rest."""
    at = 0
    while (start := content.find("<details ", at)) >= 0 and (end := content.find("</details>", start)) >= 0:
        opened = content.find(">", start, end)
        head = content[start:opened] if opened >= 0 else ""
        attributes = {name: unescape(value) for name, value in _ATTRIBUTE.findall(head)}
        before, at = content[at:start], end + len("</details>")
        yield before, attributes, content[start:at]
    yield content[at:], {}, ""


def _call(attributes: dict[str, str]) -> SourceCall:
    call = call_of(attributes.get("name"), _unquoted(attributes.get("arguments", "")), attributes.get("id"))
    if attributes.get("done") != "true":
        return call
    return msgspec.structs.replace(call, output=clean(_unquoted(attributes.get("result", ""))), outcome="returned")


def _unquoted(text: str) -> str:
    """Return a text that may be written as a JSON string."""
    try:
        value = msgspec.json.decode(text) if text.startswith('"') else text
    except (msgspec.MsgspecError, UnicodeError):
        return text
    return value if isinstance(value, str) else text


def _parents_first(messages: dict[str, Any]) -> Iterator[str]:
    """Yield the ids of the messages, parents first; a circle is cut."""
    placed: set[str] = set()
    for start in messages:
        chain: list[str] = []
        id_: object = start
        while isinstance(id_, str) and id_ in messages and id_ not in placed and isinstance(messages[id_], dict):
            placed.add(id_)
            chain.append(id_)
            id_ = messages[id_].get("parentId")
        yield from reversed(chain)


def _note(id_: str, title: object, data: object) -> Iterator[SourceItem]:
    try:
        document = decoded(str(data).encode("utf-8", "surrogatepass"), dict[str, Any])
    except ValueError as error:
        yield LeftOut(kind="notes", reason=str(error), name=clean(title, 80))
        return
    content = document.get("content")
    text = clean(content.get("md")) if isinstance(content, dict) else ""
    if text:
        name = note_path(clean(title, 80)) or note_path(id_) or "note"
        yield SourceNote(path=f"memory/open-webui/{name}.md", text=f"{text}\n")
