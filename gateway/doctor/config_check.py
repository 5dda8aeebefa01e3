"""Validation of a whole configuration: all faults, not only the first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gateway.auth.people import people_of
from gateway.auth.token import HOW_TO_GENERATE, is_loopback, token_weakness
from gateway.config.keys import (
    Config,
    check_backend,
    check_embedding,
    check_providers,
    check_servers,
    check_summarizers,
    fit_config,
    fit_provider,
)
from gateway.config.rendering import CheckedConfig
from gateway.config.secret_references import References
from gateway.config.sources import merge
from gateway.conversations.channels.channel_instances import channel_instances
from gateway.models.registry import AUTO
from gateway.plugin_runtime.plugin_loading import allowed_plugins, unread_tables
from gateway.support.errors import ConfigRefused
from plugins.api.chat import ChatProvider
from plugins.api.context import NoSettings
from plugins.host.hooks import Hooks
from plugins.support.addresses import server_fault, web_fault
from plugins.support.secrets import Secret

T = TypeVar("T")

VARIABLES = {"OPENAI_BASE_URL": web_fault, "OLLAMA_HOST": server_fault}
"""Environment variables outside the configuration that name a server, with their validators."""


def check(
    path: Path | None,
    environment: Mapping[str, str],
    overrides: Mapping[str, Any] | None = None,
    loaded: Hooks | None = None,
    text: str | None = None,
) -> CheckedConfig:
    """Load a configuration as a start would, and continue after each fault.

    Args:
        overrides: Values from the command line.
        loaded: The plugins if they are loaded already, as in a running gateway.
        text: The text of the file, if it shall not be read.
    """
    faults: list[str] = []
    try:
        sources = merge(path, environment, overrides or {}, text=text)
    except ConfigRefused as refused:
        return CheckedConfig(faults=[str(refused)], warnings=[], config=None, kinds={}, settings={})
    references = References(environment, path.parent if path else Path())
    config = _collect_faults(lambda: fit_config(sources, references), sources.tree, faults)
    if config is None:
        return CheckedConfig(faults=faults, warnings=[], config=None, kinds={}, settings={})
    hooks = allowed_plugins(config) if loaded is None else loaded
    hooks.memory_backends()
    faults += [refusal.sentence for refusal in hooks.refused]
    warnings, kinds = [*config.warnings, *unread_tables(config, hooks)], hooks.chat_providers()
    settings = {name: _provider_settings(config, name, kind, faults, warnings) for name, kind in kinds.items()}
    _collect_faults(lambda: check_providers(config, kinds), {"providers": config.providers}, faults)
    _collect_faults(lambda: check_embedding(config, hooks.embedding_providers()), {}, faults)
    _collect_faults(lambda: check_backend(config, hooks.memory_backends), {}, faults)
    _collect_faults(lambda: check_summarizers(config, hooks.summarizers(), hooks.flushes()), {}, faults)
    _collect_faults(lambda: check_servers(config), {"mcp": config.mcp}, faults)
    channels = _channels(config, hooks, faults, warnings)
    faults += [
        *_token_faults(config),
        *_people_faults(config),
        *_model_faults(config, kinds),
        *_variable_faults(environment),
    ]
    own = {name: hooks.settings(name) for name in hooks.plugins if hooks.settings(name) != NoSettings()}
    return CheckedConfig(
        faults=faults, warnings=warnings, config=config, kinds=kinds, settings=settings, plugins=own, channels=channels
    )


def _collect_faults(fit: Callable[[], T], tree: dict[str, Any], faults: list[str]) -> T | None:
    """Call `fit` until it succeeds, removing each invalid key from the tree; return None if one cannot be removed."""
    while True:
        try:
            return fit()
        except ConfigRefused as refused:
            faults.append(str(refused))
            if not _removed_key(tree, refused.key):
                return None


def _removed_key(tree: dict[str, Any], key: str) -> bool:
    """Remove a key, or a parent that is no table; return False if neither exists."""
    *above, last = re.sub(r"\[[^][]*\]", "", key).split(".")
    for name in above:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            return tree.pop(name, None) is not None
        tree = inner
    return tree.pop(last, tree) is not tree


def _provider_settings(config: Config, name: str, kind: type[ChatProvider], faults: list[str], warnings: list[str]) -> Any:
    def fit() -> tuple[Any, list[str]]:
        return fit_provider(config, name, kind.Settings)

    settings, more = _collect_faults(fit, {"providers": config.providers}, faults) or (kind.Settings(), [])
    warnings += more
    return settings


def _channels(config: Config, hooks: Hooks, faults: list[str], warnings: list[str]) -> dict[str, Any]:
    """Return the settings of each valid channel in `[channels.NAME]`."""
    found: list[str] = []
    channels = _collect_faults(lambda: channel_instances(config, hooks, found.append), {"channels": config.channels}, faults)
    warnings += dict.fromkeys(found)
    own = {name: each.settings for name, each in (channels or {}).items()}
    return {name: own.get(name) or NoSettings() for name in config.channels}


def _token_faults(config: Config) -> list[str]:
    """Return the fault of the configured token. The token file in the home is checked elsewhere."""
    token, place = config.gateway.token, config.sources.place("gateway.token")
    if token is not None and (weakness := token_weakness(token.reveal().strip())):
        return [f"{place}: gateway.token {weakness}. {HOW_TO_GENERATE}."]
    if (
        token is None
        and not is_loopback(config.gateway.host)
        and "CREDENTIALS_DIRECTORY" not in config.references.environment
    ):
        place = config.sources.place("gateway.host")
        return [f"{place}: gateway.host accepts connections from other machines; set gateway.token."]
    return []


def _people_faults(config: Config) -> list[str]:
    """Return the faults of the people, one for each person."""
    faults: list[str] = []
    owner = config.gateway.token or Secret("")
    _collect_faults(lambda: people_of(config, owner), {"people": config.people}, faults)
    return faults


def _variable_faults(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the faults of variables that providers read themselves."""
    for name, fault in VARIABLES.items():
        if reason := fault(environment.get(name, "")):
            yield f"{name} {reason}."


def _model_faults(config: Config, kinds: Mapping[str, type[ChatProvider]]) -> Iterator[str]:
    """Yield the faults of model names."""
    agent, known = config.agent, ", ".join(sorted(kinds))
    wanted = [("agent.model", agent.model)] if agent.model != AUTO else []
    wanted += [("compaction.model", config.compaction.model)] if config.compaction.model else []
    for key, name in [*wanted, *(("agent.fallback_models", name) for name in agent.fallback_models)]:
        provider, colon, model = name.partition(":")
        if not (colon and model and provider in kinds):
            yield f"{config.sources.place(key)}: {key} names {name!r}, which is not provider:model with one of {known}."
