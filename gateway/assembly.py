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

from gateway.channels.delivering import Delivering
from gateway.channels.desk import ChannelDesk
from gateway.channels.running import Channels
from gateway.commands.surroundings import Surroundings
from gateway.configuration.allowed_plugins import allowed_plugins, plugin_tables, unread_tables
from gateway.configuration.keys import Config, check_backend, check_condensers, check_embedding, check_providers
from gateway.configuration.settings import Settings
from gateway.conversations.day_notes import DayNotes
from gateway.conversations.makings import Conversations, Parts
from gateway.conversations.offered_tools import OfferedTools
from gateway.conversations.remembering import Remembering
from gateway.conversations.switchboard import Switchboard
from gateway.conversations.workspace_notes import WorkspaceNotes
from gateway.errors import sentence_of
from gateway.fact_finding import FactFinding
from gateway.facts import facts_of
from gateway.home import Home
from gateway.measuring.figures import Figures
from gateway.measuring.last_hour import LastHour
from gateway.measuring.loop_lag import LoopLag
from gateway.measuring.troubles import Troubles
from gateway.memory import open_memory
from gateway.models.choosing import Models
from gateway.models.listings import Listings
from gateway.models.open_providers import OpenProviders, open_chats, open_embeddings
from gateway.models.told import AllTold, told_before
from gateway.provided.developing import Developing
from gateway.provided.lifecycle import Lifecycle
from gateway.provided.means import Means
from gateway.provided.opened import Opened
from gateway.provided.watchdog import Watchdog, last_held_up
from gateway.supervision import before_watchdog
from gateway.version import VERSION
from plugins import strays
from plugins.command_contract import Command
from plugins.contracts import ChatProvider, Clock, House
from plugins.embedding import EmbeddingProvider
from plugins.facts.facts import Facts
from plugins.folders import PluginFolder
from plugins.hooks import Hooks
from plugins.memory.memory import Memory
from plugins.secrets import hide_keys_of
from plugins.transport import Transport
from sessions.attachments import Attachments
from sessions.catalog import Catalog
from sessions.committer import Committer
from sessions.journal import Journals
from sessions.mending import remove_unbegun

log = structlog.get_logger("exuvia")


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """The parts of a running gateway that its door, its reloading and its end have to do with."""

    hooks: Hooks
    committer: Committer
    catalog: Catalog
    providers: OpenProviders[ChatProvider]
    embeddings: OpenProviders[EmbeddingProvider]
    models: Models
    memory: Memory
    finding: FactFinding
    troubles: Troubles
    lag: LoopLag
    parts: Parts
    switchboard: Switchboard
    last_hour: LastHour
    developing: tuple[Developing, ...]
    channels: Channels


@dataclass(frozen=True, kw_only=True)
class Assembling:
    """One putting together: `assembled()` opens everything on `stack`, which takes it down in the reverse order.

    `began` is the moment of the start on the clock's monotonic side, in seconds. The plugins in `folders` are loaded too.
    """

    stack: contextlib.AsyncExitStack
    home: Home
    settings: Settings
    clock: Clock
    figures: Figures
    began: float
    folders: tuple[PluginFolder, ...] = ()

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.settings.current

    async def assembled(self) -> Assembly:
        """Everything, open. Raises ConfigRefused where the configuration asks for what no plugin provides."""
        opened = self.stack.enter_async_context
        lag = self.stack.enter_context(LoopLag(self.figures.lag_seconds))
        committer, journals, catalog = await self._storage()
        hooks = self._plugins()
        check(self.config, hooks)
        watchdog = self._watched(hooks)
        hide_keys_of(os.environ)  # which plugins are given
        house = functools.partial(self._house, transport=await opened(Transport()), told=told_before(self.home.models))
        providers = await opened(open_chats(hooks.chat_providers(), house))
        embeddings = await opened(open_embeddings(hooks.embedding_providers(), house))
        await asyncio.gather(providers.fit(self.config), embeddings.fit(self.config))
        models = Models(providers, now=self.clock.monotonic, **wishes(self.config))
        counted, backends = self.figures.embed, hooks.memory_backends
        memory = await opened(open_memory(self.home, self.settings, embeddings, backends, self.clock, counted=counted))
        facts = await opened(facts_of(self.home, self.settings, committer, self.clock))
        finding = self._finding(facts, catalog, models)
        means = await opened(self._means(models, providers, embeddings, committer))

        def furnished(name: str, settings: Any) -> House:
            return house(name, settings, memory=memory, facts=facts, **means.of(name))

        provided, lifecycle = Opened(hooks, furnished), Lifecycle(hooks, furnished)
        developing = self._developing(hooks, providers, embeddings, memory, provided=provided, lifecycle=lifecycle)

        def unopened() -> list[str]:
            told = [each for part in (providers, embeddings, memory, facts, finding) for each in part.troubles()]
            told += channels.troubles()
            return watchdog.troubles() + told + [each for part in developing for each in part.troubles()]

        troubles = Troubles(
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
        channels = self._channels(hooks, furnished, lambda: switchboard)
        delivering = Delivering(channels.opened, self.clock.now)
        parts = self._parts(
            hooks, models, providers, provided=provided, around=around, lifecycle=lifecycle, delivering=delivering
        )
        switchboard = await opened(self._switchboard(journals, catalog, parts))
        self.stack.push_async_callback(delivering.close)
        return Assembly(
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
        models: Models,
        providers: OpenProviders[ChatProvider],
        embeddings: OpenProviders[EmbeddingProvider],
        committer: Committer,
    ) -> Means:
        return Means(
            choose=models.choose,
            embedding=lambda: self.config.memory.embedding.chosen(embeddings),
            models_in_use=providers.in_use,
            vectors_in_use=embeddings.in_use,
            paid=self.figures.pay,
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
            asyncio.get_running_loop().set_task_factory(strays.made)
            self.stack.enter_context(watchdog.awake())
        return watchdog

    def _developing(
        self,
        hooks: Hooks,
        providers: OpenProviders[ChatProvider],
        embeddings: OpenProviders[EmbeddingProvider],
        memory: Memory,
        *,
        provided: Opened,
        lifecycle: Lifecycle,
    ) -> tuple[Developing, ...]:
        async def taken(name: str) -> None:
            await providers.fit(self.config)
            await embeddings.fit(self.config)
            provided.fit()
            memory.wake()
            await lifecycle.started(only=name)

        return tuple(
            Developing(
                folder,
                hooks,
                fit=plugin_tables(self.config),  # a restart takes another table
                check=lambda tried: check(self.config, tried),
                taken=taken,
            )
            for folder in self.folders
        )

    def _finding(self, facts: Facts, catalog: Catalog, models: Models) -> FactFinding:
        return FactFinding(
            facts,
            self.home.sessions,
            catalog,
            keys=lambda: self.config.memory.facts,
            tongue=lambda: self.config.agent.language,
            choose=models.choose,
            paid=self.figures.pay,
            clock=self.clock,
        )

    def _parts(
        self,
        hooks: Hooks,
        models: Models,
        providers: OpenProviders[ChatProvider],
        *,
        provided: Opened,
        around: Surroundings,
        lifecycle: Lifecycle,
        delivering: Delivering,
    ) -> Parts:
        workspace = self.home.workspace(self.config.agent.workspace)
        return Parts(
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

    def _channels(
        self, hooks: Hooks, furnished: Callable[[str, Any], House], switchboard: Callable[[], Switchboard]
    ) -> Channels:
        def house(channel: str) -> House:
            owner = hooks.owner("register_channels", channel)
            return furnished(owner, hooks.settings(owner))

        def desk(channel: str) -> ChannelDesk:
            return ChannelDesk(
                channel,
                switchboard(),
                senders=lambda: self.config.plugins.senders,
                people=lambda: self.config.people,
            )

        return Channels(hooks.channels(), house, desk)

    def _switchboard(self, journals: Journals, catalog: Catalog, parts: Parts) -> Switchboard:
        return Switchboard(
            journals=journals,
            catalog=catalog,
            build=Conversations(parts).build,
            clock=self.clock,
            queue_limit=lambda: self.config.sessions.queue_limit,
        )

    def _surroundings(
        self,
        hooks: Hooks,
        models: Models,
        listings: Listings,
        commands: Mapping[str, Command],
        *,
        troubles: Troubles,
        memory: Memory,
        facts: Facts,
        finding: FactFinding,
        means: Means,
    ) -> Surroundings:
        return Surroundings(
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


def check(config: Config, hooks: Hooks) -> None:
    """ConfigRefused where a configuration asks for what no plugin provides."""
    check_providers(config, hooks.chat_providers())
    check_embedding(config, hooks.embedding_providers())
    check_backend(config, hooks.memory_backends)
    check_condensers(config, hooks.summarizers(), hooks.flushes())


def wishes(config: Config) -> dict[str, Any]:
    """What a configuration says about models: the arguments of `Models.reconfigure`."""
    agent = config.agent
    return {
        "configured": agent.model,
        "window": agent.context_window,
        "windows": agent.context_windows,
        "fallbacks": agent.fallback_models,
    }
