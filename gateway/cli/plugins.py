"""`exuvia plugins list|check|new`. Each function prints and returns an exit code: 0 success, 1 a problem was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, TextIO

import click
import msgspec

from gateway.cli.options import PROBLEM, SUCCESS, print_json
from gateway.config.keys import Config, load_config
from gateway.plugin_runtime.plugin_loading import allowed_plugins, plugin_tables
from gateway.support.printable import one_line
from plugins.host.hooks import Hooks
from plugins.host.loading import NoPlugin, PluginFolder, built_in_channels, installed_plugins, load_one, load_plugins
from plugins.support.untrusted import PluginCallFailed, attempt
from plugins.testing.templates.packages import NotWritten, write_package

WORDS = {
    "register_chat_providers": "chat provider",
    "register_embedding_providers": "embedding provider",
    "register_tools": "tool",
    "register_commands": "command",
    "register_channels": "channel",
    "register_summarizers": "summarizer",
    "register_flushes": "flush",
    "register_memory_backends": "memory backend",
}
"""The noun for what each registration hook provides."""


HOOKS = {
    "provider": "register_chat_providers",
    "embedding": "register_embedding_providers",
    "tool": "register_tools",
    "command": "register_commands",
    "channel": "register_channels",
}
"""The registration hook of each kind of new package."""


class ListedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the list.

    `state` is `built in`, `loaded`, `refused` or `not allowed`; `provides` maps a kind to names.
    """

    name: str
    package: str
    state: str
    provides: dict[str, list[str]] = {}
    sentences: list[str] = []


def list_plugins(file: Path, environment: Mapping[str, str], out: TextIO, *, as_json: bool) -> int:
    """Print every plugin that is installed or listed in the configuration, without importing those not allowed."""
    config = load_config(file, environment=environment, overrides={})
    hooks = allowed_plugins(config)
    listed = _listed(config, hooks)
    if as_json:
        print_json(listed, out)
    else:
        out.writelines(_line(each) + "\n" for each in listed)
    return PROBLEM if hooks.refused else SUCCESS


def check_plugin(name: str, file: Path, environment: Mapping[str, str], out: TextIO, *, as_json: bool) -> int:
    """Load one plugin, installed or from a folder, next to the built-in ones, and print a report."""
    config = load_config(file, environment=environment, overrides={})
    hooks = load_plugins(())
    name = _load(hooks, name, config)
    checked = {
        "name": name,
        "provides": _provided(hooks, name),
        "hooks": hooks.implemented(name) if name in hooks.plugins else [],
        "settings": _keys(hooks, name),
        "faults": [refusal.sentence for refusal in hooks.refused],
    }
    if as_json:
        print_json(checked, out)
    else:
        out.writelines(f"{one_line(line, 600)}\n" for line in _report(checked))
        if _state(config, hooks, name) == "loaded" and name not in config.plugins.allow:
            out.write("It is not allowed yet: add it to plugins.allow.\n")
    return PROBLEM if hooks.refused else SUCCESS


def new_plugin(kind: str, name: str, into: Path | None, out: TextIO) -> int:
    """Create a package and print the next steps. The name must not be that of a built-in plugin."""
    hooks = load_plugins(())
    ours = {known for plugin in hooks.plugins for known in hooks.provided(plugin).get(HOOKS.get(kind, ""), ())}
    if name in ours or name in hooks.plugins or (kind == "channel" and name in built_in_channels()):
        raise click.ClickException(f"{name!r} is built in; choose another name.")
    folder = into or Path(f"exuvia-{name.replace('_', '-')}")
    try:
        files = write_package(kind, name, folder)
    except NotWritten as error:
        raise click.ClickException(str(error)) from error
    out.writelines(f"{file}\n" for file in files)
    out.write(f"\nNext: cd {folder} && pip install -e '.[test]' && pytest\nThen: exuvia run --plugin {folder}\n")
    return SUCCESS


def _load(hooks: Hooks, name: str, config: Config) -> str:
    """Load a plugin by its name or folder; return its name."""
    if (Path(name) / "pyproject.toml").is_file():
        try:
            folder = PluginFolder(Path(name))
        except NoPlugin as error:
            raise click.ClickException(f"{error}.") from error
        load_one(hooks, folder.name, str(folder.path), folder.load, plugin_tables(config))
        return folder.name
    offers = [entry for entry in _installed() if entry.name == name]
    if not offers:
        raise click.ClickException(
            f"No installed package provides a plugin {name!r}, and no folder of that name has a pyproject.toml."
        )
    for entry in offers:
        load_one(hooks, name, entry.value, entry.load, plugin_tables(config))
    return name


def _installed() -> Sequence[EntryPoint]:
    try:
        return installed_plugins()
    except PluginCallFailed as error:
        raise click.ClickException(f"The installed packages could not be read ({error}).") from error


def _listed(config: Config, hooks: Hooks) -> list[ListedPlugin]:
    packages = {entry.name: _package(entry) for entry in _installed()}
    names = dict.fromkeys([*hooks.plugins, *config.plugins.allow, *sorted(packages)])
    return [
        ListedPlugin(
            name=name,
            package=packages.get(name, "exuvia" if hooks.is_builtin(name) else ""),
            state=_state(config, hooks, name),
            provides=_provided(hooks, name),
            sentences=[refusal.sentence for refusal in hooks.refused if refusal.plugin == name],
        )
        for name in names
    ]


def _package(entry: EntryPoint) -> str:
    """Return the name and version of an entry point's package."""
    try:
        return attempt(lambda: f"{entry.dist.name} {entry.dist.version}" if entry.dist else "")
    except PluginCallFailed:
        return ""


def _state(config: Config, hooks: Hooks, name: str) -> str:
    if name in hooks.plugins:
        return "built in" if hooks.is_builtin(name) else "loaded"
    return "refused" if name in config.plugins.allow else "not allowed"


def _provided(hooks: Hooks, name: str) -> dict[str, list[str]]:
    return {WORDS[hook]: names for hook, names in hooks.provided(name).items()}


def _keys(hooks: Hooks, name: str) -> dict[str, Any]:
    """Return the keys of a plugin's table with their defaults as plain values."""
    if name not in hooks.plugins:
        return {}
    form = type(hooks.settings(name))
    fresh = form()
    return {
        f"plugins.{name}.{field.encode_name}": msgspec.to_builtins(getattr(fresh, field.name), enc_hook=str)
        for field in msgspec.structs.fields(form)
    }


def _line(listed: ListedPlugin) -> str:
    things = "; ".join(_count(word, names) for word, names in listed.provides.items())
    about = one_line(" ".join(filter(None, (listed.package, f"({things})" if things else ""))), 400)
    first = f"{one_line(listed.name, 80):20} {listed.state:12} {about}".rstrip()
    return "\n  ".join([first, *(one_line(sentence, 600) for sentence in listed.sentences)])


def _count(word: str, names: list[str]) -> str:
    return f"{word} {', '.join(names)}" if len(names) <= 4 else f"{len(names)} {word}s"


def _report(checked: Mapping[str, Any]) -> list[str]:
    provides = [f"It provides the {_count(word, names)}." for word, names in checked["provides"].items()]
    hooks = [f"It implements {', '.join(checked['hooks'])}."] if checked["hooks"] else []
    settings = [f"Setting: {key} (default {value!r})." for key, value in checked["settings"].items()]
    faults = list(checked["faults"]) or [f"The plugin {checked['name']!r} can be used."]
    return [*provides, *hooks, *settings, *faults]
