"""The context that a plugin is opened with: its settings, folders, clock, HTTP client and services."""

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
    """The time, so that a test can set it."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only go forward, for durations."""
        ...


class ProviderAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What `[providers.<name>]` says of an account: its keys, its address, and more headers."""

    api_key: tuple[Secret, ...] | None = None
    base_url: str | None = None
    headers: dict[str, Secret] = {}


class PluginContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin is given when it is opened.

    `settings` is its own section of the configuration, already of the type that its `Settings` names, with secrets
    resolved. `folder` is its own, made when it is first used; `workspace` is the assistant's, with the files of each person
    (docs/memory.md says whose they are), and `protected` says which of its files, by their paths in it, no tool may change
    now. `environment` holds the process's environment variables.
    `told` is what this chat provider's server said of its models when it was asked last, perhaps elsewhere.
    `memory` and `facts` are the workspace's, for tools; None for what is opened before them. `account` is, for an embedding
    provider, that of the chat provider of the same name. `ask` asks the configured model something beside every
    conversation, within two minutes, and `embed` the memory's provider for vectors, within one; what a model used is counted
    as `plugin:NAME`. `log` is the plugin's own. These three are None too for what is opened before: providers.
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
    """The settings of a plugin that has none."""
