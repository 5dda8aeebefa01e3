"""Who may speak on a channel: the senders that the configuration names, and the addresses that the owner has paired.

The configuration counts before the paired addresses, and its `*` after them. Everybody else is an unknown sender, who is
given a code in a private chat, and otherwise ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import structlog

from gateway.config.keys import ChannelKeys, Config
from gateway.config.settings import Settings
from gateway.conversations.channels.channel_probe import ChannelFailed, send_posts
from gateway.conversations.channels.pairing_requests import PairingRequest, PairingRequests
from gateway.conversations.channels.pairings import LinkedAddress, Pairings
from gateway.conversations.channels.sender_limits import SenderLimits
from gateway.support.errors import GatewayError, sentence_of
from gateway.support.printable import one_line
from plugins.api.channel import Channel, InboundMessage, MessageRejected
from plugins.api.command import AdmittedSender
from plugins.api.context import Clock
from plugins.support.workspace import OWNER
from sessions.events.events import MessageReceived

ANYBODY = "*"
"""The sender in the configuration that stands for all others."""

NAME_CHARS, ADDRESS_CHARS = 64, 128
"""Maximum characters of an unknown sender's name that are kept, and of an address that can be paired."""

MOST_REPORTED = 100
"""Senders who cannot be paired that are logged; further ones are not."""

UNKNOWN = "You are not known to this gateway."
ADMITTED = "You have been admitted. What you write here from now on is answered."

log = structlog.get_logger("exuvia.channels")


class PairingFailed(GatewayError):
    """An address cannot be paired or unpaired; the message says why."""


class UnknownSender(MessageRejected):
    """A message of a sender who is no person."""


class Sender(msgspec.Struct, frozen=True):
    """The person who a sender is. `named` is False if the configuration only says that everybody is that person."""

    person: str
    named: bool = True


class Senders:
    """Decides who a sender is, and changes it.

    Args:
        settings: The configuration in force.
        pairings: The paired addresses.
        clock: The clock.
        opened: Returns an open channel by its name, None while it is closed.
    """

    def __init__(
        self, settings: Settings, pairings: Pairings, clock: Clock, opened: Callable[[str], Channel | None] = lambda _: None
    ) -> None:
        self._settings = settings
        self._pairings = pairings
        self._clock = clock
        self._opened = opened
        self._requests = PairingRequests(clock.monotonic)
        self._limits = SenderLimits(clock.monotonic)
        self._reported: set[str] = set()

    # --- messages -----------------------------------------------------------------------------------------------------

    async def person_of(self, channel: str, message: InboundMessage) -> str:
        """Return the person who sent a message.

        Raises:
            MessageRejected: They are unknown, or have sent too many messages.
            PairingsUnusable: The paired addresses cannot be read.
        """
        sender = await self.find(channel, message.sender)
        if sender is None:
            raise self._rejected(channel, message)
        if (keys := self._settings.current.channels.get(channel)) is not None:
            age = self._clock.now().timestamp() - message.at if message.at else 0.0
            self._limits.take(channel, message.sender, keys.messages_per_minute, age=age)
        return sender.person

    def not_received(self, channel: str, sender: str) -> None:
        """Note that the last message of a sender does not count, since it will come again or was received before."""
        self._limits.give_back(channel, sender)

    async def find(self, channel: str, address: str) -> Sender | None:
        """Return who a sender is; None for an unknown sender. Raises PairingsUnusable."""
        config = self._settings.current
        named, anybody = _configured(config, channel, address), _configured(config, channel, ANYBODY)
        if named is not None and address != ANYBODY:
            found = Sender(named)
        elif person := await self._pairings.person_of(channel, address):
            found = Sender(person)
        elif anybody is not None:
            found = Sender(anybody, named=False)
        else:
            return None
        return found if found.person == OWNER or found.person in config.people else None

    def knows_channel(self, channel: str) -> bool:
        """Return True if a channel is configured or open."""
        return channel in self._settings.current.channels or self._opened(channel) is not None

    async def is_named(self, channel: str, address: str, person: str) -> bool:
        """Return True if an address is named or paired as that of a person. Raises PairingsUnusable."""
        return await self.find(channel, address) == Sender(person)

    def _rejected(self, channel: str, message: InboundMessage) -> UnknownSender:
        """Return the rejection of an unknown sender, who is told a code at most once an hour."""
        address, config = message.sender, self._settings.current
        reason = ""
        if _configured(config, channel, address) is not None:
            reason = "there is no such person"
        elif not channel_keys(config, channel).pairing or message.group:
            reason = "neither plugins.senders nor the channel's people name them"
        elif not address or address != one_line(address, ADDRESS_CHARS):
            reason = "such an address cannot be paired"
        if reason:
            self._report(channel, address, reason)
            return UnknownSender(UNKNOWN)
        name = one_line(message.name, NAME_CHARS)
        request = self._requests.add(channel=channel, address=address, name=name, chat=message.chat, thread=message.thread)
        if request is None:
            return UnknownSender(UNKNOWN)
        log.warning("pairing_requested", channel=channel, sender=address, name=name)
        sentence = f"{UNKNOWN} Its owner can admit you with the code {request.code} within the next hour; then write again."
        return UnknownSender(sentence, tell=True)

    async def sender_of(self, message: MessageReceived) -> Sender | None:
        """Return who sent a message that was received, as it is decided now; None if the address no longer speaks for that
        person. Raises PairingsUnusable."""
        if not message.reply_to:  # it came from a client of the gateway itself
            return Sender(message.sender)
        found = await self.find(message.channel, message.client)
        return found if found is not None and found.person == message.sender else None

    def _report(self, channel: str, address: str, reason: str) -> None:
        """Log that a sender is not heard, once for each and only for the first ones."""
        sender = one_line(f"{channel}:{address}", 2 * ADDRESS_CHARS)
        if sender not in self._reported and len(self._reported) < MOST_REPORTED:
            self._reported.add(sender)
            log.warning("sender_not_heard", channel=channel, sender=one_line(address, ADDRESS_CHARS), reason=reason)

    # --- the owner's decisions ----------------------------------------------------------------------------------------

    def requests(self) -> Sequence[PairingRequest]:
        """Return the unknown senders who have a code."""
        return self._requests.listed()

    def seconds_left(self, request: PairingRequest) -> float:
        """Return the seconds until a code expires."""
        return self._requests.seconds_left(request)

    async def linked(self) -> Sequence[LinkedAddress]:
        """Return the paired addresses, oldest first. Raises PairingsUnusable."""
        return await self._pairings.listed()

    def persons(self) -> list[str]:
        """Return the persons that an address may be linked to."""
        return [OWNER, *(person for person in self._settings.current.people if person != OWNER)]

    def find_request(self, code: str) -> PairingRequest:
        """Return the request with a code. Raises PairingFailed."""
        if (request := self._requests.find(code)) is None:
            raise PairingFailed(
                "There is no such code. Codes are valid for an hour, and until the gateway is restarted; ask for a new one"
                " by writing to the channel again."
            )
        return request

    async def admit(self, code: str, person: str, *, by: str = OWNER) -> AdmittedSender:
        """Link the address that was given a code to a person, durably, and tell its sender, once.

        Raises:
            PairingFailed: There is no such code or person.
            PairingsUnusable: The link could not be stored.
        """
        request = self.find_request(code)
        if person not in self.persons():
            raise PairingFailed(
                f"There is no person {one_line(person, NAME_CHARS)!r}; add [people.NAME] to the configuration."
            )
        self._requests.remove(request)
        try:
            await self._pairings.link(
                channel=request.channel, address=request.address, person=person, by=by, name=request.name
            )
        except BaseException:
            self._requests.restore(request)
            raise
        log.info("address_linked", channel=request.channel, sender=request.address, person=person)
        return AdmittedSender(address=request.sender, told=await self._tell(request))

    async def _tell(self, request: PairingRequest) -> bool:
        """Tell a sender that they are admitted. It is not tried again: the owner learns whether they were told."""
        channel = self._opened(request.channel)
        if channel is None or not request.chat:
            return False
        try:
            await send_posts(channel, chat=request.chat, thread=request.thread, text=ADMITTED)
        except ChannelFailed as error:
            log.warning("sender_not_told", channel=request.channel, sender=request.address, reason=sentence_of(error))
            return False
        return True

    async def unlink(self, address: str, *, by: str = OWNER) -> LinkedAddress:
        """Unlink a paired address, such as `telegram:12345`, durably, and return it.

        Raises:
            PairingFailed: It is not paired.
            PairingsUnusable: This could not be stored.
        """
        linked = next((each for each in await self._pairings.listed() if each.sender == address), None)
        if linked is None:
            raise PairingFailed(
                f"{one_line(address, ADDRESS_CHARS)!r} is not a paired address; others are removed in the configuration."
            )
        await self._pairings.unlink(linked, by)
        log.info("address_unlinked", channel=linked.channel, sender=linked.address, person=linked.person)
        return linked


def channel_keys(config: Config, channel: str) -> ChannelKeys:
    """Return the table `[channels.NAME]`; the defaults for a plugin's channel without one."""
    return config.channels.get(channel) or ChannelKeys(kind=channel)


def _configured(config: Config, channel: str, sender: str) -> str | None:
    """Return the person of a sender in the configuration; None if it does not name the sender."""
    person = channel_keys(config, channel).people.get(sender)
    return config.plugins.senders.get(f"{channel}:{sender}") if person is None else person
