"""`exuvia store`: examining a database, and copying logs between a home and a database; `exuvia cluster`: the gateways that
share one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TextIO

import click
import msgspec

from gateway.cli.options import PROBLEM, SUCCESS, Invocation, home_at, print_json
from gateway.config.secret_references import References
from gateway.doctor.store_checks import findings_about
from gateway.status.cluster_status import cluster_status, describe_cluster
from gateway.support.home import Home
from gateway.support.printable import one_line, printable
from gateway.support.storage import agents_with_logs, attachments_of, cluster_rows, examine_database, plugins_with_logs
from gateway.wiring.open_stores import LogStores, open_log_stores
from plugins.support.secrets import Secret
from sessions.events.errors import JournalDamaged, SessionsError, StorageFailed
from sessions.files.fsync import make_folder
from sessions.files.home_lock import HomeLock
from sessions.store.protocols import START, Blobs, Log, LogReader, Position, Store
from sessions.store.reading import PAGE_BYTES, StoredLog, verify_position

ATTACHMENTS = "attachments"

URLS = ("postgres://", "postgresql://", "env:", "file:", "credential:")
"""The beginnings of a database's URL, or of a reference to one."""


def check_store(call: Invocation, url: str | None) -> int:
    """Print what was measured and found on the database at this URL, or on the configured one."""
    if url is not None and not url.startswith(URLS):
        raise click.ClickException("--url must be postgresql://… or a reference such as env:DATABASE_URL.")
    database = _resolved(url) if url is not None else call.config().store.database
    if database is None:
        raise click.ClickException(
            "The logs are files of the home; `exuvia doctor` checks them. `--url` examines a database before you move there."
        )
    report = examine_database(database)
    findings = list(findings_about(report))
    wrong = any(finding.level == "wrong" for finding in findings)
    if call.as_json:
        print_json({"server": report, "findings": findings}, call.out)
        return PROBLEM if wrong else SUCCESS
    call.out.write(
        f"{report.server}: PostgreSQL {report.version}; a statement takes {report.answer_ms} ms,"
        f" a commit {report.commit_ms} ms. Tables of version {report.tables} of {report.newest}."
        f" Synchronous standbys: {report.standbys or 'none'}.\n"
    )
    for finding in findings:
        mark = "" if finding.level == "wrong" else "(note) "
        call.out.write(one_line(f"{mark}{finding.what} {finding.mend}", 600) + "\n")
    return PROBLEM if wrong else SUCCESS


def show_cluster(call: Invocation) -> int:
    """Print the gateways that share the configured database. It needs no running gateway."""
    url = call.config().store.database
    if url is None:
        raise click.ClickException(
            'The logs are files of the home, which one gateway has; a cluster needs store.kind = "postgres".'
        )
    found = cluster_status(cluster_rows(url), None)
    if call.as_json:
        print_json(found, call.out)
    else:
        call.out.write(printable(describe_cluster(found)) + "\n")
    return PROBLEM if found.problems else SUCCESS


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of a log: its number of events, and how many of them were copied now; or why it could not be copied. That of
    an attachment has the store `attachments` and the hash as its log; `new` is 1 if it was copied now."""

    store: str
    log: str
    events: int = 0
    new: int = 0
    fault: str = ""


def copy_store(origin: str, target: str, out: TextIO, *, as_json: bool) -> int:
    """Copy all logs and attachments between a home and a database; what was copied before is verified, not copied again.

    No gateway may run on either. Returns PROBLEM if something could not be copied. Raises HomeLocked, StorageFailed.
    """
    to_database = target.startswith(URLS)
    if to_database == origin.startswith(URLS):
        raise click.ClickException("One of --from and --to must be a home, the other the URL of a database.")
    place, url = (origin, target) if to_database else (target, origin)
    files = home_at(Path(place))
    if to_database and not files.root.is_dir():
        raise click.ClickException(f"There is no home at {files.root}.")
    if not to_database:
        files.make()
    rows = msgspec.structs.replace(files, database=_resolved(url))
    with HomeLock(files.lock):
        copied = asyncio.run(_copy_all(files, rows) if to_database else _copy_all(rows, files))
    faults = [each for each in copied if each.fault]
    if as_json:
        print_json(copied, out)
    else:
        out.writelines(f"{one_line(each.log, 64)}: {one_line(each.fault, 600)}\n" for each in faults)
        contents = [each for each in copied if each.store == ATTACHMENTS]
        logs = [each for each in copied if each.store != ATTACHMENTS]
        whole, new = sum(not each.fault for each in logs), sum(each.new for each in logs)
        out.write(f"{whole} logs are the same in both places, byte for byte; {new} events were copied now.\n")
        if contents:
            whole, new = sum(not each.fault for each in contents), sum(each.new for each in contents)
            out.write(f"{whole} attachments are in both places; {new} were copied now.\n")
    return PROBLEM if faults else SUCCESS


def _resolved(url: str) -> Secret:
    return References(os.environ, Path()).resolve(url)


async def _copy_all(origin: Home, target: Home) -> list[Copied]:
    async with open_log_stores(origin) as source, open_log_stores(target) as sink:
        for agent in agents_with_logs(origin) if target.database is None else ():
            make_folder(target.of_agent(agent).root)
        copied = []
        for kind, name, store_of in _logs(origin, source):
            if store_of(source).stamp(name) is not None:
                copied.append(await copied_log(kind, name, store_of(source), store_of(sink)))
    return copied + await _copy_attachments(attachments_of(origin), attachments_of(target))


async def _copy_attachments(source: Blobs, sink: Blobs) -> list[Copied]:
    copied = []
    for person, attachment, named in await asyncio.to_thread(lambda: list(source.records())):
        digest = attachment.sha256
        try:
            there = await sink.find(person, digest) is not None and not await asyncio.to_thread(sink.fault, digest)
            if not there:
                content = await source.read(digest)
                kept = await sink.store(content, person, claimed=attachment.media, name=attachment.name)
                if named:
                    await sink.settle(person, (kept,))
        except (SessionsError, OSError) as error:
            copied.append(Copied(store=ATTACHMENTS, log=digest, fault=str(error)))
        else:
            copied.append(Copied(store=ATTACHMENTS, log=digest, new=int(not there)))
    return copied


def _logs(home: Home, stores: LogStores) -> Iterator[tuple[str, str, Callable[[LogStores], Store]]]:
    """Yield the kind and the name of each log that a home may have, and a function that returns its store."""
    for session, _ in stores.sessions.listed():
        yield "sessions", session, lambda each: each.sessions
    for name, _ in stores.facts.listed():
        yield "home", name, lambda each: each.facts
    for agent in agents_with_logs(home):
        for name, _ in stores.of_agent(agent).listed():
            yield f"agents/{agent}", name, partial(_of_agent, agent)
    for plugin in plugins_with_logs(home):
        yield f"plugins/{plugin}", "log", partial(_of_plugin, plugin)


def _of_plugin(plugin: str, stores: LogStores) -> Store:
    return stores.of_plugin(plugin)


def _of_agent(agent: str, stores: LogStores) -> Store:
    return stores.of_agent(agent)


async def copied_log(kind: str, name: str, source: LogReader, sink: Store) -> Copied:
    """Copy what is missing of a log, and compare both logs."""
    try:
        whole = await asyncio.to_thread(StoredLog(source, name).verify)
        if not whole.events:  # nothing of it was ever acknowledged
            return Copied(store=kind, log=name)
        log, begun = await _opened(name, source, sink)
        try:
            await _fill(log, begun, StoredLog(source, name))
        finally:
            await log.close()
        copy = await asyncio.to_thread(StoredLog(sink, name).verify)
    except SessionsError as error:
        return Copied(store=kind, log=name, fault=str(error))
    if copy.last != whole.last:
        return Copied(store=kind, log=name, fault="the copy differs from the original.")
    return Copied(store=kind, log=name, events=whole.events, new=whole.events - begun.seq)


async def _opened(name: str, source: LogReader, sink: Store) -> tuple[Log, Position]:
    """Open or create the copy. Raises StorageFailed if it is not the beginning of the original."""
    if await asyncio.to_thread(sink.stamp, name) is None:
        return await sink.create(name), START
    log, last = await sink.open(name, fold=lambda _: None)
    try:
        await asyncio.to_thread(_verify_position, source, name, last)
    except JournalDamaged as differs:
        await log.close()
        raise StorageFailed(
            f"There is another log of this name in {sink.location(name)}, which is left as it is: {differs.reason}."
        ) from differs
    return log, last


def _verify_position(source: LogReader, name: str, position: Position) -> None:
    with source.read(name) as lines:
        verify_position(lines, position)


async def _fill(log: Log, after: Position, origin: StoredLog) -> None:
    """Append the lines of a log after a position, a page at a time. Raises SessionsError."""
    failures: list[StorageFailed] = []
    moved = asyncio.Event()

    def failed(failure: StorageFailed) -> None:
        failures.append(failure)
        moved.set()

    log.on_commit(lambda _: moved.set(), failed)
    seq = after.seq + 1
    while lines := await asyncio.to_thread(origin.lines, seq, PAGE_BYTES):
        for line in lines:
            log.append(line, urgent=line is lines[-1])
        seq += len(lines)
        while log.durable < log.end and not failures:
            moved.clear()
            await moved.wait()
        if failures:
            raise failures[0]
