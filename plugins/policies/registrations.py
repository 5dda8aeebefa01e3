"""Lazy registration of the built-in summarizers and the flush.

Importing them takes some 40 ms, so they are imported in a thread when they are first needed.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any, ClassVar

from plugins.api.compaction import CompactionInput, FlushResult, FlushRules, MemoryFlush, Summarizer, Summary
from plugins.api.plugin_services import AskModel


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
