"""Read-only links to conversations.

POST   /api/conversations/{key}/shares         make one: `expires_days`, `live`, `tools`, `files`
GET    /api/conversations/{key}/shares         those of a conversation
DELETE /api/conversations/{key}/shares/{id}    revoke one
GET    /api/shared/{secret}                    what it shows, for everybody who has it
GET    /api/shared/{secret}/files/{session}/{seq}/{sha256}   a file of an event that it shows
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
from aiohttp import web

from gateway.auth.limits import AuthThrottle, source_of
from gateway.auth.people import Admission, token_digest
from gateway.conversations.routing.live_sessions import LiveSessions
from gateway.conversations.shares import ConversationShared, SharedSession, Shares, shown_events, shown_files, shown_sessions
from gateway.http.concurrency import Quota
from gateway.http.request_bodies import SIGN_IN_SECONDS, BodyRefused, read_body
from gateway.http.responses import answer, refusal
from gateway.http.uploads import Uploads
from gateway.support.errors import sentence_of
from plugins.api.context import Clock
from sessions.events.errors import SessionsError

LARGEST = 4096
"""Bytes of a request to make a link."""

PAGE_BYTES = 512 * 1024
"""Bytes of a journal that are read for one response."""

OF_ONE_ADDRESS, AT_ONCE = 4, 16
"""The limits of concurrent requests by people with links, from one address and in total."""

FILES_OF_ONE_ADDRESS, FILES_AT_ONCE = 32, 64
"""The same for files, of which a browser requests many at once. Only one line of a journal is read for each."""


class _Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a link. Without `expires_days` it works until it is revoked."""

    expires_days: Annotated[float, msgspec.Meta(gt=0, le=3650)] | None = None
    live: bool = False
    tools: bool = False
    files: bool = True


class ShareEndpoints:
    """The endpoints: for people, about their own conversations, and for everybody with a link."""

    def __init__(self, sessions: LiveSessions, shares: Shares, uploads: Uploads, clock: Clock) -> None:
        self._sessions = sessions
        self._shares = shares
        self._uploads = uploads
        self._throttle = AuthThrottle(clock.monotonic)
        self._pages = Quota(OF_ONE_ADDRESS, AT_ONCE)
        self._files = Quota(FILES_OF_ONE_ADDRESS, FILES_AT_ONCE)

    async def make(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Make a link and return its id and path, which nobody can read again."""
        try:
            body = await read_body(request, LARGEST, SIGN_IN_SECONDS)
            wish = msgspec.json.decode(body or b"{}", type=_Wish)
            rows = await self._sessions.of_key(admission.person.id, request.match_info["key"])
            if not rows:
                return _not_found()
            ordered = sorted(rows, key=lambda row: (row.opened_at, row.session))
            made, secret = await self._shares.make(
                ordered, days=wish.expires_days, live=wish.live, tools=wish.tools, files=wish.files
            )
        except BodyRefused as refused:
            return refused.response
        except msgspec.MsgspecError as error:
            return refusal(400, "bad_request", f"The request is not valid: {error}.")
        except SessionsError as error:
            return refusal(503, "storage_failed", sentence_of(error))
        return answer(201, {"id": made.share, "url": f"/shared/{secret}", "expires": made.expires})

    async def listed(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the links of a conversation, without their secrets."""
        try:
            shares = await self._shares.of_key(admission.person.id, request.match_info["key"])
        except SessionsError as error:
            return refusal(503, "storage_failed", sentence_of(error))
        fields = ("expires", "live", "tools", "files")
        found = [{"id": s.made.share, "at": s.at} | {name: getattr(s.made, name) for name in fields} for s in shares]
        return answer(200, {"shares": found})

    async def revoke(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Revoke a link."""
        key, share = request.match_info["key"], request.match_info["share"]
        try:
            revoked = await self._shares.revoke(admission.person.id, key, share)
        except SessionsError as error:
            return refusal(503, "storage_failed", sentence_of(error))
        return answer(200, {"revoked": True}) if revoked else _not_found()

    async def shared(self, request: web.Request) -> web.StreamResponse:
        """Return a page of the events that a link shows; `next` is missing on the last one."""
        return await self._of_link(request, self._pages, self._page)

    async def file(self, request: web.Request) -> web.StreamResponse:
        """Return a file of an event that a link shows; 404 for every other one."""
        return await self._of_link(request, self._files, self._file)

    async def _of_link(
        self,
        request: web.Request,
        running: Quota,
        respond: Callable[[ConversationShared, web.Request], Awaitable[web.StreamResponse | None]],
    ) -> web.StreamResponse:
        """Return the response of `respond`; 404 if the link does not work, or if it returns None."""
        secret, address = request.match_info["secret"], request.remote or ""
        if (wait := self._throttle.wait(address)) > 0:
            response = refusal(429, "busy", "Too many links that do not exist; try again later.")
            response.headers["Retry-After"] = str(int(wait) + 1)
            return response
        if running.exceeded(source_of(address)):
            return refusal(503, "busy", "Too many requests are being handled; try again shortly.")
        with running.unit(source_of(address)):
            try:
                made = await self._shares.find(secret)
                if made is not None and (found := await respond(made, request)) is not None:
                    return found
            except SessionsError:
                return refusal(503, "storage_failed", "The conversation cannot be read at present; try again later.")
        self._throttle.count_wrong(address, token_digest(secret))
        return _not_found()

    async def _page(self, made: ConversationShared, request: web.Request) -> web.Response | None:
        """Return the next events after `?after=` of `?session=`, by default the first; None if there is no such session."""
        sessions = shown_sessions(made, await self._sessions.of_key(made.person, made.key))
        wanted = request.query.get("session") or (sessions[0].session if sessions else "")
        place = next((number for number, each in enumerate(sessions) if each.session == wanted), None)
        if place is None:
            return None
        part, text = sessions[place], request.query.get("after", "0")
        after = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
        lines = await self._lines(part, after)
        row = await self._sessions.current(made.person, made.key)
        read = after + len(lines)
        more: dict[str, object] = {}
        if read < part.upto and lines:
            more = {"next": {"session": part.session, "after": read}}
        elif place + 1 < len(sessions):
            more = {"next": {"session": sessions[place + 1].session, "after": 0}}
        events = await asyncio.to_thread(shown_events, lines, made)
        title = row.title if row else ""
        return answer(200, {"title": title, "live": made.live, "session_id": part.session, "events": events, **more})

    async def _file(self, made: ConversationShared, request: web.Request) -> web.StreamResponse | None:
        """Return a file that the event `seq` of a session names; None if the link does not show such an event."""
        session, seq, digest = (request.match_info[name] for name in ("session", "seq", "sha256"))
        sessions = shown_sessions(made, await self._sessions.of_key(made.person, made.key))
        if not any(each.session == session and 1 <= int(seq) <= each.upto for each in sessions):
            return None
        lines = await asyncio.to_thread(self._sessions.log(session).lines, int(seq), 1)
        files = shown_files(lines[:1], made)
        found = next((file for file in files if file.sha256 == digest), None)
        return None if found is None else await self._uploads.response(found)

    async def _lines(self, part: SharedSession, after: int) -> list[bytes]:
        if after >= part.upto:
            return []
        lines = await asyncio.to_thread(self._sessions.log(part.session).lines, after + 1, PAGE_BYTES)
        return lines[: part.upto - after]


def _not_found() -> web.Response:
    return refusal(404, "not_found", "Not found.")
