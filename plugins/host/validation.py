"""Validating plugins and the classes that they register.

Each check returns the name of the class, or raises `InvalidPlugin` with the end of a sentence.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import get_args

import msgspec

from plugins.api.channel import GATEWAY_KEYS, Channel
from plugins.api.chat import ChatProvider
from plugins.api.command import Command, CommandTime
from plugins.api.compaction import MemoryFlush, Summarizer
from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.memory_settings import AUTO, SQLITE
from plugins.api.tool import Tool
from plugins.support.untrusted import PluginCallFailed
from sessions.events.messages import ToolDefinition

_WORD = re.compile(r"[a-z][a-z0-9_]{0,31}")
_TOOL = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_LINE = re.compile(r"[^\x00-\x1f\x7f]{1,300}")


NOTIFICATION_HOOKS = frozenset(
    ["before_compaction", "after_compaction", "gateway_started", "gateway_stopping", "turn_ended"]
)
"""The hooks that are async; all others are plain functions."""


class InvalidPlugin(PluginCallFailed):
    """A plugin or class is invalid; `str(error)` is the end of a sentence."""


def hook_function(hook: str, function: Callable[..., object]) -> None:
    """Check that a function is async or plain, as its hook requires."""
    if hook in NOTIFICATION_HOOKS:
        if not inspect.iscoroutinefunction(function):
            raise InvalidPlugin(f"{hook} must be an async function")
    elif (
        inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
        or inspect.isgeneratorfunction(function)
    ):
        raise InvalidPlugin(f"{hook} must be a plain function, neither async nor a generator")


def plugin_settings(plugin: object) -> type[msgspec.Struct] | None:
    """Return the `Settings` type of a plugin, or None if it has none."""
    form = getattr(plugin, "Settings", None)
    return None if form is None else _settings("its Settings", form)


def chat_provider(offered: object) -> str:
    """Return the name of a chat provider class."""
    provider = _class(
        offered, ChatProvider, ("__aenter__", "__aexit__", "default_model", "explain_default", "limits", "stream")
    )
    name = _text(provider, "name", _WORD)
    _settings(f"{provider.__name__}.Settings", getattr(provider, "Settings", None))
    _coroutine(provider, "__aenter__", "__aexit__")
    _plain(provider, "default_model", "explain_default", "limits", "stream")
    return name


def embedding_provider(offered: object) -> str:
    """Return the name of an embedding provider class."""
    kind = _class(offered, EmbeddingProvider, ("__aenter__", "__aexit__", "model", "explain_default", "dimensions", "embed"))
    _coroutine(kind, "__aenter__", "__aexit__", "embed")
    _plain(kind, "model", "explain_default", "dimensions")
    return _text(kind, "name", _WORD)


def memory_backend(offered: object) -> str:
    """Return the name of a memory backend class."""
    promised = [name for name in vars(MemoryBackend) if not name.startswith("_") and callable(getattr(MemoryBackend, name))]
    methods = (*promised, "__enter__", "__exit__")
    kind = _class(offered, MemoryBackend, methods)
    _plain(kind, *methods)
    name = _text(kind, "name", _WORD)
    if name in (AUTO, SQLITE):
        raise InvalidPlugin(f"{name!r} is reserved")
    return name


def tool(offered: object) -> str:
    """Return the name of a tool class."""
    kind = _class(offered, Tool, ("run",))
    definition = getattr(kind, "definition", None)
    if not isinstance(definition, ToolDefinition):
        raise InvalidPlugin(f"{kind.__name__}.definition is not a ToolDefinition")
    if not isinstance(getattr(kind, "repeatable", None), bool):
        raise InvalidPlugin(f"{kind.__name__}.repeatable is neither True nor False")
    if not (isinstance(definition.name, str) and _TOOL.fullmatch(definition.name)):
        raise InvalidPlugin(f"{definition.name!r} is not a name for a tool: letters, digits, _ and -, up to 64")
    _schema(kind.__name__, definition)
    _coroutine(kind, "run")
    return definition.name


def command(offered: object) -> str:
    """Return the name of a command class."""
    kind = _class(offered, Command, ("run",))
    name = _text(kind, "name", _WORD)
    _text(kind, "usage", _LINE)
    _text(kind, "summary", _LINE)
    if getattr(kind, "when", None) not in get_args(CommandTime):
        raise InvalidPlugin(f"{kind.__name__}.when is neither 'now' nor 'between_turns'")
    _coroutine(kind, "run")
    return name


def channel(offered: object) -> str:
    """Return the name of a channel class."""
    kind = _class(offered, Channel, ("__aenter__", "__aexit__", "run", "deliver"))
    _coroutine(kind, "__aenter__", "__aexit__", "run", "deliver")
    _coroutine(kind, *(method for method in ("show_activity", "check", "handle") if hasattr(kind, method)))
    _plain(kind, *(method for method in ("fits",) if hasattr(kind, method)))
    if not isinstance(getattr(kind, "attempts_noted", False), bool):
        raise InvalidPlugin(f"{kind.__name__}.attempts_noted is neither True nor False")
    seconds = getattr(kind, "activity_seconds", 1.0)
    if not (isinstance(seconds, int | float) and 1.0 <= seconds <= 60.0):
        raise InvalidPlugin(f"{kind.__name__}.activity_seconds is not a number from 1 to 60")
    if (form := channel_settings(kind)) is not None and (taken := GATEWAY_KEYS.intersection(form.__struct_fields__)):
        raise InvalidPlugin(f"{kind.__name__}.Settings has {', '.join(sorted(taken))}, which the gateway reads itself")
    return _text(kind, "name", _WORD)


def channel_settings(kind: type[Channel]) -> type[msgspec.Struct] | None:
    """Return the `Settings` type of a channel class, whose fields may lack defaults; None if it has none."""
    form = getattr(kind, "Settings", None)
    if form is not None and not (isinstance(form, type) and issubclass(form, msgspec.Struct)):
        raise InvalidPlugin(f"{kind.__name__}.Settings is not a msgspec Struct")
    return form


def summarizer(offered: object) -> str:
    """Return the name of a summarizer class."""
    kind = _class(offered, Summarizer, ("summarize",))
    _coroutine(kind, "summarize")
    return _text(kind, "name", _WORD)


def flush(offered: object) -> str:
    """Return the name of a memory flush class."""
    kind = _class(offered, MemoryFlush, ("flush",))
    _coroutine(kind, "flush")
    return _text(kind, "name", _WORD)


def _class(offered: object, promised: type, methods: tuple[str, ...]) -> type:
    if not isinstance(offered, type):
        raise InvalidPlugin(f"it returned {type(offered).__name__} instead of a class")
    missing = [method for method in methods if not callable(getattr(offered, method, None))]
    if missing:
        raise InvalidPlugin(f"{offered.__name__} is not a valid {promised.__name__}: it lacks {', '.join(missing)}")
    return offered


def _settings(name: str, form: object) -> type[msgspec.Struct]:
    if not (isinstance(form, type) and issubclass(form, msgspec.Struct)):
        raise InvalidPlugin(f"{name} is not a msgspec Struct")
    if required := _without_default(form):
        raise InvalidPlugin(f"{name} has no default for {', '.join(required)}")
    return form


def _without_default(settings: type[msgspec.Struct]) -> list[str]:
    # msgspec's own listing evaluates every annotation, which costs more than all other checks of a plugin together.
    fields, defaults = settings.__struct_fields__, settings.__struct_defaults__
    bare = len(fields) - len(defaults)
    later = [field for field, default in zip(fields[bare:], defaults, strict=True) if default is msgspec.NODEFAULT]
    return [*fields[:bare], *later]


def _text(kind: type, field: str, pattern: re.Pattern[str]) -> str:
    value = getattr(kind, field, None)
    if not (isinstance(value, str) and pattern.fullmatch(value)):
        wanted = "lower-case letters, digits and _, up to 32" if pattern is _WORD else "one line of up to 300 characters"
        raise InvalidPlugin(f"{kind.__name__}.{field} is not {wanted}")
    return value


def _schema(owner: str, definition: ToolDefinition) -> None:
    # A schema goes into the log and into every request: one that is not JSON would break each turn, not only its tool.
    if not isinstance(definition.description, str) or not isinstance(definition.parameters, dict):
        raise InvalidPlugin(f"{owner}.definition has a description that is not text, or parameters that are not an object")
    if definition.parameters.get("type") != "object":
        raise InvalidPlugin(f"{owner}.definition.parameters is not a JSON Schema of type object")
    try:
        msgspec.json.encode(definition)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPlugin(f"{owner}.definition is not JSON") from error


def _coroutine(kind: type, *methods: str) -> None:
    for method in methods:
        if not inspect.iscoroutinefunction(getattr(kind, method)):
            raise InvalidPlugin(f"{kind.__name__}.{method} is not an async function")


def _plain(kind: type, *methods: str) -> None:
    for method in methods:
        if inspect.iscoroutinefunction(getattr(kind, method)):
            raise InvalidPlugin(f"{kind.__name__}.{method} is an async function, and must be a plain one")
