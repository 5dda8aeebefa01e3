"""The units: what systemd itself says of them, and what `exuvia service` writes."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.support import service_unit
from gateway.support.errors import StartRefused

UNITS = Path(__file__).parents[1] / "systemd"

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is needed; `apt-get install systemd` brings it"
)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an installation, in a folder whose name systemd would misread."""
    folder = tmp_path / "100% $mine here" / "bin"
    folder.mkdir(parents=True)
    (folder / "exuvia").symlink_to("/bin/true")
    return folder / "python"


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_RUNTIME_DIR": "/run"}  # which a user's manager would have
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False, env=environment)


@needs_systemd
def test_the_unit_is_confined_so_that_its_exposure_is_below_two() -> None:
    # The score of 0 to 10, tenfold
    found = analyze("security", "--offline=yes", "--threshold=20", UNITS / "exuvia.service")
    assert found.returncode == 0, found.stdout


@needs_systemd
@pytest.mark.parametrize("scope", ["user", "system"])
def test_systemd_finds_no_fault_in_the_units(scope: service_unit.Scope, python: Path, tmp_path: Path) -> None:
    shutil.copy(UNITS / "exuvia.socket", tmp_path)
    (tmp_path / "exuvia.service").write_text(
        service_unit.unit(scope, service_unit.start_command(python, tmp_path / "a home"))
    )
    words = ["--user"] if scope == "user" else [tmp_path / "exuvia.socket"]
    found = analyze("verify", *words, tmp_path / "exuvia.service")
    assert (found.returncode, found.stderr) == (0, "")


def test_a_users_unit_asks_for_nothing_that_only_the_system_can_do() -> None:
    text = service_unit.unit("user", "/opt/exuvia/bin/exuvia run")
    assert "MemoryDenyWriteExecute=yes" in text
    assert "WantedBy=default.target" in text
    assert text.startswith("# Exuvia as a service of a user. ")
    for directive in ("DynamicUser=", "ProtectSystem=", "PrivateDevices=", "LoadCredential=", "/var/lib"):
        assert directive not in text


def test_the_shipped_unit_is_what_install_writes_for_its_own_place() -> None:
    assert service_unit.unit("system", "/opt/exuvia/bin/exuvia run") == (UNITS / "exuvia.service").read_text()


def test_a_users_service_is_installed_and_removed_with_what_enabled_it(tmp_path: Path, python: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "settings")}
    out = io.StringIO()
    assert service_unit.install("user", python, tmp_path / "home", environment, out, only_print=False) == 0
    written = tmp_path / "settings/systemd/user/exuvia.service"
    assert f"--home {tmp_path / 'home'}\n" in written.read_text()
    assert "systemctl --user enable --now exuvia" in out.getvalue()
    wants = written.parent / "default.target.wants"
    wants.mkdir()
    (wants / "exuvia.service").symlink_to(written)
    assert service_unit.uninstall("user", environment, out) == 0
    assert not written.exists()
    assert list(wants.iterdir()) == []


def test_a_unit_that_somebody_else_wrote_is_left_as_it_is(tmp_path: Path, python: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    written = tmp_path / "systemd/user/exuvia.service"
    written.parent.mkdir(parents=True)
    written.write_text("[Service]\n")
    with pytest.raises(StartRefused, match="not written by"):
        service_unit.install("user", python, None, environment, io.StringIO(), only_print=False)
    with pytest.raises(StartRefused, match="not written by"):
        service_unit.uninstall("user", environment, io.StringIO())
    assert written.read_text() == "[Service]\n"


def test_the_systems_service_is_refused_where_it_would_not_see_the_installation() -> None:
    with pytest.raises(StartRefused, match="cannot see /home/me"):
        service_unit.install("system", Path("/home/me/venv/bin/python"), None, {}, io.StringIO(), only_print=True)


def test_without_an_installed_command_the_service_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    result = CliRunner().invoke(cli, ["service", "install", "--print"])
    assert result.exit_code == 2
    assert result.stderr.startswith("exuvia: There is no ")
