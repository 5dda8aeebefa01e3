"""Which plugins are loaded, from real packages that lie on the path."""

from __future__ import annotations

import builtins
import inspect
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import plugins
from plugins.host import loading
from plugins.host.loading import load_plugins
from plugins.support.errors import SettingsRefused
from tests.shelf import Shelf

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
    assert list(hooks.memory_backends()) == ["local", "chroma", "qmd"]
    assert (list(hooks.summarizers()), list(hooks.flushes())) == (["model_summary", "extract"], ["memory_flush"])
    assert set(hooks.commands()) == {
        "agent",
        "approvals",
        "approve",
        "archive",
        "clear",
        "compact",
        "compactions",
        "context",
        "delete",
        "deny",
        "distill",
        "edit",
        "effort",
        "forget",
        "help",
        "history",
        "jobs",
        "mcp",
        "memory",
        "model",
        "new",
        "pair",
        "pin",
        "queue",
        "remember",
        "remind",
        "reset",
        "schedule",
        "sessions",
        "title",
        "revert",
        "skills",
        "spawn",
        "status",
        "stop",
        "temperature",
        "undo",
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
    assert hooks.commands()["status"].__module__ == "plugins.commands.status_commands"
    assert [refusal.plugin for refusal in hooks.refused] == ["builtin", "pose"]


def test_two_packages_that_offer_one_name_are_not_mixed_up(shelf: Shelf) -> None:
    shelf.install("twin_one", "twin", COMMAND.format(name="one"))
    shelf.install("twin_two", "twin", COMMAND.format(name="two"))

    hooks = load_plugins(["twin"])

    assert len({"one", "two"} & set(hooks.commands())) == 1
    assert [refusal.sentence for refusal in hooks.refused] == [
        "The plugin 'twin' is not used: a plugin of this name is already registered."
    ]


def test_a_plugin_whose_import_never_ends_is_named_and_the_next_one_is_loaded(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "IMPORT_SECONDS", 0.2)
    shelf.install("endless_one", "endless", "import time\ntime.sleep(2)")
    shelf.install("saying_four", "say", COMMAND.format(name="say"))

    hooks = load_plugins(["endless", "say"])

    assert "say" in hooks.commands()
    assert [refusal.sentence for refusal in hooks.refused] == [
        "The plugin 'endless' is not used: importing endless_one failed (it did not return within 0.2 seconds)."
    ]


SETTINGS = """
import msgspec

class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    city: str = "Lisbon"
"""


def test_a_plugins_settings_are_of_the_form_that_it_gives(shelf: Shelf) -> None:
    shelf.install("settled_one", "weather", SETTINGS + COMMAND.format(name="weather"))

    hooks = load_plugins(["weather"], lambda name, form: form(city=name))

    assert hooks.settings("weather").city == "weather"
    assert hooks.owner("register_commands", "weather") == "weather"
    assert load_plugins(["weather"]).settings("weather").city == "Lisbon", "what it is told where nobody tells it anything"


def test_a_plugin_whose_settings_do_not_fit_is_refused_with_the_sentence(shelf: Shelf) -> None:
    def fit(name: str, form: type[object]) -> object:
        raise SettingsRefused(f"config.toml, line 3: plugins.{name}.city must be text, not a number.")

    shelf.install("settled_two", "weather", SETTINGS + COMMAND.format(name="weather"))

    hooks = load_plugins(["weather"], fit)

    assert "weather" not in hooks.commands()
    assert [refusal.sentence for refusal in hooks.refused] == [
        "The plugin 'weather' is not used: config.toml, line 3: plugins.weather.city must be text, not a number."
    ]


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ("Settings = 3", "its Settings is not a msgspec Struct"),
        ("class Settings(msgspec.Struct):\n    city: str", "its Settings has no default for city"),
    ],
)
def test_a_plugin_whose_settings_are_no_settings_is_refused(shelf: Shelf, form: str, sentence: str) -> None:
    shelf.install("odd_settings", "odd", f"import msgspec\n{form}\n" + COMMAND.format(name="odd"))

    hooks = load_plugins(["odd"])

    assert [refusal.sentence for refusal in hooks.refused] == [f"The plugin 'odd' is not used: {sentence}."]


def test_loading_imports_nothing_heavy() -> None:
    program = (
        "import json, sys, plugins.host.loading; plugins.host.loading.load_plugins(()); print(json.dumps(list(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)

    heavy = {"httpx", "aiohttp", "xllamacpp", "tiktoken", "aiosqlite", "ctypes", "numpy", "importlib.metadata"}
    assert heavy & set(json.loads(answer.stdout)) == set()


def test_each_public_name_is_fetched_from_the_module_that_defines_it() -> None:
    for name, module in plugins.PUBLIC.items():
        assert getattr(plugins, name) is getattr(import_module(module), name)
    assert dir(plugins) == sorted(plugins.PUBLIC)
    with pytest.raises(AttributeError):
        _ = plugins.nonsense  # type: ignore[attr-defined,unused-ignore]


def test_every_error_that_a_public_docstring_names_is_public() -> None:
    """An author who reads "Raises: FactsUnavailable" can import it from `exuvia`."""
    named = {
        (name, error)
        for name in plugins.PUBLIC
        for documented in [getattr(plugins, name), *getattr(getattr(plugins, name), "__dict__", {}).values()]
        for error in re.findall(
            r"^    `?(\w+)`?: ", (inspect.getdoc(documented) or "").partition("Raises:\n")[2], re.MULTILINE
        )
    }
    assert ("WorkspaceFacts", "FactsUnavailable") in named
    assert {(name, error) for name, error in named if error not in plugins.PUBLIC and not hasattr(builtins, error)} == set()
