"""The configuration as plain values: secrets as references, and the source of each value."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
import tomli_w

from gateway.config.keys import ChannelKeys, Config, PluginsKeys, Sections
from gateway.config.secret_references import is_reference
from gateway.config.sources import KeyPath, RawConfig, Sources, lines_of
from gateway.config.validation import Seconds
from gateway.support.printable import one_line
from plugins.api.chat import ChatProvider
from plugins.support.secrets import HIDDEN, Secret

Tree: TypeAlias = dict[str, Any]

DEFAULT = "default"

NONE: Mapping[str, Any] = {}

_LINE = re.compile(r'(?:\[(?P<table>.+)\]|(?P<key>"(?:[^"\\]|\\.)*"|[A-Za-z0-9_-]+) = .*)')
"""A line that the TOML writer starts at the left margin: a table header or a key."""


class CheckedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check; faults and warnings are sentences.

    `config` is the configuration without its invalid keys, None if the file is no TOML. `kinds` are the known providers,
    `settings` the valid settings of each, `plugins` those of every other plugin that has some,
    `channels` those of each channel.
    """

    faults: list[str]
    warnings: list[str]
    config: Config | None
    kinds: Mapping[str, type[ChatProvider]]
    settings: Mapping[str, Any]
    plugins: Mapping[str, Any] = {}
    channels: Mapping[str, Any] = {}


def shown(
    config: Config, providers: Mapping[str, Any], plugins: Mapping[str, Any] = NONE, channels: Mapping[str, Any] = NONE
) -> Tree:
    """Return the values in force; keys without a value are left out.

    `providers`, `plugins` and `channels` are the settings of each, as its own Struct.
    """
    sections = {name: getattr(config, name) for name in Sections.__struct_fields__}
    keys = {field: getattr(config.plugins, field) for field in PluginsKeys.__struct_fields__ if field != "tables"}
    sections |= {"providers": providers, "plugins": {**keys, **plugins}}
    sections["channels"] = {name: _channel(config.channels[name], own) for name, own in channels.items()}
    return {name: _plain(value, config.sources, name) for name, value in sections.items()}


def _channel(keys: ChannelKeys, own: Any) -> dict[str, Any]:
    """Return the keys of a channel's table, the gateway's and its kind's."""
    named = [(struct, field) for struct in (keys, own) for field in msgspec.structs.fields(struct)]
    return {
        field.encode_name: getattr(struct, field.name)
        for struct, field in named
        if field.name != "settings" or struct is own
    }


def sources_of(tree: Tree, sources: Sources, above: str = "", lines: Mapping[KeyPath, int] | None = None) -> dict[str, str]:
    """Return the source of each key of a tree made by `shown`: a file and line, a variable, or `default`. `above` and
    `lines` are for the tables in it."""
    found: dict[str, str] = {}
    lines = lines_of(sources.text) if lines is None else lines
    for name, value in tree.items():
        key = f"{above}{name}"
        if isinstance(value, dict) and value:
            found |= sources_of(value, sources, f"{key}.", lines)
        else:
            found[key] = DEFAULT if _given(sources, key) is None else sources.place(key, lines)
    return found


def as_toml(tree: Tree, sources: Mapping[str, str] | None = None) -> str:
    """Return the tree as TOML; with `sources`, each key's source follows as a comment."""
    text = tomli_w.dumps(tree)
    if sources is None:
        return text
    lines, table = [], ""
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found and found["table"]:
            table = found["table"].replace('"', "") + "."
        elif found and (key := next(iter(tomllib.loads(f"{found['key']} = 0")))):
            line += f"  # {one_line(sources.get(table + key, DEFAULT), 200)}"  # noqa: PLW2901
        lines.append(line)
    return "\n".join(lines) + "\n"


def plain_value(value: Any) -> Any:
    """Return a value that contains no secret with the types of TOML and JSON, None if there is none."""
    return _plain(value, None, "")


def _plain(value: Any, sources: Sources | None, key: str) -> Any:
    """Convert a value to the types of TOML and JSON."""
    if isinstance(value, msgspec.Struct):
        value = {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)}
    if isinstance(value, Mapping):
        plain = {name: _plain(inner, sources, f"{key}.{name}") for name, inner in value.items()}
        return {name: inner for name, inner in plain.items() if inner is not None}
    if isinstance(value, Secret):
        return HIDDEN if sources is None else _reference(sources, key)
    if isinstance(value, tuple | list):
        secret = any(isinstance(inner, Secret) for inner in value)
        return (
            _references(sources, key) if secret and sources is not None else [_plain(inner, sources, key) for inner in value]
        )
    if isinstance(value, Seconds):
        return value.written()
    return str(value) if isinstance(value, str) else value


def _references(sources: Sources, key: str) -> str | list[str]:
    """Return the references for a list of secrets, or for a single secret in its place."""
    given = _given(sources, key)
    if not isinstance(given, list):
        return _reference(sources, key)
    return [inner if isinstance(inner, str) and is_reference(inner) else HIDDEN for inner in given]


def _reference(sources: Sources, key: str) -> str:
    """Return what is shown for a secret: its reference, the name of its variable, or a placeholder."""
    given = _given(sources, key)
    if isinstance(given, str) and is_reference(given):
        return str(given)
    return f"env:{sources.origin(key)}" if isinstance(given, RawConfig | Secret) else HIDDEN


def _given(sources: Sources, key: str) -> Any:
    """Return the value that a source gave for a key, as written; None if there is none."""
    tree: Any = sources.tree
    for name in key.split("."):
        if not isinstance(tree, dict) or name not in tree:
            return None
        tree = tree[name]
    return tree
