"""Changes of single keys in the text of a configuration, which keep its comments and order.

tomlkit replaces and removes values. What it cannot do is done by lines: a commented line of a key is replaced, a new key
follows the last one of its table and not the comments before the next heading, and a removed table leaves those comments.
The result is always compared with the values that it must have, so that a text in an unusual layout is never misread:
tomlkit then makes the whole change.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Item

from gateway.config.documented_keys import DocumentedKey, documented_keys
from gateway.config.sources import KeyPath, join_key, split_key
from gateway.support.errors import ConfigRefused

LINE_LENGTH = 100
"""Characters above which a list is written with one item per line."""


def edited(text: str, changes: Mapping[str, Any]) -> str:
    """Return a configuration's text with changed keys.

    Args:
        text: The text, which is valid TOML.
        changes: Values of TOML by their dotted keys. None removes a key or a table; a line of the shipped example that the
            key has its default in is restored.

    Raises:
        ConfigRefused: A key cannot be changed in this text.
    """
    for key in sorted(changes, key=lambda key: len(split_key(key))):  # tables before the tables in them
        text = _edited(text, key, changes[key])
    return text


def _edited(text: str, key: str, value: Any) -> str:
    if len(keys := split_key(key)) < 2:
        raise ConfigRefused(f"{key!r} can only be changed in the file itself.", key=key)
    before = tomllib.loads(text)
    if (wanted := _normal(_with_value(before, keys, value))) == _normal(before):
        return text
    accepted = [wanted]
    step: Callable[[str, KeyPath, Any], str]
    if value is not None:
        step = _insert_by_lines
    elif (shipped := _shipped(keys)) is not None:
        step = _restore_by_lines
        if shipped.is_default:
            accepted.append(_normal(_with_value(before, keys, shipped.value)))
    else:
        step = _remove_by_lines
    for attempt, results in ((step, accepted), (_set_by_tomlkit, [wanted])):
        with contextlib.suppress(TOMLKitError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError):
            new = attempt(text, keys, value)
            if _normal(tomllib.loads(new)) in results:
                return new
    raise ConfigRefused(
        f"{key} cannot be changed here, because of how the file is written; change it in the file itself.", key=key
    )


# --- values -----------------------------------------------------------------------------------------------------------


def _with_value(tree: Mapping[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """Return the tree with a key set, or without it if the value is None."""
    name, *below = keys
    inner = tree.get(name)
    if below:
        if not isinstance(inner, dict) and value is None:
            return dict(tree)
        return {**tree, name: _with_value(inner if isinstance(inner, dict) else {}, below, value)}
    return {each: kept for each, kept in tree.items() if each != name} if value is None else {**tree, name: value}


def _normal(tree: Any) -> Any:
    """Return the tree without empty tables, which mean nothing."""
    if not isinstance(tree, dict):
        return tree
    inner = {name: _normal(value) for name, value in tree.items()}
    return {name: value for name, value in inner.items() if value != {}}


def _shipped(keys: KeyPath) -> DocumentedKey | None:
    section, name = join_key(keys[:-1]), keys[-1]
    return next((each for each in documented_keys() if (each.section, each.name) == (section, name)), None)


def toml_value(value: Any) -> str:
    """Return a value as TOML, on one line unless it is a long list or a text with line breaks."""
    return _item(value).as_string()


def _item(value: Any) -> Item:
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        table.update({name: _item(inner) for name, inner in value.items()})
        return table
    if isinstance(value, list | tuple):
        array = tomlkit.array()
        array.extend(_item(inner) for inner in value)
        return array.multiline(len(array.as_string()) > LINE_LENGTH)
    if isinstance(value, str):
        # The first line break of a multi-line text would not belong to it.
        return tomlkit.string(value, multiline="\n" in value and not value.startswith("\n"))
    item: Item = tomlkit.item(value)
    return item


# --- tomlkit ----------------------------------------------------------------------------------------------------------


def _set_by_tomlkit(text: str, keys: KeyPath, value: Any) -> str:
    document = tomlkit.parse(text)
    table: Any = document
    for name in keys[:-1]:
        if name not in table:
            if value is None:
                return text
            table[name] = tomlkit.inline_table() if isinstance(table, InlineTable) else tomlkit.table()
        table = table[name]
    if value is None:
        del table[keys[-1]]
    else:
        table[keys[-1]] = _item(value)
    return tomlkit.dumps(document)


# --- lines ------------------------------------------------------------------------------------------------------------


def _table_lines(lines: Sequence[str], table: str) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of the lines of a table, its heading included."""
    heading = f"[{table}]"
    for first, line in enumerate(lines):
        if line.partition("#")[0].strip() == heading:
            end = next((at for at in range(first + 1, len(lines)) if lines[at].startswith("[")), len(lines))
            yield first, end


def _statement_end(lines: Sequence[str], first: int) -> int:
    """Return the end of the lines of the statement that begins on a line."""
    for end in range(first + 1, len(lines) + 1):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            tomllib.loads("\n".join(lines[first:end]))
            return end
    raise ValueError("This is no statement.")


def _insert_by_lines(text: str, keys: KeyPath, value: Any) -> str:
    """Set a key that has no value: in its shipped commented line, else below the last key of its table."""
    table, name = join_key(keys[:-1]), join_key(keys[-1:])
    line, lines, shipped = f"{name} = {toml_value(value)}", text.split("\n"), _shipped(keys)
    found = next(_table_lines(lines, table), None)
    if found is None:
        return f"{text.rstrip()}\n\n[{table}]\n{line}\n".lstrip("\n")
    first, end = found
    at = None if shipped is None else next((at for at in range(first + 1, end) if lines[at] == shipped.line), None)
    if at is None:
        last = max(place for place in range(first, end) if lines[place].strip() and not lines[place].startswith("#"))
        lines.insert(last + 1, line)
    else:
        lines[at] = line
    return "\n".join(lines)


def _restore_by_lines(text: str, keys: KeyPath, _: Any) -> str:
    """Restore the shipped line of a key below its sentence. Raises ValueError if the sentence is not there."""
    lines, shipped = text.split("\n"), _shipped(keys)
    if shipped is None:
        raise ValueError("The key is not shipped.")
    for first, end in _table_lines(lines, shipped.section):
        for at in range(first + 1, end):
            if lines[at - 1] == f"# {shipped.sentence}" and re.match(rf"{re.escape(shipped.name)}\s*=", lines[at]):
                lines[at : _statement_end(lines, at)] = [shipped.line]
                return "\n".join(lines)
    raise ValueError("The sentence of the key is not there.")


def _remove_by_lines(text: str, keys: KeyPath, _: Any) -> str:
    """Remove a table with the tables in it, but no comments."""
    lines = text.split("\n")
    inside = re.compile(rf"\A\s*\[{re.escape(join_key(keys))}[.\]]")
    for first in reversed([at for at, line in enumerate(lines) if inside.match(line)]):
        end = next((at for at in range(first + 1, len(lines)) if lines[at].startswith("[")), len(lines))
        last = max(at for at in range(first, end) if lines[at].strip() and not lines[at].startswith("#"))
        del lines[first : last + 1 + (last + 1 < len(lines) and not lines[last + 1].strip())]
    return "\n".join(lines)
