"""The middle floor: what may be plugged in, and every built-in, which comes in through the same door as a stranger's.

An author imports from here, or the same names from `exuvia`. Each name is fetched when it is first asked for, so that
importing one module of this floor never pays for the others.

What an author meets:

    contracts    what a plugin may provide, and the `House` it is given; summaries: the same for compactions;
                 command_contract: the same for commands, and what they see of a conversation;
                 embedding: the same for what makes vectors; channel: for ways in and out;
                 services: what a plugin may use of the gateway
    errors       what a plugin may raise
    hookspecs    the hooks, each with its promise
    pruning      what a decision about pruning is given; compactions: the same, and what notices of them say;
                 turns: what is said of a turn
    secrets      a text that prints as nothing; bounded_cache: a cache whose memory is bounded
    addresses    types of keys that name a server
    workspace    whose the files of the workspace are, and who may read and change them

How plugins come in:

    loading      the built-ins, then the installed plugins that are allowed by name
    folders      a plugin in its author's folder
    builtin      the built-ins
    validation   whether what a plugin hands over is what it promised
    hooks        `Hooks`, the only code that touches pluggy; offers: what plugins provide
    deciding     asking them to decide something inside a turn; telling: telling them what happens
    implementations  who implements a hook, and who of them is let be
    strangers    calling code that may raise anything; strays: what it leaves running

The way out of the house:

    transport    the one outbound HTTP client
    doors        the connections that it keeps
    event_stream, line_stream   what it reads: server-sent events, lines
    refusals     what a server says when it refuses

What the system tells:

    changes      what changes in folders

For people who mistype:

    suggestions  the name that may be meant

The built-ins:

    chat/        chat providers
    commands/    what a person types after a slash
    context/     what keeps the context small
    embeddings/  what turns texts into vectors
    languages/   what models are told, in each language
    memory/      what was written down is found again; memory/backend: the contract of where its index rests

For authors' own tests:

    conformance/  test cases to inherit
    templates/    packages to begin with
    tools/       what the model may do
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plugins.channel import Arrival as Arrival
    from plugins.channel import Channel as Channel
    from plugins.channel import Delivery as Delivery
    from plugins.channel import Desk as Desk
    from plugins.channel import NotTaken as NotTaken
    from plugins.channel import TryLater as TryLater
    from plugins.channel import Undeliverable as Undeliverable
    from plugins.command_contract import Command as Command
    from plugins.command_contract import CommandFailed as CommandFailed
    from plugins.command_contract import CommandHelp as CommandHelp
    from plugins.command_contract import CommandTime as CommandTime
    from plugins.command_contract import CompactionEntry as CompactionEntry
    from plugins.command_contract import ConversationView as ConversationView
    from plugins.command_contract import HistoryEntry as HistoryEntry
    from plugins.compactions import AfterCompaction as AfterCompaction
    from plugins.compactions import BeforeCompaction as BeforeCompaction
    from plugins.compactions import CompactionBudget as CompactionBudget
    from plugins.compactions import CompactionContext as CompactionContext
    from plugins.conformance.channel import ChannelConformance as ChannelConformance
    from plugins.conformance.chat_provider import ChatProviderConformance as ChatProviderConformance
    from plugins.conformance.chat_provider import HostedChatConformance as HostedChatConformance
    from plugins.conformance.checks import check as check
    from plugins.conformance.command import CommandConformance as CommandConformance
    from plugins.conformance.compaction_policy import CompactionPolicyConformance as CompactionPolicyConformance
    from plugins.conformance.condensers import FlushConformance as FlushConformance
    from plugins.conformance.condensers import SummarizerConformance as SummarizerConformance
    from plugins.conformance.conversation import StillConversation as StillConversation
    from plugins.conformance.embedding_provider import EmbeddingProviderConformance as EmbeddingProviderConformance
    from plugins.conformance.embedding_provider import HostedEmbeddingConformance as HostedEmbeddingConformance
    from plugins.conformance.embedding_server import EmbeddingServer as EmbeddingServer
    from plugins.conformance.faults import Fault as Fault
    from plugins.conformance.faults import FaultyServer as FaultyServer
    from plugins.conformance.furnishing import furnished as furnished
    from plugins.conformance.memory_backend import MemoryBackendConformance as MemoryBackendConformance
    from plugins.conformance.pruning_policy import PruningPolicyConformance as PruningPolicyConformance
    from plugins.conformance.tool import ToolConformance as ToolConformance
    from plugins.contracts import AnswerForm as AnswerForm
    from plugins.contracts import CallDraft as CallDraft
    from plugins.contracts import ChatProvider as ChatProvider
    from plugins.contracts import ChatRequest as ChatRequest
    from plugins.contracts import Clock as Clock
    from plugins.contracts import Delta as Delta
    from plugins.contracts import House as House
    from plugins.contracts import ModelLimits as ModelLimits
    from plugins.contracts import ModelList as ModelList
    from plugins.contracts import NoSettings as NoSettings
    from plugins.contracts import Reply as Reply
    from plugins.contracts import ToldLimits as ToldLimits
    from plugins.contracts import Tool as Tool
    from plugins.contracts import ToolContext as ToolContext
    from plugins.contracts import ToolOutput as ToolOutput
    from plugins.contracts import Wishes as Wishes
    from plugins.embedding import EmbeddingProvider as EmbeddingProvider
    from plugins.errors import BadAnswer as BadAnswer
    from plugins.errors import BadRequest as BadRequest
    from plugins.errors import ContextOverflow as ContextOverflow
    from plugins.errors import CredentialsRefused as CredentialsRefused
    from plugins.errors import NoSuchModel as NoSuchModel
    from plugins.errors import PluginError as PluginError
    from plugins.errors import ProviderError as ProviderError
    from plugins.errors import RateLimited as RateLimited
    from plugins.errors import SettingsRefused as SettingsRefused
    from plugins.errors import StreamCut as StreamCut
    from plugins.errors import ToolFailed as ToolFailed
    from plugins.errors import Unreachable as Unreachable
    from plugins.event_stream import ServerSentEvent as ServerSentEvent
    from plugins.hookspecs import hookimpl as hookimpl
    from plugins.memory.backend import Document as Document
    from plugins.memory.backend import Identity as Identity
    from plugins.memory.backend import MemoryBackend as MemoryBackend
    from plugins.memory.chunks import Chunk as Chunk
    from plugins.memory.scope import Scope as Scope
    from plugins.memory.settings import EmbeddingKeys as EmbeddingKeys
    from plugins.memory.sources import Reading as Reading
    from plugins.pruning import PruningBudget as PruningBudget
    from plugins.pruning import PruningContext as PruningContext
    from plugins.pruning import PruningRules as PruningRules
    from plugins.refusals import StatusRefused as StatusRefused
    from plugins.secrets import Secret as Secret
    from plugins.services import Answered as Answered
    from plugins.services import Ask as Ask
    from plugins.services import Embed as Embed
    from plugins.services import LogEntry as LogEntry
    from plugins.services import LogUnusable as LogUnusable
    from plugins.services import OwnLog as OwnLog
    from plugins.services import Purpose as Purpose
    from plugins.summaries import Flush as Flush
    from plugins.summaries import Flushed as Flushed
    from plugins.summaries import FlushRules as FlushRules
    from plugins.summaries import Leaving as Leaving
    from plugins.summaries import Summarizer as Summarizer
    from plugins.summaries import Summary as Summary
    from plugins.tools.file_place import workspace_file as workspace_file
    from plugins.transport import Patience as Patience
    from plugins.transport import Transport as Transport
    from plugins.turns import EndedTurn as EndedTurn
    from sessions.context import Context as Context
    from sessions.messages import AssistantMessage as AssistantMessage
    from sessions.messages import Attachment as Attachment
    from sessions.messages import Message as Message
    from sessions.messages import ToolCall as ToolCall
    from sessions.messages import ToolDefinition as ToolDefinition
    from sessions.messages import ToolMessage as ToolMessage
    from sessions.messages import Usage as Usage
    from sessions.messages import UserMessage as UserMessage
    from sessions.pruning import Clear as Clear
    from sessions.pruning import Edit as Edit
    from sessions.pruning import Trim as Trim
    from sessions.sight import Sight as Sight

API_VERSION = 1
"""What is promised to plugins; docs/plugins.md says what that is, and when it is raised."""

_NAMES = {
    "plugins.channel": "Arrival Channel Delivery Desk NotTaken TryLater Undeliverable",
    "plugins.conformance.channel": "ChannelConformance",
    "plugins.compactions": "AfterCompaction BeforeCompaction CompactionBudget CompactionContext",
    "plugins.command_contract": "Command CommandFailed CommandHelp CommandTime CompactionEntry ConversationView "
    "HistoryEntry",
    "plugins.conformance.chat_provider": "ChatProviderConformance HostedChatConformance",
    "plugins.conformance.embedding_provider": "EmbeddingProviderConformance HostedEmbeddingConformance",
    "plugins.conformance.embedding_server": "EmbeddingServer",
    "plugins.conformance.faults": "Fault FaultyServer",
    "plugins.conformance.furnishing": "furnished",
    "plugins.conformance.memory_backend": "MemoryBackendConformance",
    "plugins.conformance.checks": "check",
    "plugins.conformance.command": "CommandConformance",
    "plugins.conformance.compaction_policy": "CompactionPolicyConformance",
    "plugins.conformance.condensers": "FlushConformance SummarizerConformance",
    "plugins.conformance.conversation": "StillConversation",
    "plugins.conformance.pruning_policy": "PruningPolicyConformance",
    "plugins.conformance.tool": "ToolConformance",
    "plugins.contracts": "AnswerForm CallDraft ChatProvider ChatRequest Clock Delta House ModelLimits ModelList NoSettings "
    "Reply ToldLimits Tool ToolContext ToolOutput Wishes",
    "plugins.embedding": "EmbeddingProvider",
    "plugins.errors": "BadAnswer BadRequest ContextOverflow CredentialsRefused NoSuchModel PluginError ProviderError"
    " RateLimited SettingsRefused StreamCut ToolFailed Unreachable",
    "plugins.event_stream": "ServerSentEvent",
    "plugins.hookspecs": "hookimpl",
    "plugins.memory.backend": "Document Identity MemoryBackend",
    "plugins.memory.chunks": "Chunk",
    "plugins.memory.scope": "Scope",
    "plugins.memory.sources": "Reading",
    "plugins.memory.settings": "EmbeddingKeys",
    "plugins.services": "Answered Ask Embed LogEntry LogUnusable OwnLog Purpose",
    "plugins.pruning": "PruningBudget PruningContext PruningRules",
    "plugins.refusals": "StatusRefused",
    "plugins.secrets": "Secret",
    "plugins.summaries": "Flush FlushRules Flushed Leaving Summarizer Summary",
    "plugins.turns": "EndedTurn",
    "plugins.tools.file_place": "workspace_file",
    "plugins.transport": "Patience Transport",
    "sessions.context": "Context",
    "sessions.messages": "AssistantMessage Attachment Message ToolCall ToolDefinition ToolMessage Usage UserMessage",
    "sessions.pruning": "Clear Edit Trim",
    "sessions.sight": "Sight",
}

PUBLIC = {name: module for module, names in _NAMES.items() for name in names.split()}
"""Each name that an author may import, and the module that defines it."""


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(PUBLIC)
