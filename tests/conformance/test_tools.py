"""The kit for tools: the built-ins pass, and a tool that is broken in one way fails the check for it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from exuvia import PluginContext, ToolConformance, ToolContext, ToolDefinition, ToolFailed, ToolOutput
from plugins.tools.edit import Edit
from plugins.tools.read import Read
from plugins.tools.write import Write
from tests.conformance.biting import bites, checks_of

# --- the built-ins ----------------------------------------------------------------------------------------------------


class TestRead(ToolConformance):
    tool = Read
    arguments: ClassVar[dict[str, Any]] = {"path": "notes.md", "offset": 1, "limit": 3}

    def prepare(self, context: PluginContext) -> None:
        (context.workspace / "notes.md").write_text("one\ntwo\nthree\nfour\n")


class TestWrite(ToolConformance):
    tool = Write
    arguments: ClassVar[dict[str, Any]] = {"path": "notes.md", "content": "one\n"}


class TestEdit(ToolConformance):
    tool = Edit
    arguments: ClassVar[dict[str, Any]] = {"path": "notes.md", "old": "two", "new": "2"}

    def prepare(self, context: PluginContext) -> None:
        (context.workspace / "notes.md").write_text("one\ntwo\nthree\nfour\n")


# --- broken ones ------------------------------------------------------------------------------------------------------


class Arguments(msgspec.Struct, frozen=True):
    """The arguments of the tool."""

    word: str


class Sound:
    """A tool in which nothing is wrong."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="shout",
        description="Say a word in capital letters.",
        parameters={"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    )
    repeatable: ClassVar[bool] = True

    def __init__(self, context: PluginContext) -> None:
        self.context = context

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        try:
            wanted = msgspec.convert(arguments, Arguments)
        except msgspec.ValidationError as error:
            raise ToolFailed(f"The arguments are wrong: {error}.") from error
        await asyncio.sleep(0)
        return ToolOutput(text=wanted.word.upper())


class Nameless(Sound):
    definition = msgspec.structs.replace(Sound.definition, name="shout it")


class Vague(Sound):
    definition = msgspec.structs.replace(Sound.definition, description="Shout.")


class Plain(Sound):
    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        return (await super().run(arguments, call)).text  # type: ignore[return-value]


class Trusting(Sound):
    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        return ToolOutput(text=arguments["word"].upper())


class Changing(Sound):
    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        output = await super().run(arguments, call)
        arguments["word"] = arguments["word"].upper()
        return output


class Mixing(Sound):
    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        self.given = arguments
        await asyncio.sleep(0)
        given, self.given = self.given, {"word": "said before"}
        return await super().run(given, call)


class Sleepy(Sound):
    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        time.sleep(0.6)  # noqa: ASYNC251 - what is wrong with it
        return await super().run(arguments, call)


class Deaf(Sound):
    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        for _ in range(30):
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue
        return await super().run(arguments, call)


class Counting(Sound):
    count = 0

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        self.count += 1
        return ToolOutput(text=f"{(await super().run(arguments, call)).text} {self.count}")


class Case(ToolConformance):
    """Not collected: its name does not begin with Test."""

    arguments: ClassVar[dict[str, Any]] = {"word": "hello"}


BROKEN: dict[str, type[Sound]] = {
    "test_its_class_is_valid": Nameless,
    "test_its_schema_matches_the_example": Vague,
    "test_the_example_succeeds": Plain,
    "test_invalid_arguments_are_refused": Trusting,
    "test_it_does_not_modify_its_arguments": Changing,
    "test_concurrent_calls_are_not_mixed_up": Mixing,
    "test_it_does_not_block_the_event_loop": Sleepy,
    "test_it_can_be_cancelled": Deaf,
    "test_repeatable_calls_give_the_same_result": Counting,
}


def test_every_check_has_a_tool_that_fails_it() -> None:
    assert set(BROKEN) == checks_of(ToolConformance)


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_tool_fails_the_check_for_it_and_a_correct_one_does_not(check: str, tmp_path: Path) -> None:
    bites(Case, check, {"tool": Sound}, {"tool": BROKEN[check], "seconds": 0.2}, tmp_path)
