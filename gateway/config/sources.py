"""The sources of the configuration merged into one tree: the file, then the environment, then the command line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gateway.support.errors import ConfigRefused
from gateway.support.small_files import read_at_most
from plugins.support.secrets import Secret
from plugins.support.suggestions import did_you_mean

KeyPath: TypeAlias = tuple[str, ...]

NAMED: dict[str, KeyPath] = {
    "EXUVIA_HOST": ("gateway", "host"),
    "EXUVIA_PORT": ("gateway", "port"),
    "EXUVIA_TOKEN": ("gateway", "token"),
    "EXUVIA_LOG_LEVEL": ("log", "level"),
    "COPAW_MEMORY_COMPACT_THRESHOLD": ("compaction", "threshold_tokens"),
    "COPAW_MEMORY_COMPACT_KEEP_RECENT": ("compaction", "keep_recent_messages"),
    "COPAW_MEMORY_COMPACT_RATIO": ("compaction", "ratio"),
    "MEMORY_STORE_BACKEND": ("memory", "backend"),
    "FTS_ENABLED": ("memory", "search", "keywords"),
    "EMBEDDING_API_KEY": ("memory", "embedding", "api_key"),
    "EMBEDDING_BASE_URL": ("memory", "embedding", "base_url"),
    "EMBEDDING_MODEL_NAME": ("memory", "embedding", "model"),
    "EMBEDDING_DIMENSIONS": ("memory", "embedding", "dimensions"),
    "EMBEDDING_MAX_INPUT_LENGTH": ("memory", "embedding", "max_input_length"),
    "EMBEDDING_MAX_BATCH_SIZE": ("memory", "embedding", "batch_size"),
    "EMBEDDING_MAX_CACHE_SIZE": ("memory", "embedding", "cache"),
    "EMBEDDING_CACHE_ENABLED": ("memory", "embedding", "cache"),
}
"""Environment variables with names of their own."""

_COPAW: dict[KeyPath, str] = {
    ("compaction", "threshold_tokens"): "100000",
    ("compaction", "ratio"): "0.7",
    ("compaction", "keep_recent_messages"): "3",
    ("compaction", "keep_recent_tokens"): "0",  # CoPaw keeps messages, however long they are
}

_EMBEDDING: dict[KeyPath, str] = {
    ("memory", "embedding", "base_url"): "https://dashscope.aliyuncs.com/compatible-mode/v1",
    ("memory", "embedding", "model"): "text-embedding-v4",
    ("memory", "embedding", "dimensions"): "1024",
    ("memory", "embedding", "max_input_length"): "8192",
    ("memory", "embedding", "batch_size"): "10",
    ("memory", "embedding", "cache"): "2000",
}

_BORROWED_DEFAULTS = (
    (tuple(name for name in NAMED if name.startswith("COPAW_")), _COPAW),
    (("EMBEDDING_API_KEY",), _EMBEDDING),
)
"""Variables known from another gateway: if one of the first is set, these keys get that gateway's defaults."""

SHIPPED: dict[KeyPath, Any] = {
    ("compaction", "threshold_tokens"): 0,
    ("compaction", "ratio"): 0.0,
    ("compaction", "keep_recent_tokens"): 20_000,
    ("memory", "embedding", "cache"): 50_000,
}
"""Values of such keys in the shipped `config.example.toml`.

In a file they do not count as set, since `exuvia config init` writes all of them.
"""

_SECRET = ("EXUVIA_TOKEN", "EMBEDDING_API_KEY")
"""Variables that hold a secret itself, as in other programs; never a reference."""

_SWITCH = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)
"""The words that switch something on or off, in lower case."""

_PREFIX = "EXUVIA__"

LONGEST = 1024 * 1024
"""Bytes of the largest configuration file."""

_DEEPEST_KEY = 100
"""Maximum dots in a key."""

_LONGEST_VALUE = 200
"""Lines of the longest value whose line is reported."""


_NAME = r'[A-Za-z0-9_-]+|"[^"\\\x00-\x1f\x7f]+"'
_DOTTED = re.compile(rf"(?:{_NAME})(?:\.(?:{_NAME}))*")


def split_key(key: str) -> KeyPath:
    """Return the names of a dotted key as in TOML, in which names with other characters are quoted; () if it is none."""
    if not _DOTTED.fullmatch(key):
        return ()
    return tuple(name.strip('"') for name in re.findall(_NAME, key))


def join_key(keys: Sequence[str]) -> str:
    """Return the dotted key of these names, as in TOML."""
    return ".".join(name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"' for name in keys)


def lines_of(text: str) -> dict[KeyPath, int]:
    """Return the 1-based lines on which the keys and tables of a valid document begin; of several that define a table, the
    first.

    A statement ends with the first line on which what was read of it is a valid document itself.
    """
    found: dict[KeyPath, int] = {}
    lines, table, first = text.replace("\r\n", "\n").split("\n"), KeyPath(), 0
    while first < len(lines):
        statement, last = _statement(lines, first)
        if statement is None:
            break  # a value of very many lines: what follows it is not known either
        is_table = lines[first].lstrip().startswith("[")
        paths = list(_paths(statement))
        table = max(paths, key=len, default=()) if is_table else table
        for path in paths:
            found.setdefault(path if is_table else table + path, first + 1)
        first = last + 1
    return found


def _statement(lines: Sequence[str], first: int) -> tuple[dict[str, Any] | None, int]:
    """Return the statement that begins on a line, counted from 0, and its last line; None if it has too many, or the key
    too many parts, for which the parser takes quadratic time."""
    if lines[first].partition("=")[0].count(".") > _DEEPEST_KEY:
        return None, first
    for last in range(first, min(first + _LONGEST_VALUE, len(lines))):
        try:
            return tomllib.loads("\n".join(lines[first : last + 1])), last
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
    return None, first


def _paths(value: Any, above: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the paths of all keys in a value; elements of lists have no part of their own."""
    match value:
        case dict():
            for name, inner in value.items():
                yield (*above, name)
                yield from _paths(inner, (*above, name))
        case list():
            for inner in value:
                yield from _paths(inner, above)
        case _:
            pass


class RawConfig(str):
    """A value from the environment: text whose type is determined by its key."""

    __slots__ = ()


def parse_switch(text: str) -> bool | None:
    """Return the boolean that a variable's text means, in any case; None if it is neither on nor off."""
    return _SWITCH.get(text.strip().lower())


class Sources(msgspec.Struct, frozen=True):
    """The merged tree, and the source of each key.

    `given_by` maps a key to a variable's name or `the command line`; other keys are from `file`, whose text is
    `text`. `path` and `overrides` are the inputs, to merge again.
    """

    tree: dict[str, Any]
    given_by: dict[str, str]
    file: str
    text: str
    path: Path | None
    overrides: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Sources({self.file!r})"  # the tree may hold secrets

    def origin(self, key: str) -> str:
        """Return the source of a key, of something in it, or of the nearest table above it."""
        below = (origin for given, origin in self.given_by.items() if given.startswith(f"{key}."))
        if origin := next(below, None):
            return origin
        parts = key.split(".")
        for end in range(len(parts), 0, -1):
            if origin := self.given_by.get(".".join(parts[:end])):
                return origin
        return self.file

    def place(self, key: str, lines: Mapping[KeyPath, int] | None = None) -> str:
        """Return the source of a key, with the line if it is the file and the line is known.

        Args:
            key: The key, with dots.
            lines: The result of `lines_of` for the file, for many calls.
        """
        origin = self.origin(key)
        if origin != self.file:
            return origin
        known = lines_of(self.text) if lines is None else lines
        line = known.get(tuple(re.sub(r"\[[^][]*\]", "", key).split(".")))
        return origin if line is None else f"{origin}, line {line}"


def merge(
    path: Path | None, environment: Mapping[str, str], overrides: Mapping[str, Any], *, text: str | None = None
) -> Sources:
    """Merge all sources; later ones win key by key.

    Args:
        text: The content of the file if it was read before.

    Raises:
        ConfigRefused: The file cannot be parsed.
    """
    if text is None:
        text = "" if path is None else read_file(path)
    tree = {} if path is None else _parsed(path, text)
    sources = Sources(tree, {}, "the configuration" if path is None else str(path), text, path, overrides)
    for name, keys, value in _of_environment(environment):
        if _applies(name, sources.tree, environment):
            _put(sources, keys, value, name)
    for any_of, defaults in _BORROWED_DEFAULTS:
        used = (name for name in any_of if environment.get(name) and _applies(name, sources.tree, environment))
        if variable := next(used, ""):
            for keys, value in defaults.items():
                if not _is_set(sources, keys):
                    _put(sources, keys, RawConfig(value), variable)
    for keys, value in _leaves(overrides):
        _put(sources, keys, value, "the command line")
    return sources


def misspelt_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Return a sentence for each variable whose name is close to that of a known one."""
    ours = [*(name for name in NAMED if name.startswith("EXUVIA_")), "EXUVIA_HOME"]
    for name in environment:
        unknown = name.startswith("EXUVIA_") and not name.startswith(_PREFIX) and name not in ours
        if unknown and (meant := did_you_mean(name, ours, least=0.85)):
            yield f"{name} is not a variable of Exuvia{meant}"


def merge_readable(path: Path, environment: Mapping[str, str]) -> tuple[Sources, ConfigRefused | None]:
    """Return the result of `merge`, or the environment alone and the file's fault if the file cannot be parsed.

    It serves programs that need few keys, next to a gateway that already runs. Raises ConfigRefused if the environment alone
    cannot be merged.
    """
    try:
        return merge(path, environment, {}), None
    except ConfigRefused as fault:
        return merge(None, environment, {}), fault


def read_file(path: Path) -> str:
    """Return the text of a configuration file; empty if there is none. Raises ConfigRefused."""
    try:
        content = read_at_most(path, LONGEST)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigRefused(f"{path} cannot be read: {error.strerror}.") from error
    if content is None:
        raise ConfigRefused(f"{path} is too large for a configuration.")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise ConfigRefused(f"{path}, line {line}, column {column}: this is not UTF-8.") from error


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigRefused(_toml_sentence(path, text, str(error))) from error
    except RecursionError as error:
        raise ConfigRefused(f"{path}, line 1, column 1: tables or lists are nested too deeply.") from error


def _toml_sentence(path: Path, text: str, reason: str) -> str:
    """Return the parser's message as a sentence with the place; at the end of the document it names none."""
    found = re.search(r" \(at line (\d+), column (\d+)\)$", reason)
    lines = text.split("\n")
    line, column = (found[1], found[2]) if found else (len(lines), len(lines[-1]) + 1)
    return f"{path}, line {line}, column {column}: {re.sub(r' [(]at [^()]*[)]$', '', reason)}."


def _of_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, KeyPath, Any]]:
    """Yield the variables that set keys, special names last.

    A blank variable is ignored, except for the token, where that would hide an intention to set one.
    """
    for name in sorted(environment):
        if name.startswith(_PREFIX):
            keys = tuple(name[len(_PREFIX) :].lower().split("__"))
            if not all(keys):
                raise ConfigRefused(f"{name} names no key; write EXUVIA__SECTION__KEY.")
            yield name, keys, RawConfig(environment[name])
    for name, keys in NAMED.items():
        value = environment.get(name)
        if name == "EMBEDDING_CACHE_ENABLED":
            if value and (on := parse_switch(value)) is not True:
                if on is None:
                    raise ConfigRefused(f"{name} must be true or false, not text.")
                yield name, keys, RawConfig("0")
        elif name in _SECRET and (value or (name == "EXUVIA_TOKEN" and value is not None)):
            yield name, keys, Secret(value.strip())
        elif value:
            yield name, keys, RawConfig(value.lower() if name == "EXUVIA_LOG_LEVEL" else value)


def _applies(name: str, tree: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Return True if a variable applies.

    The `EMBEDDING_` variables describe an OpenAI-compatible service: with another provider neither key nor model
    applies, and without an account they select nothing.
    """
    if not name.startswith("EMBEDDING_") or NAMED[name][-1] == "cache":
        return True
    embedding = _at(tree, ("memory", "embedding"))
    given = embedding if isinstance(embedding, dict) else {}
    provider = given.get("provider", "auto")
    account = environment.get("EMBEDDING_API_KEY") or given.get("api_key") or given.get("base_url")
    return provider == "openai" or (provider == "auto" and bool(account))


def _is_set(sources: Sources, keys: KeyPath) -> bool:
    """Return True if the user set a key to a value of their own, or a parent of it to something that is no table.

    The latter is reported by the validation.
    """
    above = _at(sources.tree, keys[:-1])
    if not isinstance(above, dict):
        return above is not None
    in_file = ".".join(keys) not in sources.given_by
    return keys[-1] in above and not (in_file and above[keys[-1]] == SHIPPED.get(keys))


def _at(tree: Any, keys: KeyPath) -> Any:
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else tree
    return tree


def _leaves(tree: Mapping[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _put(sources: Sources, keys: KeyPath, value: Any, origin: str) -> None:
    table = sources.tree
    for depth, key in enumerate(keys[:-1], start=1):
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ConfigRefused(f"{origin}: {'.'.join(keys[:depth])} must be a table.")
    table[keys[-1]] = value
    sources.given_by[".".join(keys)] = origin
