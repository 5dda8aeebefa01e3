"""Which plugins are loaded, from real packages that lie on the path."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import plugins
from plugins.loading import load_plugins

COMMAND = """
from typing import ClassVar
from exuvia import hookimpl

class Say:
    name: ClassVar[str] = {name!r}
    usage: ClassVar[str] = "/say"
    summary: ClassVar[str] = "Say it."
    when: ClassVar[str] = "now"

    async def run(self, argument, conversation):
        return "said"

@hookimpl
def register_commands():
    return [Say]
"""


class Shelf:
    """A folder on Python's path with installed packages."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        monkeypatch.syspath_prepend(folder)

    def install(self, package: str, entry: str, source: str) -> None:
        """A package of one module that offers itself under `entry`."""
        (self._folder / f"{package}.py").write_text(source)
        info = self._folder / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[exuvia]\n{entry} = {package}\n")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    return Shelf(tmp_path, monkeypatch)


def test_the_built_ins_are_all_there_and_nothing_is_refused() -> None:
    hooks = load_plugins(())

    assert hooks.refused == []
    assert list(hooks.chat_providers()) == [
        "openai",
        "anthropic",
        "gemini",
        "ollama",
        "llama_server",
        "lm_studio",
        "local",
        "scripted",
    ], "the order in which auto asks them"
    assert list(hooks.tools()) == ["read", "write", "edit", "memory_search", "memory_get", "write_memory"]
    assert list(hooks.embedding_providers()) == ["local", "openai", "gemini", "voyage", "mistral", "ollama"]
    assert list(hooks.memory_backends()) == ["local", "chroma"]
    assert (list(hooks.summarizers()), list(hooks.flushes())) == (["model_summary", "extract"], ["memory_flush"])
    assert set(hooks.commands()) == {
        "clear",
        "compact",
        "compactions",
        "context",
        "distill",
        "forget",
        "help",
        "history",
        "memory",
        "model",
        "new",
        "pin",
        "queue",
        "remember",
        "reset",
        "revert",
        "status",
        "stop",
        "unpin",
        "usage",
        "verbose",
        "whoami",
        "why",
    }


def test_an_installed_plugin_is_not_even_imported_unless_it_is_allowed(shelf: Shelf) -> None:
    shelf.install("lurking_one", "lurk", "raise SystemExit('imported')")

    hooks = load_plugins(())

    assert hooks.refused == []
    assert "lurking_one" not in sys.modules


def test_an_allowed_plugin_is_loaded(shelf: Shelf) -> None:
    shelf.install("saying_one", "say", COMMAND.format(name="say"))

    hooks = load_plugins(["say", "say"])

    assert hooks.refused == []
    assert "say" in hooks.commands()


def test_a_plugin_whose_import_fails_is_named_and_the_next_one_is_loaded(shelf: Shelf) -> None:
    shelf.install("leaving_one", "leave", "raise SystemExit('goodbye')")
    shelf.install("missing_one", "miss", "import no_such_module_anywhere")
    shelf.install("saying_two", "say", COMMAND.format(name="say"))

    hooks = load_plugins(["leave", "miss", "nobody", "say"])

    assert "say" in hooks.commands()
    assert [refusal.sentence for refusal in hooks.refused] == [
        "The plugin 'leave' is not used: importing leaving_one failed (SystemExit: goodbye).",
        "The plugin 'miss' is not used: importing missing_one failed"
        " (ModuleNotFoundError: No module named 'no_such_module_anywhere').",
        "The plugin 'nobody' is not used: plugins.allow names it, and no installed package offers it.",
    ]


def test_a_stranger_takes_neither_the_name_of_a_built_in_nor_that_of_its_command(shelf: Shelf) -> None:
    shelf.install("posing_one", "builtin", COMMAND.format(name="pose"))
    shelf.install("posing_two", "pose", COMMAND.format(name="status"))

    hooks = load_plugins(["builtin", "pose"])

    assert "pose" not in hooks.commands()
    assert hooks.commands()["status"].__module__ == "plugins.commands.status"
    assert [refusal.plugin for refusal in hooks.refused] == ["builtin", "pose"]


def test_two_packages_that_offer_one_name_are_not_mixed_up(shelf: Shelf) -> None:
    shelf.install("twin_one", "twin", COMMAND.format(name="one"))
    shelf.install("twin_two", "twin", COMMAND.format(name="two"))

    hooks = load_plugins(["twin"])

    assert len({"one", "two"} & set(hooks.commands())) == 1
    assert [refusal.sentence for refusal in hooks.refused] == [
        "The plugin 'twin' is not used: a plugin of this name is there already."
    ]


def test_loading_imports_nothing_heavy() -> None:
    program = "import json, sys, plugins.loading; plugins.loading.load_plugins(()); print(json.dumps(list(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)

    heavy = {"httpx", "aiohttp", "xllamacpp", "tiktoken", "aiosqlite", "ctypes", "numpy", "importlib.metadata"}
    assert heavy & set(json.loads(answer.stdout)) == set()


def test_each_public_name_is_fetched_from_the_module_that_defines_it() -> None:
    for name, module in plugins.PUBLIC.items():
        assert getattr(plugins, name) is getattr(import_module(module), name)
    assert dir(plugins) == sorted(plugins.PUBLIC)
    with pytest.raises(AttributeError):
        _ = plugins.nonsense  # type: ignore[attr-defined,unused-ignore]
