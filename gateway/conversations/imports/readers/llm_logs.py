"""The logs of `llm`: `logs.db`, or the folder that contains it.

Messages are stored by the hash of their content and their past (`messages`, `parts`), a thread points to its last one, and a
forked thread shares the beginning of another. In older versions each row of `responses` was a prompt and its response.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gateway.conversations.imports.readers.import_values import (
    Kind,
    LeftOut,
    SourceConversation,
    SourceInvalid,
    SourceItem,
    SourceMessage,
)
from gateway.conversations.imports.readers.source_text import clean, moment
from gateway.conversations.imports.readers.sqlite_copy import opened_copy, table_columns

LONGEST_THREAD = 100_000
"""Maximum messages of one thread."""


def read_llm(path: Path) -> Iterator[SourceItem]:
    """Yield the conversations of a log. Raises SourceInvalid."""
    with opened_copy(path / "logs.db" if path.is_dir() else path) as connection:
        tables = table_columns(connection)
        if not {"id", "prompt", "response", "conversation_id"} <= tables.get("responses", set()):
            raise SourceInvalid(f"{path.name} is no log of llm.")
        threads: set[str] = set()
        if {"threads", "turns", "messages", "parts"} <= tables.keys():
            threads = {id_ for (id_,) in connection.execute("SELECT id FROM threads")}
            yield from _Threads(connection).conversations()
        yield from _old_conversations(connection, tables, threads)


class _Part(msgspec.Struct, frozen=True):
    text_ref: list[dict[str, Any]] = []
    text: Any = None


class _Threads:
    """The threads of a log. Threads that were forked from one another are branches of one conversation."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._fragments: dict[int, str] = {}
        rows = connection.execute("SELECT id, name, tip_message_hash, forked_from, datetime_utc FROM threads ORDER BY id")
        self._threads = {row[0]: row for row in rows}

    def conversations(self) -> Iterator[SourceItem]:
        groups: dict[str, list[str]] = defaultdict(list)
        for id_ in self._threads:
            groups[self._root(id_)].append(id_)
        for root, ids in groups.items():
            yield from self._conversation(root, [root, *(each for each in ids if each != root)])

    def _root(self, id_: str) -> str:
        seen: set[str] = set()
        while id_ not in seen and (parent := self._threads[id_][3]) in self._threads:
            seen.add(id_)
            id_ = parent
        return id_ if id_ not in seen else min(seen)

    def _conversation(self, root: str, ids: list[str]) -> Iterator[SourceItem]:
        left = Counter[tuple[Kind, str]]()
        messages: dict[str, SourceMessage] = {}
        leaf = ""
        for id_ in ids:
            last = self._add(id_, messages, left)
            leaf = leaf or last
        _, name, _, _, at = self._threads[root]
        yield from (LeftOut(kind=kind, reason=reason, name=clean(name, 80), count=n) for (kind, reason), n in left.items())
        if messages:
            title = clean(name, 300)
            yield SourceConversation(id=root, messages=tuple(messages.values()), leaf=leaf, title=title, at=moment(at))

    def _add(self, thread: str, messages: dict[str, SourceMessage], left: Counter[tuple[Kind, str]]) -> str:
        """Add the messages of a thread, and return the id of its last one."""
        told = self._told(thread)
        parent = ""
        for hash_, role in reversed(self._chain(self._threads[thread][2])):
            if hash_ not in messages:
                text, reasoning = self._texts(hash_, left)
                if role not in ("user", "assistant") or not text:
                    if role == "system":
                        left["messages", "system prompts"] += 1
                    continue
                at, model = told.get(hash_, ("", ""))
                reply = role == "assistant"
                messages[hash_] = SourceMessage(
                    id=hash_,
                    reply=reply,
                    text=text,
                    at=at,
                    parent=parent,
                    model=model if reply else "",
                    reasoning=reasoning,
                )
            parent = hash_
        return parent

    def _chain(self, tip: str | None) -> list[tuple[str, str]]:
        """Return the messages from the last to the first: hash and role."""
        chain: list[tuple[str, str]] = []
        seen: set[str] = set()
        while tip and tip not in seen and len(chain) < LONGEST_THREAD:
            seen.add(tip)
            row = self._connection.execute("SELECT role, parent_hash FROM messages WHERE hash = ?", (tip,)).fetchone()
            if row is None:
                break
            chain.append((tip, str(row[0])))
            tip = row[1]
        return chain

    def _told(self, thread: str) -> dict[str, tuple[str, str]]:
        """Return the time and the model of the messages that the turns of a thread added."""
        told: dict[str, tuple[str, str]] = {}
        sql = (
            "SELECT parent_message_hash, tip_message_hash, model, resolved_model, datetime_utc FROM turns"
            " WHERE thread_id = ? ORDER BY id"
        )
        for parent, tip, model, resolved, at in self._connection.execute(sql, (thread,)):
            known = (moment(at), clean(resolved or model, 100))
            for each in (parent, tip):
                if each:
                    told.setdefault(each, known)
        return told

    def _texts(self, hash_: str, left: Counter[tuple[Kind, str]]) -> tuple[str, str]:
        """Return the text and the reasoning of a message."""
        texts: list[str] = []
        reasoning: list[str] = []
        sql = "SELECT type, text, payload FROM parts WHERE message_hash = ? ORDER BY position"
        for kind, text, payload in self._connection.execute(sql, (hash_,)):
            match kind:
                case "text":
                    texts.append(clean(text) or self._referred(payload))
                case "reasoning":
                    reasoning.append(clean(text) or self._referred(payload))
                case "attachment":
                    left["files", "attachments"] += 1
                case "tool_call":
                    left["messages", "calls of tools"] += 1
                case _:
                    left["messages", "outputs of tools"] += 1
        return "\n\n".join(filter(None, texts)), "\n\n".join(filter(None, reasoning))

    def _referred(self, payload: object) -> str:
        """Return a text that is put together from fragments."""
        if not isinstance(payload, str):
            return ""
        try:
            part = msgspec.json.decode(payload, type=_Part)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return ""
        pieces = (piece.get("literal", self._fragment(piece.get("fragment"))) for piece in part.text_ref)
        return clean(part.text) or clean("".join(piece for piece in pieces if isinstance(piece, str)))

    def _fragment(self, id_: object) -> str:
        row = (
            self._connection.execute("SELECT content FROM fragments WHERE id = ?", (id_,)) if isinstance(id_, int) else None
        )
        found = row.fetchone() if row is not None else None
        return str(found[0]) if found else ""


def _old_conversations(connection: Any, tables: dict[str, set[str]], known: set[str]) -> Iterator[SourceItem]:
    """Yield the conversations of `responses`. A response without one is a conversation by itself."""
    names = dict(connection.execute("SELECT id, name FROM conversations")) if "conversations" in tables else {}
    if "reasoning" not in tables["responses"]:
        connection.execute("ALTER TABLE responses ADD COLUMN reasoning")  # of the copy
    sql = (
        "SELECT coalesce(conversation_id, id), id, model, prompt, system, response, datetime_utc, reasoning"
        " FROM responses ORDER BY 1, datetime_utc, id"
    )
    group: list[Any] = []
    for row in connection.execute(sql):
        if group and row[0] != group[0][0]:
            yield from _old_conversation(group, names)
            group = []
        if row[0] not in known:
            group.append(row)
    if group:
        yield from _old_conversation(group, names)


def _old_conversation(rows: list[Any], names: dict[str, str]) -> Iterator[SourceItem]:
    id_ = str(rows[0][0])
    messages: list[SourceMessage] = []
    for _, response, model, prompt, _, answer, at, reasoning in rows:
        for reply, text in ((False, clean(prompt)), (True, clean(answer))):
            if text:
                messages.append(
                    SourceMessage(
                        id=f"{response}:{'reply' if reply else 'prompt'}",
                        reply=reply,
                        text=text,
                        at=moment(at),
                        parent=messages[-1].id if messages else "",
                        model=clean(model, 100) if reply else "",
                        reasoning=clean(reasoning) if reply else "",
                    )
                )
    title = clean(names.get(id_), 300)
    if systems := sum(1 for row in rows if row[4]):
        yield LeftOut(kind="messages", reason="system prompts", name=title or id_, count=systems)
    if messages:
        yield SourceConversation(id=id_, messages=tuple(messages), title=title)
