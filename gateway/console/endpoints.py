"""All that the console asks for, each under its path."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from gateway.assembly import Assembly
from gateway.console.context_endpoints import ContextEndpoints
from gateway.console.health_endpoints import HealthEndpoints
from gateway.console.memory_endpoints import MemoryEndpoints
from gateway.door.answers import refusal
from gateway.door.people import OWNER, Admission
from gateway.door.web import Admitted, Endpoint
from gateway.measuring.figures import Figures
from gateway.measuring.overview import Overview


def console_endpoints(gateway: Assembly, figures: Figures, overview: Callable[[], Overview]) -> list[Endpoint]:
    """The endpoints of a gateway's console, to be served; `overview` is how the gateway is now."""
    health = HealthEndpoints(overview, gateway.last_hour, figures, gateway.hooks)
    parts = gateway.parts
    return [
        *_of_the_context(ContextEndpoints(gateway.switchboard)),
        *_of_the_memory(MemoryEndpoints(parts.around, parts.notes.folder)),
        Endpoint("GET", "/api/health", _of_the_owner(health.health)),
    ]


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


def _of_the_memory(memory: MemoryEndpoints) -> list[Endpoint]:
    note, fact = r"/api/notes/{path:.{1,4096}}", r"/api/facts/{id:[^/]{1,200}}"
    return [
        Endpoint("GET", "/api/memory", memory.search),
        Endpoint("GET", "/api/notes", _of_the_owner(memory.notes)),
        Endpoint("GET", note, _of_the_owner(memory.note)),
        Endpoint("PUT", note, _of_the_owner(memory.write)),
        Endpoint("GET", "/api/facts", memory.facts),
        Endpoint("GET", fact, memory.fact),
        Endpoint("POST", fact + "/pin", memory.pin),
        Endpoint("POST", fact + "/unpin", memory.unpin),
        Endpoint("DELETE", fact, memory.forget),
    ]


def _of_the_owner(give: Admitted) -> Admitted:
    """For the owner alone; others are told so."""

    async def give_owner(request: web.Request, admission: Admission) -> web.StreamResponse:
        if admission.person.id != OWNER:
            return refusal(403, "forbidden", "This is the owner's alone: it tells of everybody's use of the gateway.")
        return await give(request, admission)

    return give_owner
