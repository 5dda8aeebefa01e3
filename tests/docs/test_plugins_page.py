"""docs/plugins.md: the tutorial followed step by step, its recipes run, and the reference as the code has it."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Self, TypeVar, get_origin

import pytest

import exuvia
import plugins
from exuvia import (
    ChannelConformance,
    CommandConformance,
    CompactionPolicyConformance,
    PruningPolicyConformance,
    SummarizerConformance,
    ToolConformance,
)
from plugins.host.hooks import Hooks
from tests.conformance.biting import checks_of
from tests.docs.generated import DOCS, definition_of
from tests.gateway.gateways import gateway
from tests.waiting import deadline

ROOT = DOCS.parent
PAGE = (DOCS / "plugins.md").read_text(encoding="utf-8")
FIRST = PAGE.partition("## Your first plugin")[2].partition("## Concepts")[0]
TUTORIAL = PAGE.partition("## Tutorial")[2].partition("## Isolation and failures")[0]


def blocks(text: str, language: str) -> list[str]:
    """The blocks of a page in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


# --- the tutorial -----------------------------------------------------------------------------------------------------


class Author:
    """Somebody who follows the page in a folder, with this Exuvia."""

    def __init__(self, folder: Path) -> None:
        self.site = folder / "site"
        self.here = folder
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("EXUVIA")} | {
            "PYTHONPATH": os.pathsep.join((str(self.site), str(ROOT))),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def type(self, line: str, *, fails: bool = False) -> str:
        """Type a line of the page; returns what is printed. The programs are those of this Python."""
        if line.startswith("cd "):
            self.here = self.here / line.removeprefix("cd ")
            return ""
        if line.startswith("pip install -e"):
            self._install()
            return ""
        for program in ("exuvia", "pytest", "pip"):
            line = re.sub(rf"^{program}\b", f"{shlex.quote(sys.executable)} -m {program}", line)

        done = subprocess.run(
            line, shell=True, cwd=self.here, env=self.environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode != 0) == fails, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _install(self) -> None:
        """Install the package as an editable install does: sources on the path, and metadata with its entry points."""
        project = tomllib.loads((self.here / "pyproject.toml").read_text())["project"]
        self.environment["PYTHONPATH"] = os.pathsep.join((str(self.site), str(self.here), str(ROOT)))
        info = self.site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
        entries = "".join(f"{name} = {target}\n" for name, target in project["entry-points"]["exuvia"].items())
        (info / "entry_points.txt").write_text(f"[exuvia]\n{entries}")

    def put(self, path: str, definitions: str) -> None:
        """Put definitions in the place of those with the same names, as the page says."""
        file = self.here / path
        for node in ast.parse(definitions).body:
            name = _name_of(node)
            lines = file.read_text().splitlines()
            (old,) = [each for each in ast.parse("\n".join(lines)).body if _name_of(each) == name]
            end = old.end_lineno
            lines[old.lineno - 1 : end] = ast.get_source_segment(definitions, node, padded=True).splitlines()  # type: ignore[union-attr]
            file.write_text("\n".join(lines) + "\n")

    def rewrite(self, path: str, lines: str) -> None:
        """Put the lines of a request in the place of those from its first line to its last."""
        file, wanted = self.here / path, lines.rstrip("\n").split("\n")
        text = file.read_text()
        begin = text.index(wanted[0].partition("{")[0])
        end = text.index("            )\n", begin) + len("            )\n")
        file.write_text(text[:begin] + "\n".join(wanted) + "\n" + text[end:])

    @asynccontextmanager
    async def serving(self, script: str) -> AsyncIterator[str]:
        """Run a script until the block ends; yields what it prints first, two lines."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, script, cwd=self.here, env=self.environment, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            async with deadline():
                yield ((await process.stdout.readline()) + (await process.stdout.readline())).decode()
        finally:
            process.terminate()
            await process.wait()


def _name_of(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return getattr(node, "name", None)


def test_the_first_plugin_can_be_followed_step_by_step(tmp_path: Path) -> None:
    author = Author(tmp_path)
    make, _ = blocks(FIRST, "sh")
    tool, tests = blocks(FIRST, "python")
    for line in make.splitlines():
        author.type(line)
    (author.here / "exuvia_dice.py").write_text(tool)
    (author.here / "tests" / "test_dice.py").write_text(tests)
    assert "passed" in author.type("pytest")


async def test_the_tutorial_can_be_followed_step_by_step(tmp_path: Path) -> None:
    author = Author(tmp_path)
    make, see, serve, chat, ship = blocks(TUTORIAL, "sh")
    service, changed, request, script = blocks(TUTORIAL, "python")

    for line in make.splitlines():
        author.type(line)

    author.put("tests/test_stella.py", service)
    tests = author.here / "tests" / "test_stella.py"
    tests.write_text(tests.read_text().replace("from typing", "import json\nfrom typing", 1))
    assert "How to fix it:" in author.type("pytest", fails=True)

    author.put("exuvia_stella.py", changed)
    author.rewrite("exuvia_stella.py", request.partition("\n")[2])
    author.type("pytest")

    (author.here / "tests" / "serve.py").write_text(script)
    async with author.serving("tests/serve.py") as printed:
        home = author.here / "try"
        home.mkdir()
        (configuration,) = blocks(TUTORIAL, "toml")
        (home / "config.toml").write_text(re.sub(r"base_url.*\napi_key.*\n", printed, configuration))
        assert printed.splitlines()[1] in configuration
        said = [await asyncio.to_thread(author.type, line) for line in see.splitlines()]
        assert "1 have vectors by stella:nova-1" in said[-2]
        assert "meaning (cosine" in said[-1]
        assert "The door code is 4711." in said[-1]
    assert serve.strip() == "exuvia run --home try --port 7200"
    assert chat.strip() == 'echo "/memory door code" | exuvia chat --once --home try'
    author.type(ship.strip() + " --no-build-isolation -q")
    assert (author.here / "exuvia_stella-0.1.0-py3-none-any.whl").exists()


# --- the recipes ------------------------------------------------------------------------------------------------------


def recipe(name: str) -> ModuleType:
    """A recipe of the page, as a module."""
    (source,) = [block for block in blocks(PAGE, "python") if block.startswith(f"# recipe: {name}\n")]
    module = ModuleType(f"recipe_{name.replace(' ', '_')}")
    exec(compile(source, module.__name__, "exec"), module.__dict__)
    return module


RECIPES: dict[str, tuple[type, dict[str, Any]]] = {
    "tool": (ToolConformance, {"tool": "Dice", "arguments": {"sides": 6}}),
    "command": (CommandConformance, {"command": "Turns"}),
    "pruning policy": (PruningPolicyConformance, {"plugin": None}),
    "compaction policy": (CompactionPolicyConformance, {"plugin": None}),
    "summarizer": (SummarizerConformance, {"summarizer": "Headlines"}),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_plugin_that_passes_the_kit(name: str, tmp_path: Path) -> None:
    kit, attributes = RECIPES[name]
    module = recipe(name)
    hooks = Hooks()
    assert hooks.register("recipe", module), hooks.refused
    assert hooks.refused == []
    given = {key: module if what is None else getattr(module, str(what), what) for key, what in attributes.items()}
    case = type("Case", (kit,), given)()
    for check in sorted(checks_of(kit)):
        test = getattr(case, check)
        test(**({"tmp_path": tmp_path / check} if "tmp_path" in test.__wrapped__.__annotations__ else {}))


class Folders:
    """The service of the recipe's channel: two folders."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said = 0

    @asynccontextmanager
    async def there(self) -> AsyncIterator[Self]:
        yield self

    async def say(self, sender: str, chat: str, text: str) -> None:
        self._said += 1
        part = self._folder / "part"
        part.write_text(text)
        part.rename(self._folder / "in" / f"{sender}-{chat}-{self._said}.txt")

    async def hear(self) -> tuple[str, str]:
        while not (files := sorted((self._folder / "out").glob("*.txt"))):
            await asyncio.sleep(0.01)
        text = files[0].read_text()
        files[0].unlink()
        return files[0].name.partition("-")[0], text


@pytest.mark.parametrize("check", sorted(checks_of(ChannelConformance)))
def test_the_channel_of_the_recipe_passes_the_kit(check: str, tmp_path: Path) -> None:
    module = recipe("channel")
    hooks = Hooks()
    assert hooks.register("recipe", module), hooks.refused
    assert hooks.refused == []
    given = {"channel": module.Folder, "service": lambda _: Folders(tmp_path / "plugin").there(), "deleted_chat": "x" * 300}
    test = getattr(type("Case", (ChannelConformance,), given)(), check)
    test(**({"tmp_path": tmp_path} if "tmp_path" in test.__wrapped__.__annotations__ else {}))


async def test_the_model_of_the_page_does_as_it_is_told(tmp_path: Path) -> None:
    (configuration,) = [block for block in blocks(PAGE, "toml") if block.startswith("# a model: ")]
    (story,) = [block for block in blocks(PAGE, "json") if block.startswith('{"calls"')]
    (tmp_path / "story.jsonl").write_text(story)
    (tmp_path / "workspace" / "memory").mkdir(parents=True)
    (tmp_path / "workspace" / "memory" / "2026-11-20.md").write_text("The door code is 4711.\n")

    async with gateway(tmp_path, file=configuration.replace("try/", f"{tmp_path}/")) as running:
        client = await running.connect()
        await client.chat("What is the code?")

    events = [event for _, event in client.events()]
    (returned,) = [event["output"] for event in events if event["kind"] == "tool_returned"]
    assert "The door code is 4711." in returned
    assert [event["text"] for event in events if event["kind"] == "model_replied"] == ["", "It is 4711."]


def test_every_recipe_is_tried() -> None:
    assert set(re.findall(r"^# recipe: (.*)$", PAGE, re.MULTILINE)) == {*RECIPES, "channel"}


# --- the reference ----------------------------------------------------------------------------------------------------


def test_every_public_name_and_every_hook_stands_in_the_reference() -> None:
    reference = PAGE.partition("## Hooks\n")[2]
    missing = [
        name for name in plugins.PUBLIC if not re.search(rf"^(class |def |async def )?{name}\b", reference, re.MULTILINE)
    ]
    assert missing == []
    assert exuvia.API_VERSION == 1
    assert "`exuvia.API_VERSION` is 1." in PAGE


def test_every_type_in_the_signature_of_a_public_name_is_public() -> None:
    private = {
        f"{name} uses {used}, which is not public"
        for name, module in plugins.PUBLIC.items()
        if module.startswith(("plugins.api.", "sessions."))
        for used in own_types(importlib.import_module(module), name) - plugins.PUBLIC.keys()
    }
    assert private == set()


def own_types(module: ModuleType, name: str) -> set[str]:
    """The classes of Exuvia and the literals in the annotations of a public name's definition; bounded numbers are none."""
    names = imported_names(ast.parse(inspect.getsource(module)))
    return {
        each.id
        for definition in definition_of(name)
        for node in ast.walk(definition)
        for annotation in annotations_of(node)
        for each in ast.walk(annotation)
        if isinstance(each, ast.Name) and is_own_type(importlib.import_module(names.get(each.id, module.__name__)), each.id)
    }


def imported_names(tree: ast.Module) -> dict[str, str]:
    """The module that each name is imported from, `TYPE_CHECKING` included."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def annotations_of(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.AnnAssign):
        return [node.annotation]
    if isinstance(node, ast.ClassDef):
        return node.bases
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    given = (*node.args.args, *node.args.kwonlyargs)
    return [each for each in (*(one.annotation for one in given), node.returns) if each is not None]


def is_own_type(module: ModuleType, name: str) -> bool:
    defined = getattr(module, name, None)
    own = module.__name__.partition(".")[0] in ("plugins", "sessions")
    return own and (isinstance(defined, type) or get_origin(defined) is Literal) and not isinstance(defined, TypeVar)
