"""Where the OpenAI endpoint is reached. What it is made of is imported when somebody first asks, not at the start."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.auth.access import NotAuthorized
from gateway.auth.people import Admission
from gateway.http.openai.in_flight import InFlight
from gateway.http.web import Endpoint
from gateway.http.websocket import WebsocketServer
from gateway.support.errors import Busy
from sessions.events.errors import StorageFailed

if TYPE_CHECKING:
    from gateway.http.openai.api import OpenAIApi
    from gateway.wiring.app import Application


def openai_endpoints(
    gateway: Application,
    door: Callable[[], WebsocketServer],
    refuses: Callable[[], Busy | StorageFailed | None],
    in_hand: InFlight,
) -> list[Endpoint]:
    """Everything below `/v1`. `door` is asked when a request has come, since it stands only once the gateway listens;
    `refuses` says why nothing is taken, or None; `in_hand` counts what a stop is to let end."""

    @cache
    def api() -> OpenAIApi:
        from gateway.http.openai.api import OpenAIApi  # noqa: PLC0415 - not at the start
        from gateway.http.openai.embeddings import Embeddings  # noqa: PLC0415

        parts = gateway.parts
        return OpenAIApi(
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

    def refuse(error: NotAuthorized) -> web.Response:
        from gateway.http.openai.api_errors import refusal_of, refused_response  # noqa: PLC0415 - not at the start

        return refused_response(refusal_of(error))

    return [Endpoint("*", "/v1/{path:.*}", serve, refuse)]
