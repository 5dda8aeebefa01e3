"""Plugins: their API, the built-in ones, and the host that loads and calls them.

An author imports the public names from `exuvia` (or from here). Each is imported on first use, so that importing one
module never pays for the others.

    api/        All that a plugin author imports: protocols, values and hooks.
    channels/   The built-in channels, each loaded only where it is configured.
    commands/   The built-in slash commands, and the plugin that registers all that is built in.
    facts/      Facts: small statements that are extracted, distilled and recalled.
    host/       Loading plugins and calling their hooks.
    http/       The one outbound HTTP client, its connections and its streams.
    mcp/        The client of the Model Context Protocol.
    memory/     The memory: notes and conversations, indexed and searched.
    policies/   The built-in pruning, summarizers and memory flush, and the texts that models are sent.
    providers/  The built-in chat and embedding providers.
    sandbox/    Commands that a model chose, confined.
    skills/     Skills in the Agent Skills convention.
    support/    What every package of `plugins` may use: errors, secrets, text, safe file access.
    testing/    The conformance kit for plugin authors, and templates for new plugins.
    tools/      The built-in file tools.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plugins.api.channel import Channel as Channel
    from plugins.api.channel import ChannelActivity as ChannelActivity
    from plugins.api.channel import ChannelInbox as ChannelInbox
    from plugins.api.channel import ChecksConnection as ChecksConnection
    from plugins.api.channel import Choice as Choice
    from plugins.api.channel import DeliveryUnknown as DeliveryUnknown
    from plugins.api.channel import HandlesHooks as HandlesHooks
    from plugins.api.channel import HookRequest as HookRequest
    from plugins.api.channel import HookResponse as HookResponse
    from plugins.api.channel import InboundFile as InboundFile
    from plugins.api.channel import InboundMessage as InboundMessage
    from plugins.api.channel import MessageRejected as MessageRejected
    from plugins.api.channel import OutboundMessage as OutboundMessage
    from plugins.api.channel import ShowsActivity as ShowsActivity
    from plugins.api.channel import SplitsReplies as SplitsReplies
    from plugins.api.channel import TryLater as TryLater
    from plugins.api.channel import Undeliverable as Undeliverable
    from plugins.api.chat import CallDraft as CallDraft
    from plugins.api.chat import ChatProvider as ChatProvider
    from plugins.api.chat import ChatRequest as ChatRequest
    from plugins.api.chat import Delta as Delta
    from plugins.api.chat import Reasoning as Reasoning
    from plugins.api.chat import Reply as Reply
    from plugins.api.chat import RequestOptions as RequestOptions
    from plugins.api.chat import ResponseFormat as ResponseFormat
    from plugins.api.chat import StreamPart as StreamPart
    from plugins.api.command import AdmittedSender as AdmittedSender
    from plugins.api.command import AgentEntry as AgentEntry
    from plugins.api.command import ApprovalsView as ApprovalsView
    from plugins.api.command import BudgetState as BudgetState
    from plugins.api.command import Command as Command
    from plugins.api.command import CommandFailed as CommandFailed
    from plugins.api.command import CommandHelp as CommandHelp
    from plugins.api.command import CommandTime as CommandTime
    from plugins.api.command import CompactionEntry as CompactionEntry
    from plugins.api.command import ContextItem as ContextItem
    from plugins.api.command import ContextReport as ContextReport
    from plugins.api.command import ConversationEntry as ConversationEntry
    from plugins.api.command import ConversationView as ConversationView
    from plugins.api.command import FactsView as FactsView
    from plugins.api.command import HeartbeatEntry as HeartbeatEntry
    from plugins.api.command import HistoryEntry as HistoryEntry
    from plugins.api.command import JobEntry as JobEntry
    from plugins.api.command import McpServerEntry as McpServerEntry
    from plugins.api.command import McpView as McpView
    from plugins.api.command import MemoryMatches as MemoryMatches
    from plugins.api.command import MemoryReport as MemoryReport
    from plugins.api.command import NoteEntry as NoteEntry
    from plugins.api.command import OfferedModels as OfferedModels
    from plugins.api.command import OpenQuestion as OpenQuestion
    from plugins.api.command import PairedAddress as PairedAddress
    from plugins.api.command import PairingCode as PairingCode
    from plugins.api.command import PairingsView as PairingsView
    from plugins.api.command import PruningReport as PruningReport
    from plugins.api.command import QueueState as QueueState
    from plugins.api.command import RememberedApproval as RememberedApproval
    from plugins.api.command import SamplingState as SamplingState
    from plugins.api.command import ScheduleEntry as ScheduleEntry
    from plugins.api.command import ScheduleOptions as ScheduleOptions
    from plugins.api.command import SchedulesView as SchedulesView
    from plugins.api.command import ShownChanges as ShownChanges
    from plugins.api.command import ShownSkill as ShownSkill
    from plugins.api.command import SkillEntry as SkillEntry
    from plugins.api.command import SkillsView as SkillsView
    from plugins.api.command import SpendingSummary as SpendingSummary
    from plugins.api.compaction import AfterCompaction as AfterCompaction
    from plugins.api.compaction import BeforeCompaction as BeforeCompaction
    from plugins.api.compaction import CompactionBudget as CompactionBudget
    from plugins.api.compaction import CompactionContext as CompactionContext
    from plugins.api.compaction import CompactionInput as CompactionInput
    from plugins.api.compaction import FlushResult as FlushResult
    from plugins.api.compaction import FlushRules as FlushRules
    from plugins.api.compaction import IdentifierPolicy as IdentifierPolicy
    from plugins.api.compaction import MemoryFlush as MemoryFlush
    from plugins.api.compaction import Summarizer as Summarizer
    from plugins.api.compaction import Summary as Summary
    from plugins.api.context import Clock as Clock
    from plugins.api.context import NoSettings as NoSettings
    from plugins.api.context import PluginContext as PluginContext
    from plugins.api.context import ProviderAccount as ProviderAccount
    from plugins.api.context import ProviderContext as ProviderContext
    from plugins.api.embedding import CountsTokens as CountsTokens
    from plugins.api.embedding import EmbeddingProvider as EmbeddingProvider
    from plugins.api.fact_values import Fact as Fact
    from plugins.api.fact_values import FactChange as FactChange
    from plugins.api.fact_values import FactConflict as FactConflict
    from plugins.api.fact_values import FactDraft as FactDraft
    from plugins.api.fact_values import FactHistory as FactHistory
    from plugins.api.fact_values import FactHistoryEntry as FactHistoryEntry
    from plugins.api.fact_values import FactLayer as FactLayer
    from plugins.api.fact_values import FactNotEditable as FactNotEditable
    from plugins.api.fact_values import FactOrigin as FactOrigin
    from plugins.api.fact_values import FactsError as FactsError
    from plugins.api.fact_values import FactSource as FactSource
    from plugins.api.fact_values import FactsUnavailable as FactsUnavailable
    from plugins.api.fact_values import FactType as FactType
    from plugins.api.fact_values import InvalidFact as InvalidFact
    from plugins.api.fact_values import NoSuchFact as NoSuchFact
    from plugins.api.fact_values import draft_fact as draft_fact
    from plugins.api.hookspecs import EndedTurn as EndedTurn
    from plugins.api.hookspecs import hookimpl as hookimpl
    from plugins.api.memory.chunks import Chunk as Chunk
    from plugins.api.memory.memory_backend import Document as Document
    from plugins.api.memory.memory_backend import Identity as Identity
    from plugins.api.memory.memory_backend import MemoryBackend as MemoryBackend
    from plugins.api.memory.scope import Scope as Scope
    from plugins.api.memory.source import Reading as Reading
    from plugins.api.memory_settings import EmbeddingKeys as EmbeddingKeys
    from plugins.api.models import LimitSource as LimitSource
    from plugins.api.models import ModelLimits as ModelLimits
    from plugins.api.models import ModelList as ModelList
    from plugins.api.models import ReportedLimits as ReportedLimits
    from plugins.api.plugin_services import AskModel as AskModel
    from plugins.api.plugin_services import EmbedTexts as EmbedTexts
    from plugins.api.plugin_services import IndexUnusable as IndexUnusable
    from plugins.api.plugin_services import LogEntry as LogEntry
    from plugins.api.plugin_services import LogUnusable as LogUnusable
    from plugins.api.plugin_services import MemoryHit as MemoryHit
    from plugins.api.plugin_services import MemoryResults as MemoryResults
    from plugins.api.plugin_services import ModelAnswer as ModelAnswer
    from plugins.api.plugin_services import PluginLog as PluginLog
    from plugins.api.plugin_services import PluginServices as PluginServices
    from plugins.api.plugin_services import Purpose as Purpose
    from plugins.api.plugin_services import WorkspaceFacts as WorkspaceFacts
    from plugins.api.plugin_services import WorkspaceMemory as WorkspaceMemory
    from plugins.api.pruning import HardClear as HardClear
    from plugins.api.pruning import PrunedTools as PrunedTools
    from plugins.api.pruning import PruningBudget as PruningBudget
    from plugins.api.pruning import PruningContext as PruningContext
    from plugins.api.pruning import PruningMode as PruningMode
    from plugins.api.pruning import PruningRules as PruningRules
    from plugins.api.pruning import SoftTrim as SoftTrim
    from plugins.api.tool import ApprovalRequest as ApprovalRequest
    from plugins.api.tool import DescribesCalls as DescribesCalls
    from plugins.api.tool import FileVersions as FileVersions
    from plugins.api.tool import OutputFile as OutputFile
    from plugins.api.tool import Tool as Tool
    from plugins.api.tool import ToolContext as ToolContext
    from plugins.api.tool import ToolOutput as ToolOutput
    from plugins.api.transcription import TranscribesAudio as TranscribesAudio
    from plugins.api.transcription import Transcript as Transcript
    from plugins.api.transcription import TranscriptFormat as TranscriptFormat
    from plugins.api.transcription import TranscriptionRequest as TranscriptionRequest
    from plugins.http.client import Timeouts as Timeouts
    from plugins.http.client import Transport as Transport
    from plugins.http.sse import ServerSentEvent as ServerSentEvent
    from plugins.support.errors import BadAnswer as BadAnswer
    from plugins.support.errors import BadRequest as BadRequest
    from plugins.support.errors import ContextOverflow as ContextOverflow
    from plugins.support.errors import CredentialsRefused as CredentialsRefused
    from plugins.support.errors import NoSuchModel as NoSuchModel
    from plugins.support.errors import PluginError as PluginError
    from plugins.support.errors import ProviderError as ProviderError
    from plugins.support.errors import RateLimited as RateLimited
    from plugins.support.errors import SettingsRefused as SettingsRefused
    from plugins.support.errors import StreamCut as StreamCut
    from plugins.support.errors import ToolFailed as ToolFailed
    from plugins.support.errors import Unreachable as Unreachable
    from plugins.support.http_errors import StatusRefused as StatusRefused
    from plugins.support.secrets import Secret as Secret
    from plugins.support.state_file import StateFile as StateFile
    from plugins.support.workspace import NotesAccess as NotesAccess
    from plugins.testing.channel_checks import ChannelConformance as ChannelConformance
    from plugins.testing.chat_provider_checks import ChatProviderConformance as ChatProviderConformance
    from plugins.testing.chat_provider_checks import HostedChatConformance as HostedChatConformance
    from plugins.testing.checks import check as check
    from plugins.testing.command_checks import CommandConformance as CommandConformance
    from plugins.testing.command_checks import StaticConversation as StaticConversation
    from plugins.testing.contexts import make_context as make_context
    from plugins.testing.contexts import make_provider_context as make_provider_context
    from plugins.testing.embedding_provider_checks import EmbeddingProviderConformance as EmbeddingProviderConformance
    from plugins.testing.embedding_provider_checks import HostedEmbeddingConformance as HostedEmbeddingConformance
    from plugins.testing.memory_backend_checks import MemoryBackendConformance as MemoryBackendConformance
    from plugins.testing.policy_checks import CompactionPolicyConformance as CompactionPolicyConformance
    from plugins.testing.policy_checks import PruningPolicyConformance as PruningPolicyConformance
    from plugins.testing.servers.embedding_server import EmbeddingServer as EmbeddingServer
    from plugins.testing.servers.faulty_server import Fault as Fault
    from plugins.testing.servers.faulty_server import FaultyServer as FaultyServer
    from plugins.testing.summarization_checks import FlushConformance as FlushConformance
    from plugins.testing.summarization_checks import SummarizerConformance as SummarizerConformance
    from plugins.testing.tool_checks import ToolConformance as ToolConformance
    from plugins.testing.transcription_checks import TranscriptionConformance as TranscriptionConformance
    from plugins.tools.file_target import workspace_file as workspace_file
    from sessions.events.events import ApprovalScope as ApprovalScope
    from sessions.events.events import StopReason as StopReason
    from sessions.events.events import Trigger as Trigger
    from sessions.events.events import TurnOutcome as TurnOutcome
    from sessions.events.events import UndoneFile as UndoneFile
    from sessions.events.messages import AssistantMessage as AssistantMessage
    from sessions.events.messages import Attachment as Attachment
    from sessions.events.messages import Message as Message
    from sessions.events.messages import ToolCall as ToolCall
    from sessions.events.messages import ToolDefinition as ToolDefinition
    from sessions.events.messages import ToolMessage as ToolMessage
    from sessions.events.messages import Usage as Usage
    from sessions.events.messages import UserMessage as UserMessage
    from sessions.events.pruning import Clear as Clear
    from sessions.events.pruning import Edit as Edit
    from sessions.events.pruning import Edited as Edited
    from sessions.events.pruning import Trim as Trim
    from sessions.events.vision import VisionSupport as VisionSupport
    from sessions.state.context import Context as Context

API_VERSION = 1
"""The version of the plugin API. docs/plugins.md says what it covers and when it is raised."""

_NAMES = {
    "plugins.api.channel": "Channel ChannelActivity ChannelInbox ChecksConnection Choice DeliveryUnknown"
    " HandlesHooks HookRequest HookResponse InboundFile InboundMessage MessageRejected"
    " OutboundMessage ShowsActivity SplitsReplies TryLater Undeliverable",
    "plugins.testing.channel_checks": "ChannelConformance",
    "plugins.api.compaction": "AfterCompaction BeforeCompaction CompactionBudget CompactionContext CompactionInput"
    " FlushResult FlushRules IdentifierPolicy MemoryFlush Summarizer Summary",
    "plugins.api.command": "AdmittedSender AgentEntry ApprovalsView BudgetState Command CommandFailed CommandHelp"
    " CommandTime CompactionEntry ContextItem ContextReport ConversationEntry ConversationView FactsView HeartbeatEntry"
    " HistoryEntry JobEntry McpServerEntry McpView MemoryMatches MemoryReport NoteEntry OfferedModels OpenQuestion"
    " PairedAddress PairingCode PairingsView PruningReport QueueState RememberedApproval SamplingState ScheduleEntry"
    " ScheduleOptions SchedulesView ShownChanges ShownSkill SkillEntry SkillsView SpendingSummary",
    "plugins.testing.chat_provider_checks": "ChatProviderConformance HostedChatConformance",
    "plugins.testing.embedding_provider_checks": "EmbeddingProviderConformance HostedEmbeddingConformance",
    "plugins.testing.servers.embedding_server": "EmbeddingServer",
    "plugins.testing.servers.faulty_server": "Fault FaultyServer",
    "plugins.testing.contexts": "make_context make_provider_context",
    "plugins.testing.memory_backend_checks": "MemoryBackendConformance",
    "plugins.testing.checks": "check",
    "plugins.testing.command_checks": "CommandConformance StaticConversation",
    "plugins.testing.policy_checks": "CompactionPolicyConformance PruningPolicyConformance",
    "plugins.testing.summarization_checks": "FlushConformance SummarizerConformance",
    "plugins.testing.transcription_checks": "TranscriptionConformance",
    "plugins.testing.tool_checks": "ToolConformance",
    "plugins.api.context": "Clock PluginContext ProviderAccount ProviderContext NoSettings",
    "plugins.api.chat": "ResponseFormat CallDraft ChatProvider ChatRequest Delta Reasoning Reply RequestOptions StreamPart",
    "plugins.api.transcription": "TranscribesAudio Transcript TranscriptFormat TranscriptionRequest",
    "plugins.api.tool": "ApprovalRequest DescribesCalls FileVersions OutputFile Tool ToolContext ToolOutput",
    "plugins.api.models": "LimitSource ModelLimits ModelList ReportedLimits",
    "plugins.api.embedding": "CountsTokens EmbeddingProvider",
    "plugins.support.errors": "BadAnswer BadRequest ContextOverflow CredentialsRefused NoSuchModel PluginError ProviderError"
    " RateLimited SettingsRefused StreamCut ToolFailed Unreachable",
    "plugins.http.sse": "ServerSentEvent",
    "plugins.api.hookspecs": "EndedTurn hookimpl",
    "plugins.api.memory.memory_backend": "Document Identity MemoryBackend",
    "plugins.api.memory.chunks": "Chunk",
    "plugins.api.memory.scope": "Scope",
    "plugins.api.memory.source": "Reading",
    "plugins.api.memory_settings": "EmbeddingKeys",
    "plugins.api.plugin_services": "AskModel EmbedTexts IndexUnusable LogEntry LogUnusable MemoryHit MemoryResults"
    " ModelAnswer PluginLog PluginServices Purpose WorkspaceFacts WorkspaceMemory",
    "plugins.api.fact_values": "Fact FactChange FactConflict FactDraft FactHistory FactHistoryEntry FactLayer"
    " FactNotEditable FactOrigin FactSource FactType FactsError FactsUnavailable InvalidFact NoSuchFact draft_fact",
    "plugins.api.pruning": "HardClear PrunedTools PruningBudget PruningContext PruningMode PruningRules SoftTrim",
    "plugins.support.http_errors": "StatusRefused",
    "plugins.support.secrets": "Secret",
    "plugins.support.state_file": "StateFile",
    "plugins.support.workspace": "NotesAccess",
    "plugins.tools.file_target": "workspace_file",
    "plugins.http.client": "Timeouts Transport",
    "sessions.state.context": "Context",
    "sessions.events.messages": "AssistantMessage Attachment Message ToolCall ToolDefinition ToolMessage Usage UserMessage",
    "sessions.events.events": "ApprovalScope StopReason Trigger TurnOutcome UndoneFile",
    "sessions.events.pruning": "Clear Edit Edited Trim",
    "sessions.events.vision": "VisionSupport",
}

PUBLIC = {name: module for module, names in _NAMES.items() for name in names.split()}
"""Each name that an author may import, and the module that defines it."""


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(PUBLIC)
