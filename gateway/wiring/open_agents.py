"""Opens agents: the memory, facts, skills, tools and commands of each. Those besides `main` open at their first use."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from gateway.config.agents import AgentKeys
from gateway.config.keys import execution_keys
from gateway.config.settings import AgentSettings
from gateway.conversations.facts.fact_extraction import FactExtraction
from gateway.conversations.facts.fact_store import facts_of
from gateway.conversations.notes.day_notes import DayNotes
from gateway.conversations.notes.workspace_memory import open_memory
from gateway.conversations.turn.titles import TitleMaker
from gateway.models.registry import ModelRegistry
from gateway.models.spending.spending_log import Payer
from gateway.plugin_runtime.plugin_loading import OpenedPlugins
from gateway.plugin_runtime.service_factory import PluginServiceFactory
from gateway.status.instruments import GatewayContext
from gateway.support.errors import ModelUnknown
from gateway.support.storage import agents_with_logs
from gateway.wiring.open_models import OpenModels
from gateway.wiring.open_stores import LogStores
from plugins.api.context import PluginContext
from plugins.api.embedding import EmbeddingProvider
from plugins.api.plugin_services import Purpose
from plugins.api.tool import Tool
from plugins.facts.facts import Facts
from plugins.host.hooks import Hooks
from plugins.http.client import Transport
from plugins.mcp.mcp_client import McpClient
from plugins.memory.memory import Memory
from plugins.skills.library import SkillLibrary
from plugins.tools.execution.command_source import CommandSource
from sessions.events.errors import StorageFailed
from sessions.events.events import MAIN_AGENT
from sessions.files.fsync import make_folder
from sessions.store.catalog import Catalog

if TYPE_CHECKING:
    from gateway.conversations.erasure.erasures import FactLogPlace


class SharedParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a gateway that all agents share."""

    context: GatewayContext
    stores: LogStores
    catalog: Catalog
    hooks: Hooks
    models: OpenModels
    transport: Transport
    services: PluginServiceFactory


class Knowledge(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of an agent besides the sessions themselves: the index of notes and sessions, the facts, the notes of each
    day, and the skills."""

    memory: Memory
    facts: Facts
    extraction: FactExtraction
    day_notes: DayNotes
    skills: SkillLibrary

    def problems(self) -> list[str]:
        """Return the problems of all parts, as sentences."""
        parts = (self.memory, self.facts, self.extraction, self.day_notes, self.skills)
        return [sentence for part in parts for sentence in part.problems()]


class AgentParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one agent. The settings and the workspace of `context` are the agent's."""

    name: str
    context: GatewayContext
    registry: ModelRegistry
    knowledge: Knowledge
    opened: OpenedPlugins
    commands: CommandSource
    titles: TitleMaker

    def offers(self, tool: str) -> bool:
        """Return True if the configuration offers a tool to the agent."""
        settings = self.context.settings
        return settings.tools.offers(tool) if isinstance(settings, AgentSettings) else True

    def protected(self) -> list[str]:
        """Return the paths of the workspace that no tool may change."""
        return protected_paths(self.context)

    def problems(self) -> list[str]:
        """Return the problems of all parts, as sentences."""
        found = [*self.knowledge.problems(), *self.commands.problems()]
        return found if self.name == MAIN_AGENT else [f"Agent {self.name}: {sentence}" for sentence in found]


class AgentMcpTools:
    """The tools of the MCP servers that an agent is offered, as a `ToolSource`."""

    def __init__(self, client: McpClient, settings: AgentSettings) -> None:
        self._client = client
        self._settings = settings

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools by name."""
        return self._client.tools_of(self._settings.mcp)


def protected_paths(context: GatewayContext) -> list[str]:
    """Return the paths of the workspace that no tool may change."""
    config = context.config
    return [*config.agent.protected_files, *config.skills.protected(context.workspace)]


async def open_agent(stack: contextlib.AsyncExitStack, shared: SharedParts, name: str) -> AgentParts:
    """Open the parts of an agent on `stack`."""
    context, registry = shared.context, shared.models.registry
    if name != MAIN_AGENT:
        settings = AgentSettings(context.settings, name)
        context = msgspec.structs.replace(context, settings=settings)
        registry = registry.of_agent(name, partial(_existing_keys, name, settings))
    knowledge = await _open_knowledge(stack, shared, context, registry, name)
    make_context = partial(plugin_context, shared, context, knowledge)
    commands = CommandSource(
        lambda: execution_keys(context.config),
        workspace=context.workspace,
        protected=lambda: protected_paths(context),
        folder=context.home.of_agent(name).jobs,
        now=context.clock.now,
        path=os.environ.get("PATH", ""),
    )
    await stack.enter_async_context(commands)
    await commands.prepare(execution_keys(context.config))
    return AgentParts(
        name=name,
        context=context,
        registry=registry,
        knowledge=knowledge,
        opened=OpenedPlugins(shared.hooks, make_context),
        commands=commands,
        titles=await stack.enter_async_context(TitleMaker(context.settings, registry, shared.models.caller)),
    )


def plugin_context(
    shared: SharedParts, context: GatewayContext, knowledge: Knowledge, name: str, settings: Any
) -> PluginContext:
    """Return the context of a plugin for an agent.

    Args:
        shared: The parts that all agents share.
        context: That of the agent.
        knowledge: That of the agent.
        name: The plugin.
        settings: The plugin's settings.
    """
    return PluginContext(
        name=name,
        settings=settings,
        folder=context.home.plugins / name,
        workspace=context.workspace,
        clock=context.clock,
        transport=shared.transport,
        environment=os.environ,
        services=shared.services.of(name, knowledge.memory, knowledge.facts),
        protected=lambda: protected_paths(context),
    )


def _existing_keys(name: str, settings: AgentSettings) -> AgentKeys:
    if not settings.exists:
        raise ModelUnknown(
            f"The agent {name} of this conversation is not configured any more. Nothing of it is lost: add [agents.{name}]"
            " again, or begin a new session with /new."
        )
    return settings.current.agent


async def _open_knowledge(
    stack: contextlib.AsyncExitStack, shared: SharedParts, context: GatewayContext, registry: ModelRegistry, name: str
) -> Knowledge:
    opened, home, settings, clock = stack.enter_async_context, context.home, context.settings, context.clock

    def counted(purpose: Purpose, provider: EmbeddingProvider, tokens: int) -> None:
        context.counters.count_embedded(purpose, provider.model() or "", tokens)
        shared.models.spending.charge_embedding(provider, tokens, Payer("", name))

    memory = open_memory(
        home,
        settings,
        shared.models.embeddings,
        shared.hooks.memory_backends,
        clock,
        agent=name,
        counted=counted,
    )
    facts = await opened(facts_of(shared.stores.of_agent(name), home, settings, clock))
    extraction = FactExtraction(
        facts,
        shared.stores.sessions,
        shared.catalog,
        agent=name,
        settings=settings,
        models=registry,
        caller=shared.models.caller,
        clock=clock,
    )
    skills = SkillLibrary(
        home.of_agent(name).admitted_skills,
        context.workspace,
        keys=lambda: settings.current.skills,
        now=clock.now,
    )
    await skills.refresh()
    return Knowledge(
        memory=await opened(memory),
        facts=facts,
        extraction=extraction,
        day_notes=DayNotes(context.workspace),
        skills=skills,
    )


class Agents:
    """The open agents, as an async context manager, at whose end those besides `main` are closed.

    Args:
        shared: What they share.
        main: The agent `main`, which is open.
    """

    def __init__(self, shared: SharedParts, main: AgentParts) -> None:
        self._shared = shared
        self.main = main
        self._open = {MAIN_AGENT: main}
        self._opening: dict[str, asyncio.Task[AgentParts]] = {}
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opening:
            await asyncio.wait(self._opening.values())
        await self._stack.aclose()

    async def parts(self, name: str) -> AgentParts:
        """Return the parts of an agent, opened if they are not. Raises StorageFailed."""
        if (parts := self._open.get(name)) is not None:
            return parts
        if name not in self._opening:
            self._opening[name] = task = asyncio.create_task(self._open_parts(name))
            task.add_done_callback(lambda _: self._opening.pop(name, None))
        return await asyncio.shield(self._opening[name])  # others may wait for the same agent

    async def knowledge(self, name: str) -> tuple[Memory, Facts]:
        """Return the memory and the facts of an agent. Raises StorageFailed."""
        known = (await self.parts(name)).knowledge
        return known.memory, known.facts

    async def memories(self) -> dict[str, Memory]:
        """Return the memories of all configured agents by name, opened if they are not. Raises StorageFailed."""
        return {name: (await self.parts(name)).knowledge.memory for name in self._configured()}

    async def fact_logs(self) -> list[FactLogPlace]:
        """Return the logs of the facts of all agents, also of those that are not configured any more. Raises
        StorageFailed."""
        from gateway.conversations.erasure.erasures import FactLogPlace  # noqa: PLC0415 - not at the start

        stores, names = self._shared.stores, self._configured()
        others = await asyncio.to_thread(agents_with_logs, self._shared.context.home)
        return [
            *[FactLogPlace(store=stores.of_agent(name), closed=(await self.knowledge(name))[1].closed) for name in names],
            *[FactLogPlace(store=stores.of_agent(name), closed=_unused) for name in others if name not in names],
        ]

    def workspaces(self) -> list[Path]:
        """Return the workspaces of all agents, also of those that are not configured any more."""
        config = self._shared.context.config
        named = [config.agent.workspace, *(keys.workspace for keys in config.agents.values())]
        return self._shared.context.home.workspaces(named)

    def _configured(self) -> list[str]:
        return list(dict.fromkeys((*self._open, *self._shared.context.config.agents)))

    def problems(self) -> list[str]:
        """Return the problems of all open agents, as sentences."""
        return [sentence for parts in self._open.values() for sentence in parts.problems()]

    async def reconfigure(self) -> None:
        """Open what the configuration in force has enabled for the open agents."""
        for parts in tuple(self._open.values()):
            await parts.commands.prepare(execution_keys(parts.context.config))

    def reload_plugins(self) -> None:
        """Create new instances of the changed tools of plugins for all open agents."""
        for parts in self._open.values():
            parts.opened.refresh()
            parts.knowledge.memory.wake()

    def wake_memories(self) -> None:
        """Have all open agents look for changes of what they remember."""
        for parts in self._open.values():
            parts.knowledge.memory.wake()

    async def _open_parts(self, name: str) -> AgentParts:
        folder = self._shared.context.home.of_agent(name).root
        async with contextlib.AsyncExitStack() as stack:
            try:
                await asyncio.to_thread(make_folder, folder)
                parts = await open_agent(stack, self._shared, name)
                await asyncio.to_thread(make_folder, parts.context.workspace)
            except OSError as error:
                raise StorageFailed(f"The agent {name} cannot be opened: {error.strerror or error}.") from error
            for running in (parts.knowledge.memory.watch(), parts.knowledge.extraction.run()):
                await stack.enter_async_context(_running(asyncio.create_task(running)))
            self._stack.push_async_exit(stack.pop_all())
        self._open[name] = parts
        return parts


@contextlib.asynccontextmanager
async def _unused() -> AsyncIterator[None]:
    """Do nothing: nobody has the log open."""
    yield


@contextlib.asynccontextmanager
async def _running(task: asyncio.Task[None]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
