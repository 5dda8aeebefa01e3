"""The pairing of addresses as the `/pair` command sees it: for the owner, in a private chat."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.conversations.channels.pairing_requests import PairingRequest
from gateway.conversations.channels.senders import Senders
from gateway.conversations.commands.memory_view import as_command_failure
from plugins.api.command import AdmittedSender, CommandFailed, PairedAddress, PairingCode
from plugins.support.workspace import OWNER
from sessions.events.events import MessageReceived


class OwnersPairings:
    """A `PairingsView` for the sender of a message, which documents the methods."""

    def __init__(self, senders: Senders, message: MessageReceived) -> None:
        self._senders = senders
        self._message = message

    async def linked(self) -> Sequence[PairedAddress]:
        await self._check_rights()
        with as_command_failure():
            linked = await self._senders.linked()
        return [PairedAddress(address=each.sender, person=each.person, name=each.name, at=each.at) for each in linked]

    async def requests(self) -> Sequence[PairingCode]:
        await self._check_rights()
        return [self._code_of(each) for each in self._senders.requests()]

    async def find(self, code: str) -> PairingCode:
        await self._check_rights()
        with as_command_failure():
            return self._code_of(self._senders.find_request(code))

    async def persons(self) -> Sequence[str]:
        await self._check_rights()
        return self._senders.persons()

    async def admit(self, code: str, person: str) -> AdmittedSender:
        await self._check_rights()
        with as_command_failure():
            return await self._senders.admit(code, person)

    async def remove(self, address: str) -> str:
        await self._check_rights()
        with as_command_failure():
            return (await self._senders.unlink(address)).person

    def _code_of(self, request: PairingRequest) -> PairingCode:
        seconds = self._senders.seconds_left(request)
        return PairingCode(code=request.code, address=request.sender, name=request.name, seconds=seconds)

    async def _check_rights(self) -> None:
        """Raise CommandFailed unless this is the owner in a private chat, where nobody else reads a code."""
        if self._message.sender != OWNER:
            raise CommandFailed("Only the owner may decide who speaks here.")
        if self._message.chat == "group":
            raise CommandFailed("Others can read this chat; write /pair in a private one.")
        with as_command_failure():
            sender = await self._senders.sender_of(self._message)
        if sender is None or not sender.named:
            raise CommandFailed("Only an address that is named as the owner's may decide who speaks here.")
