"""What one gateway consists of, put together from the bottom up: storage, plugins, models, memory, facts, conversations."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import structlog

from gateway.config.allowed_plugins import allowed_plugins, plugin_tables, unread_tables
from gateway.config.keys import Config, check_backend, check_condensers, check_embedding, check_providers
from gateway.config.settings import Settings
from gateway.conversations.channels.delivery import ReplyDelivery
from gateway.conversations.channels.runner import ChannelRunner
from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.context.workspace_notes import WorkspaceNotes
from gateway.conversations.facts.fact_extraction import FactExtraction
from gateway.conversations.facts.fact_store import facts_of
from gateway.conversations.notes.day_notes import DayNotes
from gateway.conversations.notes.memory_writer import MemoryWriter
from gateway.conversations.notes.workspace_memory import open_memory
from gateway.conversations.routing.switchboard import Switchboard
from gateway.conversations.turn.offered_tools import OfferedTools
from gateway.metrics.counters import Counters
from gateway.metrics.loop_lag import LoopLag
from gateway.models.listings import Listings
from gateway.models.model_list_cache import AllTold, told_before
from gateway.models.providers import OpenProviders, open_chats, open_embeddings
from gateway.models.registry import ModelRegistry
from gateway.plugin_runtime.development import PluginDevelopment
from gateway.plugin_runtime.lifecycle import Lifecycle
from gateway.plugin_runtime.opened_plugins import OpenedPlugins
from gateway.plugin_runtime.services import PluginServices
from gateway.plugin_runtime.watchdog import Watchdog, last_held_up
from gateway.status.last_hour import LastHour
from gateway.status.problems import Problems
from gateway.support.errors import sentence_of
from gateway.support.home import Home
from gateway.support.version import VERSION
from gateway.wiring.factory import ConversationDependencies, ConversationFactory
from gateway.wiring.systemd import before_watchdog
from plugins.api.chat import ChatProvider
from plugins.api.command import Command
from plugins.api.context import Clock, PluginContext
from plugins.api.embedding import EmbeddingProvider
from plugins.facts.facts import Facts
from plugins.host.hooks import Hooks
from plugins.host.plugin_folder import PluginFolder
from plugins.http.client import Transport
from plugins.memory.memory import Memory
from plugins.support import task_leaks
from plugins.support.secrets import hide_keys_of
from sessions.attachments.store import Attachments
from sessions.catalog.catalog import Catalog
from sessions.files.committer import Committer
from sessions.files.journal import Journals
from sessions.files.repair import remove_unbegun

log = structlog.get_logger("exuvia")


@dataclass(frozen=True, kw_only=True)
class Application:
    """The parts of a running gateway that its door, its reloading and its end have to do with."""

    hooks: Hooks
    committer: Committer
    catalog: Catalog
    providers: OpenProviders[ChatProvider]
    embeddings: OpenProviders[EmbeddingProvider]
    models: ModelRegistry
    memory: Memory
    finding: FactExtraction
    troubles: Problems
    lag: LoopLag
    parts: ConversationDependencies
    switchboard: Switchboard
    last_hour: LastHour
    developing: tuple[PluginDevelopment, ...]
    channels: ChannelRunner


@dataclass(frozen=True, kw_only=True)
class ApplicationBuilder:
    """One putting together: `assembled()` opens everything on `stack`, which takes it down in the reverse order.

    `began` is the moment of the start on the clock's monotonic side, in seconds. The plugins in `folders` are loaded too.
    """

    stack: contextlib.AsyncExitStack
    home: Home
    settings: Settings
    clock: Clock
    figures: Counters
    began: float
    folders: tuple[PluginFolder, ...] = ()

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.settings.current

    async def assembled(self) -> Application:
        """Everything, open. Raises ConfigRefused where the configuration asks for what no plugin provides."""
        opened = self.stack.enter_async_context
        lag = self.stack.enter_context(LoopLag(self.figures.lag_seconds))
        committer, journals, catalog = await self._storage()
        hooks = self._plugins()
        check(self.config, hooks)
        watchdog = self._watched(hooks)
        hide_keys_of(os.environ)  # which plugins are given
        context = functools.partial(self._house, transport=await opened(Transport()), told=told_before(self.home.models))
        providers = await opened(open_chats(hooks.chat_providers(), context))
        embeddings = await opened(open_embeddings(hooks.embedding_providers(), context))
        await asyncio.gather(providers.fit(self.config), embeddings.fit(self.config))
        models = ModelRegistry(providers, now=self.clock.monotonic, **model_preferences(self.config))
        counted, backends = self.figures.count_embedded, hooks.memory_backends
        memory = await opened(open_memory(self.home, self.settings, embeddings, backends, self.clock, counted=counted))
        facts = await opened(facts_of(self.home, self.settings, committer, self.clock))
        finding = self._finding(facts, catalog, models)
        means = await opened(self._means(models, providers, embeddings, committer))

        def make_context(name: str, settings: Any) -> PluginContext:
            return context(name, settings, memory=memory, facts=facts, **means.of(name))

        provided, lifecycle = OpenedPlugins(hooks, make_context), Lifecycle(hooks, make_context)
        developing = self._developing(hooks, providers, embeddings, memory, provided=provided, lifecycle=lifecycle)

        def unopened() -> list[str]:
            told = [each for part in (providers, embeddings, memory, facts, finding) for each in part.troubles()]
            told += channels.troubles()
            return watchdog.troubles() + told + [each for part in developing for each in part.troubles()]

        troubles = Problems(
            catalog,
            self.figures,
            lag,
            models.breakers,
            misnamed=models.misnamed,
            unopened=unopened,
        )
        around = self._surroundings(
            hooks,
            models,
            models.listings,
            provided.commands,
            troubles=troubles,
            memory=memory,
            facts=facts,
            finding=finding,
            means=means,
        )
        channels = self._channels(hooks, make_context)
        delivering = ReplyDelivery(channels.opened, self.clock.now)
        parts = self._parts(
            hooks, models, providers, provided=provided, around=around, lifecycle=lifecycle, delivering=delivering
        )
        switchboard = await opened(self._switchboard(journals, catalog, parts))
        self.stack.push_async_callback(delivering.close)
        return Application(
            hooks=hooks,
            committer=committer,
            catalog=catalog,
            providers=providers,
            embeddings=embeddings,
            models=models,
            memory=memory,
            finding=finding,
            troubles=troubles,
            lag=lag,
            parts=parts,
            switchboard=switchboard,
            last_hour=LastHour(self.figures, lag, switchboard.load, self.clock),
            developing=developing,
            channels=channels,
        )

    async def _storage(self) -> tuple[Committer, Journals, Catalog]:
        committer = await self.stack.enter_async_context(Committer())
        committer.synced = self.figures.sync_seconds.observe
        catalog = await self.stack.enter_async_context(Catalog(self.home.catalog, self.home.sessions))
        if catalog.rebuilt:
            log.warning("catalog_rebuilt", reason=catalog.rebuilt)
        for path, reason in catalog.unreadable.items():
            log.error("journal_unreadable", journal=path.name, reason=reason)
        for path in catalog.unbegun:
            try:
                await asyncio.to_thread(remove_unbegun, path, self.home.quarantine)
            except OSError as error:  # it does no harm
                log.warning("journal_not_begun", journal=path.name, kept=sentence_of(error))
            else:
                log.warning("journal_not_begun", journal=path.name)
        return committer, Journals(self.home.sessions, self.home.quarantine, committer), catalog

    def _means(
        self,
        models: ModelRegistry,
        providers: OpenProviders[ChatProvider],
        embeddings: OpenProviders[EmbeddingProvider],
        committer: Committer,
    ) -> PluginServices:
        return PluginServices(
            choose=models.choose,
            embedding=lambda: self.config.memory.embedding.chosen(embeddings),
            models_in_use=providers.in_use,
            vectors_in_use=embeddings.in_use,
            paid=self.figures.count_spent,
            folder=self.home.plugins,
            quarantine=self.home.quarantine,
            committer=committer,
            now=self.clock.now,
        )

    def _plugins(self) -> Hooks:
        held = last_held_up(self.home.held_up)
        hooks = allowed_plugins(self.config, self.folders, but=held.plugin if held else "")
        if held is not None:
            hooks.refuse(held.plugin, "", f"it made the gateway end: {held.sentence()} The next restart tries it again")
        for warning in unread_tables(self.config, hooks):
            log.warning("configuration", warning=warning)
        for refusal in hooks.refused:
            log.error("plugin_refused", plugin=refusal.plugin, reason=refusal.sentence)
        return hooks

    def _watched(self, hooks: Hooks) -> Watchdog:
        """Where there are strangers' plugins, the event loop is watched, and what they leave behind is noticed."""
        limit = before_watchdog(self.config.plugins.hold_limit, os.environ)
        watchdog = Watchdog(hooks.strangers, limit=limit, file=self.home.held_up)
        if hooks.strangers():
            asyncio.get_running_loop().set_task_factory(task_leaks.made)
            self.stack.enter_context(watchdog.awake())
        return watchdog

    def _developing(
        self,
        hooks: Hooks,
        providers: OpenProviders[ChatProvider],
        embeddings: OpenProviders[EmbeddingProvider],
        memory: Memory,
        *,
        provided: OpenedPlugins,
        lifecycle: Lifecycle,
    ) -> tuple[PluginDevelopment, ...]:
        async def taken(name: str) -> None:
            await providers.fit(self.config)
            await embeddings.fit(self.config)
            provided.fit()
            memory.wake()
            await lifecycle.started(only=name)

        return tuple(
            PluginDevelopment(
                folder,
                hooks,
                fit=plugin_tables(self.config),  # a restart takes another table
                check=lambda tried: check(self.config, tried),
                taken=taken,
            )
            for folder in self.folders
        )

    def _finding(self, facts: Facts, catalog: Catalog, models: ModelRegistry) -> FactExtraction:
        return FactExtraction(
            facts,
            self.home.sessions,
            catalog,
            keys=lambda: self.config.memory.facts,
            tongue=lambda: self.config.agent.language,
            choose=models.choose,
            paid=self.figures.count_spent,
            clock=self.clock,
        )

    def _parts(
        self,
        hooks: Hooks,
        models: ModelRegistry,
        providers: OpenProviders[ChatProvider],
        *,
        provided: OpenedPlugins,
        around: CommandServices,
        lifecycle: Lifecycle,
        delivering: ReplyDelivery,
    ) -> ConversationDependencies:
        workspace = self.home.workspace(self.config.agent.workspace)
        return ConversationDependencies(
            settings=self.settings,
            clock=self.clock,
            hooks=hooks,
            models=models,
            providers=providers,
            tools=OfferedTools(provided.tools, lambda: self.config.agent.workspace_access),
            commands=provided.commands,
            attachments=Attachments(self.home.attachments),
            notes=WorkspaceNotes(workspace),
            day_notes=DayNotes(workspace),
            summarizers=provided.summarizers,
            flushes=provided.flushes,
            figures=self.figures,
            around=around,
            lifecycle=lifecycle,
            delivering=delivering,
        )

    def _channels(self, hooks: Hooks, make_context: Callable[[str, Any], PluginContext]) -> ChannelRunner:
        def context(channel: str) -> PluginContext:
            owner = hooks.owner("register_channels", channel)
            return make_context(owner, hooks.settings(owner))

        return ChannelRunner(hooks.channels(), context)

    def _switchboard(self, journals: Journals, catalog: Catalog, parts: ConversationDependencies) -> Switchboard:
        return Switchboard(
            journals=journals,
            catalog=catalog,
            build=ConversationFactory(parts).build,
            clock=self.clock,
            queue_limit=lambda: self.config.sessions.queue_limit,
        )

    def _surroundings(
        self,
        hooks: Hooks,
        models: ModelRegistry,
        listings: Listings,
        commands: Mapping[str, Command],
        *,
        troubles: Problems,
        memory: Memory,
        facts: Facts,
        finding: FactExtraction,
        means: PluginServices,
    ) -> CommandServices:
        return CommandServices(
            models=models,
            listings=listings,
            commands=commands,
            clock=self.clock,
            began=self.began,
            version=VERSION,
            zone=lambda: ZoneInfo(name) if (name := self.config.agent.timezone) else None,
            queue_limit=lambda: self.config.sessions.queue_limit,
            refused=lambda: [refusal.sentence for refusal in hooks.refused],
            notes=self.settings.notes,
            troubles=troubles.sentences,
            memory=memory,
            facts=facts,
            finding=finding,
            plugins_spent=means.spent,
            remembering=MemoryWriter(self.home.workspace(self.config.agent.workspace), memory, self._here),
        )

    def _here(self) -> datetime:
        """Now, in the time zone of the configuration or the system."""
        name = self.config.agent.timezone
        return self.clock.now().astimezone(ZoneInfo(name) if name else None)

    def _house(self, name: str, settings: Any, transport: Transport, told: AllTold, **more: Any) -> PluginContext:
        return PluginContext(
            settings=settings,
            folder=self.home.plugins / name,
            workspace=self.home.workspace(self.config.agent.workspace),
            clock=self.clock,
            transport=transport,
            environment=os.environ,
            protected=lambda: self.config.agent.protected_files,
            reported_models=told.get(name),
            **more,
        )


def check(config: Config, hooks: Hooks) -> None:
    """ConfigRefused where a configuration asks for what no plugin provides."""
    check_providers(config, hooks.chat_providers())
    check_embedding(config, hooks.embedding_providers())
    check_backend(config, hooks.memory_backends)
    check_condensers(config, hooks.summarizers(), hooks.flushes())


def model_preferences(config: Config) -> dict[str, Any]:
    """What a configuration says about models: the arguments of `ModelRegistry.reconfigure`."""
    agent = config.agent
    return {
        "configured": agent.model,
        "window": agent.context_window,
        "windows": agent.context_windows,
        "fallbacks": agent.fallback_models,
    }
