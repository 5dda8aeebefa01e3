"""Trying a channel on request: whether it is logged in, and a post of the operator's."""

from __future__ import annotations

import asyncio
import secrets

import msgspec

from gateway.conversations.channels.channel_instances import ChannelInstance
from gateway.support.errors import GatewayError
from gateway.support.printable import one_line
from plugins.api.channel import Channel, ChecksConnection, DeliveryUnknown, OutboundMessage, SplitsReplies, TryLater
from plugins.api.context import PluginContext
from plugins.support.errors import PluginError
from plugins.support.untrusted import call_failure, error_text, reraise_cancellation

CHECK_SECONDS = 30.0
"""Seconds that a channel has to log in and to answer a check, and to deliver a post."""

SENTENCE_CHARS = 500
"""Maximum characters of what a channel says of itself."""


class ChannelFailed(GatewayError):
    """A channel did not do what was asked; the message says why."""


class CheckedChannel(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check: as whom a channel is logged in, or why it is not, as a sentence."""

    name: str
    ok: bool
    says: str


async def check_opened(name: str, channel: Channel) -> CheckedChannel:
    """Ask an open channel as whom it is logged in."""
    try:
        says = "It is open." if not isinstance(channel, ChecksConnection) else await _asked(channel)
    except ChannelFailed as error:
        return CheckedChannel(name=name, ok=False, says=str(error))
    return CheckedChannel(name=name, ok=True, says=says)


async def check_closed(instance: ChannelInstance, context: PluginContext) -> CheckedChannel:
    """Open a channel, ask as whom it is logged in, and close it. No message is received."""
    try:
        async with asyncio.timeout(2 * CHECK_SECONDS), instance.kind(context) as channel:
            return await check_opened(instance.name, channel)
    except BaseException as error:
        reraise_cancellation(error)
        return CheckedChannel(name=instance.name, ok=False, says=_reason(error))


async def send_post(channel: Channel, *, chat: str, text: str, thread: str = "") -> str:
    """Send a post, and return the id that the service gave it, or "". Nothing is recorded or tried again.

    Raises:
        ChannelFailed: It was not delivered, or that is unknown.
    """
    message = OutboundMessage(id=f"sent/{secrets.token_hex(8)}", chat=chat, thread=thread, text=text)
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            if isinstance(channel, SplitsReplies) and not channel.fits(text):
                raise ChannelFailed("The text is too long for one post.")
            return str(await channel.deliver(message) or "")
    except TryLater as error:
        raise ChannelFailed(f"It was not sent: {error_text(error)} Try again in {error.after:g} s.") from error
    except DeliveryUnknown as error:
        raise ChannelFailed(f"It may have been sent, or not: {_reason(error)}") from error
    except ChannelFailed:
        raise
    except BaseException as error:
        reraise_cancellation(error)
        raise ChannelFailed(f"It was not sent: {_reason(error)}") from error


async def _asked(channel: ChecksConnection) -> str:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return one_line(str(await channel.check()), SENTENCE_CHARS)
    except BaseException as error:
        reraise_cancellation(error)
        raise ChannelFailed(_reason(error)) from error


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"It did not answer within {CHECK_SECONDS:g} s."
    return one_line((isinstance(error, PluginError) and error_text(error)) or f"{call_failure(error)}.", SENTENCE_CHARS)
