"""The logs of `llm`: `logs.db`, or the folder that contains it.

Messages are stored by the hash of their content and their past (`messages`, `parts`), a thread points to its last one, and a
forked thread shares the beginning of another. In older versions each row of `responses` was a prompt and its response. The
bytes of attachments are in `attachments`, or in the file that the person named.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from gateway.conversations.imports.readers.import_values import (
    SourceCall,
    SourceConversation,
    SourceFile,
    SourceInvalid,
    SourceItem,
)
from gateway.conversations.imports.readers.linear_messages import MessageCollector
from gateway.conversations.imports.readers.source_text import call_of, clean, decoded, moment, output_of
from gateway.conversations.imports.readers.source_workspace import read_plain
from gateway.conversations.imports.readers.sqlite_copy import opened_copy, table_columns
from sessions.catalog.sqlite import Error

LONGEST_THREAD = 100_000
"""Maximum messages of one thread."""


def read_llm(path: Path) -> Iterator[SourceItem]:
    """Yield the conversations of a log. Raises SourceInvalid."""
    with opened_copy(_log_of(path)) as connection:
        tables = table_columns(connection)
        if not {"id", "prompt", "response", "conversation_id"} <= tables.get("responses", set()):
            raise SourceInvalid(f"{path.name} is no log of llm.")
        threads: set[str] = set()
        if {"threads", "turns", "messages", "parts"} <= tables.keys():
            threads = {id_ for (id_,) in connection.execute("SELECT id FROM threads")}
            yield from _Threads(connection, tables).conversations()
        yield from _Responses(connection, tables).conversations(threads)


def _log_of(path: Path) -> Path:
    return path / "logs.db" if path.is_dir() else path


class LogAttachments:
    """The attachments of a log, by their ids. The log is copied when the first one is read.

    Of a file that was named by its path the log has the path only. It is read if its digest is still the id.

    Args:
        path: The log, or the folder that contains it.
    """

    def __init__(self, path: Path) -> None:
        self._log = _log_of(path)
        self._copy = ExitStack()
        self._connection: Any = None

    def close(self) -> None:
        """Remove the copy."""
        self._copy.close()

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of the attachment with an id. Raises SourceInvalid, also if it has more bytes than `limit`."""
        try:
            if self._connection is None:
                self._connection = self._copy.enter_context(opened_copy(self._log))
            sql = "SELECT content, path FROM attachments WHERE id = ? AND ifnull(length(content), 0) <= ?"
            content, path = self._connection.execute(sql, (name, limit)).fetchone() or (None, None)
        except Error as error:
            raise SourceInvalid(f"The attachment {name[:80]} cannot be read: {error}.") from error
        if isinstance(content, bytes) and content:
            return content
        try:
            found = read_plain(Path(path), limit) if isinstance(path, str) and Path(path).is_absolute() else b""
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            raise SourceInvalid(f"The file of the attachment {name[:80]} cannot be read: {error}.") from error
        if hashlib.sha256(found).hexdigest() != name:
            raise SourceInvalid(f"The log does not have the attachment {name[:80]}, and its file was changed.")
        return found


class _Attached:
    """The names and types of the attachments of a log."""

    def __init__(self, connection: Any, tables: dict[str, set[str]]) -> None:
        known = {"id", "type", "path", "content"} <= tables.get("attachments", set())
        self._connection = connection if known else None

    def files(self, ids: Iterable[object]) -> list[SourceFile | None]:
        """Return the files with these ids; None for those of which the log has only a URL."""
        return [self._file(clean(id_, 200)) for id_ in ids]

    def _file(self, id_: str) -> SourceFile | None:
        if self._connection is None or not id_:
            return None
        sql = "SELECT type, path, content IS NOT NULL FROM attachments WHERE id = ?"
        media, path, stored = self._connection.execute(sql, (id_,)).fetchone() or (None, None, False)
        if not stored and not path:
            return None
        return SourceFile(name=clean(path, 4096).rpartition("/")[2][:200], media=clean(media, 100), place=id_)


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call."""

    call: str
    output: str
    failed: bool
    files: list[SourceFile | None]


class _Message(msgspec.Struct, kw_only=True):
    """The parts of a message."""

    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[SourceCall] = []
    results: list[_Result] = []
    files: list[SourceFile | None] = []


class _Threads:
    """The threads of a log. Threads that were forked from one another are branches of one conversation."""

    def __init__(self, connection: Any, tables: dict[str, set[str]]) -> None:
        self._connection = connection
        self._attached = _Attached(connection, tables)
        rows = connection.execute("SELECT id, name, tip_message_hash, forked_from, datetime_utc FROM threads ORDER BY id")
        self._threads = {row[0]: row for row in rows}

    def conversations(self) -> Iterator[SourceItem]:
        """Yield the conversations."""
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
        _, name, _, _, at = self._threads[root]
        title = clean(name, 300)
        collected = MessageCollector(title)
        known: set[str] = set()
        leaf = ""
        for id_ in ids:
            self._add(id_, collected, known)
            leaf = leaf or (collected.messages[-1].id if collected.messages else "")
        for item in collected.items(root, at=moment(at), title=title):
            yield msgspec.structs.replace(item, leaf=leaf) if isinstance(item, SourceConversation) else item

    def _add(self, thread: str, collected: MessageCollector, known: set[str]) -> None:
        """Add the messages of a thread that are not known."""
        told = self._told(thread)
        parent = ""
        for hash_, role in reversed(self._chain(self._threads[thread][2])):
            if hash_ not in known:
                known.add(hash_)
                message = self._message(hash_)
                at, model = told.get(hash_, ("", ""))
                collected.add(
                    role,
                    "\n\n".join(message.texts),
                    id_=hash_,
                    parent=parent,
                    at=at,
                    model=model,
                    reasoning="\n\n".join(message.reasoning),
                    calls=message.calls,
                    files=message.files,
                )
                for each in message.results:
                    collected.add_result(each.call, each.output, failed=each.failed, files=each.files)
            parent = hash_

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

    def _message(self, hash_: str) -> _Message:
        """Return the parts of a message."""
        found = _Message()
        sql = "SELECT type, text, payload FROM parts WHERE message_hash = ? ORDER BY position"
        for kind, text, payload in self._connection.execute(sql, (hash_,)):
            fields = _fields(payload)
            match kind:
                case "text":
                    found.texts.append(clean(text) or self._referred(fields))
                case "reasoning":
                    found.reasoning.append(clean(text) or self._referred(fields))
                case "attachment":
                    found.files += self._attached.files(_ids([fields.get("attachment")]))
                case "tool_call":
                    call = call_of(fields.get("name"), fields.get("arguments"), fields.get("tool_call_id"))
                    found.calls.append(call)
                case "tool_result":
                    found.results.append(self._result(fields))
        found.texts, found.reasoning = [*filter(None, found.texts)], [*filter(None, found.reasoning)]
        return found

    def _result(self, fields: dict[str, Any]) -> _Result:
        return _Result(
            call=clean(fields.get("tool_call_id"), 200),
            output=output_of(fields.get("output")),
            failed=bool(fields.get("exception")),
            files=self._attached.files(_ids(fields.get("attachments"))),
        )

    def _referred(self, fields: dict[str, Any]) -> str:
        """Return a text that is put together from fragments."""
        pieces = fields.get("text_ref")
        found = [
            piece.get("literal", self._fragment(piece.get("fragment")))
            for piece in (pieces if isinstance(pieces, list) else [])
            if isinstance(piece, dict)
        ]
        return clean(fields.get("text")) or clean("".join(piece for piece in found if isinstance(piece, str)))

    def _fragment(self, id_: object) -> str:
        row = (
            self._connection.execute("SELECT content FROM fragments WHERE id = ?", (id_,)) if isinstance(id_, int) else None
        )
        found = row.fetchone() if row is not None else None
        return str(found[0]) if found else ""


def _fields(payload: object) -> dict[str, Any]:
    try:
        return decoded(payload.encode("utf-8", "replace"), dict[str, Any]) if isinstance(payload, str) else {}
    except ValueError:
        return {}


def _ids(references: object) -> list[object]:
    """Return the ids in references to attachments."""
    listed = references if isinstance(references, list) else []
    return [each.get("id") if isinstance(each, dict) else None for each in listed if each is not None]


class _Responses:
    """The rows of `responses`, in which older versions kept prompts with their responses."""

    def __init__(self, connection: Any, tables: dict[str, set[str]]) -> None:
        self._connection = connection
        self._tables = tables
        self._attached = _Attached(connection, tables)
        self._names = dict(connection.execute("SELECT id, name FROM conversations")) if "conversations" in tables else {}

    def conversations(self, known: set[str]) -> Iterator[SourceItem]:
        """Yield the conversations that are not `known` threads. A response without one is a conversation by itself."""
        if "reasoning" not in self._tables["responses"]:
            self._connection.execute("ALTER TABLE responses ADD COLUMN reasoning")  # of the copy
        # By an index: a sort of whole rows takes as much memory as the log is large.
        self._connection.execute(
            "CREATE INDEX IF NOT EXISTS by_conversation ON responses (coalesce(conversation_id, id), datetime_utc, id)"
        )
        sql = (
            "SELECT coalesce(conversation_id, id), id, model, prompt, system, response, datetime_utc, reasoning"
            " FROM responses ORDER BY 1, datetime_utc, id"
        )
        group: list[Any] = []
        for row in self._connection.execute(sql):
            if group and row[0] != group[0][0]:
                yield from self._conversation(group)
                group = []
            if row[0] not in known:
                group.append(row)
        if group:
            yield from self._conversation(group)

    def _conversation(self, rows: list[Any]) -> Iterator[SourceItem]:
        id_ = str(rows[0][0])
        title = clean(self._names.get(id_), 300)
        collected = MessageCollector(title or id_)
        for _, response, model, prompt, system, answer, at, reasoning in rows:
            if clean(system):
                collected.add("system", system)
            for result in self._results(response):
                collected.add_result(result.call, result.output, failed=result.failed, files=result.files)
            text = "\n".join(filter(None, (*map(clean, self._fragments(response)), clean(prompt))))
            files = self._attached.files(self._rows("prompt_attachments", "attachment_id", response, order='"order"'))
            collected.add("user", text, id_=f"{response}:prompt", at=moment(at), files=files)
            collected.add(
                "assistant",
                answer,
                id_=f"{response}:reply",
                at=moment(at),
                model=clean(model, 100),
                reasoning=clean(reasoning),
                calls=self._calls(response),
            )
        yield from collected.items(id_, title=title)

    def _rows(self, table: str, column: str, response: object, *, order: str) -> list[Any]:
        """Return a column of the rows of a response in a table; none if an older version has no such table."""
        if not {"response_id", column, order.strip('"')} <= self._tables.get(table, set()):
            return []
        sql = f"SELECT {column} FROM {table} WHERE response_id = ? ORDER BY {order}"  # noqa: S608 - names of this module
        return [row[0] for row in self._connection.execute(sql, (response,))]

    def _fragments(self, response: object) -> Iterator[object]:
        for id_ in self._rows("prompt_fragments", "fragment_id", response, order='"order"'):
            for (content,) in self._connection.execute("SELECT content FROM fragments WHERE id = ?", (id_,)):
                yield content

    def _calls(self, response: object) -> list[SourceCall]:
        sql = "SELECT name, arguments, tool_call_id FROM tool_calls WHERE id = ?"
        ids = self._rows("tool_calls", "id", response, order="id")
        return [call_of(*row) for id_ in ids for row in self._connection.execute(sql, (id_,))]

    def _results(self, response: object) -> Iterator[_Result]:
        columns = self._tables.get("tool_results", set())
        exception = "exception" if "exception" in columns else "NULL"
        sql = f"SELECT tool_call_id, output, {exception} FROM tool_results WHERE id = ?"  # noqa: S608 - no input
        attached = 'SELECT attachment_id FROM tool_results_attachments WHERE tool_result_id = ? ORDER BY "order"'
        for id_ in self._rows("tool_results", "id", response, order="id"):
            files = self._connection.execute(attached, (id_,)) if "tool_results_attachments" in self._tables else ()
            named = self._attached.files(row[0] for row in files)
            for call, output, failure in self._connection.execute(sql, (id_,)):
                yield _Result(call=clean(call, 200), output=output_of(output), failed=bool(failure), files=named)
