"""The catalog: an index of all sessions, checkpoints of their transcripts, and the message ids of each key.

It is derived: whatever is missing, damaged or outdated in `catalog.sqlite` is read again from the journals, so the file may
be deleted at any time. But it is also the only record that a journal existed and how long it was; that is removed only on
request (`durability_check.forget`) or with the file. Rows are kept in memory while the gateway runs; changes are written in
the background, at most once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import msgspec

from sessions.catalog.catalog_file import Batch, CatalogFile, add_checksum, verify_checksum
from sessions.catalog.checkpoints import decode_checkpoint, encode_checkpoints
from sessions.catalog.lineage import Lineage
from sessions.catalog.receipt_batches import ReceiptBatch, ReceiptCoverage, encode_batch
from sessions.catalog.scan import scan_logs
from sessions.catalog.sqlite import Error, Unavailable
from sessions.events.errors import StorageFailed
from sessions.state.transcript import Transcript
from sessions.store.catalog import ListedSession, SessionRow, portions
from sessions.store.protocols import LogReader, Position
from sessions.store.receipts import Receipts

PAUSE = 1.0
"""Seconds for which changes are collected before they are written."""


class _Changes(msgspec.Struct, kw_only=True):
    """Changes that are not written yet; of each session only the newest row and checkpoint."""

    rows: dict[str, SessionRow] = msgspec.field(default_factory=dict)
    checkpoints: dict[str, tuple[Position, Transcript]] = msgspec.field(default_factory=dict)
    receipts: list[ReceiptBatch] = msgspec.field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.rows or self.checkpoints or self.receipts)


class SqliteCatalog:
    """The `Catalog` of the logs of all sessions, used as an async context manager. Leaving it writes all changes. Only one
    process may open the file. Entering raises StorageFailed if the sessions cannot be determined.

    `rebuilt` is a sentence that says why the file was not used; `empty` lists the sessions without any acknowledged line.
    """

    def __init__(self, path: Path, logs: LogReader) -> None:
        self.rebuilt: str | None = None
        self.unreadable: dict[str, str] = {}
        self.empty: list[str] = []
        self.failure: str | None = None
        self._logs = logs
        self._file = CatalogFile(path)
        self._lineage = Lineage()
        self._receipts = ReceiptCoverage(logs, self._file.receipts, self._keep, self.unreadable)
        self._changes = _Changes()
        self._writing = asyncio.Lock()
        self._dirty = asyncio.Event()
        self._closing = asyncio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> SqliteCatalog:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._file)
            await self._load()
            await self._reconcile()
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            tasks.create_task(self._write_behind())
            stack.callback(self._close)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # --- sessions -----------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        return len(self._lineage.rows)

    def row(self, session: str) -> SessionRow | None:
        return self._lineage.rows.get(session)

    async def find(self, session: str) -> SessionRow | None:
        return self._lineage.rows.get(session)

    async def current(self, person: str, key: str) -> SessionRow | None:
        return self._lineage.current((person, key))

    async def sessions(self, person: str) -> list[SessionRow]:
        rows = list[SessionRow]()
        async for names in portions(self._lineage.names(person)):
            rows += (row for name in names if (row := self._lineage.current(name)) is not None)
        return rows

    async def listed(self, person: str) -> list[ListedSession]:
        listed = list[ListedSession]()
        async for rows in portions(await self.sessions(person)):
            listed += (self._listed(row) for row in rows)
        return listed

    def _listed(self, row: SessionRow) -> ListedSession:
        earlier = self.chain(row.session) if row.succeeds else []
        parent = self.row(row.origin.session) if row.origin else None
        created = earlier[-1].opened_at if earlier else row.opened_at
        return ListedSession(row=row, created=created, origin_key=parent.key if parent else "")

    async def every(self, person: str) -> list[SessionRow]:
        rows = list(self._lineage.rows.values())
        return await asyncio.to_thread(lambda: [row for row in rows if row.person == person])

    def chain(self, session: str) -> list[SessionRow]:
        return self._lineage.chain(session)

    def successor(self, session: str) -> SessionRow | None:
        return self._lineage.successor(session)

    async def unsettled(self) -> list[SessionRow]:
        return [row for row in self._lineage.rows.values() if not row.settled]

    async def changed_since(self, at: str) -> list[SessionRow]:
        return [row for row in self._lineage.rows.values() if row.at >= at]

    def put(self, row: SessionRow) -> None:
        if row.session not in self._lineage.rows:
            self._receipts.begin(row.session)
        self._lineage.put(row)
        self._changes.rows[row.session] = row
        self._dirty.set()

    async def replace(self, rows: Collection[SessionRow]) -> None:
        known = {row.session: row for row in rows if row.session in self._lineage.rows}
        for session, row in known.items():
            self.put(row)
            self._receipts.drop(session)
        encoded = await asyncio.to_thread(_encode, _Changes(rows=known))
        async with self._writing:  # what is being written may have them still
            for session in known:
                self._changes.checkpoints.pop(session, None)
            self._changes.receipts = [each for each in self._changes.receipts if each.session not in known]
            try:
                await self._file.remove(known, encoded.rows)
            except Error as error:
                raise StorageFailed(f"The catalog cannot be written: {error}.") from error

    async def remove(self, sessions: Collection[str]) -> None:
        for session in sessions:
            self._lineage.remove(session)
            self._receipts.drop(session)
            self.unreadable.pop(session, None)
        async with self._writing:  # what is being written may have them still
            for session in sessions:
                self._changes.rows.pop(session, None)
                self._changes.checkpoints.pop(session, None)
            self._changes.receipts = [each for each in self._changes.receipts if each.session not in sessions]
            try:
                await self._file.remove(sessions)
            except Error as error:
                raise StorageFailed(f"The catalog cannot be written: {error}.") from error

    # --- checkpoints and receipts -------------------------------------------------------------------------------------

    async def checkpoint(self, session: str) -> tuple[Position, Transcript] | None:
        sealed = await self._file.checkpoint(session)
        return await asyncio.to_thread(decode_checkpoint, session, sealed)

    def save_checkpoint(
        self, session: str, position: Position, transcript: Transcript, receipts: Receipts | None = None
    ) -> None:
        self._changes.checkpoints[session] = position, transcript
        if receipts is not None:
            self._receipts.extend(session, position, receipts)
        self._dirty.set()

    async def receipts(self, person: str, key: str) -> Receipts:
        return await self._receipts.of(self._lineage.all_of((person, key)))

    def _keep(self, batch: ReceiptBatch) -> None:
        self._changes.receipts.append(batch)
        self._dirty.set()

    # --- the file -----------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        stored, self._file.rows = self._file.rows, []
        for row in await asyncio.to_thread(_decode_rows, stored):
            self._lineage.put(row)

    async def _reconcile(self) -> None:
        """Update the rows to match the logs."""
        found = await asyncio.to_thread(scan_logs, self._logs, self._lineage.rows)
        for session, why in found.unknown.items():  # else its key would continue in another session
            raise StorageFailed(
                f"{self._logs.location(session)} cannot be read: {why}. It may belong to any conversation, so none can"
                " continue. To continue without it, move it away."
            )
        self.unreadable.update(found.unreadable)
        self.empty = found.empty
        for row in found.changed:
            self._lineage.put(row)
            self._changes.rows[row.session] = row
        if self._changes:
            self._dirty.set()
        if self._lineage.rows:  # a first start, with no journals, rebuilds nothing
            self.rebuilt = self._file.unused

    def _close(self) -> None:
        self._closing.set()
        self._dirty.set()

    async def _write_behind(self) -> None:
        while not self._closing.is_set():
            await self._dirty.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), PAUSE)
            self._dirty.clear()
            await self._write()
        await self._write()  # changes made meanwhile, or not written before

    async def _write(self) -> None:
        async with self._writing:
            await self._write_changes()

    async def _write_changes(self) -> None:
        changes, self._changes = self._changes, _Changes()
        if not changes:
            return
        try:
            await self._file.write(await asyncio.to_thread(_encode, changes))
            self.failure = None
        except Unavailable as error:
            self.failure = f"The catalog cannot be written: {error}."
            self._take_back(changes)
        except Error as error:
            await self._remake(error)
        except StorageFailed as error:
            self.failure = str(error)  # without a file, the next start reads the journals
        except Exception as error:  # such as no memory or no thread: the next attempt may succeed
            self.failure = f"The catalog cannot be written: {error}."
            self._take_back(changes)

    async def _remake(self, error: Exception) -> None:
        try:
            await self._file.remake(error)
            self._take_back(_Changes(rows=dict(self._lineage.rows)))
        except StorageFailed as failed:
            self.failure = str(failed)

    def _take_back(self, changes: _Changes) -> None:
        """Merge changes that could not be written with later ones, for the next attempt. Checkpoints are dropped, because
        they are large."""
        later = self._changes
        later.rows = changes.rows | later.rows
        later.receipts = changes.receipts + later.receipts
        self._dirty.set()


def _encode(changes: _Changes) -> Batch:
    return Batch(
        rows=[(session, add_checksum(session, msgspec.msgpack.encode(row))) for session, row in changes.rows.items()],
        checkpoints=list(encode_checkpoints(changes.checkpoints)),
        receipts=[(b.session, b.after, b.upto.seq, encode_batch(b)) for b in changes.receipts],
    )


def _decode_rows(stored: list[tuple[object, object]]) -> list[SessionRow]:
    """Return the valid rows; the others are read from their journals again."""
    rows = []
    decode = msgspec.msgpack.Decoder(SessionRow).decode
    for session, sealed in stored:
        if isinstance(session, str) and (value := verify_checksum(session, sealed)) is not None:
            with suppress(msgspec.MsgspecError):
                rows.append(decode(value))
    return rows
