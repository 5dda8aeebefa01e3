"""Builds a gateway from the bottom up: storage, plugins, models, memory, facts, conversations."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import msgspec
import structlog

from gateway import VERSION
from gateway.auth.people_log import PeopleLog
from gateway.auth.sign_ins import forget_in_file
from gateway.backup.known_backups import note_in_backups
from gateway.conversations.approvals.open_questions import OpenQuestions
from gateway.conversations.approvals.remembered_rules import RememberedRules
from gateway.conversations.channels.pairings import Pairings
from gateway.conversations.channels.reply_delivery import ReplyDelivery
from gateway.conversations.channels.senders import Senders
from gateway.conversations.channels.turn_activity import TurnActivity
from gateway.conversations.deletion.deletions import Deletions
from gateway.conversations.routing.person_erasure import PersonErasures
from gateway.conversations.routing.session_updates import SessionUpdates
from gateway.conversations.routing.subagents import Subagents
from gateway.conversations.routing.switchboard import Switchboard
from gateway.conversations.schedules.heartbeat import Heartbeats
from gateway.conversations.schedules.scheduler import Scheduler
from gateway.conversations.schedules.schedules import Schedules
from gateway.conversations.search.conversation_search import ConversationSearch
from gateway.conversations.shares import Shares
from gateway.http.openai.responses.stored_responses import StoredResponses
from gateway.metrics.process import LoopLag
from gateway.models.spending.spending import Spending
from gateway.models.spending.spending_log import Ledger, Payer, Zones
from gateway.plugin_runtime.service_factory import PluginServiceFactory
from gateway.status.channel_reports import ChannelReport, channel_reports
from gateway.status.instruments import GatewayContext
from gateway.status.last_hour import LastHour
from gateway.status.problems import Problems
from gateway.support.home import SPENDING
from gateway.support.storage import attachments_of
from gateway.wiring.agent_conversations import AgentConversations, ConversationWiring
from gateway.wiring.factory import ConversationDependencies
from gateway.wiring.open_agents import Agents, Knowledge, SharedParts, open_agent
from gateway.wiring.open_models import OpenModels, open_models
from gateway.wiring.open_stores import GatewayInfo, LogStores, open_catalog, open_log_stores
from gateway.wiring.running_plugins import RunningPlugins, check, load_plugins, open_plugins, start_watchdog
from plugins.host.loading import PluginFolder
from plugins.http.client import Transport
from plugins.support.secrets import hide_keys_of
from sessions.events.events import MAIN_AGENT
from sessions.store.catalog import Catalog
from sessions.store.cluster import Cluster
from sessions.store.protocols import Store

if TYPE_CHECKING:
    from gateway.conversations.erasure.erasures import Erasures
    from gateway.conversations.erasure.other_logs import Rewrite

log = structlog.get_logger("exuvia")


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a gateway that its HTTP layer, reloading and shutdown use."""

    store: Store
    catalog: Catalog
    cluster: Cluster | None
    models: OpenModels
    agents: Agents
    plugins: RunningPlugins
    problems: Problems
    lag: LoopLag
    dependencies: ConversationDependencies
    responses: StoredResponses
    switchboard: Switchboard
    search: ConversationSearch
    shares: Shares
    people: PeopleLog
    persons: PersonErasures
    scheduler: Scheduler
    last_hour: LastHour

    @property
    def knowledge(self) -> Knowledge:
        """The memory, facts and skills of the agent `main`."""
        return self.agents.main.knowledge

    def channel_reports(self) -> Sequence[ChannelReport]:
        """Return the state of each channel."""
        dependencies = self.dependencies
        return channel_reports(self.plugins.channels, dependencies.delivery, dependencies.counters)


class ApplicationBuilder(msgspec.Struct, frozen=True, kw_only=True):
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
        hooks = load_plugins(self.context, self.folders)
        check(self.context.config, hooks, home)
        watchdog = start_watchdog(self.stack, self.context, hooks)
        hide_keys_of(os.environ)  # plugins receive the environment
        transport = await opened(Transport())
        spending = await opened(
            Spending(
                Ledger(stores.facts, clock.now, lambda: Zones.of(self.context.config), stores.cluster),
                self.context.settings,
                counters,
                find=partial(_payer, catalog),
                monotonic=clock.monotonic,
            )
        )
        models = await open_models(self.stack, self.context, hooks, transport, spending)
        shared = SharedParts(
            context=self.context,
            stores=stores,
            catalog=catalog,
            hooks=hooks,
            models=models,
            transport=transport,
            services=await opened(self._services(models, stores)),
        )
        agents = await opened(Agents(shared, await open_agent(self.stack, shared, MAIN_AGENT)))
        plugins = await open_plugins(self.stack, shared, agents, self.folders)
        rules = await opened(RememberedRules(stores.facts, clock.now))
        pairings = await opened(Pairings(stores.facts, clock.now))
        people = await opened(PeopleLog(stores.facts, clock.now))
        shares = await opened(Shares(stores.facts, clock.now))
        schedules = await opened(Schedules(stores.facts, clock.now))
        search = await opened(ConversationSearch(home.messages, store))
        deletions = await opened(
            Deletions(
                store,
                stores.facts,
                catalog,
                attachments=attachments_of(self.context.home),
                knowledge=agents.knowledge,
                search=search,
                scheduled=schedules.count,
                note_in_backups=lambda: note_in_backups(home),
                now=clock.now,
            )
        )
        responses = await opened(StoredResponses(stores.facts, clock.now))

        @cache
        def erasures() -> Erasures:
            from gateway.conversations.erasure.derived_data import OpenIndexes  # noqa: PLC0415 - not at the start
            from gateway.conversations.erasure.erasures import Erasures  # noqa: PLC0415
            from gateway.conversations.erasure.other_logs import other_logs  # noqa: PLC0415

            return Erasures(
                store,
                catalog,
                attachments=attachments_of(home),
                derived=OpenIndexes(home, agents.memories, search),
                facts=agents.fact_logs,
                others=partial(
                    other_logs,
                    home,
                    stores.facts,
                    stores.of_plugin,
                    partial(
                        _rewriter,
                        {
                            "approvals": rules.rewrite,
                            "pairings": pairings.rewrite,
                            "people": people.rewrite,
                            "responses": responses.rewrite,
                            "schedules": schedules.rewrite,
                            "shares": shares.rewrite,
                        },
                        spending.ledger,
                        shared.services,
                    ),
                ),
                workspaces=agents.workspaces,
                quarantine=home.quarantine,
                unexamined=(home.channels, home.mcp_logins),
                now=clock.now,
            )

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
                *agents.problems(),
                *rules.problems(),
                *pairings.problems(),
                *schedules.problems(),
                *deletions.problems(),
                *shares.problems(),
                *responses.problems(),
                *spending.problems(),
                *people.problems(),
            ],
        )
        delivery = ReplyDelivery(
            plugins.channels.opened, clock.now, lambda: self.context.settings.zone, attachments_of(self.context.home)
        )
        subagents = Subagents(lambda: self.context.config.tools.spawn.tokens)
        senders = Senders(self.context.settings, pairings, self.context.clock, plugins.channels.opened)
        of_agent = ConversationWiring(
            models=models,
            plugins=plugins,
            problems=problems,
            delivery=delivery,
            questions=OpenQuestions(rules),
            senders=senders,
            subagents=subagents,
            schedules=schedules,
            heartbeat=Heartbeats(
                self.context.settings, clock, home, self._is_person, stores.leases, is_named=senders.is_named
            ),
            spending=spending,
            activity=TurnActivity(plugins.channels.opened),
            updates=SessionUpdates(),
            cluster=stores.cluster,
        )
        dependencies = of_agent.dependencies(agents.main)
        conversations = AgentConversations(agents, of_agent, dependencies)
        switchboard = await opened(
            Switchboard(
                store=store,
                catalog=catalog,
                claims=stores.claims(catalog),
                build=conversations.build,
                prepare=conversations.prepare,
                clock=clock,
                settings=self.context.settings,
                deletions=deletions,
                erasures=erasures,
            )
        )
        switchboard.let_go = delivery.let_go
        switchboard.removals.on_deleted(subagents.on_deleted)
        await opened(dependencies.command_services.heartbeat)
        self.stack.push_async_callback(subagents.close)
        scheduler = await opened(Scheduler(schedules, switchboard, clock, self._is_person, stores.leases))
        self.stack.push_async_callback(delivery.close)
        self.stack.push_async_callback(dependencies.activity.close)
        return Application(
            store=store,
            catalog=catalog,
            cluster=stores.cluster,
            models=models,
            agents=agents,
            plugins=plugins,
            problems=problems,
            lag=lag,
            dependencies=dependencies,
            responses=responses,
            switchboard=switchboard,
            search=search,
            shares=shares,
            people=people,
            persons=PersonErasures(
                switchboard, erasures, deletions, catalog, partial(forget_in_file, self.context.home.sign_ins)
            ),
            scheduler=scheduler,
            last_hour=LastHour(counters, lag, switchboard.load, clock),
        )

    def _is_person(self, person: str) -> bool:
        return self.context.settings.knows(person)

    def _services(self, models: OpenModels, stores: LogStores) -> PluginServiceFactory:
        return PluginServiceFactory(
            choose=models.registry.choose,
            caller=models.caller,
            embedding=lambda: self.context.config.memory.embedding.chosen(models.embeddings),
            vectors_in_use=models.embeddings.in_use,
            charge=lambda provider, tokens: models.spending.charge_embedding(provider, tokens, Payer("")),
            store_of=stores.of_plugin,
            now=self.context.clock.now,
        )


def _rewriter(
    opened: Mapping[str, Rewrite], ledger: Ledger, services: PluginServiceFactory, name: str, plugin: str
) -> Rewrite | None:
    """Return what rewrites a log that may be open."""
    if plugin:
        return partial(services.rewrite_log, plugin)
    return partial(ledger.rewrite, name) if name.startswith(SPENDING) else opened.get(name)


async def _payer(catalog: Catalog, session: str) -> Payer | None:
    """Return who pays for the requests of a session; None if it is unknown."""
    row = await catalog.find(session)
    return None if row is None else Payer(row.person, row.agent)
