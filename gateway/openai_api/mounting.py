"""Where the OpenAI endpoint is reached. What it is made of is imported when somebody first asks, not at the start."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.door.access import NotAdmitted
from gateway.door.people import Admission
from gateway.door.web import Endpoint
from gateway.door.websocket import WebsocketDoor
from gateway.errors import Busy
from gateway.openai_api.in_hand import InHand
from sessions.errors import StorageFailed

if TYPE_CHECKING:
    from gateway.assembly import Assembly
    from gateway.openai_api.api import Api


def openai_endpoints(
    gateway: Assembly,
    door: Callable[[], WebsocketDoor],
    refuses: Callable[[], Busy | StorageFailed | None],
    in_hand: InHand,
) -> list[Endpoint]:
    """Everything below `/v1`. `door` is asked when a request has come, since it stands only once the gateway listens;
    `refuses` says why nothing is taken, or None; `in_hand` counts what a stop is to let end."""

    @cache
    def api() -> Api:
        from gateway.openai_api.api import Api  # noqa: PLC0415 - not at the start
        from gateway.openai_api.embeddings import Embeddings  # noqa: PLC0415

        parts = gateway.parts
        return Api(
            parts.models,
            parts.around.listings,
            gateway.switchboard,
            door().uploads,
            still_admits=door().access.still_admits,
            refuses=refuses,
            hold=parts.providers.in_use,
            embeddings=Embeddings(gateway.memory, gateway.embeddings.in_use),
            in_hand=in_hand,
            figures=parts.figures,
            clock=parts.clock,
        )

    async def serve(request: web.Request, admission: Admission) -> web.StreamResponse:
        return await api().serve(request, admission)

    def refuse(error: NotAdmitted) -> web.Response:
        from gateway.openai_api.refusals import refusal_of, refused_response  # noqa: PLC0415 - not at the start

        return refused_response(refusal_of(error))

    return [Endpoint("*", "/v1/{path:.*}", serve, refuse)]
