"""The hooks that a plugin may implement, each with its promise.

Registration hooks are plain functions, called once at the start. They return classes, and must be free: no network, no
files, no heavy imports (import those when the class is opened).
"""

from __future__ import annotations

from collections.abc import Sequence

import pluggy

from plugins.contracts import ChatProvider, Command, Tool

GROUP = "exuvia"
"""The name of the markers and of the entry-point group."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@hookspec
def register_chat_providers() -> Sequence[type[ChatProvider]]:
    """Return the classes of the chat providers that this plugin adds. Their names must be new."""
    raise AssertionError


@hookspec
def register_tools() -> Sequence[type[Tool]]:
    """Return the classes of the tools that this plugin adds. Their names must be new."""
    raise AssertionError


@hookspec
def register_commands() -> Sequence[type[Command]]:
    """Return the classes of the chat commands that this plugin adds. Their names must be new."""
    raise AssertionError
