"""Loading the built-in plugins, then the installed ones that the configuration allows by name, or from source folders.

Packages that are not allowed are never imported. Each plugin is loaded separately, third-party ones in a thread: one that
fails or hangs is listed in `Hooks.refused`, and the others are loaded.

A source folder contains a `pyproject.toml` with one entry point of the group `exuvia`. Its modules are imported from the
folder or from its `src`. Naming a folder on the command line allows its plugin.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from plugins.api.context import NoSettings
from plugins.api.hookspecs import GROUP
from plugins.host.hooks import Hooks
from plugins.host.validation import plugin_settings
from plugins.support.errors import SettingsRefused
from plugins.support.untrusted import PluginCallFailed, attempt, within

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from plugins.api.channel import Channel

BUILT_IN = {"builtin": "plugins.commands.builtin", "tool_pruning": "plugins.policies.tool_pruning"}
"""The built-in plugins and their modules."""

CHANNELS = Path(__file__).parents[1] / "channels"
"""The folder of the built-in channels. Each has a package with the name of its kind, and a plugin in it, `KIND_channel`."""

IMPORT_SECONDS = 30.0
"""The timeout for importing a plugin."""

Fit: TypeAlias = Callable[[str, type[Any]], Any]
"""Converts the section of a plugin, given its name and `Settings` type; raises `SettingsRefused` with the path of the key.
"""


def without_tables(_name: str, form: type[Any]) -> Any:
    """Return the default settings."""
    return form()


def built_in_channels() -> list[str]:
    """Return the kinds of the built-in channels, without importing them."""
    return sorted(plugin.parent.name for plugin in CHANNELS.glob("*/*_channel.py"))


def load_plugins(allow: Iterable[str], fit: Fit = without_tables, channels: Collection[str] = ()) -> Hooks:
    """Register the built-in plugins and the installed ones whose entry points `allow` names, in that order.

    Args:
        allow: The names of the entry points.
        fit: Converts the settings of a plugin.
        channels: The kinds of channels that are configured; the built-in ones among them are imported.
    """
    hooks = Hooks()
    for name, module in BUILT_IN.items():
        hooks.register(name, importlib.import_module(module), builtin=True)
    for kind in built_in_channels() if channels else ():
        if kind in channels:
            load_channel(hooks, kind)
    if wanted := tuple(dict.fromkeys(allow)):
        _load_installed(hooks, wanted, fit)
    return hooks


def load_channel(hooks: Hooks, kind: str) -> None:
    """Import and register a built-in channel."""
    hooks.register(f"{kind}_channel", _channel_module(kind), builtin=True)


def _channel_module(kind: str) -> ModuleType:
    return importlib.import_module(f"plugins.channels.{kind}.{kind}_channel")


def channel_kinds(hooks: Hooks, wanted: Collection[str]) -> dict[str, type[Channel]]:
    """Return the classes of channels by name: the registered ones, and those of `wanted` that are built in and not loaded
    yet. Those are imported, which blocks."""
    kinds = dict(hooks.channels())
    missing = set(wanted) - kinds.keys()
    for kind in built_in_channels() if missing else ():
        if kind in missing:
            (kinds[kind],) = _channel_module(kind).register_channels()
    return kinds


def installed_plugins() -> tuple[EntryPoint, ...]:
    """Return the entry points of all installed plugins, allowed or not, without importing them.

    Raises:
        PluginCallFailed: The metadata of a package cannot be read.
    """
    # Reading the metadata of every installed package costs milliseconds: only where a plugin is wanted.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return attempt(lambda: tuple(entry_points(group=GROUP)))


def load_one(hooks: Hooks, name: str, what: str, load: Callable[[], object], fit: Fit) -> bool:
    """Import and register one plugin. Return False if it was refused.

    Args:
        hooks: Where to register it.
        name: The plugin's name.
        what: The module or folder, for messages.
        load: Imports the plugin.
        fit: Converts its settings.
    """
    try:
        plugin = within(IMPORT_SECONDS, load, thread=f"plugin:{name}")
    except PluginCallFailed as failed:
        hooks.refuse(name, "", f"importing {what} failed ({failed})")
        return False
    try:
        form = attempt(lambda: plugin_settings(plugin))
        settings = fit(name, form or NoSettings)
    except (PluginCallFailed, SettingsRefused) as refused:
        hooks.refuse(name, "", str(refused).rstrip("."))
        return False
    return hooks.register(name, plugin, settings=settings)


def _load_installed(hooks: Hooks, wanted: tuple[str, ...], fit: Fit) -> None:
    try:
        installed = installed_plugins()
    except PluginCallFailed as failed:
        for name in wanted:
            hooks.refuse(name, "", f"the installed packages could not be read ({failed})")
        return
    for name in wanted:
        offers = [entry for entry in installed if entry.name == name]
        if not offers:
            hooks.refuse(name, "", "plugins.allow names it, and no installed package offers it")
        for entry in offers:
            load_one(hooks, name, entry.value, entry.load, fit)


class NoPlugin(PluginCallFailed):
    """A folder contains no plugin; `str(error)` is a sentence without its full stop."""


class PluginFolder:
    """A plugin's source folder, from which it is loaded without installation, and again when it is saved.

    `name` is the name of its entry point. Raises `NoPlugin` if there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.name, self._target = _entry_point(self.path)

    def load(self) -> object:
        """Import the current version of the plugin. If that fails, the modules imported before stay in place."""
        name, self._target = _entry_point(self.path)
        if name != self.name:
            raise NoPlugin(f"its entry point is now called {name!r} instead of {self.name!r}; restart the gateway to use it")
        place = str(self.path / "src" if (self.path / "src").is_dir() else self.path)
        if place not in sys.path:
            sys.path.insert(0, place)
        before = self._forget()
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            importlib.invalidate_caches()
            module, _, attribute = self._target.partition(":")
            loaded: object = importlib.import_module(module)
            for part in filter(None, attribute.split(".")):
                loaded = getattr(loaded, part)
        except BaseException:
            self._forget()
            sys.modules.update(before)
            raise
        finally:
            sys.dont_write_bytecode = writes  # cached bytecode has a resolution of a second: a second save would be missed
        return loaded

    def _forget(self) -> dict[str, ModuleType]:
        """Remove the folder's modules from `sys.modules` and return them."""
        modules = {name: module for name, module in sys.modules.items() if self._holds(module)}
        for name in modules:
            del sys.modules[name]
        return modules

    def _holds(self, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and Path(file).resolve().is_relative_to(self.path)


def _entry_point(folder: Path) -> tuple[str, str]:
    """Return the name and target of the entry point in a folder's pyproject.toml."""
    project = folder / "pyproject.toml"
    try:
        offered = tomllib.loads(project.read_text()).get("project", {}).get("entry-points", {}).get(GROUP, {})
    except OSError as error:
        raise NoPlugin(f"{project} cannot be read: {error.strerror}; `exuvia plugins new` makes a plugin") from error
    except (ValueError, AttributeError) as error:
        raise NoPlugin(f"{project} is not a valid project file: {error}") from error
    if not isinstance(offered, dict) or len(offered) != 1:
        raise NoPlugin(
            f'{project} needs one entry point under [project.entry-points.{GROUP}], such as weather = "my_module"'
        )
    ((name, target),) = offered.items()
    return str(name), str(target)
