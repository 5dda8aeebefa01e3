"""JSON endpoints for the context of a person's sessions: the contents of their requests, turn by turn.

    GET /api/sessions/{session}                         the key and the agent of a session
    GET /api/context/{key}                              sizes and marks of a page of turns
    GET /api/context/{key}/turns/{turn}                 one turn's requests, and the contents of one of them
    GET /api/context/{key}/turns/{turn}/messages/{at}   the whole text of one of its messages
    GET /api/context/{key}/turns/{turn}/request.json    the exact bytes of a request
    GET /api/context/{key}/compactions/{number}         one compaction's before and after

`?session=` selects another session of the key than the current one, `?call=` another request of a turn than the last.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web

from gateway.auth.people import Admission
from gateway.conversations.commands.context_report import in_force
from gateway.conversations.routing.live_sessions import LiveSessions
from gateway.http.console.context_sizes import PARTS, ContextSizes
from gateway.http.console.context_turn import (
    NotFound,
    canonical_request,
    message_of,
    request_of,
    shown_compaction,
    shown_turn,
)
from gateway.http.responses import HEADERS, answer, refusal
from gateway.support.stored_sessions import PastRequest, requests_of_turn
from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.store.catalog import SessionRow

PAGE, MOST = 300, 2000
"""Turns in one response: the default and the maximum."""

SLICE = 1.0
"""Seconds for which one request reads a new journal; the response reports the progress."""

AT_ONCE = 2
"""Threads that read journals at the same time: the others are for turns."""

CACHED = 3
"""Sessions whose sizes are cached."""

_Method: TypeAlias = Callable[["ContextEndpoints", web.Request, Admission], Awaitable[web.StreamResponse]]


def _with_error_responses(handle: _Method) -> _Method:
    """Return a method that answers with the error response for its failure."""

    async def handle_errors(self: ContextEndpoints, request: web.Request, admission: Admission) -> web.StreamResponse:
        try:
            return await handle(self, request, admission)
        except (NotFound, UnknownSession) as error:
            return refusal(404, "not_found", str(error))
        except JournalDamaged as error:
            return refusal(409, "damaged_session", str(error))
        except StorageFailed as error:
            return refusal(503, "storage_failed", str(error))

    return handle_errors


class ContextEndpoints:
    """The endpoints for an authenticated person's own sessions."""

    def __init__(self, sessions: LiveSessions) -> None:
        self._sessions = sessions
        self._sizes: OrderedDict[str, ContextSizes] = OrderedDict()
        self.threads = asyncio.Semaphore(AT_ONCE)
        self._cached_turn: tuple[tuple[str, int, int], list[PastRequest]] | None = None

    async def session(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the key and the agent of one of the person's sessions, so that a citation of it can be opened."""
        row = await self._sessions.row(request.match_info["session"])
        if row is None or row.person != admission.person.id:
            return refusal(404, "not_found", "There is no such session.")
        return answer(200, {"session": row.session, "key": row.key, "agent": row.agent})

    @_with_error_responses
    async def sizes(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return a page of turns, the newest without `before`.

        `read` is the seq up to which the journal was read: while it is less than `head`, request the page again.
        """
        row = await self.row(request, admission)
        limit = min(MOST, query_number(request, "limit") or PAGE)
        before = query_number(request, "before")
        sizes = await self._read(row)
        turns = sizes.turns if before is None else [turn for turn in sizes.turns if turn.turn < before]
        page = turns[max(0, len(turns) - limit) :]
        first, last = (page[0].turn, page[-1].turn) if page else (0, 0)
        newest = page[-1:] == sizes.turns[-1:]
        body = {
            "key": row.key,
            "session": row.session,
            "before": row.succeeds.session if row.succeeds else None,
            "head": row.head,
            "read": sizes.transcript.head,
            "parts": PARTS,
            "turns": page,
            "marks": [mark for mark in sizes.marks if first <= mark.turn and (newest or mark.turn <= last)],
            "in_force": sorted(in_force(sizes.transcript)),
            "earlier": len(turns) > len(page),
            "newest": newest,
        }
        return answer(200, body)

    @_with_error_responses
    async def turn(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return a turn's requests, and a page of the messages of one."""
        row = await self.row(request, admission)
        requests = await self.past_requests(row, path_number(request, "turn"))
        call, before = query_number(request, "call"), query_number(request, "before")
        return answer(200, await asyncio.to_thread(shown_turn, row.session, requests, call, before))

    @_with_error_responses
    async def message(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the whole text of one message."""
        requests = await self.past_requests(await self.row(request, admission), path_number(request, "turn"))
        call = query_number(request, "call") or len(requests)
        return answer(200, {"text": message_of(requests, call, path_number(request, "at"))})

    @_with_error_responses
    async def request(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the canonical JSON of a request, as a file."""
        turn = path_number(request, "turn")
        row = await self.row(request, admission)
        number, context = request_of(await self.past_requests(row, turn), query_number(request, "call"))
        name = f'attachment; filename="{row.session}-turn-{turn}-{number}.json"'
        body = await asyncio.to_thread(canonical_request, context)
        return web.Response(body=body, content_type="application/json", headers={**HEADERS, "Content-Disposition": name})

    @_with_error_responses
    async def compaction(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return a compaction's before and after."""
        row = await self.row(request, admission)
        number = path_number(request, "number")
        sizes = await self._read(row)
        log = self._sessions.log(row.session)
        async with self.threads:
            return answer(200, await asyncio.to_thread(shown_compaction, log, sizes, number))

    # --- the journals -------------------------------------------------------------------------------------------------

    async def row(self, request: web.Request, admission: Admission) -> SessionRow:
        """Return the requested session with its last durable seq.

        Raises:
            UnknownSession: The person has no such session.
        """
        key, wanted, person = request.match_info["key"], request.query.get("session"), admission.person.id
        current = next((row for row in await self._sessions.current_sessions(person) if row.key == key), None)
        row = current if wanted is None or (current and current.session == wanted) else await self._sessions.row(wanted)
        if row is None or row.person != person or row.key != key:
            raise UnknownSession(f"There is no session {wanted or key}.")
        return row

    async def _read(self, row: SessionRow) -> ContextSizes:
        """Return the sizes of a session, after reading further for up to SLICE seconds."""
        sizes = self._sizes.pop(row.session, None) or ContextSizes(self._sessions.log(row.session))
        self._sizes[row.session] = sizes
        while len(self._sizes) > CACHED:
            self._sizes.popitem(last=False)
        async with self.threads:
            await asyncio.to_thread(sizes.read, row.head, SLICE)
        return sizes

    async def past_requests(self, row: SessionRow, turn: int) -> list[PastRequest]:
        """Return a turn's requests. The last ones are cached, since their messages are requested one by one."""
        wanted = row.session, row.head, turn
        if self._cached_turn is None or self._cached_turn[0] != wanted:
            begin = (await self._read(row)).before(turn=turn)
            log = self._sessions.log(row.session)
            async with self.threads:
                requests = await asyncio.to_thread(requests_of_turn, log, turn, begin)
            self._cached_turn = wanted, requests
            return requests
        return self._cached_turn[1]


def query_number(request: web.Request, name: str) -> int | None:
    """Return a number of the query; None if missing or invalid."""
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def path_number(request: web.Request, name: str) -> int:
    """Return a number of the path, whose pattern was checked."""
    return int(request.match_info[name])
