"""Loading the plugins that the configuration allows, each with the settings of its own table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog

from gateway.config.keys import Config
from gateway.config.validation import Validator
from gateway.support.errors import ConfigRefused
from plugins.host.hooks import Hooks
from plugins.host.loading import Fit, PluginFolder, load_one, load_plugins
from plugins.support.errors import SettingsRefused

log = structlog.get_logger("exuvia.config")


def allowed_plugins(config: Config, folders: Sequence[PluginFolder] = (), *, but: str = "") -> Hooks:
    """Load the built-in plugins, those in `folders`, and those listed in `plugins.allow`, except `but`.

    A plugin whose table is invalid is refused with the path of the key; the others are loaded.
    """
    fit = plugin_tables(config)
    ours = {but, *(folder.name for folder in folders)}
    hooks = load_plugins([name for name in config.plugins.allow if name not in ours], fit)
    for folder in folders:
        load_one(hooks, folder.name, str(folder.path), folder.load, fit)
    return hooks


def plugin_tables(config: Config) -> Fit:
    """Return a function that validates a plugin's table `[plugins.NAME]`, with secrets resolved and warnings logged."""

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
    """Return a sentence for each table `[plugins.NAME]` whose plugin is neither loaded nor refused."""
    known = {*hooks.plugins, *config.plugins.allow}
    return [
        f"{config.sources.place(f'plugins.{name}')}: plugins.{name} is read by nobody; plugins.allow does not name {name!r}."
        for name in config.plugins.tables
        if name not in known
    ]
