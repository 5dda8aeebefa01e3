"""Whatever an outsider meets is observed by a test: each key of the configuration by one that is named in `observed.toml`,
each hook, kind of event, frame, command and metric by one in whose code it stands.

That a test names a thing does not prove that it looks at it; it makes whoever adds one without a test write something
untrue.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gateway.door.frames import ClientFrame
from gateway.measuring.figures import Figures
from plugins import hookspecs
from plugins.loading import load_plugins
from sessions.events import KINDS
from tests.docs.configured import example_keys

TESTS = Path(__file__).parent
ROOT = TESTS.parent
WORD = "[A-Za-z0-9_]"


@cache
def sources_in(file: Path) -> Mapping[str, str]:
    """The source of each test of a file, with its decorators, by its name."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return found


@cache
def all_tests() -> str:
    """The sources of all files with tests, those of the pages and this one left out."""
    files = (file for file in TESTS.rglob("*.py") if file != Path(__file__) and "docs" not in file.parts)
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted(files))


def is_named(name: str, text: str) -> bool:
    """Whether a name stands in a text as a word of its own."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?!{WORD})", text) is not None


# --- configuration ----------------------------------------------------------------------------------------------------


def observed() -> dict[str, str]:
    """The test of each key, by the key's path."""
    return dict(_leaves(tomllib.loads((TESTS / "observed.toml").read_text()), ""))


def _leaves(tree: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for name, inner in tree.items():
        if isinstance(inner, str):
            yield above + name, inner
        else:
            yield from _leaves(inner, f"{above}{name}.")


def test_each_key_of_the_configuration_is_turned_by_a_test() -> None:
    keys = {f"{section}.{key}" for section, key, _ in example_keys()}
    assert set(observed()) == keys, "tests/observed.toml names the test of each key"


@pytest.mark.parametrize(("key", "place"), observed().items())
def test_the_test_of_a_key_exists_and_names_it(key: str, place: str) -> None:
    file, _, name = place.partition("::")
    assert name in sources_in(TESTS / file), f"{place} does not exist"
    last = key.rpartition(".")[2]
    words = (last, last.partition("_")[2] or last)  # distill_interval_hours is what a function calls interval_hours
    text = (TESTS / file).read_text(encoding="utf-8")
    assert any(is_named(word, text) for word in words), f"{file} does not speak of {last}"


# --- the rest ---------------------------------------------------------------------------------------------------------

HOOKS = [name for name in vars(hookspecs) if hasattr(getattr(hookspecs, name), "exuvia_spec")]
FRAMES = [frame.__struct_config__.tag for frame in ClientFrame.__args__]
METRICS = [family.name for family in Figures().families()]
COMMANDS = sorted(load_plugins(()).commands())


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_is_implemented_by_a_test(hook: str) -> None:
    assert f"def {hook}(" in all_tests()


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_event_is_looked_at_by_a_test(kind: str) -> None:
    assert is_named(kind, all_tests()) or is_named(KINDS[kind].__name__, all_tests())


@pytest.mark.parametrize("frame", FRAMES)
def test_each_frame_of_a_client_is_sent_by_a_test(frame: str) -> None:
    assert f'"{frame}"' in all_tests()


FIGURES = {"event_loop_lag_seconds": "LoopLag", "embedded_tokens": "figures.embedded"}
"""What observes a figure, where that is called otherwise."""


@pytest.mark.parametrize("metric", METRICS)
def test_each_metric_is_read_by_a_test(metric: str) -> None:
    figure = metric.removeprefix("exuvia_").removesuffix("_total")
    wanted = (metric, f"{metric}_count", FIGURES.get(figure, f"figures.{figure}"))
    assert any(is_named(name, all_tests()) for name in wanted)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_typed_by_a_test_and_explained_in_the_readme(command: str) -> None:
    assert is_named(f"/{command}", all_tests()) or is_named(f"{command.title()}()", all_tests())
    assert is_named(f"/{command}", (ROOT / "README.md").read_text(encoding="utf-8"))
