"""Trying a channel on request: whether it is logged in, and a post of the operator's."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

import msgspec

from gateway.conversations.channels.channel_instances import ChannelInstance
from gateway.conversations.channels.reply_delivery import pieces_of
from gateway.support.errors import GatewayError
from gateway.support.printable import one_line
from gateway.support.session_status import count_of
from plugins.api.channel import Channel, ChecksConnection, DeliveryUnknown, OutboundMessage, SplitsReplies, TryLater
from plugins.api.context import PluginContext
from plugins.api.tool import OutputFile
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


async def send_posts(
    channel: Channel, *, chat: str, text: str, thread: str = "", files: Sequence[OutputFile] = ()
) -> list[str]:
    """Send a text and files in as many posts as an answer takes. Nothing is recorded or tried again, but posts after the
    first wait if the service asks for it.

    Returns:
        The ids that the service gave the posts, each or "".

    Raises:
        ChannelFailed: They were not sent, or not all, or that is unknown.
    """
    receipts: list[str] = []
    try:
        for post in await _posts(channel, OutboundMessage(id="", chat=chat, thread=thread, text=text), files):
            receipts.append(await _sent(channel, post))
    except ChannelFailed as error:
        raise ChannelFailed(f"{error} Sent before: {count_of(len(receipts), 'post')}.") if receipts else error from error
    return receipts


async def _posts(channel: Channel, whole: OutboundMessage, files: Sequence[OutputFile]) -> list[OutboundMessage]:
    """Return the posts of a text and files: all in one if the channel does not split answers."""
    posts: list[tuple[str, Sequence[OutputFile]]] = [(whole.text, files)]
    if isinstance(channel, SplitsReplies):
        try:
            pieces = await pieces_of(channel, whole.text)
        except BaseException as error:
            reraise_cancellation(error)
            raise ChannelFailed(f"It was not sent: {_reason(error)}") from error
        posts = [(piece, ()) for piece, _ in pieces] + [("", (file,)) for file in files]
    id_ = f"sent/{secrets.token_hex(8)}"
    return [
        msgspec.structs.replace(
            whole,
            id=f"{id_}/{number}" if number > 1 else id_,
            text=text,
            attachments=tuple(attached),
            part=number,
            parts=len(posts),
        )
        for number, (text, attached) in enumerate(posts, 1)
    ]


async def _sent(channel: Channel, post: OutboundMessage) -> str:
    """Send one post, and return its id."""
    while True:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                return str(await channel.deliver(post) or "")
        except TryLater as error:
            if post.part == 1 or error.after > CHECK_SECONDS:
                raise ChannelFailed(f"It was not sent: {error_text(error)} Try again in {error.after:g} s.") from error
            await asyncio.sleep(error.after)
        except DeliveryUnknown as error:
            raise ChannelFailed(f"It may have been sent, or not: {_reason(error)}") from error
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
