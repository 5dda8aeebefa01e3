"""The configuration in force, as one immutable value that each turn reads when it begins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from gateway.config.agents import AgentToolsKeys, NamedAgentKeys, own_workspace
from gateway.config.keys import Config, Role, RoleKeys, Sections
from plugins.support.workspace import OWNER
from sessions.events.events import MAIN_AGENT

AFTER_RESTART = (
    "gateway.host",
    "gateway.port",
    "gateway.allowed_hosts",
    "gateway.allowed_origins",
    "agent.workspace",
    "store.kind",
    "store.url",
    "plugins.allow",
    "plugins.hold_limit",
    "plugins.tables",
    "retention.rules",
)
"""Keys and whole sections that take effect only at start: sockets, folders and modules are opened once. So does the
workspace of each agent."""


class Settings:
    """The configuration in force.

    The newest configuration is `offered`; in `current`, keys that need a restart keep their old values.
    """

    def __init__(self, config: Config) -> None:
        self._current = config
        self.fault: str | None = None
        """A sentence that says why the current file is not in force."""
        self.added: Mapping[str, Role] = {}
        """The roles of the people who were added while the gateway ran, by id."""
        self.waiting: tuple[str, ...] = ()
        """The keys whose new values need a restart."""
        self._handled: str | None = None
        self._handling = asyncio.Event()

    @property
    def current(self) -> Config:
        """The configuration in force."""
        return self._current

    def handled(self, text: str) -> None:
        """Record that the file with this text was applied or refused."""
        self._handled = text
        self._handling.set()
        self._handling = asyncio.Event()

    async def until_handled(self, text: str) -> None:
        """Wait until the file with this text was applied or refused: `fault` and `waiting` are about it then."""
        while self._handled != text:
            await self._handling.wait()

    def role_of(self, person: str) -> Role:
        """Return the role of a person: that of the configuration, else that with which they were added."""
        keys = self.current.people.get(person)
        return keys.role if keys is not None else self.added.get(person, "member")

    def rights_of(self, person: str) -> RoleKeys:
        """Return what a person may do: everything for the owner, else what `[roles]` says of their role."""
        roles = self.current.roles
        return RoleKeys() if person == OWNER else roles.guest if self.role_of(person) == "guest" else roles.member

    def knows(self, person: str) -> bool:
        """Return True if this person may use the gateway."""
        return person == OWNER or person in self.current.people or person in self.added

    @property
    def zone(self) -> ZoneInfo | None:
        """The configured time zone; None for the system's."""
        name = self.current.agent.timezone
        return ZoneInfo(name) if name else None

    def zone_of(self, person: str) -> str:
        """Return the name of a person's time zone; "" for the system's."""
        keys = self.current.people.get(person)
        return str((keys and keys.timezone) or self.current.agent.timezone or "")

    def offer(self, config: Config) -> set[str]:
        """Apply a configuration as far as possible without a restart; return the keys that changed."""
        before = self._current
        self.waiting = after_restart(before, config)
        for key in self.waiting:
            config = _with(config, key, _at(before, key))
        self._current = config
        self.fault = None
        return changes(before, config)

    def notes(self) -> list[str]:
        """Return sentences for the operator, shown in `/status`."""
        notes = [] if self.fault is None else [f"The configuration before the last change is in force: {self.fault}"]
        return notes + ([waiting_sentence(self.waiting)] if self.waiting else [])


class AgentSettings(Settings):
    """The settings of one agent besides `main`, a view of those of the gateway: in `current`, the sections of the agent have
    the agent's keys."""

    def __init__(self, settings: Settings, agent: str) -> None:
        super().__init__(settings.current)
        self._settings = settings
        self._agent = agent
        self._made_of: Config | None = None
        """The configuration that `_current` was made of."""
        self._keys = self._configured() or NamedAgentKeys(workspace=own_workspace(agent))
        self._workspace = self._keys.workspace  # its files are open

    @property
    def exists(self) -> bool:
        """True if the configuration in force has the agent."""
        return self._configured() is not None

    @property
    def current(self) -> Config:
        """The configuration in force. As long as it does not have the agent, the agent's last keys count."""
        config = self._settings.current
        if self._made_of is not config:
            self._keys = self._configured() or self._keys
            self._current, self._made_of = self._view(config), config
        return self._current

    def role_of(self, person: str) -> Role:
        return self._settings.role_of(person)

    def knows(self, person: str) -> bool:
        return self._settings.knows(person)

    def _configured(self) -> NamedAgentKeys | None:
        return self._settings.current.agents.get(self._agent)

    def _view(self, config: Config) -> Config:
        keys = self._keys
        return msgspec.structs.replace(
            config,
            agent=msgspec.structs.replace(keys.as_main(), workspace=self._workspace),
            skills=keys.skills,
            sandbox=keys.sandbox,
            memory=msgspec.structs.replace(config.memory, extra_paths=keys.memory.extra_paths),
        )

    @property
    def tools(self) -> AgentToolsKeys:
        """The tools that the agent is offered."""
        return self._keys.tools

    @property
    def mcp(self) -> tuple[str, ...]:
        """The MCP servers whose tools the agent is offered."""
        return self._keys.mcp

    def notes(self) -> list[str]:
        return self._settings.notes()


def agent_settings(settings: Settings, agent: str) -> Settings:
    """Return the settings of an agent."""
    return settings if agent == MAIN_AGENT else AgentSettings(settings, agent)


def after_restart(before: Sections, after: Sections) -> tuple[str, ...]:
    """Return the keys that differ between two configurations and take effect only at start."""
    workspaces = [f"agents.{name}.workspace" for name in before.agents if name in after.agents]
    return tuple(key for key in (*AFTER_RESTART, *workspaces) if _at(before, key) != _at(after, key))


def waiting_sentence(keys: tuple[str, ...]) -> str:
    """Return the sentence that names the keys that need a restart."""
    return f"These changes take effect after a restart: {', '.join(keys)}."


def changes(before: Sections, after: Sections) -> set[str]:
    """Return the paths of the keys that differ between two configurations."""
    old, new = (dict(leaves(sections)) for sections in (before, after))
    return {key for key in old.keys() | new.keys() if key not in old or key not in new or old[key] != new[key]}


def leaves(sections: Sections) -> Iterator[tuple[str, Any]]:
    """Yield every key of the sections with its value."""
    for name in Sections.__struct_fields__:
        yield from _leaves(getattr(sections, name), name)


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, msgspec.Struct):
        value = {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)}
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}")
    else:
        yield key, value


def _at(sections: Sections, key: str) -> Any:
    value: Any = sections
    for name in key.split("."):
        value = value[name] if isinstance(value, Mapping) else getattr(value, name)
    return value


def _with(config: Config, key: str, value: Any) -> Config:
    section, _, name = key.partition(".")
    if section == "agents":
        agent, _, name = name.partition(".")
        keys = msgspec.structs.replace(config.agents[agent], **{name: value})
        return msgspec.structs.replace(config, agents={**config.agents, agent: keys})
    inner = msgspec.structs.replace(getattr(config, section), **{name: value}) if name else value
    return msgspec.structs.replace(config, **{section: inner})
