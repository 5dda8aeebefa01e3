"""Uploads: files on their way in and out. `POST /attachments` and `GET /attachments/SHA256`, and those of a `send` frame.

A file belongs to the person who sent it: to everybody else it does not exist, whatever its hash (see
`sessions.attachments.owners`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from time import time
from typing import ParamSpec, TypeVar
from urllib.parse import quote

import msgspec
import structlog
from aiohttp import web

from gateway.http.responses import HEADERS, answer, refusal
from gateway.protocol.frames import SentAttachment
from gateway.support.errors import Busy, GatewayError, sentence_of
from gateway.support.printable import printable
from sessions.attachments.gc import remove_orphans
from sessions.attachments.store import Attachments, Draft
from sessions.events.errors import SessionsError, StorageFailed
from sessions.events.messages import Attachment

PIECE_BYTES = 256 * 1024
"""How much of an upload is read and written at a time."""

PIECE_SECONDS, UPLOAD_SECONDS = 30.0, 900.0
"""An upload that brings nothing for so long, or lasts longer as a whole, is ended."""

SLOWEST = 8 * 1024
"""Bytes that an upload must bring for each second it lasts beyond the first PIECE_SECONDS: a drip must not hold a place."""

OF_ONE_PERSON, AT_ONCE = 4, 16
"""Uploads that are taken at the same time."""

WRITING = 4
"""Of these, how many write at the same time. Each holds a thread of the loop's meanwhile, and those are five or more."""

ORPHAN_SECONDS = 24 * 3600.0
"""How long an upload waits for a message to name it."""

SWEEP_SECONDS = 3600.0
NAME_CHARACTERS = 200

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("exuvia.uploads")


class UnknownAttachment(GatewayError):
    """A message names a file that its person has not sent, or gives none."""


class Uploads:
    """The files of all persons. `limit` is asked at each upload: the most bytes of one; `refuses` says why nothing is
    taken now, or None."""

    def __init__(
        self,
        attachments: Attachments,
        *,
        limit: Callable[[], int],
        refuses: Callable[[], Busy | StorageFailed | None],
    ) -> None:
        self.limit = limit
        self._attachments = attachments
        self._refuses = refuses
        self._running: Counter[str] = Counter()
        self._writing = asyncio.Semaphore(WRITING)

    # --- in a message -------------------------------------------------------------------------------------------------

    async def taken(self, person: str, sent: Sequence[SentAttachment]) -> tuple[Attachment, ...]:
        """What a message's attachments are, each durable. UnknownAttachment if one names what this person has not sent, or
        is neither a hash nor bytes: then nothing was stored. StorageFailed if the disk refuses."""
        known = {}
        for each in sent:
            if (each.sha256 is None) == (each.data is None):
                raise UnknownAttachment("An attachment has either sha256, of a file that was sent before, or data.")
            if each.data is not None and len(each.data) > self.limit():
                raise UnknownAttachment(f"An attachment may have {self.limit()} bytes.")
            if each.sha256 is not None:
                if (found := await self._attachments.find(person, each.sha256)) is None:
                    raise UnknownAttachment(f"There is no attachment {each.sha256} of yours; send the file first.")
                known[each.sha256] = found
        return tuple([await self._taken(person, each, known) for each in sent])

    async def _taken(self, person: str, sent: SentAttachment, known: dict[str, Attachment]) -> Attachment:
        name = harmless_name(sent.name)
        if sent.sha256 is not None:
            found = known[sent.sha256]
            return msgspec.structs.replace(found, name=name) if name else found
        assert sent.data is not None
        return await self._attachments.store(sent.data, person, claimed=sent.media, name=name)

    async def settle(self, person: str, attachments: tuple[Attachment, ...]) -> None:
        """Note that a durable event names these. A failure costs nothing but a search at the next sweep."""
        try:
            await self._attachments.settle(person, attachments)
        except OSError as error:
            log.warning("attachment_not_settled", reason=sentence_of(error))

    # --- over HTTP ----------------------------------------------------------------------------------------------------

    async def receive(self, request: web.Request, person: str, admitted: Callable[[], bool]) -> web.Response:
        """Take the body of a request as a file; the answer says what it is and comes once it is durable. `admitted` says
        whether the person's token is still theirs: nothing is kept of an upload that outlives it."""
        if (refused := self._refused(request, person)) is not None:
            return refused
        self._running[person] += 1
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                return await self._receive(request, person, admitted)
        except SessionsError as error:
            log.error("upload_failed", person=person, reason=sentence_of(error))
            return refusal(503, "storage_failed", sentence_of(error))
        except TimeoutError:
            return refusal(408, "bad_request", "The upload stood still or took too long, and was ended.")
        except (ConnectionError, web.RequestPayloadError) as error:  # nobody is there any more to read an answer
            log.info("upload_cut", person=person, reason=sentence_of(error))
            return refusal(400, "bad_request", "The upload broke off; nothing of it was kept.")
        finally:
            self._running[person] -= 1
            self._running = +self._running

    def _refused(self, request: web.Request, person: str) -> web.Response | None:
        """Why an upload is not even begun."""
        if (reason := self._refuses()) is not None:
            return refusal(503, "storage_failed" if isinstance(reason, StorageFailed) else "busy", sentence_of(reason))
        if request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            return refusal(415, "bad_request", "Send the file as it is: a Content-Encoding is not unpacked here.")
        if (request.content_length or 0) > self.limit():
            return self._too_large()
        if self._running[person] >= OF_ONE_PERSON or self._running.total() >= AT_ONCE:
            whose = "of yours" if self._running[person] >= OF_ONE_PERSON else "of others"
            return refusal(503, "busy", f"Too many uploads {whose} are running; try again shortly.")
        return None

    async def _receive(self, request: web.Request, person: str, admitted: Callable[[], bool]) -> web.Response:
        began = asyncio.get_running_loop().time()
        draft = await self._write(Draft, self._attachments)
        try:
            while piece := await _next_piece(request, began, draft.size):
                if draft.size + len(piece) > self.limit():
                    return self._too_large()
                await self._write(draft.write, piece)
            if not admitted():
                return refusal(401, "unauthorized", "The token of this upload is not valid any more; nothing was kept.")
            claimed, name = request.headers.get("Content-Type", ""), harmless_name(request.query.get("name", ""))
            kept = await self._write(draft.keep, person, claimed=claimed, name=name)
        finally:
            await asyncio.to_thread(draft.close)
        return answer(201, kept)

    async def _write(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        async with self._writing:
            return await asyncio.to_thread(work, *arguments, **named)

    async def give(self, request: web.Request, person: str) -> web.StreamResponse:
        """A file that this person sent or was made for; 404 for every other hash, whether or not there is such a file."""
        digest = request.match_info["sha256"]
        try:
            found = await self._attachments.find(person, digest)
        except StorageFailed as error:
            return refusal(503, "storage_failed", sentence_of(error))
        path = self._attachments.path(digest)
        if found is None or not await asyncio.to_thread(path.is_file):
            return refusal(404, "unknown_attachment", f"There is no attachment {digest[:64]} of yours.")
        return web.FileResponse(path, headers={**HEADERS, "Content-Type": found.media, **_download(found)})

    def _too_large(self) -> web.Response:
        return refusal(413, "too_large", f"An attachment may have {self.limit()} bytes (gateway.attachment_bytes).")

    # --- cleaning -----------------------------------------------------------------------------------------------------

    async def sweep(self, journals: Path) -> None:
        """Remove what no message ever named, once an hour, for ever. `journals` is the folder of all journals."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                removed = await asyncio.to_thread(remove_orphans, self._attachments, journals, time() - ORPHAN_SECONDS)
            except OSError as error:
                log.warning("orphans_not_removed", reason=sentence_of(error))
            else:
                if removed:
                    log.info("orphans_removed", files=removed)


async def _next_piece(request: web.Request, began: float, size: int) -> bytes:
    """What comes next of an upload that began then, on the loop's clock, and has brought `size` bytes. TimeoutError."""
    now = asyncio.get_running_loop().time()
    async with asyncio.timeout_at(min(now, began + size / SLOWEST) + PIECE_SECONDS):
        return await request.content.read(PIECE_BYTES)


def harmless_name(name: str) -> str:
    """A file's name as its sender gives it, without folders and without characters that are not seen; cut to 200."""
    plain = printable(name).replace("\n", "").replace("\t", "").replace("\\", "/").strip("/ ")
    named = PurePath(plain).name[-NAME_CHARACTERS:]
    return "" if named == ".." else named


def _download(attachment: Attachment) -> dict[str, str]:
    """Headers that save a file instead of showing it: a page that somebody sent must not run as one of the gateway's."""
    name = quote(attachment.name or attachment.sha256, safe="")
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{name}", "Content-Security-Policy": "sandbox"}
