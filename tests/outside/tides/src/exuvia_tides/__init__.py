"""When the sea comes and goes: the tool `tide`, which asks a service, and the command `/tides`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from exuvia import Command, PluginContext, Secret, Tool, hookimpl
from exuvia_tides.command import Tides
from exuvia_tides.tool import Tide


class TidesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[plugins.tides]`: where the service is, what it is shown, and whose sea is meant where nobody says it."""

    address: str = "https://tides.example/v1"
    api_key: Secret | None = None
    harbour: str = "Lisbon"


class Plugin:
    """What the entry point names: an object, whose methods are the hooks."""

    Settings = TidesSettings

    @hookimpl
    def register_tools(self) -> Sequence[type[Tool]]:
        """What the model may do."""
        return [Tide]

    @hookimpl
    def register_commands(self) -> Sequence[type[Command]]:
        """What people may type."""
        return [Tides]

    @hookimpl
    async def gateway_started(self, context: PluginContext) -> None:
        """The command says whose sea is meant."""
        Tides.harbour = context.settings.harbour


plugin = Plugin()
