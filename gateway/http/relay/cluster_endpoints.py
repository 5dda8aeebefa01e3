"""The endpoints `/cluster`: the state of the cluster for the owner, and what gateways ask of each other."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from gateway.auth.access import Access
from gateway.auth.people import Admission
from gateway.conversations.routing.switchboard import Switchboard
from gateway.http.request_bodies import BodyRefused, read_body
from gateway.http.responses import answer, refusal
from gateway.status.cluster_status import cluster_status
from gateway.support.errors import GatewayError, sentence_of
from sessions.events.errors import SessionsError, StorageFailed
from sessions.store.catalog import WEBSOCKET
from sessions.store.cluster import Cluster

HANDOVER_BYTES = 1024
HANDOVER_SECONDS = 10.0


class _Handover(msgspec.Struct, frozen=True):
    """A person's key, and the gateway that is to have it."""

    key: str
    to: str


class ClusterEndpoints:
    """What `/cluster` serves on a gateway; `cluster` is None if it shares no database."""

    def __init__(self, cluster: Cluster | None, switchboard: Switchboard, access: Access) -> None:
        self._cluster = cluster
        self._switchboard = switchboard
        self._access = access

    async def status(self, _: web.Request, __: Admission) -> web.StreamResponse:
        """Return the gateways of the cluster."""
        if self._cluster is None:
            return refusal(404, "not_found", 'This gateway shares its store with no other; see `store.kind = "postgres"`.')
        try:
            rows = await asyncio.to_thread(self._cluster.rows)
        except StorageFailed as error:
            return refusal(503, "storage_failed", str(error))
        return answer(200, cluster_status(rows, self._cluster.id))

    async def hand_over(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Let another gateway have a conversation of a person for whom it asks."""
        wanted = await self._wanted(request)
        if not isinstance(wanted, _Handover):
            return wanted
        if not await self._switchboard.hand_over(admission.person.id, wanted.key, wanted.to):
            return refusal(409, "busy", "A turn runs in this conversation.")
        return answer(200, {"key": wanted.key})

    async def take(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Take a conversation over from the gateway that asks, because only this one can deliver what waits in it."""
        wanted = await self._wanted(request)
        if not isinstance(wanted, _Handover):
            return wanted
        try:
            await self._switchboard.chat_here(admission.person.id, wanted.key, channel=WEBSOCKET)
        except (GatewayError, SessionsError) as error:
            return refusal(409, "busy", sentence_of(error))
        return answer(200, {"key": wanted.key})

    async def _wanted(self, request: web.Request) -> _Handover | web.StreamResponse:
        """Read what another gateway asks; return an answer if it may not."""
        if not self._access.is_relayed(request):
            return refusal(403, "forbidden", "Only the gateways of the same database may ask for this.")
        try:
            body = await read_body(request, HANDOVER_BYTES, HANDOVER_SECONDS)
            return msgspec.json.decode(body, type=_Handover)
        except BodyRefused as refused:
            return refused.response
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return refusal(400, "bad_request", "A handover names a key and a gateway.")
