"""Which plugins there are: the built-ins, then the installed ones that the configuration allows by name.

A package that merely lies on this machine is never imported. Each is imported and registered by itself: one that fails is
named in `Hooks.refused`, and the others are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from plugins.hooks import Hooks
from plugins.hookspecs import GROUP
from plugins.strangers import StrangerFailed, attempt

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BUILT_IN = {"builtin": "plugins.builtin", "tool_pruning": "plugins.context.tool_pruning"}
"""Our own plugins: each one's name and its module."""


def load_plugins(allow: Iterable[str]) -> Hooks:
    """Register the built-ins and the installed plugins whose entry points `allow` names, in the order given there."""
    hooks = Hooks()
    for name, module in BUILT_IN.items():
        hooks.register(name, import_module(module), ours=True)
    if wanted := tuple(dict.fromkeys(allow)):
        _load_installed(hooks, wanted)
    return hooks


def _load_installed(hooks: Hooks, wanted: tuple[str, ...]) -> None:
    # Reading the metadata of every installed package costs milliseconds: only where a plugin is wanted.
    from importlib.metadata import entry_points  # noqa: PLC0415

    try:
        installed = attempt(lambda: tuple(entry_points(group=GROUP)))
    except StrangerFailed as failed:
        for name in wanted:
            hooks.refuse(name, "", f"the installed packages could not be read ({failed})")
        return
    for name in wanted:
        offers = [entry for entry in installed if entry.name == name]
        if not offers:
            hooks.refuse(name, "", "plugins.allow names it, and no installed package offers it")
        for entry in offers:
            _load(hooks, name, entry)


def _load(hooks: Hooks, name: str, entry: EntryPoint) -> None:
    try:
        plugin = attempt(entry.load)
    except StrangerFailed as failed:
        hooks.refuse(name, "", f"importing {entry.value} failed ({failed})")
    else:
        hooks.register(name, plugin)
