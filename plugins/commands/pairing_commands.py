"""The `/pair` command, by which the owner decides who may speak on channels."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView, PairingCode, PairingsView
from plugins.commands.markdown import code
from plugins.support.workspace import OWNER


class Pair:
    """The `/pair` command: an address is admitted with the code that its sender was told."""

    name: ClassVar[str] = "pair"
    usage: ClassVar[str] = "/pair [CODE [PERSON] | remove ADDRESS]"
    summary: ClassVar[str] = "List who asks to speak on a channel and who may, admit one by their code, or remove one."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the list, or with what was done; raise CommandFailed if it cannot be done."""
        pairings = conversation.pairings
        match argument.split():
            case []:
                return await _listing(pairings, conversation)
            case ["remove", _, *_]:
                address = argument.strip().removeprefix("remove").strip()
                person = await pairings.remove(address)
                return f"{code(address)} speaks for {code(person)} no more."
            case [typed]:
                return await _offer(pairings, typed)
            case [typed, person]:
                admitted = await pairings.admit(typed, person)
                untold = "" if admitted.told else " They have not been told."
                return f"{code(admitted.address)} speaks for {code(person)} from now on.{untold} `/pair remove` undoes it."
        raise CommandFailed(f"Write {self.usage}.")


async def _listing(pairings: PairingsView, conversation: ConversationView) -> str:
    requests, linked = await pairings.requests(), await pairings.linked()
    lines = []
    if requests:
        lines += [
            "**Not admitted**",
            "",
            *map(_asking, requests),
            "",
            "`/pair CODE` admits the one who tells you the code.",
            "",
        ]
    if linked:
        lines += ["**Admitted**", ""]
        lines += [
            f"- {code(each.address)} {_named(each.name)}speaks for {code(each.person)} since"
            f" {conversation.local(each.at):%Y-%m-%d %H:%M}"
            for each in linked
        ]
    return (
        "\n".join(lines).rstrip() or "Nobody is paired, and nobody has asked. Senders in the configuration are not listed."
    )


async def _offer(pairings: PairingsView, typed: str) -> str:
    """Return who has a code, and how to admit them: a person must be named, since they get that person's rights."""
    found = await pairings.find(typed)
    lines = [f"{code(found.address)} {_named(found.name)}was told this code. Say for whom they speak:", ""]
    for person in await pairings.persons():
        rights = "they are you, with all your rights" if person == OWNER else "they have this person's rights"
        lines.append(f"- {code(f'/pair {found.code} {person}')}: {rights}")
    return "\n".join(lines)


def _asking(request: PairingCode) -> str:
    minutes = max(1, round(request.seconds / 60))
    return f"- {code(request.address)} {_named(request.name)}has the code {code(request.code)}, valid for {minutes} min"


def _named(name: str) -> str:
    """Return what a sender calls themselves, as a quotation."""
    return f"({code(name)}) " if name else ""
