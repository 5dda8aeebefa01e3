"""JSON endpoints about channels, for the owner: who may speak on them.

GET    /api/pairings             the unknown senders who have a code, the paired addresses, and the persons to choose from
POST   /api/pairings             `{"code", "person"}`: link the address that was told the code to a person
DELETE /api/pairings/{address}   unlink a paired address, such as `telegram:12345`
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from gateway.auth.people import Admission
from gateway.conversations.channels.pairings import ChannelAddress, PairingsUnusable
from gateway.conversations.channels.senders import PairingFailed, Senders
from gateway.http.request_bodies import BodyRefused, read_body
from gateway.http.responses import answer, refusal
from gateway.status.channel_reports import AddressEntry, AdmittedAddress, CodeEntry, PairingsReport

BODY_BYTES, BODY_SECONDS = 64 * 1024, 30.0
"""The maximum size of a request in bytes, and the seconds for it."""


class _Decision(msgspec.Struct, frozen=True):
    code: str
    person: str


class ChannelEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, senders: Senders) -> None:
        self._senders = senders

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
        return _changed(admitted, decision.person)

    async def unpair(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Remove a paired address."""
        try:
            removed = await self._senders.unlink(request.match_info["address"], by=admission.person.id)
        except PairingFailed as error:
            return refusal(404, "not_found", str(error))
        except PairingsUnusable as error:
            return refusal(503, "busy", str(error))
        return _changed(removed, removed.person)


def _changed(address: ChannelAddress, person: str) -> web.Response:
    return answer(200, AdmittedAddress(address=address.sender, person=person))
