"""Builds a gateway from the bottom up: storage, plugins, models, memory, facts, conversations."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import structlog

from gateway import VERSION
from gateway.backup.known_backups import note_in_backups
from gateway.config.keys import (
    Config,
    check_backend,
    check_embedding,
    check_providers,
    check_servers,
    check_summarizers,
    execution_keys,
)
from gateway.conversations.approvals.open_questions import OpenQuestions
from gateway.conversations.approvals.remembered_rules import RememberedRules
from gateway.conversations.channels.channel_instances import ChannelInstance, channel_instances
from gateway.conversations.channels.channel_runner import ChannelRunner
from gateway.conversations.channels.pairings import Pairings
from gateway.conversations.channels.reply_delivery import ReplyDelivery
from gateway.conversations.channels.senders import Senders
from gateway.conversations.channels.turn_activity import TurnActivity
from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.commands.undo import FileUndo
from gateway.conversations.context.loaded_notes import WorkspaceNotes
from gateway.conversations.deletion.deletions import Deletions
from gateway.conversations.erasure.derived_data import OpenIndexes
from gateway.conversations.erasure.erasures import Erasures
from gateway.conversations.facts.fact_extraction import FactExtraction
from gateway.conversations.facts.fact_store import facts_of
from gateway.conversations.notes.day_notes import DayNotes
from gateway.conversations.notes.memory_writer import MemoryWriter
from gateway.conversations.notes.workspace_memory import open_memory
from gateway.conversations.routing.session_updates import SessionUpdates
from gateway.conversations.routing.switchboard import Switchboard
from gateway.conversations.schedules.proposals import RuleProposals
from gateway.conversations.schedules.schedule_tool import ScheduleTools
from gateway.conversations.schedules.scheduler import Scheduler
from gateway.conversations.schedules.schedules import Schedules
from gateway.conversations.search.conversation_search import ConversationSearch
from gateway.conversations.shares import Shares
from gateway.conversations.titles import TitleMaker
from gateway.conversations.turn.tool_calls import OfferedTools
from gateway.http.openai.responses.stored_responses import StoredResponses
from gateway.metrics.process import LoopLag
from gateway.models.call import ModelCaller
from gateway.models.model_list_cache import load_model_lists
from gateway.models.providers import OpenProviders, open_chats, open_embeddings, provider_contexts
from gateway.models.registry import ModelRegistry
from gateway.models.spending.spending import Payer, Spending
from gateway.models.spending.spending_log import Ledger, Zones
from gateway.models.transcription import Transcriber
from gateway.plugin_runtime.development import PluginDevelopment
from gateway.plugin_runtime.lifecycle import Lifecycle
from gateway.plugin_runtime.plugin_loading import OpenedPlugins, allowed_plugins, plugin_tables, unread_tables
from gateway.plugin_runtime.service_factory import PluginServiceFactory
from gateway.plugin_runtime.watchdog import Watchdog, read_last_block
from gateway.protocol.slash_commands import command_help
from gateway.status.channel_reports import ChannelReport, channel_in_short, channel_reports
from gateway.status.instruments import GatewayContext
from gateway.status.last_hour import LastHour
from gateway.status.problems import Problems
from gateway.support.errors import GatewayError
from gateway.support.storage import attachments_of
from gateway.wiring.factory import ConversationDependencies, ConversationFactory
from gateway.wiring.open_stores import GatewayInfo, LogStores, open_catalog, open_log_stores
from gateway.wiring.systemd import before_watchdog
from plugins.api.chat import ChatProvider
from plugins.api.context import PluginContext
from plugins.api.embedding import EmbeddingProvider
from plugins.facts.facts import Facts
from plugins.host.hooks import Hooks
from plugins.host.loading import PluginFolder
from plugins.http.client import Transport
from plugins.mcp.mcp_client import McpClient
from plugins.memory.memory import Memory
from plugins.skills.library import SkillLibrary, SkillTools
from plugins.support import task_leaks
from plugins.support.secrets import hide_keys_of
from plugins.support.workspace import OWNER
from plugins.tools.execution.command_source import CommandSource
from plugins.tools.web.web_tools import WebTools
from sessions.store.catalog import Catalog
from sessions.store.cluster import Cluster
from sessions.store.protocols import Store

log = structlog.get_logger("exuvia")


@dataclass(frozen=True, kw_only=True)
class OpenModels:
    """The open chat and embedding providers, and the registry and the caller of models that use them."""

    providers: OpenProviders[ChatProvider]
    embeddings: OpenProviders[EmbeddingProvider]
    registry: ModelRegistry
    caller: ModelCaller
    transcriber: Transcriber

    async def open_providers(self, config: Config) -> list[str]:
        """Open and close providers as a configuration says; return the names of the chat providers that were reopened."""
        reopened = await self.providers.reconfigure(config)
        await self.embeddings.reconfigure(config)
        return reopened

    def problems(self) -> list[str]:
        """Return the problems of the providers, as sentences."""
        return [*self.providers.problems(), *self.embeddings.problems()]


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """The memory besides the sessions themselves: the index of notes and sessions, the facts, the notes of each day, and the
    skills."""

    memory: Memory
    facts: Facts
    extraction: FactExtraction
    day_notes: DayNotes
    skills: SkillLibrary

    def problems(self) -> list[str]:
        """Return the problems of all parts, as sentences."""
        parts = (self.memory, self.facts, self.extraction, self.day_notes, self.skills)
        return [sentence for part in parts for sentence in part.problems()]


@dataclass(frozen=True, kw_only=True)
class RunningPlugins:
    """The loaded plugins, and the parts that run or serve them."""

    hooks: Hooks
    services: PluginServiceFactory
    opened: OpenedPlugins
    lifecycle: Lifecycle
    channels: ChannelRunner
    mcp: McpClient
    commands: CommandSource
    development: tuple[PluginDevelopment, ...]
    web: WebTools

    def problems(self) -> list[str]:
        """Return the problems of all parts, as sentences."""
        developed = [sentence for each in self.development for sentence in each.problems()]
        return [*self.channels.problems(), *self.mcp.problems(), *self.commands.problems(), *developed]


@dataclass(frozen=True, kw_only=True)
class Application:
    """The parts of a gateway that its HTTP layer, reloading and shutdown use."""

    store: Store
    catalog: Catalog
    cluster: Cluster | None
    models: OpenModels
    knowledge: Knowledge
    plugins: RunningPlugins
    problems: Problems
    lag: LoopLag
    dependencies: ConversationDependencies
    responses: StoredResponses
    switchboard: Switchboard
    search: ConversationSearch
    shares: Shares
    scheduler: Scheduler
    last_hour: LastHour

    def channel_reports(self) -> Sequence[ChannelReport]:
        """Return the state of each channel."""
        dependencies = self.dependencies
        return channel_reports(self.plugins.channels, dependencies.delivery, dependencies.counters)


@dataclass(frozen=True, kw_only=True)
class ApplicationBuilder:
    """Opens the parts of one gateway, with the plugins in `folders`, on `stack`, which closes them in reverse order."""

    stack: contextlib.AsyncExitStack
    context: GatewayContext
    folders: tuple[PluginFolder, ...] = ()

    async def build(self) -> Application:
        """Open all parts in the order of their dependencies, and return them.

        Raises:
            ConfigRefused: The configuration names something that no plugin provides.
        """
        opened, home = self.stack.enter_async_context, self.context.home
        counters, clock = self.context.counters, self.context.clock
        lag = self.stack.enter_context(LoopLag(counters.lag_seconds))
        info = GatewayInfo(version=VERSION, config_digest=self.context.config.digest)
        stores = await opened(open_log_stores(home, counters.sync_seconds.observe, gateway=info))
        store, catalog = stores.sessions, await opened(open_catalog(home, stores.sessions))
        hooks = self._load_plugins()
        check(self.context.config, hooks)
        watchdog = self._start_watchdog(hooks)
        hide_keys_of(os.environ)  # plugins receive the environment
        transport = await opened(Transport())
        spending = await opened(
            Spending(
                Ledger(stores.facts, clock.now, lambda: Zones.of(self.context.config)),
                self.context.settings,
                counters,
                find=partial(_payer, catalog),
            )
        )
        models = await self._open_models(hooks, transport, spending)
        knowledge = await self._open_knowledge(hooks, stores, catalog, models)
        plugins = await self._open_plugins(hooks, models, knowledge, transport, stores)
        rules = await opened(RememberedRules(stores.facts, clock.now))
        pairings = await opened(Pairings(stores.facts, clock.now))
        shares = await opened(Shares(stores.facts, clock.now))
        schedules = await opened(Schedules(stores.facts, clock.now))
        search = await opened(ConversationSearch(home.messages, store))
        deletions = await opened(
            Deletions(
                store,
                stores.facts,
                catalog,
                attachments=attachments_of(self.context.home),
                memory=knowledge.memory,
                facts=knowledge.facts,
                search=search,
                scheduled=schedules.count,
                note_in_backups=lambda: note_in_backups(home),
                now=clock.now,
            )
        )
        erasures = Erasures(
            store,
            stores.facts,
            catalog,
            attachments=attachments_of(home),
            derived=OpenIndexes(knowledge.memory, search),
            facts_closed=knowledge.facts.closed,
            workspaces=lambda: [self.context.workspace],
            quarantine=home.quarantine,
            now=clock.now,
        )
        responses = await opened(StoredResponses(stores.facts, clock.now))
        problems = Problems(
            catalog,
            counters,
            lag,
            models.registry.breakers,
            unknown_fallbacks=models.registry.unknown_fallbacks,
            plugin_problems=lambda: [
                *watchdog.problems(),
                *plugins.problems(),
                *models.problems(),
                *knowledge.problems(),
                *rules.problems(),
                *pairings.problems(),
                *schedules.problems(),
                *deletions.problems(),
                *shares.problems(),
                *responses.problems(),
                *spending.problems(),
            ],
        )
        delivery = ReplyDelivery(
            plugins.channels.opened, clock.now, lambda: self.context.settings.zone, attachments_of(self.context.home)
        )
        titles = await opened(TitleMaker(self.context.settings, models.registry, models.caller))
        dependencies = self._dependencies(
            models,
            knowledge,
            plugins,
            problems=problems,
            delivery=delivery,
            rules=rules,
            pairings=pairings,
            schedules=schedules,
            titles=titles,
            spending=spending,
        )
        switchboard = await opened(
            Switchboard(
                store=store,
                catalog=catalog,
                claims=stores.claims(catalog),
                build=ConversationFactory(dependencies).build,
                clock=clock,
                settings=self.context.settings,
                deletions=deletions,
                erasures=erasures,
            )
        )
        scheduler = await opened(Scheduler(schedules, switchboard, clock, self._is_person))
        self.stack.push_async_callback(delivery.close)
        self.stack.push_async_callback(dependencies.activity.close)
        return Application(
            store=store,
            catalog=catalog,
            cluster=stores.cluster,
            models=models,
            knowledge=knowledge,
            plugins=plugins,
            problems=problems,
            lag=lag,
            dependencies=dependencies,
            responses=responses,
            switchboard=switchboard,
            search=search,
            shares=shares,
            scheduler=scheduler,
            last_hour=LastHour(counters, lag, switchboard.load, clock),
        )

    def _is_person(self, person: str) -> bool:
        return person == OWNER or person in self.context.settings.current.people

    def _load_plugins(self) -> Hooks:
        config, blocked = self.context.config, read_last_block(self.context.home.held_up)
        hooks = allowed_plugins(config, self.folders, but=blocked.plugin if blocked else "")
        if blocked is not None:
            hooks.refuse(blocked.plugin, "", f"it ended the gateway: {blocked.sentence()} The next restart tries it again")
        for warning in unread_tables(config, hooks):
            log.warning("configuration", warning=warning)
        for refusal in hooks.refused:
            log.error("plugin_refused", plugin=refusal.plugin, reason=refusal.sentence)
        return hooks

    def _start_watchdog(self, hooks: Hooks) -> Watchdog:
        """Watch the event loop, and track tasks, if third-party plugins are loaded."""
        limit = before_watchdog(self.context.config.plugins.hold_limit, os.environ)
        watchdog = Watchdog(hooks.third_party_modules, limit=limit, file=self.context.home.held_up)
        if hooks.third_party_modules():
            asyncio.get_running_loop().set_task_factory(task_leaks.task_factory)
            self.stack.enter_context(watchdog.awake())
        return watchdog

    async def _open_models(self, hooks: Hooks, transport: Transport, spending: Spending) -> OpenModels:
        opened, config = self.stack.enter_async_context, self.context.config
        home, clock, reported = self.context.home, self.context.clock, load_model_lists(self.context.home.models)
        context = provider_contexts(home, config, transport, os.environ, clock=clock, reported=reported)
        providers = await opened(open_chats(hooks.chat_providers(), context))
        embeddings = await opened(open_embeddings(hooks.embedding_providers(), context))
        await asyncio.gather(providers.reconfigure(config), embeddings.reconfigure(config))
        return OpenModels(
            providers=providers,
            embeddings=embeddings,
            registry=ModelRegistry(providers, config.agent, now=clock.monotonic, spending=spending),
            caller=ModelCaller(self.context.counters, hold=providers.in_use),
            transcriber=Transcriber(
                providers,
                hold=providers.in_use,
                configured=lambda: self.context.settings.current.transcription.model,
                counters=self.context.counters,
                spending=spending,
            ),
        )

    async def _open_knowledge(self, hooks: Hooks, stores: LogStores, catalog: Catalog, models: OpenModels) -> Knowledge:
        opened, home = self.stack.enter_async_context, self.context.home
        settings, clock = self.context.settings, self.context.clock
        counted = self.context.counters.count_embedded
        memory = await opened(open_memory(home, settings, models.embeddings, hooks.memory_backends, clock, counted=counted))
        facts = await opened(facts_of(stores.facts, home, settings, clock))
        extraction = FactExtraction(
            facts,
            stores.sessions,
            catalog,
            settings=settings,
            models=models.registry,
            caller=models.caller,
            clock=clock,
        )
        skills = SkillLibrary(
            home.admitted_skills, self.context.workspace, keys=lambda: settings.current.skills, now=clock.now
        )
        await skills.refresh()
        return Knowledge(
            memory=memory, facts=facts, extraction=extraction, day_notes=DayNotes(self.context.workspace), skills=skills
        )

    async def _open_plugins(
        self, hooks: Hooks, models: OpenModels, knowledge: Knowledge, transport: Transport, stores: LogStores
    ) -> RunningPlugins:
        services = PluginServiceFactory(
            choose=models.registry.choose,
            caller=models.caller,
            embedding=lambda: self.context.config.memory.embedding.chosen(models.embeddings),
            vectors_in_use=models.embeddings.in_use,
            store_of=stores.of_plugin,
            now=self.context.clock.now,
        )
        await self.stack.enter_async_context(services)

        def context(name: str, settings: Any) -> PluginContext:
            return PluginContext(
                name=name,
                settings=settings,
                folder=self.context.home.plugins / name,
                workspace=self.context.workspace,
                clock=self.context.clock,
                transport=transport,
                environment=os.environ,
                services=services.of(name, knowledge.memory, knowledge.facts),
                protected=self._protected,
            )

        opened, lifecycle = OpenedPlugins(hooks, context), Lifecycle(hooks, context)

        def channel_context(channel: ChannelInstance) -> PluginContext:
            if channel.settings is None:
                owner = hooks.owner("register_channels", channel.name)
                return msgspec.structs.replace(context(owner, hooks.settings(owner)), name=channel.name)
            made = context(f"channels.{channel.name}", channel.settings)
            return msgspec.structs.replace(
                made,
                name=channel.name,
                folder=self.context.home.channels / channel.name,
                commands=lambda: command_help(opened.commands),
            )

        commands = CommandSource(
            lambda: execution_keys(self.context.config),
            workspace=self.context.workspace,
            protected=self._protected,
            folder=self.context.home.jobs,
            now=self.context.clock.now,
            path=os.environ.get("PATH", ""),
        )
        await self.stack.enter_async_context(commands)
        await commands.prepare(execution_keys(self.context.config))

        channels = ChannelRunner(channel_context, self.context.clock.now)
        await channels.reconfigure(channel_instances(self.context.config, hooks, log_warning))

        async def reloaded(name: str) -> None:
            await channels.reconfigure(channel_instances(self.context.config, hooks))
            await models.open_providers(self.context.config)
            opened.refresh()
            knowledge.memory.wake()
            await lifecycle.started(only=name)

        development = tuple(
            PluginDevelopment(
                folder,
                hooks,
                fit=plugin_tables(self.context.config),  # another table needs a restart
                check=lambda tried: check(self.context.config, tried),
                reloaded=reloaded,
            )
            for folder in self.folders
        )
        mcp = McpClient(
            log=services.of("mcp", knowledge.memory, knowledge.facts).log,
            workspace=self.context.workspace,
            folder=self.context.home.mcp_logins,
            sandbox_level=lambda: self.context.config.sandbox.level,
            window=lambda: _window(models.registry),
            environment=os.environ,
            reserved=lambda: opened.tools,
        )
        self.stack.push_async_callback(mcp.close)
        web = WebTools(
            lambda: self.context.config.tools.fetch,
            lambda: self.context.config.tools.search,
            clock=self.context.clock,
            transport=transport,
            environment=os.environ,
        )
        return RunningPlugins(
            hooks=hooks,
            services=services,
            opened=opened,
            lifecycle=lifecycle,
            channels=channels,
            mcp=mcp,
            commands=commands,
            development=development,
            web=await self.stack.enter_async_context(web),
        )

    def _protected(self) -> list[str]:
        """Return the paths of the workspace that no tool may change."""
        config = self.context.config
        return [*config.agent.protected_files, *config.skills.protected(self.context.workspace)]

    def _dependencies(
        self,
        models: OpenModels,
        knowledge: Knowledge,
        plugins: RunningPlugins,
        *,
        problems: Problems,
        delivery: ReplyDelivery,
        rules: RememberedRules,
        pairings: Pairings,
        schedules: Schedules,
        titles: TitleMaker,
        spending: Spending,
    ) -> ConversationDependencies:
        context, opened = self.context, plugins.opened

        def channels() -> Sequence[str]:
            return [channel_in_short(each) for each in channel_reports(plugins.channels, delivery, context.counters)]

        command_services = CommandServices(
            models=models.registry,
            commands=opened.commands,
            settings=context.settings,
            clock=context.clock,
            began=context.began,
            version=VERSION,
            hooks=plugins.hooks,
            problems=problems.sentences,
            memory=knowledge.memory,
            facts=knowledge.facts,
            fact_extraction=knowledge.extraction,
            skills=knowledge.skills,
            command_source=plugins.commands,
            questions=OpenQuestions(rules),
            senders=Senders(context.settings, pairings, context.clock, plugins.channels.opened),
            schedules=schedules,
            proposals=RuleProposals(models.registry, models.caller, context.clock.monotonic),
            spending=spending,
            plugins_spent=plugins.services.spent,
            channels=channels,
            mcp=plugins.mcp,
            file_undo=FileUndo(context.workspace, self._protected, attachments_of(context.home)),
            memory_writer=MemoryWriter(context.workspace, knowledge.memory, context.settings, context.clock),
        )
        return ConversationDependencies(
            settings=context.settings,
            clock=context.clock,
            hooks=plugins.hooks,
            models=models.registry,
            caller=models.caller,
            providers=models.providers,
            tools=OfferedTools(
                opened.tools,
                context.settings,
                [
                    SkillTools(knowledge.skills, plugins.services.embed),
                    plugins.web,
                    ScheduleTools(schedules, context.settings, context.clock.now),
                    plugins.commands,
                    plugins.mcp,
                ],
            ),
            commands=opened.commands,
            attachments=attachments_of(context.home),
            notes=WorkspaceNotes(context.workspace),
            day_notes=knowledge.day_notes,
            summarizers=opened.summarizers,
            flushes=opened.flushes,
            counters=context.counters,
            command_services=command_services,
            lifecycle=plugins.lifecycle,
            delivery=delivery,
            activity=TurnActivity(plugins.channels.opened),
            titles=titles,
            updates=SessionUpdates(),
            spending=spending,
        )


def log_warning(sentence: str) -> None:
    """Log a warning about the configuration."""
    log.warning("configuration", warning=sentence)


async def _payer(catalog: Catalog, session: str) -> Payer | None:
    """Return who pays for the requests of a session; None if it is unknown."""
    row = await catalog.find(session)
    return None if row is None else Payer(row.person, row.agent)


def _window(models: ModelRegistry) -> int | None:
    """Return the window of the configured model, None if it is unknown or there is no model."""
    try:
        return models.choose().window
    except GatewayError:
        return None


def check(config: Config, hooks: Hooks) -> None:
    """Check that plugins provide everything that a configuration names.

    Raises:
        ConfigRefused: No plugin provides it.
    """
    check_providers(config, hooks.chat_providers())
    check_embedding(config, hooks.embedding_providers())
    check_backend(config, hooks.memory_backends)
    check_summarizers(config, hooks.summarizers(), hooks.flushes())
    check_servers(config)
    channel_instances(config, hooks)
