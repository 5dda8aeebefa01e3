"""The built-in plugin. Heavy imports happen only when its classes are instantiated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar

from plugins.api.chat import ChatProvider
from plugins.api.command import Command
from plugins.api.compaction import CompactionInput, FlushResult, FlushRules, MemoryFlush, Summarizer, Summary
from plugins.api.embedding import EmbeddingProvider
from plugins.api.hookspecs import hookimpl
from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.plugin_services import AskModel
from plugins.api.tool import Tool
from plugins.commands.approval_commands import Approvals, Approve, Deny
from plugins.commands.compaction_commands import Compact, Compactions, Revert
from plugins.commands.conversation_commands import Archive, Delete, Sessions, Title
from plugins.commands.mcp_commands import McpCommand
from plugins.commands.memory_commands import Clear, Distill, EditFact, Forget, Memory, Pin, Remember, Unpin, Why
from plugins.commands.pairing_commands import Pair
from plugins.commands.schedule_commands import Remind, ScheduleCommand
from plugins.commands.session_commands import (
    Agent,
    Effort,
    Jobs,
    Model,
    New,
    Queue,
    Reset,
    Spawn,
    Stop,
    Temperature,
    Undo,
    Verbose,
)
from plugins.commands.skill_commands import SkillsCommand
from plugins.commands.status_commands import Context, Help, History, Status, Usage, Whoami
from plugins.facts.fact_tools import WriteMemory
from plugins.memory.memory_tools import MemoryGet, MemorySearch
from plugins.tools.edit import Edit
from plugins.tools.read import Read
from plugins.tools.write import Write


class LazyModelSummary:
    """The summarizer of `model_summary`."""

    name: ClassVar[str] = "model_summary"

    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        """Return the summary."""
        writer: Summarizer = (await _imported("model_summary")).ModelSummary()
        return await writer.summarize(leaving, ask)


class LazyExtract:
    """The summarizer of `extract`."""

    name: ClassVar[str] = "extract"

    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        """Return the extract."""
        writer: Summarizer = (await _imported("extract")).Extract()
        return await writer.summarize(leaving, ask)


class LazyMemoryFlush:
    """The memory flush of `memory_flush`."""

    name: ClassVar[str] = "memory_flush"

    async def flush(self, leaving: CompactionInput, ask: AskModel, rules: FlushRules) -> FlushResult:
        """Return what to write to the day's note."""
        writer: MemoryFlush = (await _imported("memory_flush")).ModelMemoryFlush()
        return await writer.flush(leaving, ask, rules)


async def _imported(module: str) -> Any:
    return await asyncio.to_thread(import_module, f"plugins.policies.{module}")


@hookimpl
def register_chat_providers() -> Sequence[type[ChatProvider]]:
    """Return the chat providers, in the order in which `agent.model = "auto"` tries them."""
    # A hook pays for its own imports, and only when it is asked.
    from plugins.providers.anthropic.chat import Anthropic  # noqa: PLC0415
    from plugins.providers.gemini.chat import Gemini  # noqa: PLC0415
    from plugins.providers.local.chat import LocalProvider  # noqa: PLC0415
    from plugins.providers.local_servers import LlamaServer, LMStudio  # noqa: PLC0415
    from plugins.providers.ollama.chat import Ollama  # noqa: PLC0415
    from plugins.providers.openai.chat import OpenAI  # noqa: PLC0415
    from plugins.providers.scripted import Scripted  # noqa: PLC0415

    return [OpenAI, Anthropic, Gemini, Ollama, LlamaServer, LMStudio, LocalProvider, Scripted]


@hookimpl
def register_embedding_providers() -> Sequence[type[EmbeddingProvider]]:
    """Return the embedding providers, in the order in which `memory.embedding.provider = "auto"` tries them."""
    from plugins.providers.gemini.embeddings import GeminiEmbeddings  # noqa: PLC0415 - as above
    from plugins.providers.local.embeddings import LocalEmbeddings  # noqa: PLC0415
    from plugins.providers.ollama.embeddings import OllamaEmbeddings  # noqa: PLC0415
    from plugins.providers.openai.embeddings import MistralEmbeddings, OpenAIEmbeddings, VoyageEmbeddings  # noqa: PLC0415

    return [LocalEmbeddings, OpenAIEmbeddings, GeminiEmbeddings, VoyageEmbeddings, MistralEmbeddings, OllamaEmbeddings]


@hookimpl
def register_memory_backends() -> Sequence[type[MemoryBackend]]:
    """Return the memory backends besides SQLite."""
    from plugins.memory.backends.chroma import ChromaBackend  # noqa: PLC0415 - as above
    from plugins.memory.backends.local import LocalBackend  # noqa: PLC0415 - as above
    from plugins.memory.backends.qmd import QmdBackend  # noqa: PLC0415 - as above

    return [LocalBackend, ChromaBackend, QmdBackend]


@hookimpl
def register_tools() -> Sequence[type[Tool]]:
    """Return the tools."""
    return [Read, Write, Edit, MemorySearch, MemoryGet, WriteMemory]


@hookimpl
def register_commands() -> Sequence[type[Command]]:
    """Return the commands."""
    return [
        Agent,
        Approvals,
        Approve,
        Archive,
        Clear,
        Compact,
        Compactions,
        Context,
        Delete,
        Deny,
        Distill,
        EditFact,
        Effort,
        Forget,
        Help,
        History,
        McpCommand,
        Jobs,
        Memory,
        Model,
        New,
        Pair,
        Pin,
        Queue,
        Remember,
        Remind,
        ScheduleCommand,
        Reset,
        Revert,
        Sessions,
        SkillsCommand,
        Spawn,
        Status,
        Stop,
        Temperature,
        Title,
        Unpin,
        Usage,
        Verbose,
        Undo,
        Whoami,
        Why,
    ]


@hookimpl
def register_summarizers() -> Sequence[type[Summarizer]]:
    """Return the summarizers."""
    return [LazyModelSummary, LazyExtract]


@hookimpl
def register_flushes() -> Sequence[type[MemoryFlush]]:
    """Return the memory flushes."""
    return [LazyMemoryFlush]
