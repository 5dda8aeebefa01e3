"""The built-in summarizers and the flush as they come in: through the hooks of all plugins, doing what their modules do."""

from __future__ import annotations

import pytest

from plugins.api.compaction import CompactionInput, FlushRules
from plugins.api.plugin_services import ModelAnswer
from plugins.host.loading import load_plugins
from plugins.support.errors import Unreachable
from sessions.events.messages import AssistantMessage, UserMessage

LEAVING = CompactionInput(
    messages=(UserMessage(text="The ticket is ABC-12."), AssistantMessage(text="I noted ABC-12.")),
    kept=(UserMessage(text="And now?"),),
    summary="",
    focus="",
    window=8000,
    limit=600,
    language="en",
    day="2026-11-21",
)


async def silent(*, system: str, text: str, limit: int) -> ModelAnswer:
    return ModelAnswer(text="NO_REPLY", model="a:b")


async def gone(*, system: str, text: str, limit: int) -> ModelAnswer:
    raise Unreachable("No connection.")


async def test_the_extract_asks_nobody_and_names_what_was_named() -> None:
    summary = await load_plugins(()).summarizers()["extract"]().summarize(LEAVING, gone)
    assert summary.by == "extract"
    assert "ABC-12" in summary.text


async def test_the_models_summary_says_that_the_model_could_not_be_asked() -> None:
    with pytest.raises(Unreachable):
        await load_plugins(()).summarizers()["model_summary"]().summarize(LEAVING, gone)


async def test_the_flush_has_nothing_where_the_model_has_nothing() -> None:
    rules = FlushRules(system_prompt="", prompt="")
    flushed = await load_plugins(()).flushes()["memory_flush"]().flush(LEAVING, silent, rules)
    assert flushed.outcome == "nothing"
