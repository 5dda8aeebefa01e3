"""`exuvia run --plugin DIR`: the next turn uses what the author has saved."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.gateways import Client, Gateway, gateway
from tests.waiting import deadline

PROJECT = '[project]\nname = "exuvia-parrot"\nversion = "1"\n[project.entry-points.exuvia]\nparrot = "parrot_{unique}"\n'

PLUGIN = """
from exuvia import Delta, ModelLimits, NoSettings, Reply, ToolDefinition, ToolOutput, hookimpl

class Parrot:
    name = "parrot"
    Settings = NoSettings

    def __init__(self, context): pass
    async def __aenter__(self): return self
    async def __aexit__(self, *_): pass
    def default_model(self): return "grey"
    def explain_default(self): return "it is there"
    def limits(self, model): return ModelLimits(window=50_000)
    async def stream(self, request):
        yield Delta("{word}")
        yield Reply(text="{word}", model="grey", stop="end")

class Squawk:
    name, usage, summary, when = "squawk", "/squawk", "Squawk.", "now"

    async def run(self, argument, conversation):
        return "{word} from a command"

@hookimpl
def register_chat_providers():
    return [Parrot]

@hookimpl
def register_commands():
    return [Squawk]
"""


class Author:
    """A folder with a plugin, and its author."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = f"parrot_{os.urandom(4).hex()}"
        folder.mkdir()
        (folder / "pyproject.toml").write_text(PROJECT.replace("parrot_{unique}", self.module))

    def save(self, text: str) -> None:
        """Replace the file with a new one, as editors do."""
        new = self.folder / "new"
        new.write_text(text)
        new.replace(self.folder / f"{self.module}.py")

    def save_word(self, word: str) -> None:
        self.save(PLUGIN.replace("{word}", word))


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Author:
    monkeypatch.setattr(sys, "path", [*sys.path])
    return Author(tmp_path / "parrot")


@pytest.fixture
async def running(author: Author, tmp_path: Path) -> AsyncIterator[Gateway]:
    author.save_word("one")
    async with gateway(tmp_path / "home", settings={"agent.model": "parrot:grey"}, plugin=author.folder) as g:
        yield g


async def until(client: Client, command: str, words: str) -> str:
    """Repeat a command until its answer contains these words."""
    async with deadline():
        while words not in (answer := await client.command(command)):
            await asyncio.sleep(0.05)
    return answer


async def test_the_next_turn_uses_what_was_saved(author: Author, running: Gateway) -> None:
    client = await running.connect()
    assert await client.chat("hello") == "one"
    assert await client.command("/squawk") == "one from a command"

    author.save_word("two")
    await until(client, "/squawk", "two")

    assert await client.chat("hello") == "two"


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ("def (", "SyntaxError"),
        ("raise SystemExit(1)", "SystemExit: 1"),
        (PLUGIN.replace("register_commands", "register_command"), "there is no hook 'register_command'"),
        (PLUGIN.replace('"squawk"', '"status"', 1), "the name 'status' is already used by 'builtin'"),
        (PLUGIN.replace("Settings = NoSettings", ""), "Parrot.Settings is not a msgspec Struct"),
    ],
    ids=["syntax", "exit", "unknown hook", "taken name", "half of it"],
)
async def test_a_broken_save_keeps_the_previous_plugin_and_is_reported(
    author: Author, running: Gateway, broken: str, sentence: str
) -> None:
    client = await running.connect()

    author.save(broken)
    status = await until(client, "/status", "is not in use, the previous one is")

    assert sentence in status
    assert await client.chat("hello") == "one"

    author.save_word("three")
    await until(client, "/squawk", "three")

    assert await client.chat("hello") == "three"
    assert "not in use" not in await client.command("/status")


async def test_parts_that_a_plugin_no_longer_provides_are_removed(author: Author, running: Gateway) -> None:
    client = await running.connect()
    text = PLUGIN.replace("{word}", "four")

    author.save(text[: text.rindex("@hookimpl")])

    await until(client, "/squawk", "There is no command")
    assert await client.chat("hello") == "four"


def test_a_folder_without_a_plugin_is_refused_at_once(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "exuvia", "run", "--home", tmp_path / "home", "--plugin", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode == 2
    assert "pyproject.toml cannot be read" in answer.stderr
    assert not (tmp_path / "home").exists()
