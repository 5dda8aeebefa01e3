"""The conformance of stores: one state machine that every store must pass, over a model of what a store promises.

Derive from `StoreMachine`, name the store in `under_test`, and let pytest collect its `TestCase`.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from gateway.conversations.routing.conversation_runner import CatalogWriter
from sessions.events.codec import FIRST, decode, encode
from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.events.events import Event, MessageReceived, Recorded, SessionForked, SettingChanged
from sessions.state.reducer import project
from sessions.state.transcript import Transcript
from sessions.store.catalog import Catalog, Claims
from sessions.store.fork import fork
from sessions.store.header import read_header
from sessions.store.protocols import START, Lines, Position, Stamp, Store
from sessions.store.reading import StoredLog, verify_position
from sessions.store.recorder import Recorder, open_session
from sessions.store.rewriting import rechained
from tests.stories import AT, opened, received

NOW = datetime.fromisoformat(AT).astimezone(UTC)

PLACES = st.integers(0, 1000)
"""A line of a log, modulo its length: what is drawn must not depend on what a crash has left."""

TAILS = {
    "begun": b'{"seq":',
    "long": b"x" * 5000,
    "never written": bytes(70_000),
    "partly written": b'{"seq":9,' + bytes(100) + b"\n",
}

T = TypeVar("T")


class OpenStore(Protocol):
    """A store, opened by one gateway."""

    store: Store
    catalog: Catalog
    claims: Claims


class StoreUnderTest(Protocol):
    """A store, and what a test does to it from outside."""

    def __init__(self, folder: Path) -> None: ...

    async def start(self) -> OpenStore:
        """Open the store as a new process would."""
        ...

    async def stop(self) -> None:
        """Close the store."""
        ...

    async def crash(self) -> None:
        """End the process that has the store open without a warning."""
        ...

    def fail_next_commit(self, *, stored: bool) -> None:
        """Let the next commit fail: before anything is stored, or when it is and only the answer is lost."""
        ...

    def content(self, session: str) -> bytes:
        """Return all bytes of a log."""
        ...

    def replace(self, session: str, content: bytes | None) -> None:
        """Replace the bytes of a log that is not open, or remove the log."""
        ...

    leaves_torn_lines: bool
    """Whether a crash may leave an incomplete line."""


@dataclass
class Model:
    """The promised state of one log. Its `lines` are durable; a prefix of the lines in `uncertain`, which were appended
    without an answer, may be stored."""

    lines: list[bytes] = field(default_factory=list)
    uncertain: list[bytes] = field(default_factory=list)
    recorder: Recorder | None = None
    stamp: Stamp | None = None
    known: int = 0
    """The number of lines when `stamp` was read."""

    def next(self, event: Event) -> bytes:
        """Return the line of the next event."""
        lines = self.lines + self.uncertain
        previous = lines[-1][-19:-3] if lines else FIRST
        return encode(Recorded(seq=len(lines) + 1, at=AT, turn=None, event=event), previous)[0]

    @property
    def end(self) -> Position:
        """The position after the durable lines."""
        last = START
        for line in self.lines:
            last = last.after(line)
        return last

    @property
    def ids(self) -> dict[str, int]:
        """The seqs of the messages by id, without those of a fork's parent."""
        found: dict[str, int] = {}
        for line in self.lines:
            recorded = decode(line)
            if isinstance(recorded.event, SessionForked):
                found.clear()
            if isinstance(recorded.event, MessageReceived):
                found[recorded.event.id] = recorded.seq
        return found

    def fork_place(self, at: int) -> tuple[int, tuple[int, ...]]:
        """Return the last seq up to `at` that is between turns and not a message, and the messages that wait there."""
        place, waiting, left = 0, list[int](), tuple[int, ...]()
        for line in self.lines[:at]:
            recorded = decode(line)
            if isinstance(recorded.event, MessageReceived):
                waiting.append(recorded.seq)
                continue
            if isinstance(recorded.event, SessionForked):
                waiting.clear()
            place, left = recorded.seq, tuple(waiting)
        return place, left


class StoreMachine(RuleBasedStateMachine):
    """Writes, reads, forks, damages and reopens logs, and compares them with the model after every step."""

    under_test: ClassVar[type[StoreUnderTest]]
    logs = Bundle("logs")

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._outside = self.under_test(Path(self._folder.name))
        self._models: dict[str, Model] = {}
        self._number = self._events = 0

    def _run(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            async with asyncio.timeout(60):
                return await work

        return self._runner.run(run())

    def teardown(self) -> None:
        self._run(self._outside.stop())
        self._runner.close()
        self._folder.cleanup()

    @initialize()
    def start(self) -> None:
        self._run(self._start())

    # --- writing ------------------------------------------------------------------------------------------------------

    @rule(target=logs)
    def create(self) -> str:
        """The first line of a log is durable when its append returns; a second log of the same name is refused."""
        session = self._new_id()
        model = self._models[session] = Model()

        async def create() -> None:
            log = await self._store.create(session)
            model.recorder = Recorder(log, START, Transcript(), lambda: NOW)
            await self._append(session, [opened(session, session)])
            with pytest.raises(StorageFailed):
                await self._store.create(session)

        self._run(create())
        return session

    @rule(
        session=logs,
        sizes=st.lists(st.sampled_from([1, 50, 20_000, 300_000]), min_size=1, max_size=8),
        one_by_one=st.booleans(),
    )
    def append(self, session: str, sizes: list[int], *, one_by_one: bool) -> None:
        """Append events; those reported durable are in the log, in the order of the calls."""
        self._opened(session)
        events = [self._event(size) for size in sizes]
        for batch in [[event] for event in events] if one_by_one else [events]:
            self._run(self._append(session, batch))

    @rule(session=logs, count=st.integers(1, 30))
    def append_while_others_read(self, session: str, count: int) -> None:
        """Readers see a prefix of what was appended, never less than was durable before."""
        self._opened(session)
        model = self._models[session]
        before = len(model.lines)
        events = [self._event(2000) for _ in range(count)]

        async def run() -> list[list[bytes]]:
            reading = [asyncio.to_thread(StoredLog(self._store, session).lines, 1, 10**9) for _ in range(3)]
            found: list[list[bytes]] = []

            async def read(work: Awaitable[list[bytes]]) -> None:
                found.append(await work)

            async with asyncio.TaskGroup() as group:
                for work in reading:
                    group.create_task(read(work))
                group.create_task(self._append(session, events))
            return found

        for lines in self._run(run()):
            assert len(lines) >= before
            assert lines == model.lines[: len(lines)]

    @rule(session=logs, count=st.integers(1, 4), stored=st.booleans())
    def fail(self, session: str, count: int, *, stored: bool) -> None:
        """A failed append is reported, and the log takes nothing more until it is opened again, which decides about it."""
        self._opened(session)
        model = self._models[session]
        recorder = model.recorder
        assert recorder is not None
        self._outside.fail_next_commit(stored=stored)

        async def run() -> None:
            for number in range(count):
                event = self._event(100)
                model.uncertain.append(model.next(event))
                seq = recorder.append(event, urgent=number == count - 1)
            with pytest.raises(StorageFailed):
                await recorder.until_durable(seq)
            assert recorder.durable == len(model.lines)

        self._run(run())
        self._run(self._recover(session))

    @rule(session=logs, count=st.integers(0, 5))
    def crash(self, session: str, count: int) -> None:
        """After a crash every acknowledged line is there, and of the others none is without those before it."""
        self._opened(session)
        model = self._models[session]
        recorder = model.recorder
        assert recorder is not None

        async def run() -> None:
            for _ in range(count):
                event = self._event(5000)
                model.uncertain.append(model.next(event))
                recorder.append(event, urgent=True)
            await self._outside.crash()
            await self._start()

        self._run(run())

    # --- opening ------------------------------------------------------------------------------------------------------

    @rule(session=logs)
    def close(self, session: str) -> None:
        """Closing commits what was appended without an urgent line after it."""
        model = self._models[session]
        if (recorder := model.recorder) is None:
            return
        event = self._event(10)
        model.lines.append(model.next(event))

        async def run() -> None:
            recorder.append(event)
            await self._close(session)

        self._run(run())

    @rule()
    def restart(self) -> None:
        """A new process finds every log as it was."""

        async def run() -> None:
            for session in self._models:
                await self._close(session)
            await self._outside.stop()
            await self._start()

        self._run(run())

    @rule(session=logs)
    def open_twice(self, session: str) -> None:
        """A log has one writer."""
        self._opened(session)
        with pytest.raises(StorageFailed):
            self._run(self._store.open(session, fold=lambda _: None))

    # --- damage -------------------------------------------------------------------------------------------------------

    @rule(session=logs, how=st.sampled_from(sorted(TAILS)))
    def tear(self, session: str, how: str) -> None:
        """An incomplete last line was never acknowledged: readers leave it out, and opening sets it aside."""
        if not self._outside.leaves_torn_lines:
            return
        self._run(self._close(session))
        tail = TAILS[how]
        self._outside.replace(session, self._outside.content(session) + tail)
        model = self._models[session]
        model.stamp = None
        assert StoredLog(self._store, session).lines(1, 10**9) == model.lines
        assert StoredLog(self._store, session).verify().torn == len(tail)
        self._opened(session)

    @rule(session=logs, cut=st.integers(1, 5))
    def lose_the_end(self, session: str, cut: int) -> None:
        """A log that lost acknowledged lines is refused and left as it is, and so is a missing one."""
        self._run(self._close(session))
        model = self._models[session]
        kept = model.lines[:-cut]
        self._outside.replace(session, b"".join(kept) if kept else None)
        self._refused(session, line=len(kept) + 1 if kept else 0)
        if kept:
            self._refused(session, line=0, after=model.end)
            assert self._outside.content(session) == b"".join(kept)
        else:
            assert self._store.stamp(session) is None
            self._unknown(session)
        self._outside.replace(session, b"".join(model.lines))
        model.stamp = None

    @rule(session=logs, place=PLACES)
    def damage(self, session: str, place: int) -> None:
        """A line that was altered is named by everything that reads it, and what stands before it can be read."""
        self._run(self._close(session))
        model = self._models[session]
        harmed = place % len(model.lines)
        altered = model.lines[harmed].replace(b'"kind"', b'"kinD"', 1)
        self._outside.replace(session, b"".join([*model.lines[:harmed], altered, *model.lines[harmed + 1 :]]))
        self._refused(session, line=harmed + 1)
        if harmed:
            room = sum(map(len, model.lines[:harmed]))
            assert StoredLog(self._store, session).lines(1, room) == model.lines[:harmed]
        self._outside.replace(session, b"".join(model.lines))
        model.stamp = None

    @rule(session=logs, place=PLACES)
    def open_after_another_line(self, session: str, place: int) -> None:
        """A position is believed only if its line is the one that the log has there."""
        self._run(self._close(session))
        lines = self._models[session].lines
        there = Model(lines=lines[: 1 + place % len(lines)]).end
        for changed in ({"sum": b"0123456789abcdef"}, {"seq": there.seq + 1}, {"offset": there.offset - 1}):
            self._refused(session, line=0, after=msgspec.structs.replace(there, **changed))

    # --- forks --------------------------------------------------------------------------------------------------------

    @rule(target=logs, parent=logs, place=PLACES)
    def fork(self, parent: str, place: int) -> str:
        """A fork has its parent's lines, byte for byte, up to the place that was asked for, and one of its own."""
        session, model = self._new_id(), self._models[parent]
        at = 1 + place % len(model.lines)
        last, left = model.fork_place(at)
        made = self._run(fork(self._store, parent, session, session, NOW, at=at, exactly=False))
        assert (made.parent, made.parent_seq, made.session) == (parent, last, session)
        copy = self._models[session] = Model(lines=model.lines[:last])
        event = SessionForked(session=session, key=session, parent=parent, parent_seq=last, left=left)
        copy.lines.append(copy.next(event))
        self._opened(session)
        return session

    @rule(session=consumes(logs))
    def remove(self, session: str) -> None:
        """A log without a complete line can be removed, and no other."""
        empty = self._new_id()

        async def run() -> None:
            await self._close(session)
            await self._store.discard_empty(session)
            await (await self._store.create(empty)).close()
            await self._store.discard_empty(empty)

        self._run(run())
        assert self._store.stamp(session) is not None
        assert self._store.stamp(empty) is None

    @rule(session=logs, place=PLACES)
    def rewrite(self, session: str, place: int) -> None:
        """A closed log gets other lines at once, chained anew, or stays as it is if they cannot be written."""
        model = self._models[session]
        changed = place % len(model.lines) if model.lines else 0

        def change(line: bytes) -> bytes:
            return line.replace(b"xx", b"yy") if line.startswith(b'{"seq":%d,' % (changed + 1)) else line

        def failing(lines: Lines) -> Iterator[bytes]:
            yield from itertools.islice(rechained(lines, change), 1)
            raise StorageFailed("the disk is full")

        async def run() -> None:
            if model.recorder is not None:
                with pytest.raises(StorageFailed):
                    await self._store.rewrite(session, lambda lines: rechained(lines, change))
            await self._close(session)
            with pytest.raises(StorageFailed):
                await self._store.rewrite(session, failing)
            assert StoredLog(self._store, session).lines(1, 10**9) == model.lines
            await self._store.rewrite(session, lambda lines: rechained(lines, change))
            found = StoredLog(self._store, session).lines(1, 10**9)
            events = [decode(change(line)).event for line in model.lines]
            assert [decode(line).event for line in found] == events
            model.lines, model.stamp = found, None
            await self._reopen(session)
            self._indexer.put(model.recorder or pytest.fail("it was opened"))

        self._run(run())

    @rule(session=consumes(logs))
    def delete(self, session: str) -> None:
        """A log is removed once it is closed, and again without an error; its id is free."""

        async def run() -> None:
            if self._models[session].recorder is not None:
                with pytest.raises(StorageFailed):
                    await self._store.remove(session)
            await self._close(session)
            lines = self._models[session].lines
            if len(lines) > 1:
                assert not await self._store.remove(session, upto=len(lines) - 1)
                assert StoredLog(self._store, session).lines(1, 10**9) == lines
            for upto in (len(lines), len(lines), 0):
                assert await self._store.remove(session, upto=upto)
            await self._open.catalog.remove([session])
            assert await self._open.catalog.find(session) is None

        self._run(run())
        del self._models[session]
        self._unknown(session)

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def every_log_is_listed_with_its_stamp(self) -> None:
        """A log that has changed has another stamp."""
        if not self._models:
            return
        listed = dict(self._store.listed())
        assert list(listed) == sorted(self._models)
        for session, model in self._models.items():
            stamp = listed[session]
            assert self._store.stamp(session) == stamp
            assert model.recorder is None or model.recorder.log.stamp() == stamp
            if model.stamp is not None:
                assert stamp != model.stamp or len(model.lines) == model.known, session
            model.stamp, model.known = stamp, len(model.lines)

    @invariant()
    def every_log_reads_as_the_model(self) -> None:
        for session, model in self._models.items():
            with self._store.read(session) as lines:
                assert list(lines.forward(START)) == model.lines
                ends = [sum(map(len, model.lines[: number + 1])) for number in range(len(model.lines))]
                assert list(lines.backward())[::-1] == list(zip(model.lines, ends, strict=True))
                assert lines.size == ends[-1]
                middle = len(model.lines) // 2 + 1
                before = lines.position_before(middle)
                assert before == Model(lines=model.lines[: middle - 1]).end
                assert list(lines.forward(before, ends[-1])) == model.lines[middle - 1 :]
                assert lines.position_before(len(model.lines) + 1) is None
                verify_position(lines, model.end)
                assert read_header(lines).key == session
            assert StoredLog(self._store, session).lines(middle, 1) == model.lines[middle - 1 : middle]

    # --- helpers ------------------------------------------------------------------------------------------------------

    @property
    def _store(self) -> Store:
        return self._open.store

    def _new_id(self) -> str:
        self._number += 1
        return f"20261121-{self._number:06d}-aaaaaa"

    def _event(self, size: int) -> Event:
        """Return an event of about this size; every third is not a message."""
        self._events += 1
        if self._events % 3 == 0:
            return SettingChanged(name="title", value="x" * min(size, 100), by="owner")
        return received("x" * size, f"m{self._events}")

    async def _start(self) -> None:
        """Open the store, and decide about the lines that are uncertain."""
        self._open = await self._outside.start()
        self._indexer = CatalogWriter(self._open.catalog)
        for session, model in self._models.items():
            row = await self._open.catalog.find(session)
            assert row is not None
            assert len(model.lines) <= row.head <= len(model.lines) + len(model.uncertain)
            model.recorder = model.stamp = None
            await self._reopen(session)
            await self._close(session)
            row = await self._open.catalog.current("owner", session)
            assert row is not None
            assert (row.session, row.head) == (session, len(model.lines))
            receipts = await self._open.catalog.receipts("owner", session)
            assert {id_: found.seq for id_ in model.ids if (found := receipts.find(id_))} == model.ids
            assert len(receipts) == len(model.ids)
        listed = [row.session for row in await self._open.catalog.sessions("owner")]
        assert listed == sorted(self._models)
        unowned = {key async for _, key in self._open.claims.unowned()}
        assert unowned == {row.key for row in await self._open.catalog.unsettled()}

    async def _reopen(self, session: str) -> None:
        """Open a log, which must hold every durable line and some of the uncertain ones."""
        model = self._models[session]
        found = await open_session(self._store, self._open.catalog, session)
        stored = await found.log.lines(1, limit=10**9)
        assert stored[: len(model.lines)] == model.lines
        assert stored[len(model.lines) :] == model.uncertain[: len(stored) - len(model.lines)]
        model.lines, model.uncertain = stored, []
        assert found.position == model.end
        assert found.log.end == found.log.durable == model.end.offset
        assert found.transcript == project(model.lines)
        model.recorder = Recorder(found.log, found.position, found.transcript, lambda: NOW)
        self._indexer.begin(model.recorder)

    def _opened(self, session: str) -> None:
        if self._models[session].recorder is None:
            self._run(self._reopen(session))

    async def _append(self, session: str, events: list[Event]) -> None:
        """Append events and wait until they are durable."""
        model = self._models[session]
        assert model.recorder is not None
        appended = []
        for event in events:
            appended.append(model.next(event))
            model.lines.append(appended[-1])
            seq = model.recorder.append(event, urgent=event is events[-1])
        await model.recorder.until_durable(seq)
        assert seq == len(model.lines) == model.recorder.durable
        assert await model.recorder.log.lines(seq - len(events) + 1, limit=10**9) == appended
        self._indexer.put(model.recorder)

    async def _close(self, session: str) -> None:
        model = self._models[session]
        if (recorder := model.recorder) is not None:
            model.recorder = None
            await recorder.close()
            assert recorder.failure is None
            assert recorder.durable == len(model.lines)
            self._indexer.end(recorder, await self._open.catalog.receipts("owner", session))

    async def _recover(self, session: str) -> None:
        """Open a failed log again; if the whole storage has failed, start again."""
        model = self._models[session]
        assert model.recorder is not None
        await model.recorder.close()
        if not self._store.failure.done():
            model.recorder = None
            await self._reopen(session)
            return
        await self._outside.stop()
        await self._start()

    def _refused(self, session: str, *, line: int, after: Position = START) -> None:
        """Opening must name the damage."""
        expected = len(self._models[session].lines)

        with pytest.raises(JournalDamaged) as caught:
            self._run(self._store.open(session, after=after, fold=lambda _: None, least=expected))
        assert (caught.value.session, caught.value.line) == (session, line)

    def _unknown(self, session: str) -> None:
        for attempt in (self._store.open(session, fold=lambda _: None), self._store.verify(session)):
            with pytest.raises(UnknownSession):
                self._run(attempt)
        with pytest.raises(UnknownSession):
            StoredLog(self._store, session).verify()
