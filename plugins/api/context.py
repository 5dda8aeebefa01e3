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
    from plugins.api.services import AskModel, EmbedTexts, PluginLog, WorkspaceFacts, WorkspaceMemory
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


class PluginContext(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and services passed to a plugin when it is created.

    Attributes:
        settings: The plugin's own section of the configuration, converted to its `Settings` type, with secrets resolved.
        folder: A folder for the plugin's own files. It may not exist yet.
        workspace: The assistant's workspace. docs/memory.md explains which files belong to whom.
        clock: The clock to use instead of `time` and `datetime`.
        transport: The HTTP client. Use it for all outbound requests.
        environment: The environment variables of the process.
        protected: Returns the workspace paths that no tool may change at the moment, relative to the workspace.
        reported_models: For chat providers: the model list that the provider's server last reported.
        memory: For tools: the memory of the workspace.
        facts: For tools: the facts of the workspace.
        account: For embedding providers: the account of the chat provider with the same name.
        ask: Sends a separate request to the configured model; times out after two minutes. None for providers.
        embed: Embeds texts with the embedding provider of the memory; times out after one minute. None for providers.
        log: A durable log of the plugin's own. None for providers.
    """

    settings: Any
    folder: Path
    workspace: Path
    clock: Clock
    transport: Transport
    environment: Mapping[str, str]
    protected: Callable[[], Sequence[str]] = tuple
    reported_models: ModelList | None = None
    memory: WorkspaceMemory | None = None
    facts: WorkspaceFacts | None = None
    account: ProviderAccount | None = None
    ask: AskModel | None = None
    embed: EmbedTexts | None = None
    log: PluginLog | None = None


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a plugin that has no settings."""
