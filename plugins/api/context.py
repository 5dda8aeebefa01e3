"""The context passed to a plugin: its settings, folders, clock, HTTP client and services."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from plugins.api.models import ModelList
from plugins.support.secrets import Secret

if TYPE_CHECKING:
    from plugins.api.command import CommandHelp
    from plugins.api.plugin_services import PluginServices
    from plugins.http.client import Transport


class Clock(Protocol):
    """A clock that tests can set."""

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes backwards, for measuring durations."""
        ...


class ProviderAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account from `[providers.<name>]`: API keys, base URL and extra headers."""

    api_key: tuple[Secret, ...] | None = None
    base_url: str | None = None
    headers: dict[str, Secret] = {}


class ProviderContext(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and services passed to a chat or embedding provider when it is created.

    Attributes:
        settings: The provider's section of the configuration, converted to its settings type, with secrets resolved.
        folder: A folder for the provider's own files. It may not exist yet.
        workspace: The assistant's workspace. docs/memory.md explains which files belong to whom.
        clock: The clock to use instead of `time` and `datetime`.
        transport: The HTTP client. Use it for all outbound requests.
        environment: The environment variables of the process.
        reported_models: For chat providers: the model list that the server last reported; None if it reported none.
        account: For embedding providers: the account of the chat provider with the same name, empty if there is none.
    """

    settings: Any
    folder: Path
    workspace: Path
    clock: Clock
    transport: Transport
    environment: Mapping[str, str]
    reported_models: ModelList | None = None
    account: ProviderAccount = ProviderAccount()


class PluginContext(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and services passed to tools, channels and the hook `gateway_started`.

    Attributes:
        settings: The `[plugins.NAME]` section, converted to the plugin's `Settings` type, with secrets resolved. For a
            channel with `Settings` of its own, the `[channels.NAME]` section as that type.
        folder: A folder for the plugin's own files. It may not exist yet.
        workspace: The assistant's workspace. docs/memory.md explains which files belong to whom.
        clock: The clock to use instead of `time` and `datetime`.
        transport: The HTTP client. Use it for all outbound requests.
        environment: The environment variables of the process.
        services: Services of the gateway: memory, facts, a model, embeddings and a log.
        protected: Returns the workspace paths that no tool may change at the moment, relative to the workspace. A path that
            ends with a slash is a folder, which is protected with everything in it.
        name: For channels, the name of the instance: NAME of `[channels.NAME]`, or that of the class without `Settings`. For
            others the name of the plugin.
        commands: For channels, returns the slash commands, for services that offer them in a menu.
    """

    settings: Any
    folder: Path
    workspace: Path
    clock: Clock
    transport: Transport
    environment: Mapping[str, str]
    services: PluginServices
    protected: Callable[[], Sequence[str]] = tuple
    name: str = ""
    commands: Callable[[], Sequence[CommandHelp]] = tuple


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a plugin that has no settings."""
