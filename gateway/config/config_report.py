"""Every key of a checked configuration with its sentence, type, default, value and source, as the console shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gateway.config.agents import NamedAgentKeys
from gateway.config.documented_keys import DocumentedKey, documented_keys
from gateway.config.key_kinds import Field, ValueKind, tables_of
from gateway.config.keys import BudgetKeys, ChannelKeys, McpAccessKeys, PersonKeys, PriceKeys, Sections
from gateway.config.rendering import CheckedConfig, Tree, plain_value, shown
from gateway.config.settings import AFTER_RESTART
from gateway.config.sources import NAMED, Sources, join_key, split_key
from plugins.api.context import NoSettings
from plugins.host.hooks import Hooks
from plugins.host.loading import built_in_channels, channel_kinds
from plugins.host.validation import channel_settings
from plugins.mcp.mcp_settings import ServerKeys

COMMAND_LINE = "the command line"

_ENTRIES: Mapping[str, tuple[type[msgspec.Struct], str]] = {
    "agents": (NamedAgentKeys, "agents.work"),
    "people": (PersonKeys, "people.ana"),
    "mcp": (ServerKeys, "mcp.files"),
    "mcp_access": (McpAccessKeys, "mcp_access.editor"),
    "prices": (PriceKeys, 'prices."openai:gpt-4.1"'),
    "budgets": (BudgetKeys, 'budgets."*"'),
}
"""The sections in which each table has a name that people choose, with the table of the example."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table: its path, its keys, and the table of the example that explains them. `entry` is the path of the table that
    can be removed as a whole with it, empty if there is none."""

    name: str
    fields: list[Field]
    example: str
    entry: str = ""


class KeyReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key. `default` and `value` are omitted if there is none; secrets are references.

    `example` is a value as TOML for a key without a default. `origin` is the source of the value, empty for the default. A
    `fixed` value is set outside of the file, which it overrides.
    """

    key: str
    name: str
    kind: ValueKind
    sentence: str = ""
    default: Any = None
    value: Any = None
    example: str = ""
    origin: str = ""
    fixed: bool = False
    restart: bool = False


class TableReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table with its keys. A template has the path of the section in which a table of any name can be added."""

    name: str
    keys: list[KeyReport]
    entry: str = ""
    kind: str = ""


class ConfigReport(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration.

    `locked` is why its file cannot be written, `fault` why it is not in force, `faults` are all faults in it, `waiting` the
    keys that wait for a restart.
    """

    tables: list[TableReport]
    templates: list[TableReport]
    faults: list[str]
    warnings: list[str]
    file: str = ""
    digest: str = ""
    locked: str = ""
    fault: str | None = None
    waiting: tuple[str, ...] = ()


def report_of(checked: CheckedConfig, hooks: Hooks) -> ConfigReport:
    """Return every key of a configuration; none if its file cannot be read. Blocks."""
    faults, warnings = checked.faults, checked.warnings
    if checked.config is None:
        return ConfigReport(tables=[], templates=[], faults=faults, warnings=warnings)
    values = shown(checked.config, checked.settings, checked.plugins, checked.channels)
    sources = checked.config.sources
    tables = [
        TableReport(name=table.name, keys=list(_keys(table, values, sources)), entry=table.entry)
        for table in tables_of_config(checked, hooks)
    ]
    return ConfigReport(tables=tables, templates=list(_templates(hooks)), faults=faults, warnings=warnings)


def tables_of_config(checked: CheckedConfig, hooks: Hooks) -> list[Table]:
    """Return all tables of a configuration whose schema is known. Blocks."""
    config = checked.config
    if config is None:
        return []
    tables: list[Table] = []
    for field in msgspec.structs.fields(Sections):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            tables += _tables(field.type, field.name, field.name)
    own = {f"providers.{name}": kind.Settings for name, kind in checked.kinds.items()}
    own |= {f"plugins.{name}": type(settings) for name, settings in checked.plugins.items() if name not in checked.kinds}
    for name, form in own.items():
        tables += _tables(form, name, name)
    for section, (form, example) in _ENTRIES.items():
        for name in getattr(config, section):
            path = join_key((section, name))
            tables += _tables(form, path, example, entry=path)
    kinds = channel_kinds(hooks, {keys.kind for keys in config.channels.values()})
    for name, keys in config.channels.items():
        path = join_key(("channels", name))
        tables += _channel_tables(path, path, keys.kind, channel_settings(kinds[keys.kind]) if keys.kind in kinds else None)
    return tables


def _tables(form: type[msgspec.Struct], name: str, example: str, entry: str = "") -> list[Table]:
    return [
        Table(
            name=path,
            fields=[field for field in fields if f"{path}.{field.name}" != "plugins.tables"],
            example=example + path.removeprefix(name),
            entry=entry,
        )
        for path, fields in tables_of(form, name).items()
    ]


def _channel_tables(path: str, entry: str, kind: str, own: type[msgspec.Struct] | None) -> list[Table]:
    """Return the table of a channel: the keys of the gateway, and those of its kind."""
    keys = [field for field in tables_of(ChannelKeys, path)[path] if field.name != "settings"]
    tables = [Table(name=path, fields=keys, example="channels.home", entry=entry)]
    return tables + _tables(own or NoSettings, path, f"channels.{kind}", entry)


def _templates(hooks: Hooks) -> Iterator[TableReport]:
    """Yield the tables that can be added, with the path of their section in the place of their own."""
    for section, (form, example) in _ENTRIES.items():
        for table in _tables(form, section, example):
            yield TableReport(name=table.name, keys=list(_keys(table, {}, None)))
    for kind, channel in channel_kinds(hooks, set(built_in_channels())).items():
        if (own := channel_settings(channel)) is not None:
            for table in _channel_tables("channels", "", kind, own):
                yield TableReport(name=table.name, keys=list(_keys(table, {}, None)), kind=kind)


def _keys(table: Table, values: Tree, sources: Sources | None) -> Iterator[KeyReport]:
    documented = {key.name: key for key in documented_keys() if key.section == table.example}
    for field in table.fields:
        path, told = f"{table.name}.{field.name}", documented.get(field.name)
        report = KeyReport(
            key=path,
            name=field.name,
            kind=_in_order(field.kind, told),
            sentence="" if told is None else told.sentence,
            default=plain_value(field.default),
            example="" if told is None or told.is_default else told.written,
            restart=_waits(path),
        )
        yield report if sources is None else _with_value(report, values, sources)


def _in_order(kind: ValueKind, told: DocumentedKey | None) -> ValueKind:
    """Return a kind with its choices in the order in which the sentence names them."""
    if told is None or not kind.choices:
        return kind
    places = {each: told.sentence.find(f'"{each}"') for each in kind.choices}
    return msgspec.structs.replace(kind, choices=tuple(sorted(kind.choices, key=lambda each: places[each] % 10_000)))


def _with_value(report: KeyReport, values: Tree, sources: Sources) -> KeyReport:
    """Return a key with its value in force and the source of that."""
    key = report.key
    names = split_key(key)
    value = _at(values, names)
    if _at(sources.tree, names) is None:
        return msgspec.structs.replace(report, value=value)
    origin = sources.origin(key)
    return msgspec.structs.replace(
        report,
        value=value,
        origin="file" if origin == sources.file else origin,
        fixed=origin == COMMAND_LINE or origin.startswith("EXUVIA__") or ".".join(NAMED.get(origin, ())) == key,
    )


def _at(tree: Any, names: Iterable[str]) -> Any:
    for name in names:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _waits(key: str) -> bool:
    """Return True if a change of a key takes effect after a restart."""
    is_plugins_own = key.startswith("plugins.") and key.count(".") > 1
    return key in AFTER_RESTART or is_plugins_own
