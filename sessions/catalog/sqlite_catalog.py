"""The catalog: an index of all sessions, checkpoints of their transcripts, and the message ids of each key.

It is derived: whatever is missing, damaged or outdated in `catalog.sqlite` is read again from the journals, so the file may
be deleted at any time. But it is also the only record that a journal existed and how long it was; that is removed only on
request (`durability_check.forget`) or with the file. Rows are kept in memory while the gateway runs; changes are written in
the background, at most once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import msgspec

from sessions.catalog.catalog_file import Batch, CatalogFile, add_checksum, verify_checksum
from sessions.catalog.lineage import Lineage
from sessions.catalog.receipt_batches import CollectedReceipts, ReceiptBatch, collect_receipts, encode_batch
from sessions.catalog.scan import scan_logs
from sessions.catalog.sqlite import Error, Unavailable
from sessions.events.errors import StorageFailed, UnknownSession
from sessions.files.fsync import UNSURE
from sessions.state.transcript import FOLD, Transcript, from_checkpoint, to_checkpoint
from sessions.store.catalog import SessionRow, portions
from sessions.store.protocols import START, LogReader, Position
from sessions.store.receipts import REMEMBERED, Receipts

PAUSE = 1.0
"""Seconds for which changes are collected before they are written."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    fold: int
    position: Position
    transcript: bytes


def encode_checkpoint(session: str, position: Position, transcript: Transcript) -> bytes:
    """Return the checkpoint of a session with a checksum. The cost grows with the transcript: do not call it on the event
    loop."""
    stored = _Stored(fold=FOLD, position=position, transcript=to_checkpoint(transcript))
    return add_checksum(session, msgspec.msgpack.encode(stored))


def decode_checkpoint(session: str, sealed: object) -> tuple[Position, Transcript] | None:
    """Decode a checkpoint of this session; None if it is invalid, or of another version of the fold."""
    value = verify_checksum(session, sealed)
    if value is None:
        return None
    try:
        stored = msgspec.msgpack.decode(value, type=_Stored)
        if stored.fold != FOLD:
            return None
        return stored.position, from_checkpoint(stored.transcript)
    except msgspec.MsgspecError:
        return None  # written by a version with another format


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
        self._covered: dict[str, Position] = {}
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
            self._covered[row.session] = START  # its ids come with its first checkpoints
        self._lineage.put(row)
        self._changes.rows[row.session] = row
        self._dirty.set()

    async def remove(self, sessions: Collection[str]) -> None:
        for session in sessions:
            self._lineage.remove(session)
            self._covered.pop(session, None)
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
        covered = self._covered.get(session)
        if receipts is not None and covered is not None and covered.seq < position.seq:
            messages = tuple(receipts.between(session, covered.seq, position.seq))
            self._cover(ReceiptBatch(session=session, after=covered.seq, upto=position, messages=messages))
        self._dirty.set()

    async def receipts(self, person: str, key: str) -> Receipts:
        found: list[tuple[str, CollectedReceipts]] = []
        wanted = REMEMBERED
        for row in self._lineage.all_of((person, key)):
            if wanted <= 0:
                break
            if (collected := await self._collect(row.session, wanted)) is not None:
                found.append((row.session, collected))
                wanted -= len(collected.messages)
        receipts = Receipts()
        for session, collected in reversed(found):
            receipts.extend(session, collected.messages)
        return receipts

    async def _collect(self, session: str, wanted: int) -> CollectedReceipts | None:
        stored = await self._file.receipts(session)
        try:
            collected = await asyncio.to_thread(collect_receipts, self._logs, session, stored, wanted)
        except (UnknownSession, StorageFailed) as error:
            cause = error.__cause__
            if isinstance(error, StorageFailed) and not (isinstance(cause, OSError) and cause.errno not in UNSURE):
                raise  # the ids exist and must not be treated as unknown
            self.unreadable[session] = str(error)
            return None
        self._covered[session] = collected.upto
        if collected.new is not None:
            self._cover(collected.new)
        return collected

    def _cover(self, batch: ReceiptBatch) -> None:
        self._covered[batch.session] = batch.upto
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
        batch = await asyncio.to_thread(_encode, changes)
        try:
            await self._file.write(batch)
            self.failure = None
        except Unavailable as error:
            self.failure = f"The catalog cannot be written: {error}."
            self._take_back(changes)
        except Error as error:
            await self._remake(error)
        except StorageFailed as error:
            self.failure = str(error)  # without a file, the next start reads the journals

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
        checkpoints=list(_encode_checkpoints(changes.checkpoints)),
        receipts=[(b.session, b.after, b.upto.seq, encode_batch(b)) for b in changes.receipts],
    )


def _encode_checkpoints(saved: Mapping[str, tuple[Position, Transcript]]) -> Iterator[tuple[str, bytes]]:
    """Yield the checkpoints that can be encoded. If a journal holds a number outside MessagePack's range, the session is
    folded from its journal."""
    for session, (position, transcript) in saved.items():
        with suppress(OverflowError):
            yield session, encode_checkpoint(session, position, transcript)


def _decode_rows(stored: list[tuple[object, object]]) -> list[SessionRow]:
    """Return the valid rows; the others are read from their journals again."""
    rows = []
    decode = msgspec.msgpack.Decoder(SessionRow).decode
    for session, sealed in stored:
        if isinstance(session, str) and (value := verify_checksum(session, sealed)) is not None:
            with suppress(msgspec.MsgspecError):
                rows.append(decode(value))
    return rows
