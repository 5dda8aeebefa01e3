"""What `exuvia plugins new` writes can be used as it is, and passes its own tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from exuvia import EmbeddingKeys, make_provider_context
from gateway.cli.main import KINDS, cli
from plugins.testing.templates.packages import KINDS as TEMPLATES
from plugins.testing.templates.packages import NotWritten, write_package

ROOT = Path(__file__).parents[2]


def test_there_is_a_template_for_each_kind_that_the_command_line_knows() -> None:
    assert tuple(TEMPLATES) == KINDS


def test_every_package_passes_its_own_tests_and_the_kits(tmp_path: Path) -> None:
    for kind in KINDS:
        write_package(kind, f"acme_{kind}", tmp_path / kind)
    folders = [tmp_path / kind for kind in KINDS]
    path = os.pathsep.join(map(str, (ROOT, *folders)))

    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *folders],
        env={**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_every_package_can_be_loaded_from_its_folder_and_says_how_it_is_used(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder, name = tmp_path / "new", f"template_{kind}"

    written = CliRunner().invoke(cli, ["plugins", "new", kind, name, "--into", str(folder)])
    checked = CliRunner().invoke(cli, ["plugins", "check", str(folder), "--home", str(tmp_path)])

    assert written.exit_code == 0, written.output
    can, yet = checked.output.splitlines()[-2:]
    assert (checked.exit_code, can) == (0, f"The plugin {name!r} can be used.")
    assert yet == "It is not allowed yet: add it to plugins.allow."
    assert "__" not in (folder / "README.md").read_text()
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["exuvia"] == {name: f"exuvia_{name}"}
    assert project["name"] == f"exuvia-template-{kind}"


async def test_the_key_of_a_new_embedding_provider_goes_to_its_own_address_alone_and_it_says_so(tmp_path: Path) -> None:
    write_package("embedding", "acme_keys", tmp_path / "new")
    module = ModuleType("exuvia_acme_keys")
    exec((tmp_path / "new" / "exuvia_acme_keys.py").read_text(), module.__dict__)
    environment = {"ACME_KEYS_API_KEY": "k"}
    told = {}
    for address in (None, "http://127.0.0.1:1/v1"):
        keys = EmbeddingKeys(provider="acme_keys", base_url=address)
        async with (
            make_provider_context(tmp_path, keys, environment=environment) as context,
            module.AcmeKeys(context) as provider,
        ):
            told[address] = (provider.model(), provider.explain_default())
    assert told == {
        None: ("small", "ACME_KEYS_API_KEY or memory.embedding.api_key is set"),
        "http://127.0.0.1:1/v1": (
            None,
            "memory.embedding.api_key is not set, and ACME_KEYS_API_KEY is for the service's own address alone",
        ),
    }


def test_a_new_package_keeps_what_is_built_and_tried_out_of_its_history(tmp_path: Path) -> None:
    write_package("tool", "acme", tmp_path / "new")
    assert {"build/", "*.egg-info/", "try/"} <= set((tmp_path / "new" / ".gitignore").read_text().splitlines())


@pytest.mark.parametrize("name", ["Acme", "9lives", "a-b", "", "class", "a" * 33, "../x"])
def test_a_name_that_nothing_could_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotWritten, match="cannot be its name"):
        write_package("tool", name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("embedding", "openai"),
        ("provider", "anthropic"),
        ("tool", "read"),
        ("command", "status"),
        ("channel", "irc"),
        ("policy", "builtin"),
    ],
)
def test_the_name_of_what_is_built_in_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    answer = CliRunner().invoke(cli, ["plugins", "new", kind, name, "--into", str(tmp_path / "new")])

    assert (answer.exit_code, answer.output) == (2, f"exuvia: '{name}' is built in; choose another name.\n")
    assert not (tmp_path / "new").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")

    with pytest.raises(NotWritten, match="not empty"):
        write_package("tool", "acme", tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["notes.md"]
