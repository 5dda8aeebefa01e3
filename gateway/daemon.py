"""The daemon: the only place where the parts are put together; start, serve, stop in order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import structlog

from gateway import logs, whereabouts
from gateway.clock import SystemClock
from gateway.commands.parsing import listed
from gateway.commands.surroundings import Surroundings
from gateway.configuration.keys import Config, check_backend, check_condensers, check_embedding, check_providers, load_config
from gateway.configuration.reloading import Reloading
from gateway.configuration.settings import Settings
from gateway.conversations.day_notes import DayNotes
from gateway.conversations.makings import Conversations, Parts
from gateway.conversations.offered_tools import OfferedTools, opened_tools
from gateway.conversations.remembering import Remembering
from gateway.conversations.switchboard import Switchboard
from gateway.conversations.workspace_notes import WorkspaceNotes
from gateway.door.access import Access
from gateway.door.listening import access_of, listening
from gateway.door.people import People, people_of
from gateway.door.token import gateway_token
from gateway.door.uploads import Uploads
from gateway.door.web import application
from gateway.door.websocket import WebsocketDoor
from gateway.errors import Busy, ConfigRefused, GatewayError, StartRefused, sentence_of
from gateway.fact_finding import FactFinding
from gateway.facts import facts_of
from gateway.home import Home
from gateway.measuring.figures import Figures
from gateway.measuring.instruments import Instruments
from gateway.measuring.loop_lag import LoopLag
from gateway.measuring.readiness import Readiness
from gateway.measuring.troubles import Troubles
from gateway.memory import open_memory
from gateway.models.choosing import Models
from gateway.models.open_providers import OpenProviders, open_chats, open_embeddings
from gateway.models.told import AllTold, told_before
from gateway.supervision import Supervisor, passed_socket
from plugins.command_contract import Command
from plugins.contracts import ChatProvider, Clock, House
from plugins.embedding import EmbeddingProvider
from plugins.facts.facts import Facts
from plugins.hooks import Hooks
from plugins.loading import load_plugins
from plugins.memory.memory import Memory
from plugins.transport import Transport
from sessions.attachments import Attachments
from sessions.catalog import Catalog
from sessions.committer import Committer
from sessions.errors import HomeLocked, StorageFailed
from sessions.home_lock import HomeLock
from sessions.journal import Journals

VERSION = "0.1.0"

LOOK_SECONDS = 0.3
"""So long the start waits at most for a look at the model servers of this machine; closed ports answer at once."""

FAILED_SECONDS = 3.0
"""How long `/readyz` tells of failed storage before the process ends."""

log = structlog.get_logger("exuvia")


def run(home: Path | None, config: Path | None, overrides: Mapping[str, Any]) -> int:
    """Run the gateway until SIGTERM or SIGINT. Returns the exit code: 0 after a stop that was asked for, 1 after the storage
    failed, 2 if it refused to start, the reason being printed as one line."""
    try:
        return asyncio.run(_run(home, config, overrides))
    except (GatewayError, HomeLocked) as error:
        sys.stderr.write(f"exuvia: {sentence_of(error)}\n")
        return 2
    except StorageFailed as error:
        sys.stderr.write(f"exuvia: {sentence_of(error)}\n")
        return 1


async def _run(home_path: Path | None, config_path: Path | None, overrides: Mapping[str, Any]) -> int:
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
        daemon = Daemon(home, config, passed=passed)
        return await daemon.serve(stack)


class Daemon:
    """One gateway on one home. `serve` builds everything from the bottom up and takes it down in the reverse order."""

    def __init__(
        self, home: Home, config: Config, *, clock: Clock | None = None, passed: socket.socket | None = None
    ) -> None:
        self.home = home
        self.settings = Settings(config)
        self.clock = clock or SystemClock()
        self.readiness = Readiness()
        self.address: tuple[str, int] | None = None
        self._began = self.clock.monotonic()
        self._figures = Figures()
        self._passed = passed
        self._supervisor = Supervisor(os.environ)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.settings.current

    @staticmethod
    def _check(config: Config, hooks: Hooks) -> None:
        """ConfigRefused where a configuration asks for what no plugin provides."""
        check_providers(config, hooks.chat_providers())
        check_embedding(config, hooks.embedding_providers())
        check_backend(config, hooks.memory_backends)
        check_condensers(config, hooks.summarizers(), hooks.flushes())

    def stop(self) -> None:
        """Ask the gateway to end; asked again, it waits for no turn any longer."""
        (self._hurry if self._stop.is_set() else self._stop).set()

    async def serve(self, stack: contextlib.AsyncExitStack) -> int:
        """Serve until `stop`, a signal, or failed storage; returns the exit code."""
        self._listen_to_signals()
        await stack.enter_async_context(self._supervisor.fed())
        people = self._people(self.config)
        lag = stack.enter_context(LoopLag(self._figures.lag_seconds))
        committer, journals, catalog = await self._open_storage(stack)
        hooks = self._load_plugins()
        kinds = hooks.chat_providers()
        self._check(self.config, hooks)
        transport = await stack.enter_async_context(Transport())
        house = functools.partial(self._house, transport=transport, told=told_before(self.home.models))
        providers = await stack.enter_async_context(open_chats(kinds, house))
        embeddings = await stack.enter_async_context(open_embeddings(hooks.embedding_providers(), house))
        await asyncio.gather(providers.fit(self.config), embeddings.fit(self.config))
        models = Models(providers, now=self.clock.monotonic, **self._wishes())
        memory = await stack.enter_async_context(
            open_memory(self.home, self.settings, embeddings, hooks.memory_backends, self.clock)
        )
        facts = await stack.enter_async_context(facts_of(self.home, self.settings, committer, self.clock))
        finding = FactFinding(
            facts,
            self.home.sessions,
            catalog,
            keys=lambda: self.config.memory.facts,
            tongue=lambda: self.config.agent.language,
            choose=models.choose,
            clock=self.clock,
        )
        troubles = Troubles(
            catalog,
            self._figures,
            lag,
            models.breakers,
            misnamed=models.misnamed,
            unopened=lambda: [each for part in (providers, embeddings, memory, facts, finding) for each in part.troubles()],
        )
        commands = {name: command() for name, command in hooks.commands().items()}
        workspace = self.home.workspace(self.config.agent.workspace)
        opened = opened_tools(hooks.tools(), functools.partial(house, memory=memory, facts=facts))
        tools = OfferedTools(opened, lambda: self.config.agent.workspace_access)
        parts = Parts(
            settings=self.settings,
            clock=self.clock,
            hooks=hooks,
            models=models,
            providers=providers,
            tools=tools,
            commands=commands,
            attachments=Attachments(self.home.attachments),
            notes=WorkspaceNotes(workspace),
            day_notes=DayNotes(workspace),
            summarizers={name: kind() for name, kind in hooks.summarizers().items()},
            flushes={name: kind() for name, kind in hooks.flushes().items()},
            figures=self._figures,
            around=self._surroundings(
                hooks, models, commands, troubles=troubles, memory=memory, facts=facts, finding=finding
            ),
        )
        switchboard = await stack.enter_async_context(
            Switchboard(
                journals=journals,
                catalog=catalog,
                build=Conversations(parts).build,
                clock=self.clock,
                queue_limit=lambda: self.config.sessions.queue_limit,
            )
        )
        instruments = self._instruments(lag, troubles, committer, catalog, switchboard=switchboard, models=models)
        reloading = Reloading(self.settings, check=lambda config: self._check(config, hooks))
        async with self._door(switchboard, parts, people, instruments) as door:
            with contextlib.suppress(TimeoutError):  # so that the first message knows the models of this machine
                async with asyncio.timeout(LOOK_SECONDS):
                    await models.look_around()
            self.readiness.ready()
            self._announce(models)
            background = [
                asyncio.create_task(models.keep_looking()),
                asyncio.create_task(memory.watch()),
                asyncio.create_task(finding.run()),
                asyncio.create_task(switchboard.resume_all()),
                asyncio.create_task(door.uploads.sweep(self.home.sessions)),
                asyncio.create_task(
                    reloading.run(
                        admit=lambda config: self._admit(config, door.access),
                        take=lambda config: self._take(config, providers, embeddings, models, memory),
                    )
                ),
            ]
            try:
                return await self._until_stopped(committer, switchboard)
            finally:
                for task in background:
                    task.cancel()
                await asyncio.wait(background)

    # --- building -----------------------------------------------------------------------------------------------------

    async def _open_storage(self, stack: contextlib.AsyncExitStack) -> tuple[Committer, Journals, Catalog]:
        committer = await stack.enter_async_context(Committer())
        committer.synced = self._figures.sync_seconds.observe
        catalog = await stack.enter_async_context(Catalog(self.home.catalog, self.home.sessions))
        if catalog.rebuilt:
            log.warning("catalog_rebuilt", reason=catalog.rebuilt)
        for path, reason in catalog.unreadable.items():
            log.error("journal_unreadable", journal=path.name, reason=reason)
        return committer, Journals(self.home.sessions, self.home.quarantine, committer), catalog

    def _load_plugins(self) -> Hooks:
        hooks = load_plugins(self.config.plugins.allow)
        for refusal in hooks.refused:
            log.error("plugin_refused", plugin=refusal.plugin, reason=refusal.sentence)
        return hooks

    def _instruments(
        self,
        lag: LoopLag,
        troubles: Troubles,
        committer: Committer,
        catalog: Catalog,
        *,
        switchboard: Switchboard,
        models: Models,
    ) -> Instruments:
        return Instruments(
            version=VERSION,
            home=self.home,
            clock=self.clock,
            began=self._began,
            figures=self._figures,
            lag=lag,
            troubles=troubles,
            settings=self.settings,
            readiness=self.readiness,
            committer=committer,
            catalog=catalog,
            switchboard=switchboard,
            models=models,
        )

    def _surroundings(
        self,
        hooks: Hooks,
        models: Models,
        commands: Mapping[str, Command],
        *,
        troubles: Troubles,
        memory: Memory,
        facts: Facts,
        finding: FactFinding,
    ) -> Surroundings:
        return Surroundings(
            models=models,
            commands=commands,
            clock=self.clock,
            began=self._began,
            version=VERSION,
            zone=lambda: ZoneInfo(name) if (name := self.config.agent.timezone) else None,
            queue_limit=lambda: self.config.sessions.queue_limit,
            refused=lambda: [refusal.sentence for refusal in hooks.refused],
            notes=self.settings.notes,
            troubles=troubles.sentences,
            memory=memory,
            facts=facts,
            finding=finding,
            remembering=Remembering(self.home.workspace(self.config.agent.workspace), memory, self._here),
        )

    def _here(self) -> datetime:
        """Now, in the time zone of the configuration or the system."""
        name = self.config.agent.timezone
        return self.clock.now().astimezone(ZoneInfo(name) if name else None)

    def _house(self, name: str, settings: Any, transport: Transport, told: AllTold, **more: Any) -> House:
        return House(
            settings=settings,
            folder=self.home.plugins / name,
            workspace=self.home.workspace(self.config.agent.workspace),
            clock=self.clock,
            transport=transport,
            environment=os.environ,
            protected=lambda: self.config.agent.protected_files,
            told=told.get(name),
            **more,
        )

    # --- serving ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _door(
        self, switchboard: Switchboard, parts: Parts, people: People, instruments: Instruments
    ) -> AsyncIterator[WebsocketDoor]:
        """Listen; only then the port is known, and with it who may come in."""
        uploads = Uploads(
            parts.attachments,
            limit=lambda: self.config.gateway.attachment_bytes,
            refuses=lambda: self.readiness.refuses,
        )
        doors: list[WebsocketDoor] = []
        app = application(lambda: doors[0].access, self.readiness, lambda: doors[0], uploads, instruments)
        runner = await listening(app, self.config.gateway, self._passed)
        self.address = runner.addresses[0][:2]
        door = WebsocketDoor(
            switchboard,
            access_of(people, self.config.gateway, self.address[1], self.clock.monotonic),
            uploads,
            server=f"exuvia/{VERSION}",
            model=parts.models.configured,
            verbose=lambda: self.config.agent.verbose,
            commands=listed(parts.commands),
            refuses=lambda: self.readiness.refuses,
        )
        doors.append(door)
        try:
            with whereabouts.noted(self.home.address, *self.address):
                yield door
        finally:
            await door.close()
            await runner.cleanup()

    async def _admit(self, config: Config, access: Access) -> None:
        """Have those speak who may by a changed configuration, at once."""
        access.replace(await asyncio.to_thread(self._people, config))

    async def _take(
        self,
        config: Config,
        providers: OpenProviders[ChatProvider],
        embeddings: OpenProviders[EmbeddingProvider],
        models: Models,
        memory: Memory,
    ) -> set[str]:
        """Put the rest of it into force, for turns that begin from now on; returns the keys that changed."""
        reopened = await providers.fit(config)
        await embeddings.fit(config)
        changed = self.settings.offer(config)
        models.reconfigure(**self._wishes())
        if any(key.startswith("memory.") for key in changed):
            memory.wake()  # other places to look in, or somebody else who makes vectors
        if changed & {"log.level", "log.format"}:
            logs.configure(self.config.log.level, self.config.log.format)
        return changed | {f"providers.{name}" for name in reopened}

    def _wishes(self) -> dict[str, Any]:
        """What the configuration says about models."""
        agent = self.config.agent
        return {
            "configured": agent.model,
            "window": agent.context_window,
            "windows": agent.context_windows,
            "fallbacks": agent.fallback_models,
        }

    def _people(self, config: Config) -> People:
        """Who may speak by a configuration and the token as it is now; ConfigRefused if the token cannot be used."""
        try:
            return people_of(config, gateway_token(self.home, config, os.environ))
        except StartRefused as error:
            raise ConfigRefused(str(error), key="gateway.token") from error

    def _announce(self, models: Models) -> None:
        assert self.address is not None
        host, port = self.address
        try:
            model = models.choose().why
        except GatewayError as error:
            model = str(error)
        log.info("ready", address=f"ws://{host}:{port}/ws", home=str(self.home.root), model=model)
        self._supervisor.ready(f"Listening on {host}:{port}.")

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
        finished = asyncio.create_task(switchboard.let_finish(seconds))
        hurried = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({finished, hurried}, return_when=asyncio.FIRST_COMPLETED)
        for task in (finished, hurried):
            task.cancel()
        await asyncio.wait({finished, hurried})
        await switchboard.interrupt()
