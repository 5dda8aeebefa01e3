"""The daemon: the only place where the parts are put together; start, serve, stop in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web

from gateway import logs
from gateway.access import Access
from gateway.chat import Chat
from gateway.clock import SystemClock
from gateway.commands import Typed
from gateway.config import Config, check_providers, load_config, provider_settings
from gateway.conversation import Conversation, ResumeRules
from gateway.errors import Busy, GatewayError, StartRefused, sentence_of
from gateway.home import Home
from gateway.inbox import Inbox
from gateway.instructions import SHIPPED
from gateway.live import Live
from gateway.models import Models
from gateway.readiness import Readiness
from gateway.switchboard import Switchboard
from gateway.token import gateway_token
from gateway.turn import Turn, TurnRules
from gateway.view import Surroundings, View
from gateway.web import application
from gateway.websocket import WebsocketDoor
from plugins.contracts import ChatProvider, Clock, Command, House, NoSettings, Tool
from plugins.hooks import Hooks
from plugins.loading import load_plugins
from plugins.secrets import Secret
from plugins.transport import Transport
from sessions.attachments import Attachments
from sessions.catalog import Catalog
from sessions.committer import Committer
from sessions.errors import HomeLocked, StorageFailed
from sessions.home_lock import HomeLock
from sessions.journal import Journals
from sessions.recorder import Recorder
from sessions.transcript import Waiting

VERSION = "0.1.0"

STOP_SECONDS = 10.0
"""How long running turns may go on after SIGTERM; what is not done then is resumed at the next start."""

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
    config = load_config(config_path or home.config, environment=os.environ, overrides=overrides)
    home.make(config.agent.workspace)
    logs.configure(config.log.level, config.log.format)
    for warning in config.warnings:
        log.warning("configuration", warning=warning)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(HomeLock(home.lock))
        daemon = Daemon(home, config)
        return await daemon.serve(stack)


class Daemon:
    """One gateway on one home. `serve` builds everything from the bottom up and takes it down in the reverse order."""

    def __init__(self, home: Home, config: Config, *, clock: Clock | None = None) -> None:
        self.home = home
        self.config = config
        self.clock = clock or SystemClock()
        self.readiness = Readiness()
        self.address: tuple[str, int] | None = None
        self._began = self.clock.monotonic()
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask the gateway to end."""
        self._stop.set()

    async def serve(self, stack: contextlib.AsyncExitStack) -> int:
        """Serve until `stop`, a signal, or failed storage; returns the exit code."""
        self._listen_to_signals()
        token = gateway_token(self.home, self.config, os.environ)
        committer = await stack.enter_async_context(Committer())
        journals = Journals(self.home.sessions, self.home.quarantine, committer)
        catalog = await stack.enter_async_context(Catalog(self.home.catalog, self.home.sessions))
        if catalog.rebuilt:
            log.warning("catalog_rebuilt", reason=catalog.rebuilt)
        for path, reason in catalog.unreadable.items():
            log.error("journal_unreadable", journal=path.name, reason=reason)
        hooks = load_plugins(self.config.plugins.allow)
        for refusal in hooks.refused:
            log.error("plugin_refused", plugin=refusal.plugin, reason=refusal.sentence)
        check_providers(self.config, hooks.chat_providers())
        transport = await stack.enter_async_context(Transport())
        providers = await stack.enter_async_context(self._open_providers(hooks, transport))
        tools = self._open_tools(hooks, transport)
        models = Models(providers, configured=self.config.agent.model, window=self.config.agent.context_window)
        switchboard = await stack.enter_async_context(self._switchboard(journals, catalog, hooks, models, tools))
        door, runner = await self._open_door(switchboard, models, token)
        self.readiness.ready()
        self._announce(models)
        resuming = asyncio.create_task(switchboard.resume_all())
        try:
            return await self._until_stopped(committer, switchboard)
        finally:
            resuming.cancel()
            await asyncio.wait([resuming])
            await door.close()
            await runner.cleanup()

    # --- building -----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _open_providers(self, hooks: Hooks, transport: Transport) -> AsyncIterator[dict[str, ChatProvider]]:
        """Each provider, opened with its house; one that cannot be opened is named and left out."""
        async with contextlib.AsyncExitStack() as stack:
            providers = {}
            for name, kind in hooks.chat_providers().items():
                settings: Any = provider_settings(self.config, name, kind.Settings)
                try:
                    provider = kind(self._house(name, settings, transport))
                    providers[name] = await stack.enter_async_context(provider)
                except Exception as error:
                    log.error("provider_not_opened", provider=name, reason=sentence_of(error))
            yield providers

    def _open_tools(self, hooks: Hooks, transport: Transport) -> dict[str, Tool]:
        """Each tool with its house; one that cannot be made is named and left out."""
        tools: dict[str, Tool] = {}
        for name, kind in hooks.tools().items():
            try:
                tools[name] = kind(self._house(name, NoSettings(), transport))
            except Exception as error:
                log.error("tool_not_opened", tool=name, reason=sentence_of(error))
        return tools

    def _house(self, name: str, settings: Any, transport: Transport) -> House:
        return House(
            settings=settings,
            folder=self.home.plugins / name,
            workspace=self.home.workspace(self.config.agent.workspace),
            clock=self.clock,
            transport=transport,
            environment=os.environ,
        )

    def _switchboard(
        self,
        journals: Journals,
        catalog: Catalog,
        hooks: Hooks,
        models: Models,
        tools: Mapping[str, Tool],
    ) -> Switchboard:
        attachments = Attachments(self.home.attachments)
        commands = {name: command() for name, command in hooks.commands().items()}
        around = Surroundings(
            models=models,
            commands=commands,
            clock=self.clock,
            began=self._began,
            version=VERSION,
            queue_limit=self.config.sessions.queue_limit,
            refused=lambda: [refusal.sentence for refusal in hooks.refused],
        )

        def build(chat: Chat, recorder: Recorder) -> Conversation:
            live = Live(chat.news)
            inbox = Inbox(recorder, commands=commands, configured=lambda: self.config.sessions.queue)
            turn = Turn(
                recorder,
                live=live,
                inbox=inbox,
                choose=lambda: models.choose(recorder.transcript.settings.get("model")),
                tools=tools,
                attachments=attachments,
                rules=self._turn_rules,
                clock=self.clock,
            )

            async def run_command(conversation: Conversation, command: Command, typed: Typed, waiting: Waiting) -> str:
                try:
                    return await command.run(typed.argument, View(chat, conversation, waiting, around))
                finally:
                    if typed.opens_session:
                        chat.switched()

            return Conversation(
                recorder,
                live=live,
                turn=turn,
                inbox=inbox,
                commands=commands,
                run_command=run_command,
                resume=self._resume_rules,
                clock=self.clock,
            )

        return Switchboard(
            journals=journals,
            catalog=catalog,
            build=build,
            clock=self.clock,
            queue_limit=self.config.sessions.queue_limit,
        )

    def _turn_rules(self) -> TurnRules:
        agent = self.config.agent
        return TurnRules(
            instructions=agent.instructions or SHIPPED,
            parameters={} if agent.temperature is None else {"temperature": agent.temperature},
            rounds=agent.tool_rounds,
            reserve=0,
        )

    def _resume_rules(self) -> ResumeRules:
        sessions = self.config.sessions
        return ResumeRules(mode=sessions.resume, within=timedelta(seconds=sessions.resume_within))

    # --- serving ------------------------------------------------------------------------------------------------------

    async def _open_door(
        self, switchboard: Switchboard, models: Models, token: Secret
    ) -> tuple[WebsocketDoor, web.AppRunner]:
        """Listen; only then the port is known, and with it who may come in."""
        gateway = self.config.gateway
        rules: list[Access] = []
        doors: list[WebsocketDoor] = []
        app = application(lambda: rules[0], self.readiness, lambda: doors[0])
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=2.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, gateway.host, gateway.port)
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise StartRefused(f"{gateway.host}:{gateway.port} cannot be listened on: {error.strerror}.") from error
        host, port = runner.addresses[0][:2]
        self.address = (host, port)
        rules.append(
            Access(
                token,
                host=gateway.host,
                port=port,
                hosts=gateway.allowed_hosts,
                origins=gateway.allowed_origins,
            )
        )
        doors.append(
            WebsocketDoor(
                switchboard,
                rules[0],
                server=f"exuvia/{VERSION}",
                model=models.configured,
                refuses=lambda: self.readiness.refuses,
            )
        )
        return doors[0], runner

    def _announce(self, models: Models) -> None:
        assert self.address is not None
        host, port = self.address
        try:
            model = models.choose().why
        except GatewayError as error:
            model = str(error)
        log.info("ready", address=f"ws://{host}:{port}/ws", home=str(self.home.root), model=model)

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
        await switchboard.until_idle(STOP_SECONDS)
        return 1 if committer.failure.done() else 0
