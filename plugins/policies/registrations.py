"""The built-in summarizers and the flush as they are registered. What does the work is imported when something leaves: it
would cost each start some 40 ms, and is imported beside the event loop."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any, ClassVar

from plugins.api.services import AskModel
from plugins.api.summarization import CompactionInput, FlushResult, FlushRules, MemoryFlush, Summarizer, Summary


class LazyModelSummary:
    """A summary by a model; see `model_summary`."""

    name: ClassVar[str] = "model_summary"

    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        """The summary."""
        writer: Summarizer = (await _imported("model_summary")).ModelSummary()
        return await writer.summarize(leaving, ask)


class LazyExtract:
    """What was said, chosen without a model; see `extract`."""

    name: ClassVar[str] = "extract"

    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        """The extract."""
        writer: Summarizer = (await _imported("extract")).Extract()
        return await writer.summarize(leaving, ask)


class LazyMemoryFlush:
    """What must last, by a model; see `memory_flush`."""

    name: ClassVar[str] = "memory_flush"

    async def flush(self, leaving: CompactionInput, ask: AskModel, rules: FlushRules) -> FlushResult:
        """What to write into the day's note."""
        writer: MemoryFlush = (await _imported("memory_flush")).ModelMemoryFlush()
        return await writer.flush(leaving, ask, rules)


async def _imported(module: str) -> Any:
    return await asyncio.to_thread(import_module, f"plugins.policies.{module}")
