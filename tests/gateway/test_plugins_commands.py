"""`exuvia plugins list` and `check`, on installed packages and on folders."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.cli.plugins import check_plugin, list_plugins
from tests.gateway.test_plugin_settings import WEATHER
from tests.shelf import Shelf

BROKEN = "from exuvia import hookimpl\n@hookimpl\ndef register_tool(): return []\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a configuration that allows three of the four plugins; one of them is not installed."""
    shelf = Shelf(tmp_path / "shelf", monkeypatch)
    shelf.install("exuvia_weather", "weather", WEATHER)
    shelf.install("exuvia_broken", "broken", BROKEN)
    shelf.install("exuvia_lurking", "lurking", "raise SystemExit('imported')")
    path = tmp_path / "config.toml"
    path.write_text('[plugins]\nallow = ["weather", "broken", "gone"]\n')
    return path


def checked(name: str, file: Path) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    code = check_plugin(name, file, {}, out, as_json=True)
    return code, json.loads(out.getvalue())


def test_the_list_says_who_is_loaded_refused_and_not_allowed(file: Path) -> None:
    out = io.StringIO()

    assert list_plugins(file, {}, out, as_json=True) == 1, "two that are allowed cannot be used"

    listed = {each["name"]: each for each in json.loads(out.getvalue())}
    assert {name: each["state"] for name, each in listed.items()} == {
        "builtin": "built in",
        "tool_pruning": "built in",
        "weather": "loaded",
        "broken": "refused",
        "gone": "refused",
        "lurking": "not allowed",
    }
    assert listed["weather"]["package"] == "exuvia_weather 1.0"
    assert listed["weather"]["provides"] == {"tool": ["weather"]}
    assert listed["broken"]["sentences"] == ["The plugin 'broken' is not used: there is no hook 'register_tool'."]
    assert "exuvia_lurking" not in sys.modules


def test_the_list_for_people_has_a_line_for_each_and_what_is_wrong_below_it(file: Path) -> None:
    out = io.StringIO()

    list_plugins(file, {}, out, as_json=False)

    lines = out.getvalue().splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [
        *("builtin", "tool_pruning", "weather", "broken", "gone", "lurking")
    ]
    assert lines[2] == "weather              loaded       exuvia_weather 1.0 (tool weather)"


def test_a_check_says_what_a_plugin_provides_and_may_be_told(file: Path) -> None:
    assert checked("weather", file) == (
        0,
        {
            "name": "weather",
            "provides": {"tool": ["weather"]},
            "hooks": ["register_tools"],
            "settings": {"plugins.weather.city": "Lisbon", "plugins.weather.key": None},
            "faults": [],
        },
    )


def test_a_check_imports_what_is_not_allowed_too_and_names_its_fault(file: Path) -> None:
    code, report = checked("lurking", file)

    assert code == 1
    assert report["faults"] == ["The plugin 'lurking' is not used: importing exuvia_lurking failed (SystemExit: imported)."]


def test_a_folder_is_checked_without_being_installed(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "src").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\n[project.entry-points.exuvia]\nmine = "my_weather_2"\n')
    (folder / "src" / "my_weather_2.py").write_text(WEATHER)

    code, report = checked(str(folder), file)

    assert (code, report["name"], report["provides"]) == (0, "mine", {"tool": ["weather"]})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[project]\n", "needs one entry point"),
        ("[project", "is not a valid project file"),
        ("project = 3\n", "is not a valid project file"),
    ],
)
def test_a_folder_without_a_plugin_is_said_in_a_sentence(file: Path, tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)

    with pytest.raises(click.ClickException, match=sentence):
        checked(str(tmp_path), file)


def test_a_plugin_that_nobody_offers_is_exit_code_2(file: Path) -> None:
    answer = CliRunner().invoke(cli, ["plugins", "check", "nobody", "--config", str(file)])

    assert answer.exit_code == 2
    assert "No installed package provides a plugin 'nobody'" in answer.output
