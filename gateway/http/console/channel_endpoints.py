"""JSON endpoints about channels, for the owner: who may speak on them, and trying them.

POST   /api/channels/{name}/check   whether a channel is logged in
POST   /api/channels/{name}/posts   `{"chat", "text", "thread"?, "attachments"?}`: send a text and uploaded files
GET    /api/pairings             the unknown senders who have a code, the paired addresses, and the persons to choose from
POST   /api/pairings             `{"code", "person"}`: link the address that was told the code to a person
DELETE /api/pairings/{address}   unlink a paired address, such as `telegram:12345`
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from gateway.auth.people import Admission
from gateway.conversations.channels.channel_probe import ChannelFailed, CheckedChannel, check_opened, send_posts
from gateway.conversations.channels.channel_runner import ChannelRunner
from gateway.conversations.channels.pairings import PairingsUnusable
from gateway.conversations.channels.senders import PairingFailed, Senders
from gateway.http.request_bodies import BodyRefused, read_body
from gateway.http.responses import answer, refusal
from gateway.status.channel_reports import AddressEntry, AdmittedAddress, CodeEntry, PairingsReport, SentPost
from gateway.support.printable import one_line
from plugins.api.tool import OutputFile
from sessions.events.errors import SessionsError
from sessions.store.protocols import Blobs

BODY_BYTES, POST_BYTES, BODY_SECONDS = 64 * 1024, 512 * 1024, 30.0
"""The maximum size of a request and of one with a post in bytes, and the seconds for it."""


class _Decision(msgspec.Struct, frozen=True):
    code: str
    person: str


class _Post(msgspec.Struct, frozen=True):
    chat: str
    text: str = ""
    thread: str = ""
    attachments: tuple[str, ...] = ()


class ChannelEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, channels: ChannelRunner, senders: Senders, attachments: Blobs) -> None:
        self._channels = channels
        self._senders = senders
        self._attachments = attachments

    # --- trying a channel ---------------------------------------------------------------------------------------------

    async def check(self, request: web.Request, _: Admission) -> web.StreamResponse:
        """Check a channel."""
        name = request.match_info["name"]
        if (state := self._channels.states().get(name)) is None:
            return self._unknown(name)
        if (channel := self._channels.opened(name)) is None or state.problem:
            says = state.problem or "It is being opened."
            return answer(200, CheckedChannel(name=name, ok=False, says=says))
        return answer(200, await check_opened(name, channel))

    async def send(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Send a text and files."""
        name = request.match_info["name"]
        if name not in self._channels.states():
            return self._unknown(name)
        try:
            post = msgspec.json.decode(await read_body(request, POST_BYTES, BODY_SECONDS), type=_Post)
        except BodyRefused as refused:
            return refused.response
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return refusal(400, "bad_request", "The body must be a JSON object with chat, and text or attachments.")
        if (channel := self._channels.opened(name)) is None:
            return refusal(503, "channel_closed", f"The channel {name!r} is not open; `exuvia channels check` says why.")
        try:
            files = [await self._file(digest, admission.person.id) for digest in post.attachments]
            receipts = await send_posts(channel, chat=post.chat, text=post.text, thread=post.thread, files=files)
        except ChannelFailed as error:
            return refusal(502, "not_sent", str(error))
        return answer(200, SentPost(receipt=receipts[0] if receipts else "", posts=len(receipts)))

    async def _file(self, digest: str, person: str) -> OutputFile:
        """Return a file that a person has uploaded. Raises ChannelFailed."""
        try:
            if (found := await self._attachments.find(person, digest)) is not None:
                return OutputFile(content=await self._attachments.read(digest), media=found.media, name=found.name)
        except (OSError, SessionsError) as error:
            raise ChannelFailed(f"The attachment {one_line(digest, 64)} cannot be read.") from error
        raise ChannelFailed(f"You have no attachment {one_line(digest, 64)}; send the file first.")

    def _unknown(self, name: str) -> web.Response:
        names = ", ".join(self._channels.states()) or "none"
        return refusal(404, "not_found", f"There is no channel {name!r}; those that run are: {names}.")

    # --- who may speak ------------------------------------------------------------------------------------------------

    async def pairings(self, _: web.Request, __: Admission) -> web.StreamResponse:
        """Return who asks to speak, and who may."""
        senders = self._senders
        try:
            linked = await senders.linked()
        except PairingsUnusable as error:
            return refusal(503, "busy", str(error))
        codes = (
            CodeEntry(address=each.sender, name=each.name, code=each.code, seconds=round(senders.seconds_left(each)))
            for each in senders.requests()
        )
        addresses = (AddressEntry(address=each.sender, name=each.name, person=each.person, at=each.at) for each in linked)
        report = PairingsReport(codes=tuple(codes), linked=tuple(addresses), persons=tuple(senders.persons()))
        return answer(200, report)

    async def pair(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Admit the address with a code."""
        try:
            decision = msgspec.json.decode(await read_body(request, BODY_BYTES, BODY_SECONDS), type=_Decision)
        except BodyRefused as refused:
            return refused.response
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return refusal(400, "bad_request", "The body must be a JSON object with code and person.")
        try:
            admitted = await self._senders.admit(decision.code, decision.person, by=admission.person.id)
        except PairingFailed as error:
            return refusal(404, "not_found", str(error))
        except PairingsUnusable as error:
            return refusal(503, "busy", str(error))
        return _changed(admitted.address, decision.person, told=admitted.told)

    async def unpair(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Remove a paired address."""
        try:
            removed = await self._senders.unlink(request.match_info["address"], by=admission.person.id)
        except PairingFailed as error:
            return refusal(404, "not_found", str(error))
        except PairingsUnusable as error:
            return refusal(503, "busy", str(error))
        return _changed(removed.sender, removed.person)


def _changed(address: str, person: str, *, told: bool = True) -> web.Response:
    return answer(200, AdmittedAddress(address=address, person=person, told=told))
