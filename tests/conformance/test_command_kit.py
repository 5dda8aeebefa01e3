"""The kit for commands: the built-ins pass, and a command that is broken in one way fails the check for it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import ClassVar

import pytest

from exuvia import Command, CommandConformance, CommandFailed, CommandTime, ConversationView
from plugins.host.loading import load_plugins
from plugins.testing.command_checks import COMPACTED, StaticConversation
from tests.conformance.biting import bites, checks_of

# --- the built-ins ----------------------------------------------------------------------------------------------------

ARGUMENTS = {
    "edit": "f1 tea",
    "forget": "MEMORY.md#L3-L3",
    "pin": "f1",
    "remember": "tea",
    "revert": "2",
    "spawn": "Count the books.",
    "unpin": "f1",
    "why": "f1",
}


class BuiltIn(CommandConformance):
    """A built-in command; the conversation has a compaction behind it."""

    def conversation(self) -> ConversationView:
        conversation = StaticConversation(running=True)
        conversation.made = (COMPACTED,)
        return conversation


NAMING = ("edit", "pin", "unpin", "why")
"""Those that name a fact, of which there is none here, cannot but refuse."""

CASES = [
    (name, check)
    for name in sorted(load_plugins(()).commands())
    for check in sorted(checks_of(CommandConformance))
    if (name in NAMING, check) != (True, "test_it_answers")
]


@pytest.mark.parametrize(("name", "check"), CASES)
def test_a_built_in_command_passes(name: str, check: str) -> None:
    kind = load_plugins(()).commands()[name]
    case = type("Case", (BuiltIn,), {"command": kind, "argument": ARGUMENTS.get(name, "")})()
    getattr(case, check)()


# --- broken ones ------------------------------------------------------------------------------------------------------


class Sound:
    """A command in which nothing is wrong."""

    name: ClassVar[str] = "shout"
    usage: ClassVar[str] = "/shout WORD"
    summary: ClassVar[str] = "Say a word in capital letters."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        if not argument:
            raise CommandFailed("Write a word: /shout WORD.")
        await asyncio.sleep(0)
        return argument.upper()


class Never(Sound):
    when: ClassVar[CommandTime] = "never"  # type: ignore[assignment]


class Brief(Sound):
    usage: ClassVar[str] = "WORD"


class Silent(Sound):
    async def run(self, argument: str, conversation: ConversationView) -> str:
        return ""


class Trusting(Sound):
    async def run(self, argument: str, conversation: ConversationView) -> str:
        return argument.split(maxsplit=1)[0].upper()


class Remembering(Sound):
    said = ""

    async def run(self, argument: str, conversation: ConversationView) -> str:
        before, self.said = self.said, argument
        return f"{argument} after {before[:9]!r}"


class Sleepy(Sound):
    async def run(self, argument: str, conversation: ConversationView) -> str:
        time.sleep(0.6)  # noqa: ASYNC251 - what is wrong with it
        return "well"


class Deaf(Sound):
    async def run(self, argument: str, conversation: ConversationView) -> str:
        for _ in range(30):
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue
        return "well"


class Case(CommandConformance):
    """Not collected: its name does not begin with Test."""

    argument = "hello"


BROKEN: dict[str, type[Command]] = {
    "test_its_class_is_valid": Never,
    "test_help_can_show_it": Brief,
    "test_it_answers": Silent,
    "test_any_argument_is_answered": Trusting,
    "test_conversations_are_independent": Remembering,
    "test_it_does_not_block_the_event_loop": Sleepy,
    "test_it_can_be_cancelled": Deaf,
}


def test_every_check_has_a_command_that_fails_it() -> None:
    assert set(BROKEN) == checks_of(CommandConformance)


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_command_fails_the_check_for_it_and_a_correct_one_does_not(check: str, tmp_path: Path) -> None:
    bites(Case, check, {"command": Sound}, {"command": BROKEN[check], "seconds": 0.2}, tmp_path)
