"""`[agent]` and `[agents.NAME]`: the agents, what each of them inherits, and the checks of their names and workspaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gateway.config.validation import Seconds, Timezone
from plugins.sandbox.policy import SandboxKeys
from plugins.skills.skill_settings import SkillsKeys
from sessions.events.events import MAIN_AGENT

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_HOURS = r"^([01]\d|2[0-3]):[0-5]\d-(([01]\d|2[0-3]):[0-5]\d|24:00)$"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class HeartbeatKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[heartbeat]` and `[agents.NAME.heartbeat]`: wakes the model at an interval, with what a file of the workspace says.

    `every` None is never. The interval counts from the beginning of the `active` hours in the `timezone`, None for that of
    the `person`. Answers go to the conversation `session`, or to the chat `to` of a channel. `prompt` None means the shipped
    text, and no beat without a file.
    """

    every: Seconds | None = None
    active: Annotated[str, msgspec.Meta(pattern=_HOURS)] = "00:00-24:00"
    timezone: Timezone | None = None
    person: _Text = "owner"
    session: _Text | None = None
    to: Annotated[str, msgspec.Meta(pattern="^[^:]+:.+$")] | None = None
    file: _Text = "HEARTBEAT.md"
    prompt: _Text | None = None


class AgentKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agent]`: the model, its fallbacks and its instructions.

    `fallback_models` are tried in order. `context_window` is in tokens, None for the provider's value;
    `context_windows` sets those of other models by a prefix of `provider:model`. `instructions` None means the shipped text,
    `timezone` None the system's, `title_model` None the session's model.
    """

    model: _Text = "auto"
    fallback_models: tuple[_Text, ...] = ()
    instructions: _Text | None = None
    language: str = "en"
    timezone: Timezone | None = None
    verbose: bool = False
    workspace: _Text = "workspace"
    workspace_access: Literal["rw", "ro", "none"] = "rw"
    protected_files: tuple[_Text, ...] = ("AGENTS.md", "SOUL.md")
    context_window: Annotated[int, msgspec.Meta(ge=256)] | None = None
    context_windows: dict[str, Annotated[int, msgspec.Meta(ge=256)]] = {}
    tool_rounds: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 24
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    titles: bool = True
    title_model: _Text | None = None


class AgentToolsKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents.NAME.tools]`: the tools that are offered to the agent, by their names; `*` matches any text, and `deny`
    counts before `allow`."""

    allow: tuple[_Text, ...] = ("*",)
    deny: tuple[_Text, ...] = ()

    def offers(self, tool: str) -> bool:
        """Return True if the tool is offered."""
        named = any(fnmatchcase(tool, pattern) for pattern in self.allow)
        return named and not any(fnmatchcase(tool, pattern) for pattern in self.deny)


class AgentMemoryKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents.NAME.memory]`: the folders that the agent's memory has besides its workspace."""

    extra_paths: tuple[_Text, ...] = ()


class NamedAgentKeys(AgentKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents.NAME]`: an agent besides `main`.

    What the table leaves out is inherited from `[agent]`, `[skills]` and `[sandbox]`, except for the workspace, which is the
    agent's own; so is the heartbeat. `mcp` names the MCP servers whose tools are offered.
    """

    mcp: tuple[_Text, ...] = ()
    tools: AgentToolsKeys = AgentToolsKeys()
    memory: AgentMemoryKeys = AgentMemoryKeys()
    skills: SkillsKeys = SkillsKeys()
    sandbox: SandboxKeys = SandboxKeys()
    heartbeat: HeartbeatKeys = HeartbeatKeys()

    def as_main(self) -> AgentKeys:
        """Return the keys that `[agent]` has, too."""
        return AgentKeys(**{name: getattr(self, name) for name in AgentKeys.__struct_fields__})


def own_workspace(agent: str) -> str:
    """Return the workspace of an agent that names none, relative to the home."""
    return "workspace" if agent == MAIN_AGENT else f"agents/{agent}/workspace"


def with_inherited(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the tree of a configuration in which each `[agents.NAME]` has what it inherits."""
    agents = tree.get("agents")
    if not isinstance(agents, dict):
        return tree
    return {
        **tree,
        "agents": {
            name: _inheriting(tree, name, table) if isinstance(table, dict) else table for name, table in agents.items()
        },
    }


def _inheriting(tree: dict[str, Any], name: str, table: dict[str, Any]) -> dict[str, Any]:
    inherited = {**_table(tree, "agent"), "workspace": own_workspace(name)}
    inner = {key: _table(tree, key) | table[key] for key in ("skills", "sandbox") if isinstance(table.get(key), dict)}
    shared = {key: _table(tree, key) for key in ("skills", "sandbox") if key not in table}
    return {**inherited, **shared, **table, **inner}


def _table(tree: dict[str, Any], key: str) -> dict[str, Any]:
    table = tree.get(key)
    return table if isinstance(table, dict) else {}


def faults_of_names(agents: Mapping[str, NamedAgentKeys]) -> Iterator[tuple[str, str]]:
    """Yield the key of each agent that cannot have its name, and the reason as part of a sentence."""
    for name in agents:
        if name == MAIN_AGENT:
            yield f"agents.{name}", "is the agent that [agent] configures; choose another name"
        elif not _NAME.fullmatch(name):
            yield f"agents.{name}", "must be a name of at most 32 lower-case letters, digits, - and _, with a letter first"


def faults_of_workspaces(main: AgentKeys, agents: Mapping[str, NamedAgentKeys], home: Path) -> Iterator[tuple[str, str]]:
    """Yield the key of each workspace in or around the one of another agent or the gateway's files, and the reason as part
    of a sentence. Blocks."""
    seen = {"agent.workspace": (home / Path(main.workspace).expanduser()).resolve()}
    root, folders = home.resolve(), (home / "agents").resolve()
    for name, keys in agents.items():
        key, place = f"agents.{name}.workspace", (home / Path(keys.workspace).expanduser()).resolve()
        for other, taken in seen.items():
            if place.is_relative_to(taken) or taken.is_relative_to(place):
                yield key, f"overlaps with {other}: agents see nothing of each other, so each needs a folder of its own"
        own = place.is_relative_to(folders / name) and place != folders / name
        beside = place.is_relative_to(folders) and not own
        if root.is_relative_to(place) or beside:
            yield key, "contains files of the gateway or of other agents; choose a separate folder"
        seen[key] = place
