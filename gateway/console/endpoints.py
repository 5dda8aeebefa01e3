"""All that the console asks for, each under its path."""

from __future__ import annotations

from gateway.assembly import Assembly
from gateway.console.context_endpoints import ContextEndpoints
from gateway.door.web import Endpoint


def console_endpoints(gateway: Assembly) -> list[Endpoint]:
    """The endpoints of a gateway's console, to be served."""
    return _of_the_context(ContextEndpoints(gateway.switchboard))


def _of_the_context(context: ContextEndpoints) -> list[Endpoint]:
    session = "/api/context/{key}"
    turn = session + r"/turns/{turn:\d{1,9}}"
    return [
        Endpoint("GET", session, context.sizes),
        Endpoint("GET", turn, context.turn),
        Endpoint("GET", turn + r"/messages/{at:\d{1,9}}", context.message),
        Endpoint("GET", turn + "/request.json", context.request),
        Endpoint("GET", session + r"/compactions/{number:\d{1,9}}", context.compaction),
    ]
