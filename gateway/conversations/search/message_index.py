"""The index of all messages and answers, one row for each, in a SQLite file that is derived from the journals.

Ids grow with the time of the messages, so that the newest hits are found first without sorting. Letters of scripts without
spaces between words are separated by an invisible character, so that each is a word.

All methods block and are called from one thread at a time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from sessions.catalog.sqlite import Error, connect_blocking, create_private

LAYOUT = 1
"""The version of the tables and their content."""

PATIENCE = 2.0
"""Seconds to wait for a lock."""

SNIPPET_WORDS = 24
"""Words of a snippet."""

MOST_WORDS = 16
"""Words of a query that are used."""

LONGEST_TEXT = 100_000
"""Characters of a message that are indexed."""

_TABLES = f"""
CREATE TABLE journals (id INTEGER PRIMARY KEY, session TEXT UNIQUE, head INTEGER, parent TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY, journal INTEGER, seq INTEGER, role TEXT);
CREATE INDEX messages_by_journal ON messages (journal);
CREATE VIRTUAL TABLE texts USING fts5 (
  owner, text, tokenize = "unicode61 remove_diacritics 2", prefix = '2 3', columnsize = 0
);
PRAGMA user_version = {LAYOUT};
"""

_BEGIN, _END, _GAP = "\x02", "\x03", "\u200b"
_OURS = re.compile(f"[{_BEGIN}{_END}{_GAP}]")
_UNSPACED = re.compile(r"([\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")
_WORD = re.compile(r"\w+")

Snippet: TypeAlias = tuple[tuple[str, bool], ...]
"""Pieces of a text, each with whether it matches the query."""


class IndexedMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message to be indexed: its seq, time (RFC 3339), role (`person` or `assistant`) and text."""

    seq: int
    at: str
    role: str
    text: str


class MessageHit(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was found."""

    session: str
    seq: int
    at: str
    role: str
    snippet: Snippet


class MessageIndex:
    """The index in a file, opened by the first call and created again if it is damaged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: Any = None

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def close(self) -> None:
        """Close the file."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def heads(self) -> dict[str, int]:
        """Return the seq up to which each session is indexed."""
        return dict(self._db.execute("SELECT session, head FROM journals"))

    def add(self, session: str, owner: str, head: int, messages: Iterable[IndexedMessage], parent: str = "") -> None:
        """Index the next messages of a session of `owner`, up to the seq `head`.

        `parent` is the session that it was forked from, whose messages are not indexed again.
        """
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute("INSERT OR IGNORE INTO journals (session, head, parent) VALUES (?, 0, ?)", (session, parent))
            db.execute("UPDATE journals SET head = ? WHERE session = ?", (head, session))
            ((journal,),) = db.execute("SELECT id FROM journals WHERE session = ?", (session,))
            for message in messages:
                id_ = self._free_id(message.at)
                db.execute("INSERT INTO messages VALUES (?, ?, ?, ?)", (id_, journal, message.seq, message.role))
                row = (id_, _owner_token(owner), _separated(message.text[:LONGEST_TEXT]))
                db.execute("INSERT INTO texts (rowid, owner, text) VALUES (?, ?, ?)", row)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def remove(self, sessions: Collection[str]) -> None:
        """Remove sessions, so that nothing of them remains in the file. Forks of them are indexed anew, with what they share
        with them. Does nothing if there is no file."""
        if not self._path.exists():
            return
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        for session in sessions:
            for (journal,) in db.execute("SELECT id FROM journals WHERE ? IN (session, parent)", (session,)).fetchall():
                db.execute("DELETE FROM texts WHERE rowid IN (SELECT id FROM messages WHERE journal = ?)", (journal,))
                db.execute("DELETE FROM messages WHERE journal = ?", (journal,))
                db.execute("DELETE FROM journals WHERE id = ?", (journal,))
        db.execute("COMMIT")
        db.execute("INSERT INTO texts (texts) VALUES ('optimize')")  # segments keep what was removed until then

    def find(self, query: str, owner: str, limit: int, offset: int) -> list[MessageHit]:
        """Return the messages of `owner` with all words of a query, or words that begin with them, newest first."""
        words = [_separated(word).replace(_GAP, " ") for word in _WORD.findall(query)[:MOST_WORDS]]
        if not words:
            return []
        # Single letters begin too many words to be looked up quickly.
        matches = " AND ".join(f'text : "{word.strip()}"{" *" if len(word) > 1 else ""}' for word in words)
        rows = self._db.execute(
            "SELECT journals.session, seq, texts.rowid, role, snippet(texts, 1, ?, ?, '…', ?) FROM texts"
            " CROSS JOIN messages ON messages.id = texts.rowid CROSS JOIN journals ON journals.id = messages.journal"
            " WHERE texts MATCH ? ORDER BY texts.rowid DESC LIMIT ? OFFSET ?",
            (_BEGIN, _END, SNIPPET_WORDS, f'owner : "{_owner_token(owner)}" AND {matches}', limit, offset),
        )
        return [
            MessageHit(session=session, seq=seq, at=_time(id_), role=role, snippet=_pieces(text))
            for session, seq, id_, role, text in rows
        ]

    @property
    def _db(self) -> Any:
        if self._open is None:
            try:
                self._open = self._opened()
            except Error:
                self.reset()
                self._open = self._opened()
        return self._open

    def reset(self) -> None:
        """Delete the file; it is created again when it is needed."""
        self.close()
        for suffix in ("", "-journal"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _opened(self) -> Any:
        create_private(self._path)
        db = connect_blocking(self._path, patience=PATIENCE)
        try:
            db.execute("PRAGMA synchronous = OFF")
            db.execute("PRAGMA secure_delete = ON")
            ((version,),) = db.execute("PRAGMA user_version")
            ((tables,),) = db.execute("SELECT count(*) FROM sqlite_master")
            if not tables:
                db.executescript(_TABLES)
            elif version != LAYOUT:
                raise Error[0](f"its layout is {version}")
            db.execute("SELECT max(id) FROM messages").fetchone()
        except BaseException:
            db.close()
            raise
        return db

    def _free_id(self, at: str) -> int:
        """Return an unused id for a message of this time."""
        id_ = int(datetime.fromisoformat(at).timestamp() * 1000) << 10
        (last,) = self._db.execute("SELECT max(id) FROM messages WHERE id BETWEEN ? AND ?", (id_, id_ + 1023)).fetchone()
        return id_ if last is None else int(last) + 1


def _time(id_: int) -> str:
    moment = datetime.fromtimestamp((id_ >> 10) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _owner_token(owner: str) -> str:
    """Return a word that stands for a person and occurs in no query."""
    return "o" + blake2b(owner.encode(), digest_size=10).hexdigest()


def _separated(text: str) -> str:
    return _UNSPACED.sub(rf"\1{_GAP}", _OURS.sub("", text))


def _pieces(marked: str) -> Snippet:
    """Return the pieces of a marked snippet, without the invisible separators."""
    pieces: list[tuple[str, bool]] = []
    for number, part in enumerate(re.split(f"[{_BEGIN}{_END}]", marked.replace(_GAP, ""))):
        matched = number % 2 == 1
        if part and pieces and pieces[-1][1] == matched:
            pieces[-1] = (pieces[-1][0] + part, matched)
        elif part:
            pieces.append((part, matched))
    return tuple((re.sub(r"\s+", " ", text), matched) for text, matched in pieces)
