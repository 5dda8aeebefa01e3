"""The built-ins, offered through the same hooks as a stranger's. Their classes import what is heavy when they are opened."""

from __future__ import annotations

from collections.abc import Sequence

from plugins.command_contract import Command
from plugins.commands.compact import Compact, Compactions, Revert
from plugins.commands.context import Context
from plugins.commands.facts import Clear, Distill, Forget, Pin, Unpin, Why
from plugins.commands.help import Help
from plugins.commands.history import History
from plugins.commands.model import Model
from plugins.commands.new import New, Reset
from plugins.commands.queue import Queue
from plugins.commands.remember import Memory, Remember
from plugins.commands.status import Status, Whoami
from plugins.commands.stop import Stop
from plugins.commands.usage import Usage
from plugins.commands.verbose import Verbose
from plugins.context.condensers import Extract, MemoryFlush, ModelSummary
from plugins.contracts import ChatProvider, Tool
from plugins.embedding import EmbeddingProvider
from plugins.facts.tools import WriteMemory
from plugins.hookspecs import hookimpl
from plugins.memory.backend import MemoryBackend
from plugins.memory.tools import MemoryGet, MemorySearch
from plugins.summaries import Flush, Summarizer
from plugins.tools.edit import Edit
from plugins.tools.workspace_files import Read
from plugins.tools.write import Write


@hookimpl
def register_chat_providers() -> Sequence[type[ChatProvider]]:
    """In the order in which `agent.model = "auto"` asks them: what the person has set up before what merely lies here."""
    # A hook pays for its own imports, and only when it is asked.
    from plugins.chat.anthropic import Anthropic  # noqa: PLC0415
    from plugins.chat.gemini import Gemini  # noqa: PLC0415
    from plugins.chat.local import LocalProvider  # noqa: PLC0415
    from plugins.chat.ollama import Ollama  # noqa: PLC0415
    from plugins.chat.openai import OpenAI  # noqa: PLC0415
    from plugins.chat.scripted import Scripted  # noqa: PLC0415
    from plugins.chat.servers_nearby import LlamaServer, LMStudio  # noqa: PLC0415

    return [OpenAI, Anthropic, Gemini, Ollama, LlamaServer, LMStudio, LocalProvider, Scripted]


@hookimpl
def register_embedding_providers() -> Sequence[type[EmbeddingProvider]]:
    """In the order in which `memory.embedding.provider = "auto"` asks them."""
    from plugins.embeddings.gemini import GeminiEmbeddings  # noqa: PLC0415 - as above
    from plugins.embeddings.local import LocalEmbeddings  # noqa: PLC0415
    from plugins.embeddings.mistral import MistralEmbeddings  # noqa: PLC0415
    from plugins.embeddings.ollama import OllamaEmbeddings  # noqa: PLC0415
    from plugins.embeddings.openai import OpenAIEmbeddings  # noqa: PLC0415
    from plugins.embeddings.voyage import VoyageEmbeddings  # noqa: PLC0415

    return [LocalEmbeddings, OpenAIEmbeddings, GeminiEmbeddings, VoyageEmbeddings, MistralEmbeddings, OllamaEmbeddings]


@hookimpl
def register_memory_backends() -> Sequence[type[MemoryBackend]]:
    """Where the index may rest besides SQLite."""
    from plugins.memory.backends.chroma import ChromaBackend  # noqa: PLC0415 - as above
    from plugins.memory.backends.local import LocalBackend  # noqa: PLC0415 - as above
    from plugins.memory.backends.qmd import QmdBackend  # noqa: PLC0415 - as above

    return [LocalBackend, ChromaBackend, QmdBackend]


@hookimpl
def register_tools() -> Sequence[type[Tool]]:
    """What the model may do."""
    return [Read, Write, Edit, MemorySearch, MemoryGet, WriteMemory]


@hookimpl
def register_commands() -> Sequence[type[Command]]:
    """What a person may type."""
    return [
        Clear,
        Compact,
        Compactions,
        Context,
        Distill,
        Forget,
        Help,
        History,
        Memory,
        Model,
        New,
        Pin,
        Queue,
        Remember,
        Reset,
        Revert,
        Status,
        Stop,
        Unpin,
        Usage,
        Verbose,
        Whoami,
        Why,
    ]


@hookimpl
def register_summarizers() -> Sequence[type[Summarizer]]:
    """Who may summarise what leaves in a compaction."""
    return [ModelSummary, Extract]


@hookimpl
def register_flushes() -> Sequence[type[Flush]]:
    """Who may ask what must last before a compaction."""
    return [MemoryFlush]
