"""The daemon: one gateway from its start to its end. What it consists of is put together in `assembly`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import structlog

from gateway.auth.access import Access
from gateway.auth.people import People, people_of
from gateway.auth.token import gateway_token
from gateway.auth.unauthenticated import UnauthenticatedLimit
from gateway.config.keys import Config, load_config
from gateway.config.reloading import ConfigReloader
from gateway.config.settings import Settings
from gateway.conversations.channels.channel_inbox import GatewayChannelInbox
from gateway.conversations.routing.switchboard import Switchboard
from gateway.http.console.routes import console_routes
from gateway.http.console.signing_in import invitation
from gateway.http.listener import access_of, listening
from gateway.http.openai.in_flight import InFlight
from gateway.http.uploads import Uploads
from gateway.http.web import application
from gateway.http.websocket import WebsocketServer
from gateway.metrics.counters import Counters
from gateway.metrics.readiness import Readiness
from gateway.models.registry import ModelRegistry
from gateway.plugin_runtime.shutdown import end_in_time
from gateway.protocol.slash_commands import listed
from gateway.status.instruments import Instruments
from gateway.support import address_space, descriptors, instance_address, logs
from gateway.support.clock import SystemClock
from gateway.support.errors import Busy, ConfigRefused, GatewayError, StartRefused, sentence_of
from gateway.support.home import Home
from gateway.support.version import VERSION
from gateway.wiring.app import Application, ApplicationBuilder, check, model_preferences
from gateway.wiring.console_endpoints import console_endpoints
from gateway.wiring.openai_endpoints import openai_endpoints
from gateway.wiring.systemd import Supervisor, passed_socket
from plugins.api.context import Clock
from plugins.host.plugin_folder import PluginFolder
from sessions.events.errors import HomeLocked, StorageFailed
from sessions.files.committer import Committer
from sessions.files.home_lock import HomeLock

LOOK_SECONDS = 2.0
"""So long the start waits at most for a look at the model servers of this machine; closed ports answer at once."""

FAILED_SECONDS = 3.0
"""How long `/readyz` tells of failed storage before the process ends."""

log = structlog.get_logger("exuvia")


def run(home: Path | None, config: Path | None, overrides: Mapping[str, Any], folders: Sequence[PluginFolder] = ()) -> int:
    """Run the gateway until SIGTERM or SIGINT, with the plugins in these folders. Returns the exit code: 0 after a stop that
    was asked for, 1 after the storage failed, 2 if it refused to start, the reason being printed as one line."""
    descriptors.raise_limit()
    try:
        address_space.check_limit()
        return asyncio.run(_run(home, config, overrides, folders))
    except (GatewayError, HomeLocked) as error:
        _print(sys.stderr, f"exuvia: {sentence_of(error)}\n")
        return 2
    except StorageFailed as error:
        _print(sys.stderr, f"exuvia: {sentence_of(error)}\n")
        return 1
    except (MemoryError, OSError, RuntimeError) as error:
        if not address_space.is_exhaustion(error):
            raise
        _print(sys.stderr, "exuvia: The system gives the gateway no memory, thread or file descriptor; see `ulimit -a`.\n")
        return 1


def _print(stream: IO[str], text: str) -> None:
    """Print, where that is possible: no gateway ends because nobody reads what it prints, or the disk below is full."""
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
        # Whoever opened the socket decided where it listens; the rules for addresses are for that one.
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
    if daemon.has_strangers:
        end_in_time(code)
    return code


def _collect_garbage() -> None:
    """From now on, where the command line put it off. What is there at this moment stays as long as the process: it need
    not be looked through again and again while turns go on."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


class Daemon:
    """One gateway on one home. `serve` builds everything from the bottom up and takes it down in the reverse order."""

    def __init__(
        self,
        home: Home,
        config: Config,
        *,
        clock: Clock | None = None,
        passed: socket.socket | None = None,
        folders: Sequence[PluginFolder] = (),
    ) -> None:
        self.home = home
        self.settings = Settings(config)
        self.clock = clock or SystemClock()
        self.readiness = Readiness()
        self.address: tuple[str, int] | None = None
        self.has_strangers = False
        """Whether code runs here that is not ours."""
        self._in_hand = InFlight()
        self._began = self.clock.monotonic()
        self._figures = Counters()
        self._passed = passed
        self._folders = tuple(folders)
        self._supervisor = Supervisor(os.environ)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.settings.current

    def stop(self) -> None:
        """Ask the gateway to end; asked again, it waits for no turn any longer."""
        (self._hurry if self._stop.is_set() else self._stop).set()

    async def serve(self, stack: contextlib.AsyncExitStack) -> int:
        """Serve until `stop`, a signal, or failed storage; returns the exit code."""
        self._listen_to_signals()
        await stack.enter_async_context(self._supervisor.fed())
        people = self._people(self.config)
        assembling = ApplicationBuilder(
            stack=stack,
            home=self.home,
            settings=self.settings,
            clock=self.clock,
            figures=self._figures,
            began=self._began,
            folders=self._folders,
        )
        gateway = await assembling.assembled()
        self.has_strangers = bool(gateway.hooks.strangers())
        await gateway.parts.lifecycle.started()
        async with self._door(gateway, people) as door:
            with contextlib.suppress(TimeoutError):  # so that the first message knows the models of this machine
                async with asyncio.timeout(LOOK_SECONDS):
                    await gateway.models.look_around()
            self.readiness.ready()
            self._announce(gateway.models, door.access)
            _collect_garbage()
            async with self._background(gateway, door):
                code = await self._until_stopped(gateway.committer, gateway.switchboard)
                await gateway.parts.lifecycle.stopping()
                return code

    # --- serving ------------------------------------------------------------------------------------------------------

    def _channel_inbox(self, channel: str, switchboard: Switchboard) -> GatewayChannelInbox:
        return GatewayChannelInbox(
            channel,
            switchboard,
            senders=lambda: self.config.plugins.senders,
            people=lambda: self.config.people,
        )

    @contextlib.asynccontextmanager
    async def _background(self, gateway: Application, door: WebsocketServer) -> AsyncIterator[None]:
        """What goes on beside the turns while the gateway serves."""
        reloading = ConfigReloader(self.settings, check=lambda config: check(config, gateway.hooks))
        tasks = [
            asyncio.create_task(gateway.models.keep_looking()),
            asyncio.create_task(gateway.memory.watch()),
            asyncio.create_task(gateway.finding.run()),
            asyncio.create_task(gateway.last_hour.run()),
            asyncio.create_task(gateway.parts.lifecycle.run()),
            asyncio.create_task(gateway.channels.run(lambda name: self._channel_inbox(name, gateway.switchboard))),
            asyncio.create_task(gateway.switchboard.resume_all()),
            *(asyncio.create_task(each.run()) for each in gateway.developing),
            asyncio.create_task(door.uploads.sweep(self.home.sessions)),
            asyncio.create_task(
                reloading.run(
                    admit=lambda config: self._admit(config, door.access),
                    take=lambda config: self._take(config, gateway),
                )
            ),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _instruments(self, gateway: Application) -> Instruments:
        return Instruments(
            version=VERSION,
            home=self.home,
            clock=self.clock,
            began=self._began,
            figures=self._figures,
            lag=gateway.lag,
            troubles=gateway.troubles,
            settings=self.settings,
            readiness=self.readiness,
            committer=gateway.committer,
            catalog=gateway.catalog,
            switchboard=gateway.switchboard,
            models=gateway.models,
        )

    @contextlib.asynccontextmanager
    async def _door(self, gateway: Application, people: People) -> AsyncIterator[WebsocketServer]:
        """Listen; only then the port is known, and with it who may come in."""
        parts = gateway.parts
        uploads = Uploads(
            parts.attachments,
            limit=lambda: self.config.gateway.attachment_bytes,
            refuses=lambda: self.readiness.refuses,
        )
        doors: list[WebsocketServer] = []
        instruments = self._instruments(gateway)
        unauthenticated = UnauthenticatedLimit(descriptors.unauthenticated())
        server = f"exuvia/{VERSION}"
        app = application(
            lambda: doors[0].access,
            self.readiness,
            lambda: doors[0],
            uploads,
            instruments,
            unauthenticated=unauthenticated,
            endpoints=[
                *console_endpoints(gateway, self._figures, lambda: instruments.overview(doors[0].connections)),
                *openai_endpoints(gateway, lambda: doors[0], lambda: self.readiness.refuses, self._in_hand),
            ],
            routes=console_routes(lambda: doors[0].access, server),
        )
        listener = await listening(app, self.config.gateway, self._passed, unauthenticated)
        self.address = listener.address
        door = WebsocketServer(
            gateway.switchboard,
            access_of(people, self.config.gateway, self.address[1], self.clock, self.home.signed_out),
            uploads,
            server=server,
            model=parts.models.configured,
            verbose=lambda: self.config.agent.verbose,
            commands=listed(parts.commands),
            refuses=lambda: self.readiness.refuses,
            unauthenticated=unauthenticated,
        )
        doors.append(door)
        try:
            with instance_address.noted(self.home.address, *self.address):
                yield door
        finally:
            await door.close()
            await listener.close()

    async def _admit(self, config: Config, access: Access) -> None:
        """Have those speak who may by a changed configuration, at once."""
        access.replace(await asyncio.to_thread(self._people, config))

    async def _take(self, config: Config, gateway: Application) -> set[str]:
        """Put the rest of it into force, for turns that begin from now on; returns the keys that changed."""
        reopened = await gateway.providers.fit(config)
        await gateway.embeddings.fit(config)
        changed = self.settings.offer(config)
        gateway.models.reconfigure(**model_preferences(self.config))
        if any(key.startswith("memory.") for key in changed):
            gateway.memory.wake()  # other places to look in, or somebody else who makes vectors
        if changed & {"log.level", "log.format"}:
            logs.configure(self.config.log.level, self.config.log.format)
        return changed | {f"providers.{name}" for name in reopened}

    def _people(self, config: Config) -> People:
        """Who may speak by a configuration and the token as it is now; ConfigRefused if the token cannot be used."""
        try:
            return people_of(config, gateway_token(self.home, config, os.environ))
        except StartRefused as error:
            raise ConfigRefused(str(error), key="gateway.token") from error

    def _announce(self, models: ModelRegistry, access: Access) -> None:
        assert self.address is not None
        host, port = self.address
        try:
            model = models.choose().why
        except GatewayError as error:
            model = str(error)
        log.info("ready", address=f"ws://{host}:{port}/ws", home=str(self.home.root), model=model)
        self._supervisor.ready(f"Listening on {host}:{port}.")
        if "JOURNAL_STREAM" not in os.environ:  # what systemd keeps is read later, and by others
            _print(sys.stdout, invitation(access, host, port))

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    async def _until_stopped(self, committer: Committer, switchboard: Switchboard) -> int:
        stopped: asyncio.Future[Any] = asyncio.create_task(self._stop.wait())
        failed: asyncio.Future[Any] = committer.failure
        await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if failed.done():
            failure = failed.result()
            self.readiness.stop(StorageFailed(f"The storage failed: {failure}"))
            log.critical("storage_failed", reason=str(failure))
            await asyncio.sleep(FAILED_SECONDS)
            return 1
        self.readiness.stop(Busy("The gateway is stopping; come back in a moment."))
        await self._let_finish(switchboard)
        return 1 if committer.failure.done() else 0

    async def _let_finish(self, switchboard: Switchboard) -> None:
        """Let turns go on for `gateway.stop_within`; what is not done then stays open and is resumed at the next start."""
        seconds = self.config.gateway.stop_within
        log.info("stopping", seconds=seconds)
        self._supervisor.stopping(seconds)
        finished: asyncio.Future[Any] = asyncio.gather(switchboard.let_finish(seconds), self._in_hand.until_none(seconds))
        hurried: asyncio.Future[Any] = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({finished, hurried}, return_when=asyncio.FIRST_COMPLETED)
        for task in (finished, hurried):
            task.cancel()
        await asyncio.wait({finished, hurried})
        await switchboard.interrupt()
