"""A gateway with every plugin of `broken` at once keeps serving and names each of them."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.models import providers
from gateway.support import logs
from plugins.host.hooks import Hooks
from plugins.support import task_leaks
from tests.gateway.broken import PLUGINS
from tests.gateway.gateways import Gateway, gateway
from tests.shelf import Shelf
from tests.waiting import until

CALLED = ("leaks", "exits", "interrupts", "floods", "huge", "read")

STORY: list[dict[str, Any]] = [
    {"text": "", "calls": [{"tool": name, "arguments": {"path": "notes.md"}} for name in CALLED]},
    {"text": "I am still here."},
    {"text": "And here."},
    {"text": "And here again."},
]


@pytest.fixture
def log() -> io.StringIO:
    """Capture the log, as on a terminal."""
    stream = io.StringIO()
    logs.configure("info", "text", stream)
    return stream


@asynccontextmanager
async def broken_gateway(home: Path) -> AsyncIterator[Gateway]:
    (home / "workspace").mkdir(parents=True)
    (home / "workspace" / "notes.md").write_text("the house's own")
    settings = {"plugins.allow": list(PLUGINS), "agent.context_window": 1_000_000}
    async with gateway(home, script=STORY, settings=settings) as g:
        yield g


def told(g: Gateway) -> dict[str, list[dict[str, Any]]]:
    """Return the events of the journals, by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for lines in g.journals().values():
        for line in lines:
            found.setdefault(line["kind"], []).append(line)
    return found


async def until_failed(g: Gateway, plugin: str, hook: str) -> None:
    """Wait until a journal records that a plugin failed."""
    await until(lambda: any((e["plugin"], e["hook"]) == (plugin, hook) for e in told(g).get("plugin_failed", [])))


async def test_a_gateway_serves_through_all_broken_plugins_together_and_names_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    monkeypatch.setattr(Hooks.__init__, "__defaults__", (0.3, 0.3))
    monkeypatch.setattr(task_leaks, "GRACE", 0.1)
    monkeypatch.setattr(providers, "CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(providers, "LAST_SECONDS", 0.2)
    shelf = Shelf(tmp_path / "shelf", monkeypatch)
    for name, source in PLUGINS.items():
        shelf.install(f"exuvia_{name}", name, source)

    async with broken_gateway(tmp_path / "home") as g:
        client = await g.connect()
        assert await client.chat("Call them all.") == ""
        replies = [await client.chat("And?") for _ in range(2)]
        answer = await client.command("/leave")
        compacted = await client.command("/compact")
        for plugin, hook in (("leaks", "run"), ("hangs_awaiting", "turn_ended"), ("mutates", "turn_ended")):
            await until_failed(g, plugin, hook)
        status = await client.command("/status")
        events = told(g)

    # It answered all the time, and nothing that is ours was touched.
    assert replies == ["And here.", "And here again."]
    assert [e["outcome"] for e in events["turn_ended"]] == ["replied"] * 3
    outputs = dict(zip(CALLED, events["tool_returned"], strict=True))
    assert outputs["read"]["output"].endswith("the house's own")
    assert outputs["leaks"]["output"] == "leaked"
    assert [outputs[name]["outcome"] for name in ("exits", "interrupts")] == ["failed", "failed"]
    assert outputs["huge"]["cut_from"] < 17_000_000
    assert answer == "/leave failed: broken command"
    assert "Compact" in compacted or "compact" in compacted

    # Each is named: where it failed in a conversation in its journal, else in /status and the log.
    failed = {(e["plugin"], e["hook"]): e["sentence"] for e in events["plugin_failed"]}
    assert (
        failed.items()
        >= {
            ("in_each_hook", "propose_prunes"): "GeneratorExit: broken decision",
            ("in_each_hook", "turn_ended"): "ValueError: broken end of a turn",
            ("hangs", "propose_prunes"): "it did not return within 0.3 seconds",
            ("hangs_awaiting", "turn_ended"): "it did not return within 0.3 seconds",
            ("wrong_types", "propose_prunes"): "it returned int instead of a list",
            ("exits", "run"): "SystemExit: 3",
            ("interrupts", "run"): "KeyboardInterrupt: broken tool",
            ("leave", "run"): "SystemExit: broken command",
        }.items()
    )
    assert (
        "it left tasks running after its call, which were cancelled: Broken.run.<locals>.forgotten" in failed["leaks", "run"]
    )
    assert failed["mutates", "propose_prunes"].startswith("AttributeError")
    assert failed["mutates", "turn_ended"].startswith("AttributeError: immutable type")
    for sentence in (
        "'at_import' is not used: importing exuvia_at_import failed (RuntimeError: broken at import)",
        "'exits_at_import' is not used: importing exuvia_exits_at_import failed (SystemExit: 3)",
        "'at_registration' (register_tools) is not used: KeyboardInterrupt: broken at registration",
        "'in_each_hook' (propose_prunes) is not used: it is disabled until a restart (GeneratorExit: broken decision)",
        "'hangs' (propose_prunes) is not used: it is disabled until a restart (it did not return within 0.3 seconds)",
        "'wrong_types' (register_commands) is not used: it returned str instead of a list",
        "'wrong_colour' is not used: propose_prunes must be a plain function",
        "'wrong_arguments' is not used: pluggy rejects it",
        "'unknown_hook' is not used: there is no hook 'register_tool'",
        "'duplicate' (register_tools) is not used: the name 'read' is already used by 'builtin'",
    ):
        assert sentence in status
    for line in ("KeyboardInterrupt: broken start", "log_flooded", "broken stop", "lingering"):
        assert line in log.getvalue()
    assert log.getvalue().count("flood ") < 250
