"""Conformance checks for tools. Inherit the class in a test module, and set the tool and the arguments of a call that
succeeds:

    class TestMine(ToolConformance):
        tool = Mine
        arguments = {"path": "notes.md"}

Override `prepare` to create what that call needs.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from plugins.api.context import PluginContext
from plugins.api.tool import Tool, ToolContext, ToolOutput
from plugins.host import validation
from plugins.support.errors import ToolFailed
from plugins.testing.checks import assert_not_blocking, check, check_sentence
from plugins.testing.contexts import make_context

CALL = ToolContext(session="20261121-120000-aaaaaa", person="owner", turn=1, call="20261121-120000-aaaaaa/4/0")

WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e300,
    "",
    "x" * 10_000,
    "../../../etc/passwd",
    "\x00\u202e😀",
    [],
    [[]],
    {},
    {"a": 1},
)
"""Values that models write instead of the expected ones."""


class ToolConformance:
    """Checks for a tool."""

    tool: ClassVar[type[Tool]]
    arguments: ClassVar[dict[str, Any]]
    settings: ClassVar[Any] = None
    """The tool's settings; None if it has none."""
    seconds: ClassVar[float] = 5.0
    """The maximum time for a cancelled call to end."""

    def prepare(self, context: PluginContext) -> None:
        """Create what the call needs, such as a file in `context.workspace`."""

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[Tool]:
        """Create the tool."""
        async with make_context(folder, self.settings) as context:
            self.prepare(context)
            yield self.tool(context)

    async def outcome(self, tool: Tool, arguments: dict[str, Any]) -> str:
        """Return the output of a call or the message of its ToolFailed. Anything else fails the check."""
        try:
            output = await tool.run(copy.deepcopy(arguments), CALL)
        except ToolFailed as error:
            check_sentence(str(error))
            return str(error)
        except Exception as error:
            shown = str(arguments)[:200]
            raise AssertionError(f"{type(error).__name__} was raised for {shown}, and not ToolFailed: {error}") from error
        assert isinstance(output, ToolOutput), f"run returned {type(output).__name__}, and not a ToolOutput."
        assert isinstance(output.text, str), f"ToolOutput.text is {type(output.text).__name__}."
        return output.text

    @check
    async def test_its_class_is_valid(self) -> None:
        """Fix what the message names: the class needs `definition`, a ToolDefinition with the JSON Schema of an object;
        `repeatable`, True or False; and an async method `run`."""
        assert validation.tool(self.tool) == self.tool.definition.name

    @check
    async def test_its_schema_matches_the_example(self) -> None:
        """Models know the arguments only by the schema: name each under `properties`, list the required ones under
        `required`, and say in `description` what the tool does."""
        schema = self.tool.definition.parameters
        known, required = set(schema.get("properties", {})), set(schema.get("required", ()))
        assert len(self.tool.definition.description) >= 20, "The description is too short for a model."
        assert required <= known, f"required names {sorted(required - known)}, which properties does not."
        assert required <= set(self.arguments), f"The example lacks {sorted(required - set(self.arguments))}."
        assert set(self.arguments) <= known, f"The schema does not know {sorted(set(self.arguments) - known)}."

    @check
    async def test_the_example_succeeds(self, tmp_path: Path) -> None:
        """`run` returns a `ToolOutput` with text for the model. Raise ToolFailed if a call fails."""
        async with self.opened(tmp_path) as tool:
            output = await tool.run(copy.deepcopy(self.arguments), CALL)
            assert isinstance(output, ToolOutput), f"run returned {type(output).__name__}, and not a ToolOutput."
            assert isinstance(output.text, str), f"ToolOutput.text is {type(output.text).__name__}."

    @check
    async def test_invalid_arguments_are_refused(self, tmp_path: Path) -> None:
        """Arguments are not validated against the schema before: models omit some, and write numbers as text, paths
        outside of the workspace, and whole essays. Convert them, `msgspec.convert(arguments, MyArguments)`, and raise
        ToolFailed with one sentence that tells the model what is wrong. Any other error counts as a failure of the
        plugin."""
        async with self.opened(tmp_path) as tool:
            for name in self.arguments:
                for wrong in WRONG:
                    await self.outcome(tool, {**self.arguments, name: wrong})
            for name in self.tool.definition.parameters.get("required", ()):
                without = {key: value for key, value in self.arguments.items() if key != name}
                try:
                    await tool.run(without, CALL)
                except ToolFailed as error:
                    check_sentence(str(error))
                else:
                    raise AssertionError(f"It ran without {name!r}, which its schema requires.")

    @check
    async def test_it_does_not_modify_its_arguments(self, tmp_path: Path) -> None:
        """The arguments are in the log: copy what you want to change."""
        async with self.opened(tmp_path) as tool:
            given = copy.deepcopy(self.arguments)
            await tool.run(given, CALL)
            assert given == self.arguments, f"It changed its arguments to {given}."

    @check
    async def test_concurrent_calls_are_not_mixed_up(self, tmp_path: Path) -> None:
        """One instance serves all sessions at the same time: keep nothing about a call on `self`."""
        async with self.opened(tmp_path) as tool:
            wrong: dict[str, Any] = {}
            alone = await self.outcome(tool, wrong)
            _, together = await asyncio.gather(self.outcome(tool, self.arguments), self.outcome(tool, wrong))
            assert together == alone, f"Beside another call it answered {together[:200]!r}, and alone {alone[:200]!r}."

    @check
    async def test_it_does_not_block_the_event_loop(self, tmp_path: Path) -> None:
        """Do not block the event loop: no `time.sleep`, no `requests`, no long computation. Use `context.transport` for
        HTTP, and `await asyncio.to_thread(...)` for files and computation."""
        async with self.opened(tmp_path) as tool:
            await assert_not_blocking(lambda: self.outcome(tool, self.arguments))

    @check
    async def test_it_can_be_cancelled(self, tmp_path: Path) -> None:
        """If a person stops a turn, the call is cancelled at an await and has five seconds to end: do not catch
        CancelledError."""
        async with self.opened(tmp_path) as tool:
            for steps in (0, 1, 3):
                running = asyncio.create_task(tool.run(copy.deepcopy(self.arguments), CALL))
                for _ in range(steps):
                    await asyncio.sleep(0)
                running.cancel()
                await asyncio.wait([running], timeout=self.seconds)
                assert running.done(), "It is still running after it was cancelled."

    @check
    async def test_repeatable_calls_give_the_same_result(self, tmp_path: Path) -> None:
        """After a crash a repeatable call runs again. Set `repeatable = False` if a second run would repeat an effect or
        return something else."""
        async with self.opened(tmp_path) as tool:
            if self.tool.repeatable:
                first, second = [await self.outcome(tool, self.arguments) for _ in range(2)]
                assert first == second, f"The second time it answered {second[:200]!r}, and first {first[:200]!r}."
