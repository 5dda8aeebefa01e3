"""Importing the library of a service, an optional dependency."""

from __future__ import annotations

import asyncio
from importlib import import_module
from types import ModuleType

from plugins.support.errors import PluginError


async def import_library(module: str, kind: str) -> ModuleType:
    """Import a module off the event loop and return it.

    Args:
        module: Its dotted name.
        kind: The kind of the channel, which is also the name of the extra that installs the library.

    Raises:
        PluginError: The library is not installed; the message says how to install it.
    """
    try:
        return await asyncio.to_thread(import_module, module)
    except ModuleNotFoundError as error:
        raise PluginError(
            f"A channel of the kind {kind!r} needs the extra exuvia[{kind}], which is not installed"
            f" ({error.name} is missing); run: pip install 'exuvia[{kind}]'"
        ) from error
