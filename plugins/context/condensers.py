"""The built-in summarizers and the flush as they are registered. What does the work is imported when something leaves: it
would cost each start some 40 ms, and is imported beside the event loop."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any, ClassVar

from plugins.services import Ask
from plugins.summaries import Flush, Flushed, FlushRules, Leaving, Summarizer, Summary


class ModelSummary:
    """A summary by a model; see `model_summary`."""

    name: ClassVar[str] = "model_summary"

    async def summarize(self, leaving: Leaving, ask: Ask) -> Summary:
        """The summary."""
        writer: Summarizer = (await _imported("model_summary")).ModelSummary()
        return await writer.summarize(leaving, ask)


class Extract:
    """What was said, chosen without a model; see `extract`."""

    name: ClassVar[str] = "extract"

    async def summarize(self, leaving: Leaving, ask: Ask) -> Summary:
        """The extract."""
        writer: Summarizer = (await _imported("extract")).Extract()
        return await writer.summarize(leaving, ask)


class MemoryFlush:
    """What must last, by a model; see `memory_flush`."""

    name: ClassVar[str] = "memory_flush"

    async def flush(self, leaving: Leaving, ask: Ask, rules: FlushRules) -> Flushed:
        """What to write into the day's note."""
        writer: Flush = (await _imported("memory_flush")).MemoryFlush()
        return await writer.flush(leaving, ask, rules)


async def _imported(module: str) -> Any:
    return await asyncio.to_thread(import_module, f"plugins.context.{module}")
