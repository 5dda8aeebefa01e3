"""The endpoints for authenticated requests: the console's, the OpenAI-compatible one, and the MCP server's.

They are imported at the first request, which keeps the start fast.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from gateway.auth.access import NotAuthorized
from gateway.auth.people import Admission
from gateway.http.concurrency import InFlight
from gateway.http.responses import refusal
from gateway.http.uploads import Uploads
from gateway.http.web import Admitted, Endpoint, owner_only
from gateway.http.websocket_connection import ConnectionServices
from gateway.status.instruments import GatewayContext
from gateway.status.overview import Overview
from gateway.support.storage import fact_logs
from gateway.wiring.app import Application
from sessions.events.errors import StorageFailed
from sessions.events.events import MAIN_AGENT

if TYPE_CHECKING:
    from gateway.config.rendering import CheckedConfig
    from gateway.http.console.channel_endpoints import ChannelEndpoints
    from gateway.http.console.composer_endpoints import ComposerEndpoints
    from gateway.http.console.config_endpoints import ConfigEndpoints
    from gateway.http.console.context_endpoints import ContextEndpoints
    from gateway.http.console.conversation_endpoints import ConversationEndpoints, ImportEndpoint, ScheduleEndpoints
    from gateway.http.console.gateway_endpoints import HealthEndpoints, Recipients, SkillEndpoints, UsageEndpoint
    from gateway.http.console.memory_endpoints import MemoryEndpoints
    from gateway.http.console.share_endpoints import ShareEndpoints
    from gateway.http.console.signing_in import PeopleEndpoints, SignInList
    from gateway.http.console.what_if_endpoints import WhatIfEndpoints
    from gateway.http.mcp.mcp_server import McpServer
    from gateway.http.mcp.program_messages import MessageEndpoint
    from gateway.http.openai.api import OpenAIApi
    from gateway.http.relay.cluster_endpoints import ClusterEndpoints
    from gateway.wiring.app import Application
    from gateway.wiring.open_agents import AgentParts
    from gateway.wiring.self_examination import SelfExamination

T = TypeVar("T")

SESSION = "/api/sessions/{session:[A-Za-z0-9-]{1,64}}"
CONTEXT = "/api/context/{key}"
CONVERSATION = "/api/conversations/{key}"
TURN = CONTEXT + r"/turns/{turn:\d{1,9}}"
COMPACTION = CONTEXT + r"/compactions/{number:\d{1,9}}"
NOTE = r"/api/notes/{path:.{1,4096}}"
FACT = "/api/facts/{id:[^/]{1,200}}"
SHARED = "/api/shared/{secret:[A-Za-z0-9_-]{1,100}}"
SHARED_FILE = r"/files/{session:[A-Za-z0-9-]{1,64}}/{seq:\d{1,9}}/{sha256:[0-9a-f]{64}}"
CHANNEL = "/api/channels/{name:[^/]{1,100}}"
SCHEDULE = "/api/schedules/{schedule:[a-z0-9]{1,40}}"
SKILL = "/api/skills/{skill:[^/]{1,100}}"
PERSON = "/api/people/{person:[^/]{1,100}}"
PAIRING = r"/api/pairings/{address:.{1,400}}"


class _LazyEndpoints:
    """The console's endpoints, each created at its first request."""

    def __init__(
        self,
        gateway: Application,
        context: GatewayContext,
        overview: Callable[[], Overview],
        services: ConnectionServices,
        in_flight: InFlight,
    ) -> None:
        self._gateway = gateway
        self._context = context
        self._overview = overview
        self._services = services
        self._in_flight = in_flight
        self._memories: dict[str, MemoryEndpoints] = {}
        """By agent."""

    @cached_property
    def configuration(self) -> ConfigEndpoints:
        from gateway.doctor.config_check import check  # noqa: PLC0415 - not at the start
        from gateway.http.console.config_endpoints import ConfigEndpoints  # noqa: PLC0415

        hooks = self._gateway.plugins.hooks

        def check_text(text: str) -> CheckedConfig:
            sources, references = self._context.config.sources, self._context.config.references
            return check(sources.path, references.environment, sources.overrides, hooks, text)

        return ConfigEndpoints(self._context, hooks, self._services.access, check_text)

    @cached_property
    def composer(self) -> ComposerEndpoints:
        from gateway.http.console.composer_endpoints import ComposerEndpoints  # noqa: PLC0415 - not at the start

        return ComposerEndpoints(self._gateway.models.registry, self._gateway.models.transcriber, self._context)

    @cached_property
    def conversations(self) -> ConversationEndpoints:
        from gateway.http.console.conversation_endpoints import ConversationEndpoints  # noqa: PLC0415 - not at the start

        return ConversationEndpoints(
            self._gateway.switchboard.sessions,
            self._gateway.switchboard.removals,
            self._gateway.search,
            self._gateway.persons,
        )

    @cached_property
    def shares(self) -> ShareEndpoints:
        from gateway.http.console.share_endpoints import ShareEndpoints  # noqa: PLC0415 - not at the start

        gateway = self._gateway
        return ShareEndpoints(
            gateway.switchboard.sessions, gateway.shares, self._services.uploads, gateway.dependencies.clock
        )

    @cached_property
    def context(self) -> ContextEndpoints:
        from gateway.http.console.context_endpoints import ContextEndpoints  # noqa: PLC0415 - not at the start

        return ContextEndpoints(self._gateway.switchboard.sessions)

    @cached_property
    def what_if(self) -> WhatIfEndpoints:
        from gateway.conversations.context.request_attachments import AttachmentRenderer  # noqa: PLC0415 - not at the start
        from gateway.conversations.what_if import WhatIf  # noqa: PLC0415
        from gateway.http.console.what_if_endpoints import WhatIfEndpoints  # noqa: PLC0415

        gateway, dependencies, services = self._gateway, self._gateway.dependencies, self._services
        what_if = WhatIf(
            gateway.switchboard,
            dependencies.models,
            caller=dependencies.caller,
            renderer=AttachmentRenderer(dependencies.attachments, kept_bytes=0),
            settings=dependencies.settings,
            clock=dependencies.clock,
        )
        return WhatIfEndpoints(
            what_if,
            self.context,
            sessions=gateway.switchboard.sessions,
            access=services.access,
            readiness=services.readiness,
            in_flight=self._in_flight,
        )

    async def memory(self, agent: str) -> MemoryEndpoints | None:
        """Return the endpoints of an agent's memory, None if there is no such agent. Raises StorageFailed."""
        if agent not in self._memories and (parts := await self._parts(agent)) is not None:
            from gateway.http.console.memory_endpoints import MemoryEndpoints  # noqa: PLC0415 - not at the start

            known = parts.knowledge
            self._memories[agent] = MemoryEndpoints(
                known.memory,
                known.facts,
                parts.context.workspace,
                parts.context.clock,
                lambda person: self._context.settings.rights_of(person).notes,
            )
        return self._memories.get(agent)

    async def skills(self, agent: str) -> SkillEndpoints | None:
        """Return the endpoints of an agent's skills, None if there is no such agent. Raises StorageFailed."""
        from gateway.http.console.gateway_endpoints import SkillEndpoints  # noqa: PLC0415 - not at the start

        parts = await self._parts(agent)
        return None if parts is None else SkillEndpoints(parts.knowledge.skills)

    async def _parts(self, agent: str) -> AgentParts | None:
        if agent not in (MAIN_AGENT, *self._context.config.agents):
            return None
        agents = self._gateway.agents
        return agents.main if agent == MAIN_AGENT else await agents.parts(agent)

    @cached_property
    def health(self) -> HealthEndpoints:
        from gateway.http.console.gateway_endpoints import HealthEndpoints  # noqa: PLC0415 - not at the start

        gateway = self._gateway
        return HealthEndpoints(self._overview, gateway.last_hour, self._context.counters, gateway.plugins.hooks)

    @cached_property
    def usage(self) -> UsageEndpoint:
        from gateway.http.console.gateway_endpoints import UsageEndpoint  # noqa: PLC0415 - not at the start

        return UsageEndpoint(self._gateway.dependencies.spending)

    @cached_property
    def recipients(self) -> Recipients:
        from gateway.http.console.gateway_endpoints import Recipients  # noqa: PLC0415 - not at the start

        gateway = self._gateway
        return Recipients(gateway.models.registry, gateway.knowledge.memory, gateway.models.transcriber, self._context)

    @cached_property
    def channels(self) -> ChannelEndpoints:
        from gateway.http.console.channel_endpoints import ChannelEndpoints  # noqa: PLC0415 - not at the start

        gateway = self._gateway
        dependencies = gateway.dependencies
        return ChannelEndpoints(gateway.plugins.channels, dependencies.command_services.senders, dependencies.attachments)

    @cached_property
    def sign_ins(self) -> SignInList:
        from gateway.http.console.signing_in import SignInList  # noqa: PLC0415 - not at the start

        return SignInList(self._services.access)

    @cached_property
    def people(self) -> PeopleEndpoints:
        from gateway.http.console.signing_in import PeopleEndpoints  # noqa: PLC0415 - not at the start

        return PeopleEndpoints(self._gateway.people, self._context.settings)

    @cached_property
    def schedules(self) -> ScheduleEndpoints:
        from gateway.http.console.conversation_endpoints import ScheduleEndpoints  # noqa: PLC0415 - not at the start

        return ScheduleEndpoints(self._gateway.dependencies.command_services)

    @cached_property
    def imports(self) -> ImportEndpoint:
        from gateway.conversations.imports.import_files import ImportFiles  # noqa: PLC0415
        from gateway.conversations.imports.import_service import ImportService  # noqa: PLC0415
        from gateway.conversations.imports.journal_import import JournalImport  # noqa: PLC0415
        from gateway.http.console.conversation_endpoints import ImportEndpoint  # noqa: PLC0415 - not at the start

        gateway, services = self._gateway, self._gateway.dependencies.command_services
        service = ImportService(
            JournalImport(gateway.store, gateway.catalog, gateway.switchboard),
            ImportFiles(gateway.dependencies.attachments, lambda: services.settings.current.gateway.attachment_bytes),
            fact_logs(self._context.home),
            facts=services.facts,
            schedules=services.schedules,
            now=services.clock.now,
            zone=services.settings.zone_of,
        )
        return ImportEndpoint(service)

    @cached_property
    def doctor(self) -> SelfExamination:
        from gateway.wiring.self_examination import SelfExamination  # noqa: PLC0415 - not at the start

        return SelfExamination(self._gateway, self._overview)


def console_endpoints(
    gateway: Application,
    context: GatewayContext,
    overview: Callable[[], Overview],
    services: ConnectionServices,
    in_flight: InFlight,
) -> list[Endpoint]:
    """Return the console's endpoints; `overview` returns the state of the gateway, `in_flight` counts the requests that a
    stop waits for."""
    of = _LazyEndpoints(gateway, context, overview, services, in_flight)
    return [
        Endpoint("GET", SESSION, _later(lambda: of.context.session)),
        Endpoint("GET", CONTEXT, _later(lambda: of.context.sizes)),
        Endpoint("GET", TURN, _later(lambda: of.context.turn)),
        Endpoint("GET", TURN + r"/messages/{at:\d{1,9}}", _later(lambda: of.context.message)),
        Endpoint("GET", TURN + "/request.json", _later(lambda: of.context.request)),
        Endpoint("GET", TURN + "/what-if", _later(lambda: of.what_if.past)),
        Endpoint("POST", TURN + "/what-if", _later(lambda: of.what_if.ask)),
        Endpoint("GET", COMPACTION, _later(lambda: of.context.compaction)),
        Endpoint("GET", "/api/conversations/search", _later(lambda: of.conversations.search)),
        Endpoint("POST", CONVERSATION + "/shares", _later(lambda: of.shares.make)),
        Endpoint("GET", CONVERSATION + "/shares", _later(lambda: of.shares.listed)),
        Endpoint("DELETE", CONVERSATION + "/shares/{share:[a-z0-9]{1,32}}", _later(lambda: of.shares.revoke)),
        Endpoint("GET", CONVERSATION + "/tree", _later(lambda: of.conversations.tree)),
        Endpoint("POST", "/api/erasures", _later(lambda: of.conversations.erase)),
        Endpoint("GET", CONVERSATION + "/export", _later(lambda: of.conversations.export)),
        Endpoint("GET", "/api/models", _later(lambda: of.composer.models)),
        Endpoint("GET", "/api/prompts", _later(lambda: of.composer.prompts)),
        Endpoint("GET", "/api/files", _later(lambda: of.composer.files)),
        Endpoint("GET", "/api/memory", _of_agent(of.memory, lambda memory: memory.search)),
        Endpoint("GET", "/api/memory/forms", _of_agent(of.memory, lambda memory: memory.forms)),
        Endpoint("GET", "/api/memory/file", _of_agent(of.memory, lambda memory: memory.file)),
        Endpoint("GET", "/api/notes", _of_agent(of.memory, lambda memory: memory.notes)),
        Endpoint("GET", NOTE, _of_agent(of.memory, lambda memory: memory.note)),
        Endpoint("PUT", NOTE, _of_agent(of.memory, lambda memory: memory.write)),
        Endpoint("POST", NOTE, _of_agent(of.memory, lambda memory: memory.move)),
        Endpoint("DELETE", NOTE, _of_agent(of.memory, lambda memory: memory.delete)),
        Endpoint("GET", "/api/facts", _of_agent(of.memory, lambda memory: memory.facts)),
        Endpoint("GET", FACT, _of_agent(of.memory, lambda memory: memory.fact)),
        Endpoint("POST", FACT + "/pin", _of_agent(of.memory, lambda memory: memory.pin)),
        Endpoint("POST", FACT + "/unpin", _of_agent(of.memory, lambda memory: memory.unpin)),
        Endpoint("PATCH", FACT, _of_agent(of.memory, lambda memory: memory.edit)),
        Endpoint("DELETE", FACT, _of_agent(of.memory, lambda memory: memory.forget)),
        Endpoint("GET", "/api/skills", _of_agent(of.skills, lambda skills: skills.listed)),
        Endpoint("GET", SKILL, _of_agent(of.skills, lambda skills: skills.show)),
        Endpoint("POST", SKILL + "/admit", _of_agent(of.skills, lambda skills: skills.admit)),
        Endpoint("POST", SKILL + "/revoke", _of_agent(of.skills, lambda skills: skills.revoke)),
        Endpoint("GET", "/api/recipients", _later(lambda: of.recipients.recipients)),
        Endpoint("GET", "/api/usage", _later(lambda: of.usage.usage)),
        Endpoint("GET", "/api/health", owner_only(_later(lambda: of.health.health))),
        Endpoint("POST", CHANNEL + "/check", owner_only(_later(lambda: of.channels.check))),
        Endpoint("POST", CHANNEL + "/posts", owner_only(_later(lambda: of.channels.send))),
        Endpoint("GET", "/api/pairings", owner_only(_later(lambda: of.channels.pairings))),
        Endpoint("POST", "/api/pairings", owner_only(_later(lambda: of.channels.pair))),
        Endpoint("DELETE", PAIRING, owner_only(_later(lambda: of.channels.unpair))),
        Endpoint("GET", "/api/schedules", _later(lambda: of.schedules.listed)),
        Endpoint("POST", "/api/schedules", _later(lambda: of.schedules.add)),
        Endpoint("GET", "/api/schedules/heartbeat", _later(lambda: of.schedules.heartbeat)),
        Endpoint("GET", "/api/schedules/calendar", _later(lambda: of.schedules.calendar)),
        Endpoint("GET", SCHEDULE, _later(lambda: of.schedules.show)),
        Endpoint("POST", SCHEDULE + "/run", _later(lambda: of.schedules.run)),
        Endpoint("POST", SCHEDULE + "/pause", _later(lambda: of.schedules.pause)),
        Endpoint("POST", SCHEDULE + "/resume", _later(lambda: of.schedules.resume)),
        Endpoint("DELETE", SCHEDULE, _later(lambda: of.schedules.remove)),
        Endpoint("POST", "/api/imports", _later(lambda: of.imports.add)),
        Endpoint("GET", "/api/config", owner_only(_later(lambda: of.configuration.config))),
        Endpoint("POST", "/api/config/check", owner_only(_later(lambda: of.configuration.check))),
        Endpoint("POST", "/api/config", owner_only(_later(lambda: of.configuration.write))),
        Endpoint("GET", "/api/people", owner_only(_later(lambda: of.people.listed))),
        Endpoint("POST", "/api/people", owner_only(_later(lambda: of.people.add))),
        Endpoint("POST", PERSON + "/token", owner_only(_later(lambda: of.people.replace_token))),
        Endpoint("POST", PERSON + "/disable", owner_only(_later(lambda: of.people.disable))),
        Endpoint("POST", PERSON + "/enable", owner_only(_later(lambda: of.people.enable))),
        Endpoint("POST", PERSON + "/role", owner_only(_later(lambda: of.people.change_role))),
        Endpoint("DELETE", PERSON, owner_only(_later(lambda: of.people.remove))),
        Endpoint("GET", "/api/sign-ins", _later(lambda: of.sign_ins.listed)),
        Endpoint("DELETE", "/api/sign-ins", _later(lambda: of.sign_ins.end_others)),
        Endpoint("DELETE", "/api/sign-ins/{number:[A-Za-z0-9_-]{1,32}}", _later(lambda: of.sign_ins.end)),
        Endpoint("POST", "/api/doctor", owner_only(_later(lambda: of.doctor.examine))),
    ]


def shared_routes(gateway: Application, uploads: Uploads) -> list[web.RouteDef]:
    """Return the routes of links to conversations, for everybody."""

    @cache
    def shares() -> ShareEndpoints:
        from gateway.http.console.share_endpoints import ShareEndpoints  # noqa: PLC0415 - not at the start

        return ShareEndpoints(gateway.switchboard.sessions, gateway.shares, uploads, gateway.dependencies.clock)

    async def shared(request: web.Request) -> web.StreamResponse:
        return await shares().shared(request)

    async def file(request: web.Request) -> web.StreamResponse:
        return await shares().file(request)

    return [web.get(SHARED, shared), web.get(SHARED + SHARED_FILE, file)]


def _later(method: Callable[[], Admitted]) -> Admitted:
    """Return a handler that looks up its method at each request."""

    async def handle(request: web.Request, admission: Admission) -> web.StreamResponse:
        return await method()(request, admission)

    return handle


def _of_agent(of: Callable[[str], Awaitable[T | None]], choose: Callable[[T], Admitted]) -> Admitted:
    """Return a handler of the endpoints of the agent that a request names, by default `main`."""

    async def handle(request: web.Request, admission: Admission) -> web.StreamResponse:
        try:
            endpoints = await of(request.query.get("agent") or MAIN_AGENT)
        except StorageFailed as error:
            return refusal(503, "storage_failed", str(error))
        if endpoints is None:
            return refusal(404, "not_found", "There is no such agent.")
        return await choose(endpoints)(request, admission)

    return handle


def openai_endpoints(gateway: Application, services: ConnectionServices, in_flight: InFlight) -> list[Endpoint]:
    """Return the endpoint for everything below `/v1`; `in_flight` counts the requests that a stop waits for."""

    @cache
    def api() -> OpenAIApi:
        from gateway.http.openai.api import OpenAIApi  # noqa: PLC0415 - not at the start
        from gateway.http.openai.embeddings import Embeddings  # noqa: PLC0415

        dependencies = gateway.dependencies
        return OpenAIApi(
            services,
            dependencies.models,
            rights=dependencies.settings.rights_of,
            caller=dependencies.caller,
            embeddings=Embeddings(gateway.knowledge.memory, gateway.models.embeddings.in_use, dependencies.spending),
            transcriber=gateway.models.transcriber,
            in_flight=in_flight,
            counters=dependencies.counters,
            clock=dependencies.clock,
            stored=gateway.responses,
            attachments=dependencies.attachments,
        )

    async def serve(request: web.Request, admission: Admission) -> web.StreamResponse:
        return await api().serve(request, admission)

    def refuse(error: NotAuthorized) -> web.Response:
        from gateway.http.openai.api_errors import refusal_of, refused_response  # noqa: PLC0415 - not at the start

        return refused_response(refusal_of(error))

    return [Endpoint("*", "/v1/{path:.*}", serve, refuse)]


def cluster_endpoints(gateway: Application, services: ConnectionServices) -> list[Endpoint]:
    """Return the endpoints of the cluster that the gateway belongs to."""

    @cache
    def endpoints() -> ClusterEndpoints:
        from gateway.http.relay.cluster_endpoints import ClusterEndpoints  # noqa: PLC0415 - not at the start

        return ClusterEndpoints(gateway.cluster, gateway.switchboard, services.access)

    @cache
    def messages() -> MessageEndpoint:
        from gateway.http.mcp.program_messages import MessageEndpoint, ProgramMessages  # noqa: PLC0415 - not at the start

        return MessageEndpoint(ProgramMessages(gateway.switchboard), services.access)

    return [
        Endpoint("GET", "/cluster", owner_only(_later(lambda: endpoints().status))),
        Endpoint("POST", "/cluster/handover", _later(lambda: endpoints().hand_over)),
        Endpoint("POST", "/cluster/take", _later(lambda: endpoints().take)),
        Endpoint("POST", "/cluster/message", _later(lambda: messages().take)),
    ]


class LazyMcpServer:
    """The endpoint `/mcp`, which authenticates its requests itself: programs have tokens that nothing else accepts."""

    def __init__(self, gateway: Application, services: ConnectionServices) -> None:
        self._gateway = gateway
        self._services = services
        self._server: McpServer | None = None

    @property
    def route(self) -> web.RouteDef:
        return web.route("*", "/mcp", self._serve)

    async def close(self) -> None:
        """End the requests in flight."""
        if self._server is not None:
            await self._server.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        from gateway.http.mcp.gateway_tools import GatewayTools  # noqa: PLC0415 - not at the start
        from gateway.http.mcp.mcp_server import McpServer  # noqa: PLC0415
        from gateway.http.mcp.program_messages import ProgramMessages  # noqa: PLC0415

        if self._server is None:
            services, tools = self._services, self._gateway.dependencies.tools
            rights = self._gateway.dependencies.settings.rights_of
            messages = ProgramMessages(services.switchboard, services.links)
            offered = GatewayTools(services.switchboard, messages, tools.get, lambda: services.readiness.refuses, rights)
            self._server = McpServer(services.access, services.unauthenticated, offered)
        return await self._server.serve(request)
