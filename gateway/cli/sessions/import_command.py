"""`exuvia import`: brings in what other programs hold. A running gateway is asked to write it; otherwise the files are
written here. The source is read in this process in either case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol, TypeVar, assert_never

import msgspec

from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.cli.sessions.session_changes import person_token
from gateway.config.settings import Settings
from gateway.conversations.facts.fact_store import facts_of, read_facts
from gateway.conversations.imports.branches import ImportSource
from gateway.conversations.imports.import_files import ImportFiles, KeptFile, SourceFiles, has_files
from gateway.conversations.imports.import_report import ImportedItems, ImportReport
from gateway.conversations.imports.import_service import ImportPlanner, ImportRequest, ImportService
from gateway.conversations.imports.journal_import import ConversationOutcome, JournalImport, UnusedHome
from gateway.conversations.imports.programs import FAMILY, files_of, reader_of
from gateway.conversations.imports.readers.import_values import (
    LeftOut,
    SourceConversation,
    SourceFact,
    SourceFile,
    SourceInvalid,
    SourceItem,
    SourceNote,
    SourceRoute,
    SourceSchedule,
    SourceSkill,
)
from gateway.conversations.imports.workspace_import import WorkspaceImport
from gateway.conversations.schedules.schedules import Schedules
from gateway.support import instance_address, logs
from gateway.support.clock import SystemClock
from gateway.support.errors import GatewayError
from gateway.support.storage import attachments_of, fact_logs, session_logs
from gateway.terminal.client import local_gateway
from gateway.terminal.client.local_gateway import address_of, request
from sessions.events.errors import HomeLocked
from sessions.files.home_lock import HomeLock

PATIENCE = 600.0
"""Seconds to wait for the gateway."""

FACTS_AT_ONCE = 1000
"""Facts that are added at once."""

T = TypeVar("T")


class ImportFailed(GatewayError):
    """The source cannot be read, or not to its end."""


class ImportTarget(Protocol):
    """Where a conversation, facts and a schedule go; see `ImportService`."""

    async def conversation(self, source: ImportSource, conversation: SourceConversation) -> ConversationOutcome: ...

    async def file(self, source: ImportSource, file: SourceFile) -> KeptFile: ...

    async def facts(self, source: ImportSource, entries: list[dict[str, Any]]) -> ImportedItems: ...

    async def schedule(self, source: ImportSource, wanted: SourceSchedule) -> ImportedItems: ...


def import_source(call: Invocation, program: str, path: Path, *, person: str, dry_run: bool) -> int:
    """Import what a program holds, and print the report.

    Raises ImportFailed, HomeLocked, SessionsError, RequestFailed.
    """
    source = ImportSource(person=person, program=FAMILY.get(program, program))
    report = ImportReport(program, dry_run=dry_run)
    config = call.config()
    workspace = call.home.workspace(config.agent.workspace)
    files = WorkspaceImport(workspace, config.skills.folders(workspace)[0], source.program, person, dry_run=dry_run)
    items = reader_of(program)(path)
    failure: SourceInvalid | None = None

    async def work(target: ImportTarget) -> None:
        with ExitStack() as stack:
            place = files_of(program, path)
            reader = stack.enter_context(closing(place)) if place else None
            named = SourceFiles(reader, lambda file: target.file(source, file))
            stored = _with_files(items, _planner(call), source, named, report)
            await _import(stored, target, source, files, report)
            report.add("files", "new", named.kept)

    try:
        _run(call, work, dry_run=dry_run)
    except SourceInvalid as error:
        failure = error
    if call.as_json:
        print_json(report.values(), call.out)
    elif failure is None or report.values().items:
        call.out.write(report.text())
    if failure is not None:
        raise ImportFailed(str(failure))
    return SUCCESS


async def _with_files(
    items: Iterator[SourceItem], planner: ImportPlanner, source: ImportSource, files: SourceFiles, report: ImportReport
) -> AsyncIterator[SourceItem]:
    """Yield the items; the files of messages that are not here yet are stored before."""
    for item in items:
        if not isinstance(item, SourceConversation) or not has_files(item):
            yield item
            continue
        yield await files.stored(item, await planner.missing(source, item))
        for left in files.left(item.title or item.name):
            report.leave(left)


async def _import(
    items: AsyncIterator[SourceItem],
    target: ImportTarget,
    source: ImportSource,
    files: WorkspaceImport,
    report: ImportReport,
) -> None:
    """Import the items one by one. Facts are collected, since each addition is one event."""
    facts: list[dict[str, Any]] = []
    async for item in items:
        match item:
            case SourceConversation():
                report.add_conversation(await target.conversation(source, item))
            case SourceNote():
                report.add_written("notes", files.note(item))
            case SourceSkill():
                report.add_written("skills", files.skill(item))
            case SourceFact(entry=entry):
                facts.append(entry)
            case SourceSchedule():
                report.add_items("schedules", await target.schedule(source, item))
            case SourceRoute():
                report.add_route(item)
            case LeftOut():
                report.leave(item)
            case _:
                assert_never(item)
        if len(facts) >= FACTS_AT_ONCE:
            report.add_items("facts", await target.facts(source, facts))
            facts = []
    if facts:
        report.add_items("facts", await target.facts(source, facts))


def _run(call: Invocation, work: Callable[[ImportTarget], Coroutine[Any, Any, None]], *, dry_run: bool) -> None:
    """Do the work with the files of the home if no gateway uses them, else with the running one; a dry run only reads."""
    if dry_run:
        asyncio.run(work(_planner(call)))
        return
    call.home.make(call.config().agent.workspace)

    async def in_files() -> None:
        async with _service(call) as target:
            await work(target)

    try:
        with HomeLock(call.home.lock):
            asyncio.run(in_files())
            return
    except HomeLocked:
        if instance_address.running_instance(call.home.address) is None:  # something else holds it, or it is starting
            raise
    asyncio.run(work(_Gateway(call)))


def _planner(call: Invocation) -> ImportPlanner:
    root, settings = fact_logs(call.home), Settings(call.config())
    return ImportPlanner(
        session_logs(call.home),
        root,
        limit=lambda: settings.current.gateway.attachment_bytes,
        facts=lambda: read_facts(root),
        now=SystemClock().now,
        zone=settings.zone_of,
    )


@asynccontextmanager
async def _service(call: Invocation) -> AsyncIterator[ImportService]:
    from gateway.wiring.open_stores import open_catalog, open_log_stores  # noqa: PLC0415 - the writers, for files only

    logs.configure("error", "auto")
    clock, settings = SystemClock(), Settings(call.config())
    async with (
        open_log_stores(call.home) as stores,
        open_catalog(call.home, stores.sessions) as catalog,
        facts_of(stores.facts, call.home, settings, clock) as facts,
        Schedules(stores.facts, clock.now) as schedules,
    ):
        journals = JournalImport(stores.sessions, catalog, UnusedHome(stores.sessions))
        files = ImportFiles(attachments_of(call.home), lambda: settings.current.gateway.attachment_bytes)
        now, zone = clock.now, settings.zone_of
        yield ImportService(journals, files, stores.facts, facts=facts, schedules=schedules, now=now, zone=zone)


class _Gateway:
    """The `ImportTarget` of a running gateway."""

    def __init__(self, call: Invocation) -> None:
        self._call = call

    async def conversation(self, source: ImportSource, conversation: SourceConversation) -> ConversationOutcome:
        wanted = ImportRequest(program=source.program, conversation=conversation)
        return await self._ask(source, wanted, ConversationOutcome)

    async def file(self, source: ImportSource, file: SourceFile) -> KeptFile:
        return await self._ask(source, ImportRequest(program=source.program, file=file), KeptFile)

    async def facts(self, source: ImportSource, entries: list[dict[str, Any]]) -> ImportedItems:
        return await self._ask(source, ImportRequest(program=source.program, facts=entries), ImportedItems)

    async def schedule(self, source: ImportSource, wanted: SourceSchedule) -> ImportedItems:
        return await self._ask(source, ImportRequest(program=source.program, schedule=wanted), ImportedItems)

    async def _ask(self, source: ImportSource, wanted: ImportRequest, answer: type[T]) -> T:
        call, token = self._call, person_token(self._call, source.person)
        endpoint = local_gateway.find_gateway(call.home, call.environment, url=None, token=token)
        address, body = address_of(endpoint.url), msgspec.json.encode(wanted)
        content = await asyncio.to_thread(
            request, "POST", address, "/api/imports", endpoint.token, patience=PATIENCE, body=body
        )
        return msgspec.json.decode(content, type=answer)
