"""`exuvia mcp`, the configuration of servers, and what they cost where none is configured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.config.keys import check_servers, load_config
from gateway.support.errors import ConfigRefused
from tests.gateway.test_doctor import context_of, found
from tests.mcp.mcp_stage import SERVER

ROOT = Path(__file__).parents[2]


def exuvia(home: Path, *arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and its output."""
    command = [sys.executable, "-m", "exuvia", *arguments, "--home", str(home)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(
        f'[mcp.odd]\ncommand = ["{sys.executable}", "-S", "{SERVER}"]\ntrust = true\ntools.allow = ["echo", "pid"]\n'
        '[mcp.gone]\ncommand = ["no-such-program"]\n'
    )
    return tmp_path


def test_list_shows_what_is_configured_and_starts_nothing(home: Path) -> None:
    code, output = exuvia(home, "mcp", "list")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == ["odd", "gone"]
    assert output.splitlines()[0].endswith("stdio_server.py (trusted)")
    _, answer = exuvia(home, "mcp", "list", "--json")
    listed: list[dict[str, Any]] = json.loads(answer)
    assert listed[1] == {"name": "gone", "where": "no-such-program", "trust": False, "login": False}


def test_check_connects_and_lists_tools(home: Path) -> None:
    code, output = exuvia(home, "mcp", "check", "odd")
    assert (code, output) == (0, "odd: misbehaving 1, protocol 2025-11-25, 2 tools, 1 prompt.\n  odd_echo\n  odd_pid\n")
    code, output = exuvia(home, "mcp", "check", "--json")
    assert code == 1
    odd, gone = json.loads(output)
    assert (odd["ready"], odd["tools"]) == (True, ["odd_echo", "odd_pid"])
    assert gone["problem"] == "its process ended with code 127: no-such-program: No such file or directory"


def test_check_of_an_unknown_server_names_the_others(home: Path) -> None:
    assert exuvia(home, "mcp", "check", "files") == (
        2,
        "exuvia: There is no server 'files' in [mcp]; the servers are odd, gone.\n",
    )


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("[mcp.a]\n", "mcp.a needs either a command or a url."),
        ('[mcp.a]\ncommand = ["x"]\nurl = "http://x.example/mcp"\n', "mcp.a needs either a command or a url."),
        (
            '[mcp.a]\nurl = "http://x.example/mcp"\ncwd = "."\n',
            "has a url, to which env, cwd and sandbox do not apply.",
        ),
        ('[mcp.a]\ncommand = ["x"]\nheaders = { A = "b" }\n', "mcp.a.headers applies to a url only."),
        ('[mcp.a]\nurl = "file:///etc/passwd"\n', "mcp.a.url must be an address such as https://models.example.org/v1."),
        (
            '[mcp.A]\ncommand = ["x"]\n',
            "mcp.A needs a name of lower-case letters, digits, _ and - that begins with a letter,",
        ),
        ('[mcp.a]\ncommand = ["x"]\n[mcp.a_b]\ncommand = ["x"]\n', "mcp.a_b begins with the name of the server 'a';"),
        ('[mcp.a]\ncommand = ["x"]\nkind = 3\n', "mcp.a.kind"),
        (
            '[mcp.a]\nurl = "http://x.example/m"\noauth = { client_secret = "12345678" }\n',
            "which needs client_id and issuer.",
        ),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_with_its_key(tmp_path: Path, table: str, reason: str) -> None:
    (tmp_path / "config.toml").write_text(table)
    with pytest.raises(ConfigRefused) as refused:
        check_servers(load_config(tmp_path / "config.toml", environment={}, overrides={}))
    assert reason in str(refused.value)


def test_a_gateway_without_a_server_imports_nothing_for_it() -> None:
    code = (
        "import sys, gateway.wiring.daemon; from plugins.host.loading import load_plugins; load_plugins(());"
        " from pathlib import Path; there = {path.stem for path in Path('plugins/mcp').glob('*.py')};"
        " ours = there - {'__init__', 'mcp_client', 'mcp_settings'};"
        " heavy = {'mcp', 'mcp_types', 'pydantic', 'httpx2', 'jsonschema', 'starlette'};"
        " print(sorted({*heavy, *('plugins.mcp.' + name for name in ours)} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_doctor_names_a_program_that_is_not_there(tmp_path: Path) -> None:
    text = f'[mcp.gone]\ncommand = ["no-such-program"]\n[mcp.there]\ncommand = ["{sys.executable}"]\n'
    (finding,) = found("mcp servers", context_of(tmp_path, text, PATH="/usr/bin"))
    assert finding.what == "The program 'no-such-program' of the MCP server gone is not found."
    assert found("mcp servers", context_of(tmp_path)) == []
