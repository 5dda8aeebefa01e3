"""JSON endpoints for whole conversations of a person, and for schedules, which put messages into them.

GET /api/conversations/search?q=…      the messages with these words, newest first
GET /api/conversations/{key}/tree      its sessions, and the forks that share an origin with one of them
GET /api/conversations/{key}/export    all its sessions as a file: `?format=` markdown, json or jsonl

POST /api/erasures                     erase `{"session"?, "message"?, "person"?}`, and return the receipt

GET    /api/schedules               all of them
POST   /api/schedules               `{"text", "session"?, …}`: set one; `text` begins with the time
GET    /api/schedules/heartbeat     the heartbeat, or null
GET    /api/schedules/calendar      what is due on each day: `?from=2026-12-01&days=42`
GET    /api/schedules/{id}          one, with its next times
POST   /api/schedules/{id}/run      put the text into the conversation now
POST   /api/schedules/{id}/pause    nothing of it is due until it is resumed
POST   /api/schedules/{id}/resume   resume it
DELETE /api/schedules/{id}          remove one

POST   /api/imports              a conversation, facts or a schedule of another program, from `exuvia import`
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from datetime import date
from typing import Annotated, get_args

import msgspec
from aiohttp import web

from gateway.auth.people import Admission
from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.commands.schedule_view import PersonsSchedules
from gateway.conversations.erasure.erasure_plan import Chosen
from gateway.conversations.erasure.erasures import Erased
from gateway.conversations.imports.branches import ImportSource
from gateway.conversations.imports.import_files import KeptFile
from gateway.conversations.imports.import_report import ImportedItems
from gateway.conversations.imports.import_service import ImportRequest, ImportService
from gateway.conversations.imports.journal_import import ConversationOutcome
from gateway.conversations.imports.programs import PROGRAMS
from gateway.conversations.routing.live_sessions import LiveSessions
from gateway.conversations.routing.person_erasure import PersonErasures
from gateway.conversations.routing.removals import Removals
from gateway.conversations.schedules.calendar import LONGEST as LONGEST_CALENDAR
from gateway.conversations.search.conversation_search import ConversationSearch, SearchUnavailable
from gateway.conversations.search.message_index import MessageHit
from gateway.http.concurrency import Quota
from gateway.http.request_bodies import BodyRefused, BodyShare, read_body
from gateway.http.responses import HEADERS, answer, refusal
from gateway.support.errors import Conflict, GatewayError, sentence_of
from gateway.support.session_export import MEDIA, SUFFIXES, ExportFormat, exported
from plugins.api.command import CommandFailed, ScheduleOptions
from plugins.api.fact_values import FactsError
from plugins.api.plugin_services import IndexUnusable
from plugins.support.workspace import OWNER
from sessions.events.codec import InvalidLine
from sessions.events.errors import SessionsError, UnknownSession
from sessions.events.events import MessageReceived
from sessions.store.reading import StoredLog

HITS, MOST = 20, 100
"""Hits in one response: the default and the maximum."""

LONGEST = 500
"""Characters of a query that are used."""

FIRST_YEAR, LAST_YEAR = 2000, 2099
"""The years of a calendar."""

PIECE = 256 * 1024
"""Bytes of an export that are read and sent at once."""


BODY_BYTES, BODY_SECONDS = 64 * 1024, 30.0
"""The maximum size of a request in bytes, and the seconds for it."""

_FORMATS: dict[str, ExportFormat] = {form: form for form in get_args(ExportFormat)}


class ConversationEndpoints:
    """The endpoints for an authenticated person's own conversations."""

    def __init__(
        self, sessions: LiveSessions, removals: Removals, search: ConversationSearch, persons: PersonErasures
    ) -> None:
        self._sessions = sessions
        self._removals = removals
        self._persons = persons
        self._search = search

    async def search(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return a page of the messages and answers that have all words of the query."""
        query, person = request.query.get("q", "").strip()[:LONGEST], admission.person.id
        limit = min(MOST, _number(request, "limit") or HITS)
        rows = await self._sessions.every(person)
        try:
            found = await self._search.find(person, query, rows, limit=limit, offset=_number(request, "offset"))
        except SearchUnavailable as error:
            return refusal(503, "search_unavailable", sentence_of(error))
        hits = [shown for hit in found.hits if (shown := await self._hit(hit)) is not None]
        return answer(200, {"hits": hits, "more": found.more, **({"pending": found.pending} if found.pending else {})})

    async def _hit(self, hit: MessageHit) -> dict[str, object] | None:
        """Return a hit with the title of its conversation, and whether that is archived; None if it was just deleted."""
        row = await self._sessions.row(hit.session)
        current = await self._sessions.current(*row.name) if row else None
        if row is None or current is None:
            return None
        shown: dict[str, object] = {"session": row.key, "session_id": hit.session, "title": current.title}
        shown |= {"archived": True} if current.archived else {}
        return shown | {name: getattr(hit, name) for name in ("seq", "at", "role", "snippet")}

    async def tree(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the sessions of a key and those that share an origin with one of them, oldest first."""
        nodes = await self._sessions.tree(admission.person.id, request.match_info["key"])
        return answer(200, nodes) if nodes else _unknown(request)

    async def erase(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Erase a message, a conversation, or a person, with everything that came of it. The owner may name another person;
        everything of a person is erased only by the owner."""
        try:
            wanted = msgspec.json.decode(await read_body(request, BODY_BYTES, BODY_SECONDS), type=_WantedErasure)
            person, by = wanted.person or admission.person.id, admission.person.id
            if by not in {person, OWNER}:
                return refusal(403, "forbidden", "Only the owner may erase what belongs to others.")
            if not wanted.session and (by != OWNER or not wanted.person):
                return refusal(403, "forbidden", "Only the owner may erase a person, who is named.")
            return answer(200, await self._erase(wanted, person, by))
        except BodyRefused as refused:
            return refused.response
        except (msgspec.MsgspecError, SessionsError, OSError, GatewayError, FactsError, IndexUnusable) as error:
            return _not_erased(error)

    async def _erase(self, wanted: _WantedErasure, person: str, by: str) -> Erased:
        if not wanted.session:
            return await self._persons.erase(person, by=by)
        if wanted.message is None:
            return await self._removals.erase_conversation(person, wanted.session, by=by)
        session = await self._session(person, wanted.session)
        return await self._removals.erase(person, session, Chosen(messages=frozenset({wanted.message})), by=by)

    async def _session(self, person: str, named: str) -> str:
        """Return the id of a session that is named by its id or its key."""
        row = await self._sessions.row(named) or await self._sessions.current(person, named)
        if row is None:
            raise UnknownSession(f"There is no session {named}.")
        return row.session

    async def export(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Send all sessions of a conversation as one file, oldest first."""
        key, form = request.match_info["key"], _FORMATS.get(request.query.get("format", "markdown"))
        if form is None:
            return refusal(400, "bad_request", f"The format is one of {', '.join(MEDIA)}.")
        logs = await self._logs(admission.person.id, key)
        if not logs:
            return _unknown(request)
        pieces = _pieces(exported(logs, form))
        try:
            first = await asyncio.to_thread(next, pieces, b"")
        except SessionsError as error:
            return refusal(409, "damaged_session", sentence_of(error))
        name = f'attachment; filename="{key.replace(":", "_")}.{SUFFIXES[form]}"'
        response = web.StreamResponse(headers={**HEADERS, "Content-Disposition": name, "Content-Type": MEDIA[form]})
        await response.prepare(request)
        while first:
            await response.write(first)
            first = await asyncio.to_thread(next, pieces, b"")
        await response.write_eof()
        return response

    async def _logs(self, person: str, key: str) -> list[StoredLog]:
        rows = sorted(await self._sessions.of_key(person, key), key=lambda row: (row.opened_at, row.session))
        return [self._sessions.log(row.session) for row in rows]


def _number(request: web.Request, name: str) -> int:
    """Return a number of the query; 0 if missing or invalid."""
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 0


def _pieces(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines joined into pieces. Each piece is made by one call, which blocks."""
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= PIECE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _unknown(request: web.Request) -> web.Response:
    return refusal(404, "not_found", f"There is no conversation {request.match_info['key'][:64]}.")


def _not_erased(error: Exception) -> web.Response:
    match error:
        case msgspec.MsgspecError():
            return refusal(400, "bad_request", f"The request is not valid: {error}.")
        case UnknownSession():
            return refusal(404, "not_found", sentence_of(error))
        case Conflict():
            return refusal(409, "conflict", sentence_of(error))
        case _:
            return refusal(503, "storage_failed", sentence_of(error))


class _WantedErasure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message with a seq, or without one all sessions of a key, or without that everything of a person."""

    session: Annotated[str, msgspec.Meta(max_length=64)] = ""
    message: Annotated[int, msgspec.Meta(ge=1)] | None = None
    person: str = ""


class _Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    session: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._:-]{0,64}\Z")] = ""
    reminder: bool = False
    missed: str = ""
    within: str = ""
    zone: str = ""
    to: str = ""


class ScheduleEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, services: CommandServices) -> None:
        self._services = services

    async def listed(self, _: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the schedules, the next one first."""
        return await _answered(self._view(admission).entries())

    async def heartbeat(self, _: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the heartbeat, null if there is none."""
        return await _answered(self._view(admission).heartbeat())

    async def calendar(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return what is due on each of some days."""
        try:
            first = date.fromisoformat(text) if (text := request.query.get("from", "")) else None
            days = int(request.query.get("days", "42"))
        except ValueError:
            return refusal(400, "bad_request", "`from` must be a day such as 2026-12-24, and `days` a number.")
        if not 1 <= days <= LONGEST_CALENDAR or (first is not None and not FIRST_YEAR <= first.year <= LAST_YEAR):
            return refusal(400, "bad_request", f"The days must be 1 to {LONGEST_CALENDAR}, within this century.")
        return await _answered(self._view(admission).calendar(first, days))

    async def add(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Set a schedule."""
        try:
            wanted = msgspec.json.decode(await read_body(request, BODY_BYTES, BODY_SECONDS), type=_Wanted)
        except BodyRefused as refused:
            return refused.response
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return refusal(
                400, "bad_request", "The body must be a JSON object with a text; see docs/console.md for the rest."
            )
        options = ScheduleOptions(
            missed=wanted.missed, within=wanted.within, zone=wanted.zone, session=wanted.session, to=wanted.to
        )
        return await _answered(self._view(admission).add(wanted.text, reminder=wanted.reminder, options=options))

    async def show(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return one schedule with its next times."""
        return await _answered(self._view(admission).show(request.match_info["schedule"]))

    async def run(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Put a text into its conversation now."""
        return await _answered(self._view(admission).run(request.match_info["schedule"]))

    async def pause(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Pause a schedule."""
        return await _answered(self._view(admission).pause(request.match_info["schedule"]))

    async def resume(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Resume a schedule."""
        return await _answered(self._view(admission).resume(request.match_info["schedule"]))

    async def remove(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Remove a schedule."""
        return await _answered(self._view(admission).remove(request.match_info["schedule"]))

    def _view(self, admission: Admission) -> PersonsSchedules:
        """Return the schedules of the person, as if they had typed a command in the console."""
        message = MessageReceived(
            id="", client="http", sender=admission.person.id, channel="websocket", chat="private", text="", attachments=()
        )
        return PersonsSchedules(self._services, message, "main")


async def _answered(asked: Awaitable[object]) -> web.Response:
    try:
        return answer(200, await asked)
    except CommandFailed as failed:
        return refusal(422, "refused", str(failed))


IMPORT_BYTES, IMPORT_SECONDS = 64 * 1024 * 1024, 300.0
"""The maximum size of a part of an import in bytes, and the seconds for it."""

IMPORTS_BYTES = 96 * 1024 * 1024
"""Maximum bytes of all parts of imports in progress."""


class ImportEndpoint:
    """The endpoint for a person's own imports."""

    def __init__(self, service: ImportService) -> None:
        self._service = service
        self._bodies = Quota(IMPORT_BYTES, IMPORTS_BYTES)

    async def add(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Import one part."""
        with BodyShare.of(self._bodies, admission.person.id) as share:
            try:
                body = await read_body(request, IMPORT_BYTES, IMPORT_SECONDS, share)
                wanted = msgspec.json.decode(body, type=ImportRequest)
            except BodyRefused as refused:
                return refused.response
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                return refusal(400, "bad_request", f"The request is not valid: {str(error)[:200]}.")
            if wanted.program not in PROGRAMS:
                return refusal(400, "bad_request", f"The program is one of {', '.join(PROGRAMS)}.")
            try:
                outcome = await self._import(ImportSource(person=admission.person.id, program=wanted.program), wanted)
            except (SessionsError, InvalidLine) as error:
                return refusal(503, "storage_failed", sentence_of(error))
        if outcome is None:
            return refusal(400, "bad_request", "The request has no conversation, file, facts or schedule.")
        return answer(200, outcome)

    async def _import(
        self, source: ImportSource, wanted: ImportRequest
    ) -> ConversationOutcome | ImportedItems | KeptFile | None:
        if wanted.file is not None:
            return await self._service.file(source, wanted.file)
        if wanted.conversation is not None and wanted.conversation.messages:
            return await self._service.conversation(source, wanted.conversation)
        if wanted.facts is not None:
            return await self._service.facts(source, wanted.facts)
        if wanted.schedule is not None:
            return await self._service.schedule(source, wanted.schedule)
        return None
