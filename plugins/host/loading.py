"""Loading the built-in plugins, then the installed ones that the configuration allows by name.

Packages that are not allowed are never imported. Each plugin is loaded separately, third-party ones in a thread: one that
fails or hangs is listed in `Hooks.refused`, and the others are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from plugins.api.context import NoSettings
from plugins.api.hookspecs import GROUP
from plugins.host.hooks import Hooks
from plugins.host.validation import plugin_settings
from plugins.support.errors import SettingsRefused
from plugins.support.untrusted import PluginCallFailed, attempt, within

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BUILT_IN = {"builtin": "plugins.builtin", "tool_pruning": "plugins.policies.tool_pruning"}
"""The built-in plugins and their modules."""

IMPORT_SECONDS = 30.0
"""The timeout for importing a plugin."""

Fit: TypeAlias = Callable[[str, type[Any]], Any]
"""Converts the section of a plugin, given its name and `Settings` type; raises `SettingsRefused` with the path of the key.
"""


def without_tables(_name: str, form: type[Any]) -> Any:
    """Return the default settings."""
    return form()


def load_plugins(allow: Iterable[str], fit: Fit = without_tables) -> Hooks:
    """Register the built-in plugins and the installed ones whose entry points `allow` names, in that order."""
    hooks = Hooks()
    for name, module in BUILT_IN.items():
        hooks.register(name, import_module(module), ours=True)
    if wanted := tuple(dict.fromkeys(allow)):
        _load_installed(hooks, wanted, fit)
    return hooks


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
