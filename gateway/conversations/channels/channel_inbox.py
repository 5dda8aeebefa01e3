"""Where a channel hands in what arrives: the gateway, not the channel, says who speaks and in which conversation."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b

import structlog

from gateway.conversations.routing.chat import IncomingMessage
from gateway.conversations.routing.switchboard import Switchboard
from gateway.support.errors import Busy, GatewayError, sentence_of
from plugins.api.channel import InboundMessage, MessageRejected
from plugins.support.workspace import OWNER
from sessions.events.codec import carriable
from sessions.events.errors import SessionsError

TEXT_BYTES = 256 * 1024
"""The longest message that is taken."""

STRANGERS = 100
"""Senders that are told to the operator as not named; more of them are not."""

_KEY, _ID = re.compile(r"[A-Za-z0-9._:-]{1,64}"), re.compile(r"[\x21-\x7e]{1,128}")

log = structlog.get_logger("exuvia.channels")


class GatewayChannelInbox:
    """The desk of one channel. `senders` are the persons by `channel:sender`, `people` those that there are beside the
    owner."""

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
        self._told: set[str] = set()

    async def receive(self, arrival: InboundMessage) -> bool:
        """See `Desk.receive`."""
        person = self._person(arrival.sender)
        text = carriable(arrival.text)
        if len(text.encode()) > TEXT_BYTES:
            raise MessageRejected(f"A message has {TEXT_BYTES // 1024} KiB at most.")
        try:
            chat = await self._switchboard.chat(person, self._key(arrival.chat), create=True)
            assert chat is not None
            received = await chat.receive(
                IncomingMessage(
                    id=_fitting(f"{self._channel}:{arrival.id}", _ID),
                    client=carriable(arrival.sender)[:128],
                    sender=person,
                    channel=self._channel,
                    text=text,
                    reply_to=carriable(arrival.chat),
                    group=arrival.group,
                )
            )
            await chat.until_durable(received)
        except (GatewayError, SessionsError) as error:
            raise MessageRejected(sentence_of(error), later=isinstance(error, Busy | SessionsError)) from error
        return not received.duplicate

    def _person(self, sender: str) -> str:
        """Who a sender is; NotTaken for nobody."""
        senders, name = self._senders(), f"{self._channel}:{sender}"
        person = senders.get(name) or senders.get(f"{self._channel}:*", "")
        if person == OWNER or person in self._people():
            return person
        if name not in self._told and len(self._told) < STRANGERS:
            self._told.add(name)
            reason = "there is no such person" if person else "plugins.senders does not name them"
            log.warning("sender_not_heard", channel=self._channel, sender=sender, reason=reason)
        raise MessageRejected("Nobody here listens to you; whoever runs this gateway can name you in plugins.senders.")

    def _key(self, chat: str) -> str:
        """The name of the conversation that a chat is."""
        return _fitting(f"{self._channel}:{chat}", _KEY, prefix=f"{self._channel}:")


def _fitting(text: str, form: re.Pattern[str], *, prefix: str = "") -> str:
    """The text where it has the form, else one that stands for it alone."""
    if form.fullmatch(text):
        return text
    return prefix + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
