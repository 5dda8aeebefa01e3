"""One gateway process from start to stop. Its parts are built in `app`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import structlog

from gateway import VERSION
from gateway.auth.access import Access
from gateway.auth.limits import UnauthenticatedLimit
from gateway.auth.people import People, people_of
from gateway.auth.people_log import PeopleUnusable, StoredPeople
from gateway.auth.token import gateway_token
from gateway.config.keys import Config, execution_keys, load_config
from gateway.config.reloading import ConfigReloader
from gateway.config.settings import Settings
from gateway.conversations.channels.channel_inbox import GatewayChannelInbox
from gateway.conversations.channels.channel_instances import channel_instances
from gateway.conversations.routing.switchboard import Switchboard
from gateway.http.concurrency import InFlight
from gateway.http.console.pages import console_routes
from gateway.http.console.signing_in import invitation
from gateway.http.hooks import Hooks
from gateway.http.uploads import Uploads
from gateway.http.web import application
from gateway.http.websocket import WebsocketServer
from gateway.http.websocket_connection import ConnectionServices
from gateway.metrics.counters import Counters
from gateway.models.registry import ModelRegistry
from gateway.plugin_runtime.watchdog import exit_within
from gateway.protocol.slash_commands import command_help
from gateway.status.instruments import GatewayContext, Instruments
from gateway.status.problems import Problems, Readiness
from gateway.support import instance_address, logs, resource_limits
from gateway.support.clock import SystemClock
from gateway.support.errors import Busy, ConfigRefused, GatewayError, StartRefused, error_fields, sentence_of
from gateway.support.home import Home
from gateway.wiring.app import Application, ApplicationBuilder
from gateway.wiring.endpoints import LazyMcpServer, cluster_endpoints, console_endpoints, openai_endpoints, shared_routes
from gateway.wiring.listener import bound_sockets, serve
from gateway.wiring.retention import Retention
from gateway.wiring.running_plugins import check, log_warning
from gateway.wiring.systemd import Supervisor, passed_socket
from plugins.api.context import Clock
from plugins.host.loading import PluginFolder
from plugins.support.workspace import OWNER
from sessions.events.errors import HomeLocked, StorageFailed
from sessions.events.events import MAIN_AGENT
from sessions.files.home_lock import HomeLock
from sessions.store.cluster import Cluster
from sessions.store.log_writer import stamp
from sessions.store.protocols import Store

if TYPE_CHECKING:
    from gateway.auth.relay_tokens import RelayTokens
    from gateway.http.relay.delivery_handover import DeliveryHandover
    from gateway.http.relay.links import Links
    from gateway.http.relay.request_relay import RequestRelay
    from gateway.http.relay.update_relay import UpdateRelay

DISCOVERY_SECONDS = 2.0
"""The longest time that the start waits for the discovery of local model servers; closed ports answer at once."""

SERVER_SECONDS = 10.0
"""The longest time that interrupted turns wait for MCP servers."""

RESUME_SECONDS = 0.5
"""Seconds before unfinished sessions are looked for again, if the storage did not answer, and before another step of the
start that has failed is tried again."""

RESUME_ATTEMPTS = 10
"""Attempts at a step of the start that fails unexpectedly, before the next steps go on without it."""

LOST_SECONDS = 3.0
"""Seconds without contact with the database of a cluster after which this gateway is not ready."""

YOUNG_OBJECTS = 5000
"""New objects after which the garbage collector looks for cycles. A turn leaves none, but the objects of fifty running turns
are more than Python's default of 700, so that it would examine them again and again."""

FAILED_SECONDS = 3.0
"""Seconds for which `/readyz` reports failed storage before the process exits."""

log = structlog.get_logger("exuvia")


def run(home: Path | None, config: Path | None, overrides: Mapping[str, Any], folders: Sequence[PluginFolder] = ()) -> int:
    """Run the gateway until SIGTERM or SIGINT.

    Args:
        home: The home; None for the default.
        config: The configuration file; None for the home's.
        overrides: Configuration keys of the command line.
        folders: Folders of plugins to load and reload.

    Returns:
        The exit code: 0 after a requested stop, 1 after the storage failed, 2 if the gateway refused to start. The reason is
        printed as one line.
    """
    resource_limits.raise_descriptor_limit()
    try:
        resource_limits.check_address_space()
        return asyncio.run(_run(home, config, overrides, folders))
    except (GatewayError, HomeLocked) as error:
        _print(sys.stderr, f"exuvia: {sentence_of(error)}\n")
        return 2
    except StorageFailed as error:
        _print(sys.stderr, f"exuvia: {sentence_of(error)}\n")
        return 1
    except (MemoryError, OSError, RuntimeError) as error:
        if not resource_limits.is_exhaustion(error):
            raise
        _print(sys.stderr, "exuvia: Out of memory, threads or file descriptors; see `ulimit -a`.\n")
        return 1


def _print(stream: IO[str], text: str) -> None:
    """Print, ignoring failures: a closed output or a full disk must not end the gateway."""
    with contextlib.suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()


async def _run(
    home_path: Path | None, config_path: Path | None, overrides: Mapping[str, Any], folders: Sequence[PluginFolder]
) -> int:
    home = Home.resolve(home_path, os.environ)
    passed = passed_socket(os.environ)
    if passed is not None:
        host, port = passed.getsockname()[:2]
        # The socket determines the address, which the rules for addresses then apply to.
        overrides = {**overrides, "gateway": {"host": host, "port": port}}
    config = load_config(config_path or home.config, environment=os.environ, overrides=overrides)
    home.make(config.agent.workspace)
    logs.configure(config.log.level, config.log.format)
    for warning in config.warnings:
        log.warning("configuration", warning=warning)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(HomeLock(home.lock))
        daemon = Daemon(home, config, passed=passed, folders=folders)
        code = await daemon.serve(stack)
    if daemon.has_third_party_plugins:
        exit_within(code)
    return code


async def resume_sessions(switchboard: Switchboard) -> None:
    """Open the sessions that the last stop left unfinished. A database that does not answer is asked again: what starts
    after this must not depend on its first answer."""
    while True:
        try:
            return await switchboard.resume_all()
        except StorageFailed as error:
            log.error("sessions_not_resumed", reason=sentence_of(error))
            await asyncio.sleep(RESUME_SECONDS)


async def _attempt(step: str, work: Callable[[], Awaitable[None]], attempts: float = RESUME_ATTEMPTS) -> bool:
    """Carry out a step of the start, which is tried again if it fails; return False if every attempt has failed."""
    while attempts > 0:
        try:
            await work()
        except Exception as error:  # such as no thread: what starts after this must not depend on it
            log.error("start_step_failed", step=step, **error_fields(error))
            attempts -= 1
            await asyncio.sleep(RESUME_SECONDS)
        else:
            return True
    return False


def _background_task_ended(problems: Problems, task: asyncio.Task[Any]) -> None:
    """Report a background task that has ended because of a fault: what it does is missing from then on."""
    if not task.cancelled() and (error := task.exception()) is not None:
        name = getattr(task.get_coro(), "__qualname__", task.get_name())
        log.error("background_task_failed", task=name, **error_fields(error))
        problems.task_failed(name)


def _collect_garbage() -> None:
    """Enable garbage collection, which the command line deferred, and exempt all objects that exist now: they live
    as long as the process."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, 10, 10)
        gc.enable()


class Daemon:
    """One gateway on one home."""

    def __init__(
        self,
        home: Home,
        config: Config,
        *,
        clock: Clock | None = None,
        passed: socket.socket | None = None,
        folders: Sequence[PluginFolder] = (),
    ) -> None:
        clock = clock or SystemClock()
        home = msgspec.structs.replace(home, database=config.store.database)
        self.context = GatewayContext(
            home=home, settings=Settings(config), clock=clock, counters=Counters(), began=clock.monotonic()
        )
        self.readiness = Readiness()
        self.address: tuple[str, int] | None = None
        self.has_third_party_plugins = False
        self._added = StoredPeople()
        self._in_flight = InFlight()
        self._passed = passed
        self._folders = tuple(folders)
        self._supervisor = Supervisor(os.environ)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._websockets: WebsocketServer | None = None

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.context.config

    def stop(self) -> None:
        """Ask the gateway to stop; a second call stops waiting for running turns."""
        (self._hurry if self._stop.is_set() else self._stop).set()

    async def serve(self, stack: contextlib.AsyncExitStack) -> int:
        """Serve until `stop`, a signal, or a storage failure, and return the exit code."""
        self._listen_to_signals()
        await stack.enter_async_context(self._supervisor.watchdog_fed())
        self._people(self.config)  # a token that cannot be used is refused before anything is opened
        gateway = await ApplicationBuilder(stack=stack, context=self.context, folders=self._folders).build()
        with contextlib.suppress(PeopleUnusable):  # it is one of the problems then
            self._take(await gateway.people.stored())
        people = self._people(self.config)
        if (cluster := gateway.cluster) is not None:
            self.readiness.lost_contact = lambda: cluster.silent_seconds > LOST_SECONDS
        self.has_third_party_plugins = bool(gateway.plugins.hooks.third_party_modules())
        await gateway.plugins.lifecycle.started()
        async with self._listen(gateway, people) as services:
            with contextlib.suppress(TimeoutError):  # so that the first message can use the models of this machine
                async with asyncio.timeout(DISCOVERY_SECONDS):
                    await gateway.models.registry.discover_models()
            self.readiness.ready()
            self._announce(gateway.models.registry, services.access)
            _collect_garbage()
            async with self._background(gateway, services):
                code = await self._until_stopped(gateway.store, gateway.switchboard, gateway.cluster)
                await gateway.plugins.lifecycle.stopping()
                return code

    # --- serving ------------------------------------------------------------------------------------------------------

    def _channel_inbox(self, channel: str, gateway: Application) -> GatewayChannelInbox:
        counters = self.context.counters
        return GatewayChannelInbox(
            channel,
            gateway.switchboard,
            self.context.settings,
            gateway.dependencies.attachments,
            senders=gateway.dependencies.command_services.senders,
            count=lambda outcome: counters.channel_messages.add(channel, outcome),
            questions=gateway.dependencies.command_services.questions,
            delivery=gateway.dependencies.delivery,
            report=lambda problem: gateway.plugins.channels.report(channel, problem),
            bounced=lambda reason: counters.count_reply_delivery(channel, stamp(self.context.clock.now()), reason),
        )

    @contextlib.asynccontextmanager
    async def _background(self, gateway: Application, services: ConnectionServices) -> AsyncIterator[None]:
        """Run the background tasks while the gateway serves."""
        hooks, home = gateway.plugins.hooks, self.context.home
        reloading = ConfigReloader(self.context.settings, check=lambda config: check(config, hooks, home))
        tasks = [
            asyncio.create_task(gateway.models.registry.discover_periodically()),
            asyncio.create_task(gateway.knowledge.memory.watch()),
            asyncio.create_task(gateway.knowledge.extraction.run()),
            asyncio.create_task(gateway.last_hour.run()),
            asyncio.create_task(gateway.plugins.lifecycle.run()),
            asyncio.create_task(gateway.plugins.channels.run(lambda name: self._channel_inbox(name, gateway))),
            asyncio.create_task(self._resume(gateway)),
            *(asyncio.create_task(each.run()) for each in gateway.plugins.development),
            *(asyncio.create_task(each.run()) for each in self._handovers(gateway, services)),
            asyncio.create_task(services.uploads.sweep(gateway.store)),
            *(asyncio.create_task(each.run()) for each in self._retention(gateway)),
            *([asyncio.create_task(gateway.people.follow())] if gateway.people.shared else []),
            asyncio.create_task(
                reloading.run(
                    admit=lambda config: self._admit(config, services.access),
                    apply=lambda config: self._apply(config, gateway),
                )
            ),
        ]
        for task in tasks:
            task.add_done_callback(partial(_background_task_ended, gateway.problems))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _retention(self, gateway: Application) -> list[Retention]:
        """Return what applies the rules of retention, if there are any."""
        if not (rules := self.config.retention.rules):
            return []

        def people() -> list[str]:
            return list(dict.fromkeys((OWNER, *self.config.people, *self._added.people)))

        return [Retention(gateway.switchboard, rules, people, self.context.clock)]

    async def _resume(self, gateway: Application) -> None:
        """Open the sessions that the last stop left unfinished, after the MCP servers had time to connect: interrupted turns
        may call their tools. Then all open questions are known.

        A step that keeps failing unexpectedly is skipped and reported; the sessions are tried further beside what follows.
        """
        switchboard, services = gateway.switchboard, gateway.dependencies.command_services
        resume = partial(_attempt, "resume_sessions", partial(resume_sessions, switchboard))

        async def attempt(step: str, work: Callable[[], Awaitable[None]]) -> None:
            if not await _attempt(step, work):
                gateway.problems.task_failed(step)

        await attempt("start_mcp_servers", partial(self._start_mcp_servers, gateway))
        await attempt("resume_erasures", switchboard.removals.resume_erasures)
        resumed = await resume()
        await attempt("resume_deletions", switchboard.removals.resume_deletions)
        await attempt("resume_erasures_of_persons", gateway.persons.resume)
        await attempt("resume_requests", switchboard.removals.resume_requests)
        gateway.scheduler.start()
        await attempt("start_heartbeat", partial(services.heartbeat.start, switchboard))
        services.questions.complete()
        async with asyncio.TaskGroup() as tasks:
            if not resumed:
                tasks.create_task(resume(math.inf))
            if gateway.cluster is not None:
                tasks.create_task(switchboard.adopt())
                tasks.create_task(switchboard.removals.watch_requests())

    async def _start_mcp_servers(self, gateway: Application) -> None:
        await gateway.plugins.mcp.reconfigure(self.config.mcp)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SERVER_SECONDS):
                await gateway.plugins.mcp.settled()

    def _instruments(self, gateway: Application) -> Instruments:
        return Instruments(
            context=self.context,
            lag=gateway.lag,
            problems=gateway.problems,
            readiness=self.readiness,
            store=gateway.store,
            catalog=gateway.catalog,
            cluster=gateway.cluster,
            switchboard=gateway.switchboard,
            models=gateway.models.registry,
            channels=gateway.channel_reports,
        )

    @contextlib.asynccontextmanager
    async def _listen(self, gateway: Application, people: People) -> AsyncIterator[ConnectionServices]:
        """Listen and serve. The port, which the access rules depend on, is known only after listening."""
        sockets = await bound_sockets(self.config.gateway) if self._passed is None else [self._passed]
        self.address = sockets[0].getsockname()[:2]
        dependencies, keys, context = gateway.dependencies, self.config.gateway, self.context
        tokens, links = self._links(gateway.cluster)
        if links is not None:
            gateway.switchboard.obtain = links.obtain
        access = Access.of_gateway(
            people,
            keys,
            self.address[1],
            context.clock,
            signed_out=context.home.signed_out,
            sign_ins=context.home.sign_ins,
        )
        gateway.people.watch(partial(self._people_changed, access))
        gateway.persons.forget_browsers = access.forget_browsers
        if tokens is not None:
            access.accept_relayed(tokens)
        services = ConnectionServices(
            switchboard=gateway.switchboard,
            questions=dependencies.command_services.questions,
            updates=dependencies.updates,
            access=access,
            unauthenticated=UnauthenticatedLimit(resource_limits.most_unauthenticated()),
            uploads=Uploads(
                dependencies.attachments,
                limit=lambda: self.config.gateway.attachment_bytes,
                readiness=self.readiness,
            ),
            readiness=self.readiness,
            program=f"exuvia/{VERSION}",
            model=dependencies.models.configured,
            verbose=lambda: self.config.agent.verbose,
            zone=lambda: self.context.settings.zone,
            commands=command_help(dependencies.commands),
            agents=lambda: (MAIN_AGENT, *self.config.agents),
            links=links,
            request_relay=self._request_relay(access, links),
            update_relay=self._update_relay(gateway, links),
            gateway=lambda: None if gateway.cluster is None else gateway.cluster.id,
        )
        server = self._websockets = WebsocketServer(services)
        instruments, mcp_server = self._instruments(gateway), LazyMcpServer(gateway, services)
        hooks = Hooks(gateway.plugins.channels.hooked, services.readiness, services.unauthenticated)
        app = application(
            services,
            server,
            instruments,
            endpoints=[
                *console_endpoints(
                    gateway, context, lambda: instruments.overview(server.connections), services, self._in_flight
                ),
                *openai_endpoints(gateway, services, self._in_flight),
                *cluster_endpoints(gateway, services),
            ],
            routes=[
                *console_routes(services, gateway.people),
                *shared_routes(gateway, services.uploads),
                mcp_server.route,
                hooks.route,
            ],
        )
        listener = await serve(app, sockets, services.unauthenticated)
        try:
            if gateway.cluster is not None:
                await gateway.cluster.announce(self._cluster_url(sockets[0]))
            with instance_address.publish(context.home.address, *self.address):
                yield services
        finally:
            await server.close()
            if services.update_relay is not None:
                await services.update_relay.close()
            if links is not None:
                await links.close()
            await mcp_server.close()
            await listener.close()

    def _handovers(self, gateway: Application, services: ConnectionServices) -> list[DeliveryHandover]:
        """Return what hands answers to the gateway that has their channel open, if there are other gateways."""
        cluster, links = gateway.cluster, services.links
        if cluster is None or links is None:
            return []
        from gateway.http.relay.delivery_handover import DeliveryHandover  # noqa: PLC0415 - only in a cluster

        return [DeliveryHandover(gateway.dependencies.delivery, gateway.plugins.channels, cluster, links.offer)]

    def _request_relay(self, access: Access, links: Links | None) -> RequestRelay | None:
        if links is None:
            return None
        from gateway.http.relay.request_relay import RequestRelay  # noqa: PLC0415 - only in a cluster

        return RequestRelay(links, access.is_relayed, self._stops)

    def _update_relay(self, gateway: Application, links: Links | None) -> UpdateRelay | None:
        if gateway.cluster is None or links is None:
            return None
        from gateway.http.relay.update_relay import UpdateRelay  # noqa: PLC0415 - only in a cluster

        return UpdateRelay(links, gateway.cluster, gateway.dependencies.updates)

    def _links(self, cluster: Cluster | None) -> tuple[RelayTokens | None, Links | None]:
        """Return what connects this gateway to the others of its cluster."""
        if cluster is None:
            return None, None
        from gateway.auth.relay_tokens import RelayTokens  # noqa: PLC0415 - only in a cluster
        from gateway.http.relay.links import Links  # noqa: PLC0415

        now = self.context.clock.now
        tokens = RelayTokens(lambda: cluster.secret, lambda: cluster.id, lambda: now().timestamp())
        return tokens, Links(cluster, tokens)

    def _stops(self) -> bool:
        return self._stop.is_set()

    def _cluster_url(self, listening: socket.socket) -> str:
        """Return the address of this gateway for the others: the configured one, or that on which it listens."""
        host, port = listening.getsockname()[:2]
        if self.config.gateway.cluster_url is not None:
            return self.config.gateway.cluster_url
        host = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104 - a comparison
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def _admit(self, config: Config, access: Access) -> None:
        """Apply the access rules of a changed configuration, at once."""
        access.replace(await asyncio.to_thread(self._people, config))

    def _take(self, stored: StoredPeople) -> None:
        """Take over the people who were added while the gateway ran."""
        self._added = stored
        self.context.settings.added = {each.id: each.role for each in stored.people.values() if not each.disabled}

    async def _people_changed(self, access: Access, stored: StoredPeople) -> None:
        self._take(stored)
        access.replace(await asyncio.to_thread(self._people, self.config))

    async def _apply(self, config: Config, gateway: Application) -> set[str]:
        """Apply the rest of a changed configuration to turns that begin from now on; return the changed keys."""
        reopened = await gateway.models.open_providers(config)
        await gateway.agents.main.commands.prepare(execution_keys(config))
        channels = await asyncio.to_thread(channel_instances, config, gateway.plugins.hooks, log_warning)
        changed = self.context.settings.offer(config)
        await gateway.plugins.mcp.reconfigure(self.config.mcp)
        await gateway.plugins.channels.reconfigure(channels)
        gateway.models.registry.reconfigure(self.config.agent)
        if any(key.startswith(("heartbeat.", "agents.")) or key.endswith(".timezone") for key in changed):
            await gateway.dependencies.command_services.heartbeat.reconfigure()
        await gateway.agents.reconfigure()
        if any(key.startswith(("memory.", "agents.")) for key in changed):
            gateway.agents.wake_memories()  # the sources or the embedding provider may have changed
        if changed & {"log.level", "log.format"}:
            logs.configure(self.config.log.level, self.config.log.format)
        return changed | {f"providers.{name}" for name in reopened}

    def _people(self, config: Config) -> People:
        """Return the people of a configuration, with the current token.

        Raises:
            ConfigRefused: The token cannot be used.
        """
        try:
            owner = gateway_token(self.context.home, config, os.environ)
            return people_of(config, owner, self._added.people.values())
        except StartRefused as error:
            raise ConfigRefused(str(error), key="gateway.token") from error

    def _announce(self, models: ModelRegistry, access: Access) -> None:
        assert self.address is not None
        host, port = self.address
        try:
            model = models.choose().why
        except GatewayError as error:
            model = str(error)
        log.info("ready", address=f"ws://{host}:{port}/ws", home=str(self.context.home.root), model=model)
        self._supervisor.ready(f"Listening on {host}:{port}.")
        if "JOURNAL_STREAM" not in os.environ:  # the journal outlives the link, and others can read it
            _print(sys.stdout, invitation(access, host, port))

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    @contextlib.asynccontextmanager
    async def _draining(self, cluster: Cluster | None, switchboard: Switchboard) -> AsyncIterator[None]:
        """Let the other gateways of a cluster take over what is idle, and send the clients there."""
        if cluster is None or self._websockets is None:
            yield
            return
        try:
            await cluster.drain()
        except StorageFailed as error:  # the others notice when it has stopped
            log.warning("drain_not_announced", reason=str(error))
        tasks = [asyncio.create_task(self._websockets.drain()), asyncio.create_task(switchboard.drain())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _until_stopped(self, store: Store, switchboard: Switchboard, cluster: Cluster | None) -> int:
        stopped: asyncio.Future[Any] = asyncio.create_task(self._stop.wait())
        failed: asyncio.Future[Any] = store.failure
        await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if failed.done():
            failure = failed.result()
            self.readiness.stop(StorageFailed(f"The storage failed: {failure}"))
            log.critical("storage_failed", reason=str(failure))
            await asyncio.sleep(FAILED_SECONDS)
            return 1
        self.readiness.stop(Busy("The gateway is stopping; try again in a moment."))
        async with self._draining(cluster, switchboard):
            await self._let_finish(switchboard)
        return 1 if store.failure.done() else 0

    async def _let_finish(self, switchboard: Switchboard) -> None:
        """Let turns run for `gateway.stop_within`; those that do not finish are resumed at the next start."""
        seconds = self.config.gateway.stop_within
        log.info("stopping", seconds=seconds)
        self._supervisor.stopping(seconds)
        finished: asyncio.Future[Any] = asyncio.gather(switchboard.let_finish(seconds), self._in_flight.until_none(seconds))
        hurried: asyncio.Future[Any] = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({finished, hurried}, return_when=asyncio.FIRST_COMPLETED)
        for task in (finished, hurried):
            task.cancel()
        await asyncio.wait({finished, hurried})
        await switchboard.interrupt()
