"""The OpenAI-compatible endpoint and its path. It is imported at the first request, which keeps the start fast."""

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
    server: Callable[[], WebsocketServer],
    refuses: Callable[[], Busy | StorageFailed | None],
    in_flight: InFlight,
) -> list[Endpoint]:
    """Return the endpoint for everything below `/v1`.

    Args:
        gateway: The gateway.
        server: Returns the websocket server, which exists only once the gateway listens.
        refuses: Returns the reason why nothing is taken; None if requests are taken.
        in_flight: Counts the requests that a stop waits for.
    """

    @cache
    def api() -> OpenAIApi:
        from gateway.http.openai.api import OpenAIApi  # noqa: PLC0415 - not at the start
        from gateway.http.openai.embeddings import Embeddings  # noqa: PLC0415

        dependencies = gateway.dependencies
        return OpenAIApi(
            dependencies.models,
            dependencies.command_services.listings,
            gateway.switchboard,
            server().uploads,
            still_admits=server().access.still_admits,
            refuses=refuses,
            caller=dependencies.caller,
            embeddings=Embeddings(gateway.memory, gateway.embeddings.in_use),
            in_flight=in_flight,
            counters=dependencies.counters,
            clock=dependencies.clock,
        )

    async def serve(request: web.Request, admission: Admission) -> web.StreamResponse:
        return await api().serve(request, admission)

    def refuse(error: NotAuthorized) -> web.Response:
        from gateway.http.openai.api_errors import refusal_of, refused_response  # noqa: PLC0415 - not at the start

        return refused_response(refusal_of(error))

    return [Endpoint("*", "/v1/{path:.*}", serve, refuse)]
