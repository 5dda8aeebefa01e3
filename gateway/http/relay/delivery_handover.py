"""Answers for a channel that another gateway has open: it takes their conversations over, and delivers them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from gateway.conversations.channels.channel_runner import ChannelRunner
from gateway.conversations.channels.reply_delivery import ReplyDelivery
from gateway.support.errors import sentence_of
from sessions.store.catalog import Name
from sessions.store.cluster import Cluster

LOOK_SECONDS = 1.0
"""Seconds between two looks at the answers that wait."""

log = structlog.get_logger("exuvia.channels")


class DeliveryHandover:
    """Hands conversations over, as long as it runs.

    Args:
        delivery: The answers that wait.
        channels: The channels.
        cluster: The other gateways.
        offer: Has the gateway with an id and an address take a conversation over; returns False if it does not.
    """

    def __init__(
        self,
        delivery: ReplyDelivery,
        channels: ChannelRunner,
        cluster: Cluster,
        offer: Callable[[Name, str, str], Awaitable[bool]],
    ) -> None:
        self._delivery = delivery
        self._channels = channels
        self._cluster = cluster
        self._offer = offer

    async def run(self) -> None:
        """Look for such answers until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception as error:  # the next look tries again
                log.warning("replies_not_handed_over", reason=sentence_of(error))

    async def look(self) -> None:
        """Hand over what can be. Raises StorageFailed."""
        waiting = {(self._channels.holder(channel), name) for channel, name in self._delivery.conversations()}
        elsewhere = {(holder, name) for holder, name in waiting if holder not in ("", self._cluster.id)}
        if not elsewhere:
            return
        urls = {row.id: row.url for row in await asyncio.to_thread(self._cluster.rows)}
        for holder, name in elsewhere:
            if urls.get(holder):
                await self._offer(name, holder, urls[holder])
