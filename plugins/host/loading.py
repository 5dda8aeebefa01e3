"""Which plugins there are: the built-ins, then the installed ones that the configuration allows by name.

A package that merely lies on this machine is never imported. Each is imported and registered by itself, a stranger's in a
thread: one that fails, or never comes back, is named in `Hooks.refused`, and the others are there.
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
"""Our own plugins: each one's name and its module."""

IMPORT_SECONDS = 30.0
"""So long the import of a plugin may take; some bring a lot with them."""

Fit: TypeAlias = Callable[[str, type[Any]], Any]
"""A plugin's name and the form of its table; returns its settings, or raises SettingsRefused with the key's path."""


def without_tables(_name: str, form: type[Any]) -> Any:
    """The settings of a plugin of which no configuration says anything."""
    return form()


def load_plugins(allow: Iterable[str], fit: Fit = without_tables) -> Hooks:
    """Register the built-ins and the installed plugins whose entry points `allow` names, in the order given there."""
    hooks = Hooks()
    for name, module in BUILT_IN.items():
        hooks.register(name, import_module(module), ours=True)
    if wanted := tuple(dict.fromkeys(allow)):
        _load_installed(hooks, wanted, fit)
    return hooks


def installed_plugins() -> tuple[EntryPoint, ...]:
    """The entry points of all installed packages that offer a plugin, allowed or not; nothing of them is imported.
    StrangerFailed where a package's own metadata cannot be read."""
    # Reading the metadata of every installed package costs milliseconds: only where a plugin is wanted.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return attempt(lambda: tuple(entry_points(group=GROUP)))


def load_one(hooks: Hooks, name: str, what: str, load: Callable[[], object], fit: Fit) -> bool:
    """Import one plugin by `load` and register it; `what` is the module or the folder that a person knows it by. False where
    it was refused."""
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
