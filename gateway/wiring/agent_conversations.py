"""What the conversations of each agent depend on: the parts that all agents share, and the agent's own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway import VERSION
from gateway.config.settings import AgentSettings
from gateway.conversations.approvals.open_questions import OpenQuestions
from gateway.conversations.channels.reply_delivery import ReplyDelivery
from gateway.conversations.channels.senders import Senders
from gateway.conversations.channels.turn_activity import TurnActivity
from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.commands.undo import FileUndo
from gateway.conversations.context.loaded_notes import WorkspaceNotes
from gateway.conversations.notes.memory_writer import MemoryWriter
from gateway.conversations.routing.chat import Chat
from gateway.conversations.routing.conversation import Conversation
from gateway.conversations.routing.session_updates import SessionUpdates
from gateway.conversations.routing.spawn_tool import SpawnTools
from gateway.conversations.routing.subagents import Subagents
from gateway.conversations.schedules.heartbeat import Heartbeats
from gateway.conversations.schedules.proposals import RuleProposals
from gateway.conversations.schedules.schedule_tool import ScheduleTools
from gateway.conversations.schedules.schedules import Schedules
from gateway.conversations.turn.tool_calls import OfferedTools
from gateway.models.spending.spending import Spending
from gateway.status.channel_reports import channel_in_short, channel_reports
from gateway.status.cluster_status import cluster_in_short
from gateway.status.problems import Problems
from gateway.support.storage import attachments_of
from gateway.wiring.factory import ConversationDependencies, ConversationFactory
from gateway.wiring.open_agents import AgentMcpTools, AgentParts, Agents
from gateway.wiring.open_models import OpenModels
from gateway.wiring.running_plugins import RunningPlugins
from plugins.api.tool import ToolSource
from plugins.skills.library import SkillTools
from sessions.events.events import MAIN_AGENT
from sessions.store.cluster import Cluster
from sessions.store.recorder import Recorder


class ConversationWiring(msgspec.Struct, frozen=True, kw_only=True):
    """What the conversations of all agents share; makes the dependencies of those of one agent."""

    models: OpenModels
    plugins: RunningPlugins
    problems: Problems
    delivery: ReplyDelivery
    questions: OpenQuestions
    senders: Senders
    subagents: Subagents
    schedules: Schedules
    heartbeat: Heartbeats
    spending: Spending
    activity: TurnActivity
    updates: SessionUpdates
    cluster: Cluster | None

    def dependencies(self, agent: AgentParts) -> ConversationDependencies:
        """Return what the conversations of an agent depend on."""
        context, plugins, knowledge = agent.context, self.plugins, agent.knowledge
        return ConversationDependencies(
            agent=agent.name,
            settings=context.settings,
            clock=context.clock,
            hooks=plugins.hooks,
            models=agent.registry,
            caller=self.models.caller,
            providers=self.models.providers,
            tools=self._tools(agent),
            commands=plugins.opened.commands,
            attachments=attachments_of(context.home),
            notes=WorkspaceNotes(context.workspace),
            day_notes=knowledge.day_notes,
            summarizers=plugins.opened.summarizers,
            flushes=plugins.opened.flushes,
            counters=context.counters,
            command_services=self._command_services(agent),
            lifecycle=plugins.lifecycle,
            delivery=self.delivery,
            activity=self.activity,
            titles=agent.titles,
            updates=self.updates,
            spending=self.spending,
        )

    def _tools(self, agent: AgentParts) -> OfferedTools:
        settings, plugins = agent.context.settings, self.plugins
        sources: list[ToolSource] = [
            SkillTools(agent.knowledge.skills, plugins.services.embed),
            plugins.web,
            ScheduleTools(self.schedules, settings, agent.context.clock.now),
            SpawnTools(lambda: settings.current.tools.spawn, self.subagents),
            agent.commands,
            AgentMcpTools(plugins.mcp, settings) if isinstance(settings, AgentSettings) else plugins.mcp,
        ]
        return OfferedTools(agent.opened.tools, settings, sources, agent=agent.name, offers=agent.offers)

    def _command_services(self, agent: AgentParts) -> CommandServices:
        context, plugins, knowledge = agent.context, self.plugins, agent.knowledge

        def channels() -> Sequence[str]:
            return [channel_in_short(each) for each in channel_reports(plugins.channels, self.delivery, context.counters)]

        def cluster() -> str:
            return "" if self.cluster is None else cluster_in_short(self.cluster)

        return CommandServices(
            models=agent.registry,
            commands=plugins.opened.commands,
            settings=context.settings,
            clock=context.clock,
            began=context.began,
            version=VERSION,
            hooks=plugins.hooks,
            problems=self.problems.sentences,
            memory=knowledge.memory,
            facts=knowledge.facts,
            fact_extraction=knowledge.extraction,
            skills=knowledge.skills,
            command_source=agent.commands,
            questions=self.questions,
            senders=self.senders,
            subagents=self.subagents,
            schedules=self.schedules,
            proposals=RuleProposals(agent.registry, self.models.caller, context.clock.monotonic),
            heartbeat=self.heartbeat,
            spending=self.spending,
            plugins_spent=plugins.services.spent,
            channels=channels,
            cluster=cluster,
            mcp=plugins.mcp,
            file_undo=FileUndo(context.workspace, agent.protected, attachments_of(context.home)),
            memory_writer=MemoryWriter(context.workspace, knowledge.memory, context.settings, context.clock),
        )


class AgentConversations:
    """Builds the conversations of all agents.

    Args:
        agents: The agents.
        wiring: Makes the dependencies of an agent's conversations.
        main: Those of `main`.
    """

    def __init__(self, agents: Agents, wiring: ConversationWiring, main: ConversationDependencies) -> None:
        self._agents = agents
        self._wiring = wiring
        self._factories = {MAIN_AGENT: ConversationFactory(main)}

    async def prepare(self, agent: str) -> None:
        """Open an agent before a conversation of it is built. Raises StorageFailed."""
        if agent not in self._factories:
            dependencies = self._wiring.dependencies(await self._agents.parts(agent))
            self._factories.setdefault(agent, ConversationFactory(dependencies))

    def build(self, chat: Chat, recorder: Recorder) -> Conversation:
        """Return a conversation of an agent that was prepared, ready to run."""
        return self._factories[recorder.transcript.agent].build(chat, recorder)
