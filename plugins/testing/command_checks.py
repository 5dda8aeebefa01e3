"""Conformance checks for commands. Inherit the class in a test module, and set the command and an argument:

    class TestMine(CommandConformance):
        command = Mine
        argument = "tomorrow"

Override `conversation` for a command that needs a special conversation.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from plugins.api.command import Command, CommandFailed, ConversationView
from plugins.host import validation
from plugins.testing.checks import assert_not_blocking, check, check_sentence
from plugins.testing.static_conversation import StaticConversation

ODD = (
    "",
    "x",
    "x" * 20_000,
    "-1",
    "99999999999999999999",
    "../../etc/passwd",
    "\x00\u202e😀",
    "--help",
    "a\nb",
    '"; DROP TABLE x',
)
"""Arguments that people may type."""


class CommandConformance:
    """Checks for a command."""

    command: ClassVar[type[Command]]
    argument: ClassVar[str] = ""
    seconds: ClassVar[float] = 5.0
    """The maximum time for a cancelled command to end."""

    def conversation(self) -> ConversationView:
        """Return the conversation that the command is typed in."""
        return StaticConversation()

    async def answer(self, command: Command, argument: str) -> str:
        """Return the answer or the message of its CommandFailed. Anything else fails the check."""
        try:
            answer = await command.run(argument, self.conversation())
        except CommandFailed as error:
            check_sentence(str(error))
            return str(error)
        except Exception as error:
            told = f"{type(error).__name__} was raised for {argument[:100]!r}, and not CommandFailed: {error}"
            raise AssertionError(told) from error
        assert isinstance(answer, str), f"run returned {type(answer).__name__}, and not text."
        return answer

    @check
    async def test_its_class_is_valid(self) -> None:
        """Fix what the message names: the class needs `name`, `usage` and `summary` as one line each, `when` as "now" or
        "between_turns", and an async method `run`."""
        assert validation.command(self.command) == self.command.name

    @check
    async def test_help_can_show_it(self) -> None:
        """`usage` is the syntax, beginning with the slash and the name: "/remind TIME TEXT". `summary` is one sentence."""
        assert self.command.usage.split()[0] == f"/{self.command.name}", f"usage is {self.command.usage!r}."
        assert self.command.summary.endswith("."), f"summary is no sentence: {self.command.summary!r}"

    @check
    async def test_it_answers(self) -> None:
        """`run` returns the answer as Markdown. It is never empty, so that people see that something happened."""
        answer = await self.command().run(self.argument, self.conversation())
        assert isinstance(answer, str), f"run returned {type(answer).__name__}, and not text."
        assert answer.strip(), "The answer is empty."

    @check
    async def test_any_argument_is_answered(self) -> None:
        """Raise CommandFailed with one sentence for the person if the command fails. Any other error counts as a failure
        of the plugin."""
        for argument in ODD:
            assert (await self.answer(self.command(), argument)).strip(), f"The answer to {argument[:100]!r} is empty."

    @check
    async def test_conversations_are_independent(self) -> None:
        """One instance serves all sessions: keep nothing about a conversation on `self`."""
        command = self.command()
        first = await self.answer(command, self.argument)
        for argument in ODD:
            await self.answer(command, argument)
        again = await self.answer(command, self.argument)
        assert again == first, f"After others it answered {again[:200]!r}, and before {first[:200]!r}."

    @check
    async def test_it_does_not_block_the_event_loop(self) -> None:
        """All sessions share one event loop: no `time.sleep`, no `requests`, no long computation. Use
        `await asyncio.to_thread(...)` for files and computation."""
        await assert_not_blocking(lambda: self.answer(self.command(), self.argument))

    @check
    async def test_it_can_be_cancelled(self) -> None:
        """`/stop` cancels a command at an await. Do not catch CancelledError."""
        running = asyncio.create_task(self.command().run(self.argument, self.conversation()))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running], timeout=self.seconds)
        assert running.done(), "It still runs, although it was stopped."
