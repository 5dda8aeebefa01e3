"""Unexpected errors are logged with their type, message and place; a message of any length blocks nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from benchmarks.stage import Model, Stage, says
from gateway.config.agents import AgentKeys
from gateway.conversations.channels.reply_delivery import ReplyDelivery
from gateway.conversations.facts.fact_extraction import FactExtraction
from gateway.conversations.routing import switchboard
from gateway.metrics.counters import Counters
from gateway.models.call import ModelCaller
from gateway.models.registry import ModelRegistry
from gateway.support.errors import SENTENCE_LIMIT
from plugins.api.channel import Channel
from sessions.store.protocols import Blobs
from tests.gateway.facts_month import AGED, Month, happen
from tests.gateway.gateways import gateway
from tests.stories import received
from tests.waiting import until


def fail(*_: object) -> Any:
    try:
        raise LookupError("the cause\n" * 100_000)
    except LookupError as cause:
        raise ValueError("x" * 1_000_000) from cause


def assert_bounded(logged: Sequence[EventDict], event: str) -> None:
    """Check the line about an error of `fail`."""
    (entry,) = [entry for entry in logged if entry["event"] == event and "kind" in entry]
    assert (entry["kind"], entry["reason"]) == ("ValueError", "x" * SENTENCE_LIMIT)
    assert "in fail < " in entry["where"]
    assert "exc_info" not in entry
    assert len(str(entry)) < 3 * SENTENCE_LIMIT


async def test_an_error_while_facts_are_looked_up_for_distillation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    month = Month(tmp_path)
    await month.start()
    await happen(month, "write", AGED)
    monkeypatch.setattr(month.facts, "book", fail)
    with capture_logs() as logged:
        await month.distilling.distill_due()
    await month.stop()
    assert_bounded(logged, "facts_not_distilled")


async def test_an_error_while_facts_are_distilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    month = Month(tmp_path)
    await month.start()
    monkeypatch.setattr(month.distilling, "distill", fail)
    with capture_logs() as logged:
        await month.distilling._try("ann")
    await month.stop()
    assert_bounded(logged, "facts_not_distilled")


async def test_an_error_while_facts_are_extracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    month = Month(tmp_path)
    await month.start()
    models, caller = ModelRegistry({}, AgentKeys()), ModelCaller(Counters())
    extraction = FactExtraction(
        month.facts,
        Any,  # type: ignore[arg-type]  # it fails before any journal is read
        Any,  # type: ignore[arg-type]
        settings=month.settings,
        models=models,
        caller=caller,
        clock=month,
    )
    monkeypatch.setattr(extraction, "_process", fail)
    with capture_logs() as logged:
        await extraction._try("s", (0.0, 0.0))
    await month.stop()
    assert_bounded(logged, "facts_not_extracted")


class Refusing:
    """A channel that delivers nothing."""

    async def deliver(self, _: object) -> str:
        raise ConnectionError


async def test_an_error_while_an_answer_is_delivered() -> None:
    stage = Stage(Model(says("hello")))
    delivery = ReplyDelivery(lambda _: cast(Channel, Refusing()), fail, lambda: None, cast(Blobs, None))
    delivery.opened(stage.recorder)
    with capture_logs() as logged:
        async with stage.playing():
            stage.receive(msgspec.structs.replace(received("hi"), channel="lines", reply_to="kitchen"))
            await until(lambda: any(entry["event"] == "reply_not_delivered" for entry in logged))
    await delivery.close()
    assert_bounded(logged, "reply_not_delivered")


async def test_an_error_that_ends_a_conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switchboard, "REOPEN_SECONDS", (0.05,))
    monkeypatch.setattr("gateway.conversations.context.conversation_config.standing_instructions", fail)
    with capture_logs() as logged:
        async with gateway(tmp_path) as running:
            await (await running.connect()).send("hi")
            await until(lambda: any(entry["event"] == "conversation_failed" for entry in logged))
            monkeypatch.undo()
    assert_bounded([entry for entry in logged if entry["event"] == "conversation_failed"][:1], "conversation_failed")
