"""The configuration as its forms and its example have it, and the page that is made of both."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import inspect

from gateway.config.agents import NamedAgentKeys
from gateway.config.documented_keys import documented_keys
from gateway.config.keys import BudgetKeys, ChannelKeys, McpAccessKeys, PersonKeys, PriceKeys, Sections
from gateway.config.routes import RouteKeys
from gateway.config.settings import AFTER_RESTART
from gateway.config.sources import NAMED
from gateway.config.validation import Seconds, Timezone
from plugins.api.context import NoSettings
from plugins.host.loading import built_in_channels, load_plugins
from plugins.host.validation import channel_settings
from plugins.mcp.mcp_settings import ServerKeys
from plugins.support.addresses import FAULT, host_fault, host_pattern_fault, origin_fault, server_fault, web_fault
from plugins.support.secrets import Secret


def forms() -> dict[str, type]:
    """The form of each section of the configuration, those of the built-in providers too."""
    named_tables = ("providers", "channels", "people", "mcp", "mcp_access", "prices", "budgets", "agents", "routes")
    sections = {f.name: f.type for f in msgspec.structs.fields(Sections) if f.name not in named_tables}
    sections |= {"mcp.files": ServerKeys, "agents.work": NamedAgentKeys, "routes": RouteKeys}
    deeper = sections
    while deeper:
        deeper = {f"{name}.{inner}": form for name, kind in deeper.items() for inner, form in tables_in(kind).items()}
        sections |= deeper
    providers = load_plugins(()).chat_providers()
    named = {f"providers.{name}": provider.Settings for name, provider in providers.items()}
    channels = {f"channels.{kind}": form for kind, form in channel_forms().items()}
    return (
        sections
        | named
        | {"channels.home": ChannelKeys, **channels, "people.ana": PersonKeys, "mcp_access.editor": McpAccessKeys}
        | {'prices."openai:gpt-4.1"': PriceKeys, 'budgets."*"': BudgetKeys}
    )


def channel_forms() -> dict[str, type[msgspec.Struct]]:
    """The settings of each built-in channel."""
    kinds = built_in_channels()
    return {name: channel_settings(kind) or NoSettings for name, kind in load_plugins((), channels=kinds).channels().items()}


def tables_in(form: type) -> dict[str, type]:
    """The keys of a section that are tables of their own."""
    fields = msgspec.structs.fields(form)
    return {f.encode_name: f.type for f in fields if isinstance(f.type, type) and issubclass(f.type, msgspec.Struct)}


def example_keys() -> list[tuple[str, str, str]]:
    """Of each key in the example: its section, its name, and the line above it."""
    return [(key.section, key.name, f"# {key.sentence}") for key in documented_keys()]


# --- the page ---------------------------------------------------------------------------------------------------------


def keys_section() -> str:
    """Every section of the configuration as a table of its keys."""
    told: dict[str, list[str]] = {}
    kinds = {(section, field.encode_name): field.type for section, form in forms().items() for field in fields_of(form)}
    for key in documented_keys():
        value = f"`{key.written}`" if key.is_default else f"none; such as `{key.written}`"
        kind = kind_of(kinds[key.section, key.name])
        row = f"| `{key.name}` | {_cell(value)} | {kind} | {_cell(key.sentence)} |"
        told.setdefault(key.section, []).append(row)
    return "\n".join(
        f"### `[{re.sub(r'[.](ana|files|editor|home|work|.openai:gpt-4[.]1.)', '.NAME', section)}]`\n\n"
        + "\n".join(["| key | default | type | description |", "|---|---|---|---|", *rows])
        + "\n"
        for section, rows in told.items()
    )


def restart_section() -> str:
    """The keys that wait for a restart."""
    return "\n".join(f"- `{key}`" for key in AFTER_RESTART)


def variables_section() -> str:
    """The variables that mean a key."""
    rows = [f"| `{name}` | `{'.'.join(path)}` |" for name, path in NAMED.items()]
    return "| variable | key |\n|---|---|\n" + "\n".join(rows)


def fields_of(form: type) -> tuple[inspect.Field, ...]:
    """The fields of a form, with what msgspec knows of their types."""
    known = inspect.type_info(form)
    assert isinstance(known, inspect.StructType)
    return known.fields


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


WORDS = {
    inspect.NoneType: "",
    inspect.BoolType: "`true`, `false`",
    inspect.StrType: "string",
    inspect.AnyType: "anything",
    inspect.StructType: "table",
}

CHECKED = {web_fault: "URL", server_fault: "URL", origin_fault: "origin", host_fault: "host", host_pattern_fault: "host"}

OWN = {Secret: "secret", Seconds: "duration", Timezone: "time zone"}


def kind_of(kind: Any) -> str:  # noqa: PLR0911 - one for each kind
    """Describe the values of a key in words."""
    match kind:
        case inspect.UnionType():
            return " or ".join(dict.fromkeys(told for each in kind.types if (told := kind_of(each))))
        case inspect.LiteralType():
            return ", ".join(f'`"{value}"`' for value in kind.values)
        case inspect.IntType() | inspect.FloatType():
            return _number(kind)
        case inspect.VarTupleType() | inspect.ListType():
            return f"list of {_plural(kind_of(kind.item_type))}"
        case inspect.DictType():
            return f"table of {_plural(kind_of(kind.value_type))}"
    if isinstance(kind, inspect.Metadata):
        return CHECKED[(kind.extra or {})[FAULT]]
    return OWN[kind.cls] if isinstance(kind, inspect.CustomType) else WORDS[type(kind)]


def _plural(kind: str) -> str:
    """The words for a kind, as they follow "list of"."""
    return re.sub(r"^(URL|origin|host|secret|string|integer|number|table)\b", r"\1s", kind)


def _number(kind: inspect.IntType | inspect.FloatType) -> str:
    word = "integer" if isinstance(kind, inspect.IntType) else "number"
    if kind.gt is not None:
        word += f" above {kind.gt:g}"
    elif kind.ge is not None:
        word += f" from {kind.ge:g}"
    return word + (f" to {kind.le:,g}" if kind.le is not None and kind.le < 1e6 else "")
