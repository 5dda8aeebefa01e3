"""The inbox of a channel: the gateway, not the channel, decides who the sender is and which conversation a message
belongs to."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b

import structlog

from gateway.conversations.routing.chat import IncomingMessage
from gateway.conversations.routing.switchboard import Switchboard
from gateway.protocol.slash_commands import parse_command
from gateway.support.errors import Busy, GatewayError, sentence_of
from plugins.api.channel import InboundMessage, MessageRejected
from plugins.support.workspace import OWNER
from sessions.events.codec import replace_surrogates
from sessions.events.errors import SessionsError

TEXT_BYTES = 256 * 1024
"""Bytes of the longest message that is accepted."""

UNKNOWN_SENDERS = 100
"""Unknown senders that are logged; further ones are not."""

_KEY, _ID = re.compile(r"[A-Za-z0-9._:-]{1,64}"), re.compile(r"[\x21-\x7e]{1,128}")

log = structlog.get_logger("exuvia.channels")


class GatewayChannelInbox:
    """The inbox of one channel. `senders` returns the persons by `channel:sender`, `people` the known persons besides
    the owner."""

    def __init__(
        self,
        channel: str,
        switchboard: Switchboard,
        *,
        senders: Callable[[], Mapping[str, str]],
        people: Callable[[], Collection[str]],
    ) -> None:
        self._channel = channel
        self._switchboard = switchboard
        self._senders = senders
        self._people = people
        self._reported: set[str] = set()

    async def receive(self, message: InboundMessage) -> bool:
        """Accept a message, see `ChannelInbox.receive`."""
        person = self._person(message.sender)
        text = replace_surrogates(message.text)
        if len(text.encode()) > TEXT_BYTES:
            raise MessageRejected(f"A message may have at most {TEXT_BYTES // 1024} KiB.")
        try:
            chat = await self._switchboard.chat(person, self._key(message.chat), create=True)
            assert chat is not None
            received = await chat.receive(
                IncomingMessage(
                    id=_fitting(f"{self._channel}:{message.id}", _ID),
                    client=replace_surrogates(message.sender)[:128],
                    sender=person,
                    channel=self._channel,
                    text=text,
                    typed=parse_command(text),
                    reply_to=replace_surrogates(message.chat),
                    group=message.group,
                )
            )
            await chat.until_durable(received)
        except (GatewayError, SessionsError) as error:
            raise MessageRejected(sentence_of(error), later=isinstance(error, Busy | SessionsError)) from error
        return not received.duplicate

    def _person(self, sender: str) -> str:
        """Return the person of a sender. Raises MessageRejected for an unknown one."""
        senders, name = self._senders(), f"{self._channel}:{sender}"
        person = senders.get(name) or senders.get(f"{self._channel}:*", "")
        if person == OWNER or person in self._people():
            return person
        if name not in self._reported and len(self._reported) < UNKNOWN_SENDERS:
            self._reported.add(name)
            reason = "there is no such person" if person else "plugins.senders does not name them"
            log.warning("sender_not_heard", channel=self._channel, sender=sender, reason=reason)
        raise MessageRejected("You are not known here; the operator of this gateway can add you to plugins.senders.")

    def _key(self, chat: str) -> str:
        """Return the key of a chat's conversation."""
        return _fitting(f"{self._channel}:{chat}", _KEY, prefix=f"{self._channel}:")


def _fitting(text: str, form: re.Pattern[str], *, prefix: str = "") -> str:
    """Return the text if it matches the pattern, else a hash of it."""
    if form.fullmatch(text):
        return text
    return prefix + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
