"""Uploads and downloads of attachments: `POST /attachments`, `GET /attachments/SHA256`, and those of a `send` frame.

A file belongs to the person who sent it: for everybody else it does not exist, whatever its hash (see
`sessions.store.protocols`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import time
from typing import ParamSpec, TypeVar
from urllib.parse import quote

import msgspec
import structlog
from aiohttp import web

from gateway.http.concurrency import Quota
from gateway.http.request_bodies import PIECE_BYTES, PIECE_SECONDS, is_encoded
from gateway.http.responses import HEADERS, answer, refusal
from gateway.protocol.frames import SentAttachment
from gateway.status.problems import Readiness
from gateway.support.errors import GatewayError, error_fields, sentence_of
from gateway.support.printable import sanitized_name
from sessions.events.errors import SessionsError, StorageFailed
from sessions.events.messages import Attachment
from sessions.store.protocols import Blobs, LogReader

UPLOAD_SECONDS = 900.0
"""The longest duration of an upload, in seconds."""

SLOWEST = 8 * 1024
"""The lowest rate of an upload after the first PIECE_SECONDS, in bytes a second: a slow one must not occupy a slot."""

OF_ONE_PERSON, AT_ONCE = 4, 16
"""The limits of concurrent uploads, for one person and in total."""

WRITING = 4
"""The limit of uploads that write at the same time. Each occupies a thread of the loop's pool, which has at least five."""

ORPHAN_SECONDS = 24 * 3600.0
"""Age in seconds at which an upload that no message names is removed."""

SWEEP_SECONDS = 3600.0

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("exuvia.uploads")


class UnknownAttachment(GatewayError):
    """A message names a file that its person has not sent, or an attachment has neither hash nor data."""


class Uploads:
    """The uploads of all people. `limit` returns the maximum size of a file in bytes, and is called at each upload."""

    def __init__(self, attachments: Blobs, *, limit: Callable[[], int], readiness: Readiness) -> None:
        self.limit = limit
        self._attachments = attachments
        self._readiness = readiness
        self._running = Quota(OF_ONE_PERSON, AT_ONCE)
        self._writing = asyncio.Semaphore(WRITING)

    # --- in a message -------------------------------------------------------------------------------------------------

    async def store(self, person: str, sent: Sequence[SentAttachment]) -> tuple[Attachment, ...]:
        """Store the attachments of a message durably and return them.

        Raises:
            UnknownAttachment: One names a file that this person has not sent, or has neither hash nor data; nothing was
                stored.
            StorageFailed: The disk failed.
        """
        known = {}
        for each in sent:
            if (each.sha256 is None) == (each.data is None):
                raise UnknownAttachment("An attachment has either sha256, of a file sent before, or data.")
            if each.data is not None and len(each.data) > self.limit():
                raise UnknownAttachment(f"The limit for an attachment is {self.limit()} bytes.")
            if each.sha256 is not None:
                if (found := await self._attachments.find(person, each.sha256)) is None:
                    raise UnknownAttachment(f"You have no attachment {each.sha256}; send the file first.")
                known[each.sha256] = found
        return tuple([await self._store(person, each, known) for each in sent])

    async def _store(self, person: str, sent: SentAttachment, known: dict[str, Attachment]) -> Attachment:
        name = sanitized_name(sent.name)
        if sent.sha256 is not None:
            found = known[sent.sha256]
            return msgspec.structs.replace(found, name=name) if name else found
        assert sent.data is not None
        return await self._attachments.store(sent.data, person, claimed=sent.media, name=name)

    async def settle(self, person: str, attachments: tuple[Attachment, ...]) -> None:
        """Record that a durable event names these attachments. A failure only costs a search at the next sweep."""
        try:
            await self._attachments.settle(person, attachments)
        except StorageFailed as error:
            log.warning("attachment_not_settled", reason=sentence_of(error))

    # --- over HTTP ----------------------------------------------------------------------------------------------------

    async def receive(self, request: web.Request, person: str, admitted: Callable[[], bool]) -> web.Response:
        """Store the body of a request as a file, and describe it in the response once it is durable.

        `admitted` returns True while the person's token is valid: an upload that outlives it is discarded.
        """
        if (refused := self._refused(request, person)) is not None:
            return refused
        try:
            with self._running.unit(person):
                async with asyncio.timeout(UPLOAD_SECONDS):
                    return await self._receive(request, person, admitted)
        except SessionsError as error:
            log.error("upload_failed", person=person, reason=sentence_of(error))
            return refusal(503, "storage_failed", sentence_of(error))
        except TimeoutError:
            return refusal(408, "bad_request", "The upload stalled or took too long.")
        except (ConnectionError, web.RequestPayloadError) as error:  # nobody is left to read the response
            log.info("upload_cut", person=person, reason=sentence_of(error))
            return refusal(400, "bad_request", "The upload was interrupted; nothing was stored.")

    def _refused(self, request: web.Request, person: str) -> web.Response | None:
        """Return the reason why an upload may not begin; None if it may."""
        if (reason := self._readiness.refuses) is not None:
            return refusal(503, "storage_failed" if isinstance(reason, StorageFailed) else "busy", sentence_of(reason))
        if is_encoded(request):
            return refusal(415, "bad_request", "Content-Encoding is not supported; send the file unencoded.")
        if (request.content_length or 0) > self.limit():
            return self._too_large()
        if exceeded := self._running.exceeded(person):
            whose = " of yours" if exceeded == "one" else ""
            return refusal(503, "busy", f"Too many uploads{whose} are running; try again shortly.")
        return None

    async def _receive(self, request: web.Request, person: str, admitted: Callable[[], bool]) -> web.Response:
        began = asyncio.get_running_loop().time()
        draft = await self._write(self._attachments.draft)
        try:
            while piece := await _next_piece(request, began, draft.size):
                if draft.size + len(piece) > self.limit():
                    return self._too_large()
                await self._write(draft.write, piece)
            if not admitted():
                return refusal(401, "unauthorized", "The token of this upload is no longer valid; nothing was stored.")
            claimed, name = request.headers.get("Content-Type", ""), sanitized_name(request.query.get("name", ""))
            kept = await self._write(draft.keep, person, claimed=claimed, name=name)
        finally:
            await asyncio.to_thread(draft.close)
        return answer(201, kept)

    async def _write(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        async with self._writing:
            return await asyncio.to_thread(work, *arguments, **named)

    async def send(self, request: web.Request, person: str) -> web.StreamResponse:
        """Return a file that this person sent or that was made for them; 404 for every other hash."""
        digest = request.match_info["sha256"]
        try:
            found = await self._attachments.find(person, digest)
        except StorageFailed as error:
            return refusal(503, "storage_failed", sentence_of(error))
        response = None if found is None else await self.response(found)
        return response or refusal(404, "unknown_attachment", f"You have no attachment {digest[:64]}.")

    async def response(self, attachment: Attachment) -> web.FileResponse | None:
        """Return a response with the bytes of an attachment; None if they are gone."""
        if (path := await self._attachments.file(attachment.sha256)) is None:
            return None
        return web.FileResponse(path, headers={**HEADERS, "Content-Type": attachment.media, **_download(attachment)})

    def _too_large(self) -> web.Response:
        return refusal(413, "too_large", f"The limit for an attachment is {self.limit()} bytes (gateway.attachment_bytes).")

    # --- cleaning -----------------------------------------------------------------------------------------------------

    async def sweep(self, logs: LogReader) -> None:
        """Remove files that no message in `logs` ever named, once an hour, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                removed = await asyncio.to_thread(self._attachments.remove_orphans, logs, time() - ORPHAN_SECONDS)
            except (SessionsError, OSError) as error:
                log.warning("orphans_not_removed", reason=sentence_of(error))
            except Exception as error:  # the next sweep tries again
                log.error("orphans_not_removed", **error_fields(error))
            else:
                if removed:
                    log.info("orphans_removed", files=removed)


async def _next_piece(request: web.Request, began: float, size: int) -> bytes:
    """Return the next piece of an upload that began at this time of the loop's clock and has `size` bytes so far.

    Raises:
        TimeoutError: The upload is too slow.
    """
    now = asyncio.get_running_loop().time()
    async with asyncio.timeout_at(min(now, began + size / SLOWEST) + PIECE_SECONDS):
        return await request.content.read(PIECE_BYTES)


def _download(attachment: Attachment) -> dict[str, str]:
    """Return the headers that save a file instead of showing it: an uploaded page must not run as one of the gateway's."""
    name = quote(attachment.name or attachment.sha256, safe="")
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{name}", "Content-Security-Policy": "sandbox"}
