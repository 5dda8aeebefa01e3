"""The context of a person's sessions as JSON: what its requests held, turn by turn, and any of them exactly.

    GET /api/context/{key}                              sizes and marks of a page of turns
    GET /api/context/{key}/turns/{turn}                 one turn's requests, and what one of them held
    GET /api/context/{key}/turns/{turn}/messages/{at}   the whole text of one of its messages
    GET /api/context/{key}/turns/{turn}/request.json    the exact bytes of a request
    GET /api/context/{key}/compactions/{number}         one compaction's before and after

`?session=` names another session of the key than the current one, `?call=` another request of a turn than the last.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable

from aiohttp import web

from gateway.auth.people import Admission
from gateway.conversations.commands.compaction_entries import in_force
from gateway.conversations.routing.switchboard import Switchboard
from gateway.http.console.context_sizes import PARTS, ContextSizes
from gateway.http.console.context_turn import (
    NotThere,
    canonical_request,
    message_of,
    request_of,
    shown_compaction,
    shown_turn,
)
from gateway.http.responses import HEADERS, answer, refusal
from gateway.journals.past_requests import PastRequest, requests_of_turn
from sessions.catalog.catalog import SessionRow
from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession

PAGE, MOST = 300, 2000
"""Turns of one answer, if nothing is said, and at most."""

SLICE = 1.0
"""Seconds for which one request reads in a journal that was not read yet; then it says how far it is."""

AT_ONCE = 2
"""Threads that read journals at once: the others are for the turns."""

REMEMBERED = 3
"""Sessions whose sizes are kept."""


class ContextEndpoints:
    """Answers for whoever was let in, of their own sessions alone."""

    def __init__(self, switchboard: Switchboard) -> None:
        self._switchboard = switchboard
        self._known: OrderedDict[str, ContextSizes] = OrderedDict()
        self._threads = asyncio.Semaphore(AT_ONCE)
        self._asked: tuple[tuple[str, int, int], list[PastRequest]] | None = None

    async def sizes(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """A page of turns, the newest without `before`; `read` is the seq up to which the journal was read: while it is less
        than `head`, ask again."""
        return await _told(self._sizes(request, admission))

    async def turn(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """A turn's requests, and a page of the messages of one."""
        return await _told(self._turn(request, admission))

    async def message(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """The whole text of one message."""
        return await _told(self._message(request, admission))

    async def request(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """The canonical JSON of a request, as a file."""
        return await _told(self._request(request, admission))

    async def compaction(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """A compaction's before and after."""
        return await _told(self._compaction(request, admission))

    # --- what is answered ---------------------------------------------------------------------------------------------

    async def _sizes(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        row = self._row(request, admission)
        limit = min(MOST, _number(request, "limit") or PAGE)
        before = _number(request, "before")
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

    async def _turn(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        row = self._row(request, admission)
        asked = await self._requests(row, _place(request, "turn"))
        call, before = _number(request, "call"), _number(request, "before")
        return answer(200, await asyncio.to_thread(shown_turn, row.session, asked, call, before))

    async def _message(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        asked = await self._requests(self._row(request, admission), _place(request, "turn"))
        call = _number(request, "call") or len(asked)
        return answer(200, {"text": message_of(asked, call, _place(request, "at"))})

    async def _request(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        turn = _place(request, "turn")
        row = self._row(request, admission)
        number, context = request_of(await self._requests(row, turn), _number(request, "call"))
        name = f'attachment; filename="{row.session}-turn-{turn}-{number}.json"'
        body = await asyncio.to_thread(canonical_request, context)
        return web.Response(body=body, content_type="application/json", headers={**HEADERS, "Content-Disposition": name})

    async def _compaction(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        row = self._row(request, admission)
        number = _place(request, "number")
        sizes = await self._read(row)
        path = self._switchboard.path(row.session)
        async with self._threads:
            return answer(200, await asyncio.to_thread(shown_compaction, path, sizes, number))

    # --- the journals -------------------------------------------------------------------------------------------------

    def _row(self, request: web.Request, admission: Admission) -> SessionRow:
        """The session that is meant, with the last seq of it that is durable; UnknownSession where the person has none."""
        key, wanted, person = request.match_info["key"], request.query.get("session"), admission.person.id
        current = next((row for row in self._switchboard.sessions(person) if row.key == key), None)
        row = current if wanted is None or (current and current.session == wanted) else self._switchboard.row(wanted)
        if row is None or row.person != person or row.key != key:
            raise UnknownSession(f"There is no session {wanted or key}.")
        return row

    async def _read(self, row: SessionRow) -> ContextSizes:
        """What is known of a session, read on for a while."""
        sizes = self._known.pop(row.session, None) or ContextSizes(self._switchboard.path(row.session))
        self._known[row.session] = sizes
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        async with self._threads:
            await asyncio.to_thread(sizes.read, row.head, SLICE)
        return sizes

    async def _requests(self, row: SessionRow, turn: int) -> list[PastRequest]:
        """A turn's requests; those looked at last are remembered, since their messages are asked for one by one."""
        wanted = row.session, row.head, turn
        if self._asked is None or self._asked[0] != wanted:
            begin = (await self._read(row)).before(turn=turn)
            path = self._switchboard.path(row.session)
            async with self._threads:
                asked = await asyncio.to_thread(requests_of_turn, path, turn, begin)
            self._asked = wanted, asked
            return asked
        return self._asked[1]


async def _told(work: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    """An answer, or why there is none."""
    try:
        return await work
    except (NotThere, UnknownSession) as error:
        return refusal(404, "not_found", str(error))
    except JournalDamaged as error:
        return refusal(409, "damaged_session", str(error))
    except StorageFailed as error:
        return refusal(503, "storage_failed", str(error))


def _number(request: web.Request, name: str) -> int | None:
    """A number of the query, None where there is none."""
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _place(request: web.Request, name: str) -> int:
    """A number of the path, which its pattern checked."""
    return int(request.match_info[name])
