"""The attachments in PostgreSQL: contents in parts, each once, and a record of who has sent it.

The rules are those of `store` and `owners`. A content and its record are stored in one transaction, and a content is removed
only in a statement that finds no record and that it was not stored again meanwhile; several gateways may do both at once.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec

from sessions.attachments.attachment_refs import digests_in, references_in
from sessions.attachments.owners import is_digest
from sessions.attachments.store import DRAFT, DraftFile, owner_of, storage_failed
from sessions.events.errors import StorageFailed, UnknownSession
from sessions.events.file_types import PLAIN
from sessions.events.messages import Attachment
from sessions.postgres.connections import Connection, Database
from sessions.store.protocols import Lines, LogReader

PART = 1024 * 1024
"""Bytes of a part."""

_KEEP = """
    INSERT INTO blob (sha256, size) VALUES (%(sha256)s, %(size)s)
    ON CONFLICT (sha256) DO UPDATE SET size = excluded.size, at = now()
"""

_RECORD = """
    INSERT INTO owner AS known (person, sha256, record, named)
    SELECT %(person)b, sha256, %(record)b, %(named)s FROM blob WHERE sha256 = %(sha256)s
    ON CONFLICT (person, sha256) DO UPDATE SET
        record = CASE WHEN known.named THEN known.record ELSE excluded.record END,
        named = known.named OR excluded.named, at = now()
"""

_FIND = """
    UPDATE owner SET at = CASE WHEN named THEN at ELSE now() END WHERE person = %(person)b AND sha256 = %(sha256)s
    RETURNING record
"""

_SETTLE = "UPDATE owner SET named = true WHERE person = %(person)b AND sha256 = %(sha256)s AND NOT named"

_DOUBT = "UPDATE owner SET named = false, at = to_timestamp(0) WHERE person = %(person)b AND sha256 = ANY(%(digests)s)"

_DROP = """
    DELETE FROM owner WHERE person = %(person)b AND sha256 = %(sha256)s AND NOT named AND at = to_timestamp(0)
"""

_REMOVE = """
    DELETE FROM blob WHERE sha256 = %(sha256)s AND at < %(before)s
        AND NOT EXISTS (SELECT FROM owner WHERE owner.sha256 = blob.sha256)
    RETURNING size
"""


class PostgresAttachments:
    """The `Blobs` of a database. Contents that arrive or are sent as files pass through `folder`, which may be emptied."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder

    async def keep(self, content: bytes, person: str, *, media: str = PLAIN, name: str = "") -> Attachment:
        return await asyncio.to_thread(self._keep, content, person, media, name, named=True)

    async def store(self, content: bytes, person: str, *, claimed: str, name: str) -> Attachment:
        return await asyncio.to_thread(self._keep, content, person, claimed, name, named=False)

    def draft(self) -> RowDraft:
        return RowDraft(self)

    async def find(self, person: str, digest: str) -> Attachment | None:
        return await asyncio.to_thread(self._find, person, digest) if is_digest(digest) else None

    async def settle(self, person: str, attachments: tuple[Attachment, ...]) -> None:
        await asyncio.to_thread(self._settle, person, [each.sha256 for each in attachments])

    async def read(self, digest: str, convert: Callable[[bytes], bytes] = bytes) -> bytes:
        if not is_digest(digest):
            raise FileNotFoundError(digest)
        return await asyncio.to_thread(lambda: convert(self._read(digest)))

    async def file(self, digest: str) -> Path | None:
        return await asyncio.to_thread(self._copied, digest) if is_digest(digest) else None

    def fault(self, digest: str) -> str:
        try:
            self._read(digest)
        except FileNotFoundError as error:
            return "was altered" if "altered" in str(error) else "is missing"
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        return ""

    def records(self) -> Iterator[tuple[str, Attachment, bool]]:
        query = "SELECT person, record, named FROM owner ORDER BY person, sha256"
        with self.database.connection() as connection, connection.transaction(), connection.cursor("records") as cursor:
            for person, record, named in cursor.execute(query, binary=True):
                if (attachment := _decoded(record)) is not None:
                    yield person.decode("utf-8", "surrogatepass"), attachment, named

    def release(self, person: str, digests: Collection[str], logs: LogReader, sessions: Iterable[str]) -> tuple[int, int]:
        known = [digest for digest in digests if is_digest(digest)]
        given: dict[str, object] = {"person": _encoded(person)}
        with self.database.connection() as connection:
            connection.execute(_DOUBT, given | {"digests": known})
            (began,) = connection.execute("SELECT clock_timestamp()").fetchone() or (None,)
        named: set[str] = set()
        for session in sessions if known else ():
            with suppress(UnknownSession), logs.read(session) as lines:
                named |= digests_in(lines)
        removed = size = 0
        for digest in known:
            with self.database.connection() as connection:
                connection.execute(_SETTLE if digest in named else _DROP, given | {"sha256": digest})
                gone = self._remove(connection, digest, began) if digest not in named else None
            if gone is not None:
                removed, size = removed + 1, size + gone
        return removed, size

    def remove_orphans(self, logs: LogReader, before: float) -> int:
        self._remove_files(before)
        sessions = [session for session, _ in logs.listed()]
        if not sessions:  # without any log, nothing is removed: they may be elsewhere
            return 0
        moment = datetime.fromtimestamp(before, UTC)
        with self.database.connection() as connection:
            unused = connection.execute(
                "SELECT person, sha256 FROM owner WHERE NOT named AND at < %s", (moment,), binary=True
            ).fetchall()
            found = connection.execute(
                "SELECT sha256 FROM blob WHERE NOT EXISTS (SELECT FROM owner WHERE owner.sha256 = blob.sha256)"
            ).fetchall()
        unknown = {digest for (digest,) in found}
        if not unused and not unknown:
            return 0
        named: set[str] = set()
        for session in sessions:
            with logs.read(session) as lines:
                named |= digests_in(lines)
        for session in sessions if not unknown.isdisjoint(named) else ():
            with logs.read(session) as lines:
                self._record_again(lines, unknown)
        return self._remove_unused(unused, unknown, named, moment)

    # --- on threads ---------------------------------------------------------------------------------------------------

    def _keep(self, content: bytes, person: str, claimed: str, name: str, *, named: bool) -> Attachment:
        with self.draft() as draft:
            draft.write(content)
            return draft.keep(person, claimed=claimed, name=name, named=named)

    def _find(self, person: str, digest: str) -> Attachment | None:
        with self.database.connection() as connection:
            found = connection.execute(_FIND, {"person": _encoded(person), "sha256": digest}, binary=True).fetchone()
        return _decoded(found[0]) if found else None

    def _settle(self, person: str, digests: Iterable[str]) -> None:
        with self.database.connection() as connection:
            for digest in digests:
                connection.execute(_SETTLE, {"person": _encoded(person), "sha256": digest})

    def _read(self, digest: str) -> bytes:
        query = "SELECT bytes FROM blob LEFT JOIN blob_part USING (sha256) WHERE sha256 = %s ORDER BY part"
        try:
            with self.database.connection() as connection:
                found = connection.execute(query, (digest,), binary=True).fetchall()
        except StorageFailed as error:
            raise OSError(errno.EIO, str(error)) from error
        if not found:
            raise FileNotFoundError(f"{digest} is missing")
        content = b"".join(part for (part,) in found if part is not None)
        if sha256(content).hexdigest() != digest:
            raise FileNotFoundError(f"{digest} was altered")
        return content

    def _copied(self, digest: str) -> Path | None:
        path = self.folder / digest
        if not path.is_file():
            try:
                content = self._read(digest)
            except FileNotFoundError:
                return None
            with DraftFile(self.folder) as draft:
                draft.write(content)
                draft.path.replace(path)
        return path

    def _remove_files(self, before: float) -> None:
        """Remove copies and drafts from before a time."""
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            with suppress(FileNotFoundError):
                if (is_digest(path.name) or path.name.startswith(DRAFT)) and path.stat().st_mtime < before:
                    path.unlink()

    def _record_again(self, lines: Lines, unknown: Collection[str]) -> None:
        """Restore the missing records of the owner of a log."""
        person = owner_of(lines)
        for named in references_in(lines) if person else ():
            if named.attachment.sha256 in unknown:
                with self.database.connection() as connection:
                    _record(connection, person, named.attachment, named=True)

    def _remove_unused(
        self, unused: Iterable[tuple[bytes, str]], unknown: Iterable[str], named: Collection[str], before: datetime
    ) -> int:
        doubted = set(unknown)
        with self.database.connection() as connection:
            for person, digest in unused:
                given = {"person": person, "sha256": digest, "before": before}
                if digest in named:
                    connection.execute(_SETTLE, given)
                    continue
                connection.execute(
                    "DELETE FROM owner WHERE person = %(person)b AND sha256 = %(sha256)s AND NOT named AND at < %(before)s",
                    given,
                )
                doubted.add(digest)
            removed = [self._remove(connection, digest, before) for digest in doubted.difference(named)]
        return sum(size is not None for size in removed)

    def _remove(self, connection: Connection, digest: str, before: object) -> int | None:
        """Remove a content without an owner that was stored before a moment of the server's clock, and return its size; None
        if it is kept."""
        found = connection.execute(_REMOVE, {"sha256": digest, "before": before}).fetchone()
        if found is not None:
            (self.folder / digest).unlink(missing_ok=True)
        return int(found[0]) if found else None


class RowDraft(DraftFile):
    """A content that is written to a file until it is stored in the database."""

    def __init__(self, attachments: PostgresAttachments) -> None:
        super().__init__(attachments.folder)
        self._attachments = attachments

    def keep(self, person: str, *, claimed: str, name: str, named: bool = False) -> Attachment:
        """Store the content and its record durably, in one transaction. It replaces an equal one, which repairs it."""
        try:
            attachment = self.described(claimed, name)
            self._file.seek(0)
            with self._attachments.database.connection() as connection, connection.transaction():
                self._store(connection, attachment)
                _record(connection, person, attachment, named=named)
        except OSError as error:
            raise storage_failed(error) from error
        return attachment

    def _store(self, connection: Connection, attachment: Attachment) -> None:
        digest = attachment.sha256
        connection.execute(_KEEP, {"sha256": digest, "size": attachment.bytes})
        connection.execute("DELETE FROM blob_part WHERE sha256 = %s", (digest,))
        number = 0
        while piece := self._file.read(PART):
            connection.execute("INSERT INTO blob_part (sha256, part, bytes) VALUES (%s, %s, %b)", (digest, number, piece))
            number += 1


def _record(connection: Connection, person: str, attachment: Attachment, *, named: bool) -> None:
    record = {"person": _encoded(person), "record": msgspec.json.encode(attachment), "named": named}
    connection.execute(_RECORD, record | {"sha256": attachment.sha256})


def _encoded(person: str) -> bytes:
    return person.encode("utf-8", "surrogatepass")


def _decoded(record: bytes) -> Attachment | None:
    try:
        return msgspec.json.decode(record, type=Attachment)
    except (msgspec.MsgspecError, UnicodeError):
        return None
