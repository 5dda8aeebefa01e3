"""`[plugins.NAME]`, from the file to the tool."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from gateway.cli.config_commands import check_config, show_config
from tests.gateway.gateways import TOKEN, gateway
from tests.shelf import Shelf

WEATHER = """
import msgspec
from exuvia import Secret, ToolDefinition, ToolOutput, hookimpl

class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    city: str = "Lisbon"
    key: Secret | None = None

class Weather:
    definition = ToolDefinition(name="weather", description="Tell it.", parameters={"type": "object"})
    repeatable = True

    def __init__(self, context):
        self._context = context

    async def run(self, arguments, call):
        told = self._context.settings
        return ToolOutput(text=f"{told.city} {told.key.reveal()} {self._context.folder.name}")

@hookimpl
def register_tools():
    return [Weather]
"""

FILE = f"""
[gateway]
port = 0
token = "{TOKEN}"
[agent]
model = "scripted:script"
[providers.scripted]
script = "SCRIPT"
[plugins]
allow = ["weather"]
"""

CALLING = [{"text": "", "calls": [{"tool": "weather", "arguments": {}}]}, {"text": "Sunny."}]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_weather", "weather", WEATHER)
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in CALLING))
    return FILE.replace("SCRIPT", str(script))


async def test_a_tool_is_told_what_its_plugins_table_says(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER_KEY", "sun")
    (tmp_path / "key").write_text("sun\n")
    told = f'[plugins.weather]\ncity = "Porto"\nkey = "file:{tmp_path}/key"\n'

    async with gateway(tmp_path / "home", file=file + told) as g:
        client = await g.connect()
        assert await client.chat("How is the weather?") == ""

    (lines,) = g.journals().values()
    assert [line["output"] for line in lines if line["kind"] == "tool_returned"] == ["Porto sun weather"]


async def test_a_table_that_does_not_fit_leaves_the_plugin_out_and_names_the_key(tmp_path: Path, file: str) -> None:
    async with gateway(tmp_path / "home", file=file + "[plugins.weather]\ncity = 3\n") as g:
        status = await (await g.connect()).command("/status")

    assert "plugins.weather.city must be text, not a whole number" in status
    assert "config.toml, line 12" in status


def test_a_check_names_what_does_not_fit_and_what_nobody_reads(tmp_path: Path, file: str) -> None:
    path, out = tmp_path / "config.toml", io.StringIO()
    path.write_text(file + '[plugins.weather]\nkey = "env:NOT_SET"\n[plugins.tides]\nport = "Faro"\n')

    assert check_config(path, {}, out, as_json=True) == 1

    answer = json.loads(out.getvalue())
    assert "plugins.weather.key cannot be resolved" in answer["faults"][0]
    assert [w for w in answer["warnings"] if "tides" in w] == [
        f"{path}, line 13: plugins.tides is not used; plugins.allow does not list 'tides'."
    ]


def test_what_is_in_force_is_shown_without_secrets(tmp_path: Path, file: str) -> None:
    path, out = tmp_path / "config.toml", io.StringIO()
    path.write_text(file + '[plugins.weather]\nkey = "env:WEATHER_KEY"\n')

    assert show_config(path, {"WEATHER_KEY": "sun"}, out, as_json=True, sources=False) == 0

    assert json.loads(out.getvalue())["plugins"] == {
        "allow": ["weather"],
        "hold_limit": "1m",
        "senders": {},
        "weather": {"city": "Lisbon", "key": "env:WEATHER_KEY"},
    }
