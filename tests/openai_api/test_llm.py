"""Another program that speaks OpenAI's API: `llm` (https://llm.datasette.io), told nothing but where the gateway is."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from plugins.testing.servers.openai_server import ScriptedResponse
from tests.gateway.gateways import TOKEN, Gateway
from tests.openai_api.asking import vendor_behind
from tests.pictures import png
from tests.waiting import DEADLINE

WEATHER = """
def weather(city: str) -> str:
    "Tells the weather."
    return f"Rain in {city}."
"""


class Program:
    """`llm` with a folder of its own."""

    def __init__(self, folder: Path, g: Gateway) -> None:
        folder.mkdir()
        model: dict[str, Any] = {
            "model_id": "exuvia",
            "model_name": "exuvia",
            "api_base": f"{g.url}/v1",
            "api_key_name": "exuvia",
        }
        model |= {"vision": True, "supports_tools": True, "supports_schema": True}
        (folder / "extra-openai-models.yaml").write_text(json.dumps([model]))  # JSON is YAML
        (folder / "keys.json").write_text(json.dumps({"exuvia": TOKEN}))
        # Without its plugins: the package of our bundled model is one, and asks for what nobody installs.
        self._environment = {**os.environ, "LLM_USER_PATH": str(folder), "LLM_LOAD_PLUGINS": ""}

    async def run(self, *arguments: str) -> str:
        """Run it, and return what it prints; it must exit with 0."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "llm", *arguments, env=self._environment,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, wrong = await asyncio.wait_for(process.communicate(), DEADLINE)
        assert (process.returncode, wrong) == (0, b""), wrong.decode()
        return out.decode().strip()


async def test_llm_chats_continues_sends_a_picture_and_uses_a_tool(tmp_path: Path) -> None:
    picture = tmp_path / "grey.png"
    picture.write_bytes(png(8, 8))
    answers = (
        ScriptedResponse("Good morning."),
        ScriptedResponse("", ("weather", '{"city": "Linz"}')),
        ScriptedResponse("It rains."),
    )
    async with vendor_behind(tmp_path / "home", *answers) as (g, server, _):
        llm = Program(tmp_path / "llm", g)
        assert await llm.run("-m", "exuvia", "-s", "Be brief.", "Hello") == "Good morning."
        assert await llm.run("-c", "-a", str(picture), "--functions", WEATHER, "And this?") == "It rains."
    asked = [[message["role"] for message in request["messages"]] for request in server.requests]
    spoken = ["system", "user", "assistant", "user"]
    assert asked == [["system", "user"], spoken, [*spoken, "assistant", "tool"]]
    assert server.requests[2]["messages"][-1]["content"] == "Rain in Linz."
    assert [part["type"] for part in server.requests[1]["messages"][-1]["content"]] == ["image_url", "text"]
