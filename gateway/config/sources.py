"""Where configuration comes from, merged into one tree: the file, then the environment, then the command line."""

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
"""The environment variables that have names of their own."""

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

_TOGETHER = (
    (tuple(name for name in NAMED if name.startswith("COPAW_")), _COPAW),
    (("EMBEDDING_API_KEY",), _EMBEDDING),
)
"""Variables that somebody brings along from another gateway: when one of the first is set, these keys have the defaults that
they have there."""

SHIPPED: dict[KeyPath, Any] = {
    ("compaction", "threshold_tokens"): 0,
    ("compaction", "ratio"): 0.0,
    ("compaction", "keep_recent_tokens"): 20_000,
    ("memory", "embedding", "cache"): 50_000,
}
"""Values that the shipped `config.example.toml` has for such keys. In a file they are no wish of anybody's: `exuvia config
init` writes them all."""

_SECRET = ("EXUVIA_TOKEN", "EMBEDDING_API_KEY")
"""Variables that hold a secret itself, as others read it there; never a reference."""

_SWITCH = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)
"""The words by which a variable switches something on or off, in lower case."""

_PREFIX = "EXUVIA__"

_LONGEST = 1024 * 1024
"""Bytes of the largest file that is taken for a configuration."""

_LONGEST_VALUE = 200
"""Lines that one value may go on for; beyond that its place is not told."""


def line_of(text: str, keys: Sequence[str]) -> int | None:
    """The line, from 1, on which the key begins in a document that parses; None where it cannot be told.

    A document cut off behind a whole statement parses too, so the first such piece that holds the key ends with it.
    """
    lines = text.split("\n")
    for first, line in enumerate(lines, start=1):
        if keys[-1] in line and _begins(lines, first, keys):
            return first
    return None


def _begins(lines: Sequence[str], first: int, keys: Sequence[str]) -> bool:
    """Whether the statement that begins on the line `first` is the one that gives the key."""
    for last in range(first, min(first + _LONGEST_VALUE, len(lines) + 1)):
        try:
            tree = tomllib.loads("\n".join(lines[:last]))
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
        return _holds(tree, keys)
    return False


def _holds(tree: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(tree, dict):
            return True  # an array of tables: which of them is not told
        if key not in tree:
            return False
        tree = tree[key]
    return True


class RawConfig(str):
    """A value from the environment: text, whose type is settled by the key that it is for."""

    __slots__ = ()


def switched(text: str) -> bool | None:
    """Return what a variable's text switches to, in any case; None if it is no such word."""
    return _SWITCH.get(text.strip().lower())


class Sources(msgspec.Struct, frozen=True):
    """The merged tree, and who gave which key: a variable's name, `the command line`, or else `file`, which holds `text`.
    `path` and `overrides` are what it was made of, to make it again."""

    tree: dict[str, Any]
    given_by: dict[str, str]
    file: str
    text: str
    path: Path | None
    overrides: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Sources({self.file!r})"  # the tree may hold secrets

    def origin(self, key: str) -> str:
        """Who gave a key, something in it, or the nearest thing above it."""
        below = (origin for given, origin in self.given_by.items() if given.startswith(f"{key}."))
        if origin := next(below, None):
            return origin
        parts = key.split(".")
        for end in range(len(parts), 0, -1):
            if origin := self.given_by.get(".".join(parts[:end])):
                return origin
        return self.file

    def place(self, key: str) -> str:
        """Who gave a key, with the line where that is the file and the line can be told."""
        origin = self.origin(key)
        line = line_of(self.text, re.sub(r"\[[^][]*\]", "", key).split(".")) if origin == self.file else None
        return origin if line is None else f"{origin}, line {line}"


def merge(
    path: Path | None, environment: Mapping[str, str], overrides: Mapping[str, Any], *, text: str | None = None
) -> Sources:
    """All that was given; later sources win key by key. `text` stands for what the file holds, as it was read before.
    ConfigRefused if the file cannot be parsed."""
    if text is None:
        text = "" if path is None else read_file(path)
    tree = {} if path is None else _parsed(path, text)
    sources = Sources(tree, {}, "the configuration" if path is None else str(path), text, path, overrides)
    for name, keys, value in _of_environment(environment):
        if _is_meant(name, sources.tree, environment):
            _put(sources, keys, value, name)
    for any_of, defaults in _TOGETHER:
        meant = (name for name in any_of if environment.get(name) and _is_meant(name, sources.tree, environment))
        if brought := next(meant, ""):
            for keys, value in defaults.items():
                if not _is_wished(sources, keys):
                    _put(sources, keys, RawConfig(value), brought)
    for keys, value in _leaves(overrides):
        _put(sources, keys, value, "the command line")
    return sources


def misspelt(environment: Mapping[str, str]) -> Iterator[str]:
    """A sentence about each variable whose name is nearly that of one that is read."""
    ours = [*(name for name in NAMED if name.startswith("EXUVIA_")), "EXUVIA_HOME"]
    for name in environment:
        unknown = name.startswith("EXUVIA_") and not name.startswith(_PREFIX) and name not in ours
        if unknown and (meant := did_you_mean(name, ours, least=0.85)):
            yield f"{name} is a variable that nothing reads{meant}"


def merge_readable(path: Path, environment: Mapping[str, str]) -> tuple[Sources, ConfigRefused | None]:
    """What `merge` gives; or, where the file cannot be read or parsed, what the environment says without it, and the file's
    fault. It is for those who need little of it, beside a gateway that runs on whatever is in the file. ConfigRefused if
    the environment alone cannot be merged."""
    try:
        return merge(path, environment, {}), None
    except ConfigRefused as fault:
        return merge(None, environment, {}), fault


def read_file(path: Path) -> str:
    """Return the text of a configuration's file; empty where there is none. Raises ConfigRefused."""
    try:
        content = read_at_most(path, _LONGEST)
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
        raise ConfigRefused(f"{path}, line 1, column 1: tables or lists stand too deep in each other.") from error


def _toml_sentence(path: Path, text: str, reason: str) -> str:
    """The parser tells the place at the end of its sentence, except at the document's end."""
    found = re.search(r" \(at line (\d+), column (\d+)\)$", reason)
    lines = text.split("\n")
    line, column = (found[1], found[2]) if found else (len(lines), len(lines[-1]) + 1)
    return f"{path}, line {line}, column {column}: {re.sub(r' [(]at [^()]*[)]$', '', reason)}."


def _of_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, KeyPath, Any]]:
    """Each variable that is for us, the particular names last; a blank one says nothing, except about the token, where it
    would hide that somebody meant to set one."""
    for name in sorted(environment):
        if name.startswith(_PREFIX):
            keys = tuple(name[len(_PREFIX) :].lower().split("__"))
            if not all(keys):
                raise ConfigRefused(f"{name} names no key; EXUVIA__SECTION__KEY does.")
            yield name, keys, RawConfig(environment[name])
    for name, keys in NAMED.items():
        value = environment.get(name)
        if name == "EMBEDDING_CACHE_ENABLED":
            if value and (on := switched(value)) is not True:
                if on is None:
                    raise ConfigRefused(f"{name} must be true or false, not text.")
                yield name, keys, RawConfig("0")
        elif name in _SECRET and (value or (name == "EXUVIA_TOKEN" and value is not None)):
            yield name, keys, Secret(value.strip())
        elif value:
            yield name, keys, RawConfig(value.lower() if name == "EXUVIA_LOG_LEVEL" else value)


def _is_meant(name: str, tree: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Whether a variable says something here. Those of an embedding service speak of one that is compatible with OpenAI:
    where another is named, it gets neither their key nor their model; and without an account they name nothing."""
    if not name.startswith("EMBEDDING_") or NAMED[name][-1] == "cache":
        return True
    embedding = _at(tree, ("memory", "embedding"))
    told = embedding if isinstance(embedding, dict) else {}
    provider = told.get("provider", "auto")
    account = environment.get("EMBEDDING_API_KEY") or told.get("api_key") or told.get("base_url")
    return provider == "openai" or (provider == "auto" and bool(account))


def _is_wished(sources: Sources, keys: KeyPath) -> bool:
    """Return True if somebody set a key to a value of their own, or set what stands above it to something that is no table,
    which is reported when it is fitted."""
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
            raise ConfigRefused(f"{origin}: {'.'.join(keys[:depth])} must be a table, and something else is given.")
    table[keys[-1]] = value
    sources.given_by[".".join(keys)] = origin
