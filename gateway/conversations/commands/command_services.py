"""The services that all commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from gateway.config.settings import Settings
from gateway.conversations.approvals.open_questions import OpenQuestions
from gateway.conversations.channels.senders import Senders
from gateway.conversations.commands.undo import FileUndo
from gateway.conversations.facts.fact_extraction import FactExtraction
from gateway.conversations.notes.memory_writer import MemoryWriter
from gateway.conversations.routing.subagents import Subagents
from gateway.conversations.schedules.heartbeat import Heartbeats
from gateway.conversations.schedules.proposals import RuleProposals
from gateway.conversations.schedules.schedules import Schedules
from gateway.models.registry import ModelRegistry
from gateway.models.spending.spending import Spending
from plugins.api.command import Command
from plugins.api.context import Clock
from plugins.facts.facts import Facts
from plugins.host.hooks import Hooks
from plugins.mcp.mcp_client import McpClient
from plugins.memory.memory import Memory
from plugins.skills.library import SkillLibrary
from plugins.tools.execution.command_source import CommandSource
from sessions.events.messages import Usage


class CommandServices(msgspec.Struct, frozen=True, kw_only=True):
    """The services that all commands share. `began` is the gateway's start on the monotonic clock."""

    models: ModelRegistry
    commands: Mapping[str, Command]
    settings: Settings
    clock: Clock
    began: float
    version: str
    hooks: Hooks
    problems: Callable[[], Sequence[str]]
    memory: Memory
    memory_writer: MemoryWriter
    facts: Facts
    fact_extraction: FactExtraction
    skills: SkillLibrary
    mcp: McpClient
    command_source: CommandSource
    file_undo: FileUndo
    questions: OpenQuestions
    senders: Senders
    subagents: Subagents
    schedules: Schedules
    proposals: RuleProposals
    heartbeat: Heartbeats
    spending: Spending
    channels: Callable[[], Sequence[str]] = tuple
    cluster: Callable[[], str] = str
    plugins_spent: Callable[[], Mapping[str, Mapping[str, Usage]]] = dict
