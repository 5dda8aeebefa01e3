"""The plugins that a configuration allows, loaded, each with what its own table says to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog

from gateway.config.keys import Config
from gateway.config.validation import Validator
from gateway.support.errors import ConfigRefused
from plugins.host.hooks import Hooks
from plugins.host.loading import Fit, load_one, load_plugins
from plugins.host.plugin_folder import PluginFolder
from plugins.support.errors import SettingsRefused

log = structlog.get_logger("exuvia.config")


def allowed_plugins(config: Config, folders: Sequence[PluginFolder] = (), *, but: str = "") -> Hooks:
    """The built-ins, what is in these folders, and what `plugins.allow` names besides, `but` one. One whose table does not
    fit its own form is refused, with the path of the key; the others are there."""
    fit = plugin_tables(config)
    ours = {but, *(folder.name for folder in folders)}
    hooks = load_plugins([name for name in config.plugins.allow if name not in ours], fit)
    for folder in folders:
        load_one(hooks, folder.name, str(folder.path), folder.load, fit)
    return hooks


def plugin_tables(config: Config) -> Fit:
    """What gives a plugin the settings of its table `[plugins.NAME]`, secrets resolved; a warning about them is logged."""

    def fit(name: str, form: type[Any]) -> Any:
        fitting = Validator(config.sources, config.references)
        try:
            settings = fitting.fit(config.plugins.tables.get(name, {}), form, f"plugins.{name}")
        except ConfigRefused as refused:
            raise SettingsRefused(str(refused)) from refused
        for warning in fitting.warnings:
            log.warning("configuration", warning=warning)
        return settings

    return fit


def unread_tables(config: Config, hooks: Hooks) -> list[str]:
    """A sentence about each table `[plugins.NAME]` that nobody reads, since no plugin of that name is loaded or refused."""
    known = {*hooks.plugins, *config.plugins.allow}
    return [
        f"{config.sources.place(f'plugins.{name}')}: plugins.{name} is read by nobody; plugins.allow does not name {name!r}."
        for name in config.plugins.tables
        if name not in known
    ]
