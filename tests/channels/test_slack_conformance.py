"""The channel for Slack passes the kit."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from plugins.channels.slack.slack_channel import SlackChannel
from plugins.testing.channel_checks import ChannelConformance
from tests.channels.slack_stage import settings_for
from tests.servers.slack_server import SlackServer


class TestSlack(ChannelConformance):
    channel: ClassVar[type] = SlackChannel
    deleted_chat: ClassVar[str] = "demolished"
    busy_chat: ClassVar[str] = "crowded"
    silent_chat: ClassVar[str] = "abyss"
    edits: ClassVar[bool] = True
    buttons: ClassVar[bool] = True

    def service(self) -> AbstractAsyncContextManager[Any]:
        server = SlackServer(ack_seconds=60.0)
        for chat in ("kitchen", "garden", "attic", "street"):
            server.conversation(chat)
        server.conversation("demolished", archived=True)
        server.conversation("crowded")
        server.busy.add("crowded")
        server.conversation("abyss")
        server.silent.add("abyss")
        return server.serving()

    def settings(self, service: Any) -> Any:
        return settings_for(service)
