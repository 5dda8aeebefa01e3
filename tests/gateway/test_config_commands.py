"""`exuvia config init|check|show` as programs, on real files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gateway.auth.token import HOW_TO_GENERATE
from gateway.cli.config_commands import write
from gateway.config.documented_keys import EXAMPLE

ROOT = Path(__file__).parents[2]
KEY = "sk-" + "0123456789abcdef" * 2


def exuvia(home: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run a command on a home; return its exit code and output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("EXUVIA_", "OPENAI_"))}
    done = subprocess.run(
        [sys.executable, "-m", "exuvia", *arguments],
        cwd=ROOT,
        env=clean | {"EXUVIA_HOME": str(home)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


# --- init -------------------------------------------------------------------------------------------------------------


def test_init_writes_the_example_for_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    code, out, err = exuvia(home, "config", "init")
    assert (code, err) == (0, "")
    assert out.startswith(f"{home}/config.toml was written")
    assert (home / "config.toml").read_text() == (ROOT / "config.example.toml").read_text()
    assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert exuvia(home, "config", "check")[0] == 0


@pytest.mark.parametrize(("force", "step"), [(False, "link"), (True, "replace")])
def test_a_configuration_that_is_written_is_durable_with_its_name(
    tmp_path: Path, steps: list[str], force: bool, step: str
) -> None:
    write(tmp_path / "config.toml", "", {}, force=force)
    assert steps == ["sync content", "sync folder", step, "sync folder"]


def test_init_sets_what_it_is_told_in_the_keys_own_place(tmp_path: Path) -> None:
    request_options = [
        "sessions.queue_limit=5",
        "agent.model=openai:4711",
        'agent.instructions=Say "no" = yes\nand stop',
        'gateway.allowed_hosts=["a:1", "b:2"]',
        "sessions.resume_within=90s",
        "providers.openai.base_url=http://127.0.0.1:1/v1",
        "providers.openai.max_output_tokens=9",
    ]
    code, _, err = exuvia(tmp_path, "config", "init", *(f"--set={wish}" for wish in request_options))
    assert (code, err) == (0, "")
    text = (tmp_path / "config.toml").read_text()
    tree = tomllib.loads(text)
    assert tree["sessions"]["queue_limit"] == 5
    assert tree["agent"]["model"] == "openai:4711"
    assert tree["agent"]["instructions"] == 'Say "no" = yes\nand stop'
    assert tree["gateway"]["allowed_hosts"] == ["a:1", "b:2"]
    assert tree["sessions"]["resume_within"] == "90s"
    assert tree["providers"]["openai"]["base_url"] == "http://127.0.0.1:1/v1"
    assert tree["providers"]["openai"]["max_output_tokens"] == 9
    assert "\n# The maximum number of messages that wait in a session while a turn runs.\nqueue_limit = 5\n" in text
    assert text.count("queue_limit = ") == EXAMPLE.read_text().count("queue_limit = ")


def test_init_never_writes_over_a_configuration_unless_forced(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("# mine\n")
    code, out, err = exuvia(tmp_path, "config", "init")
    assert (code, out, err) == (2, "", f"exuvia: {file} exists; --force overwrites it.\n")
    assert file.read_text() == "# mine\n"
    assert exuvia(tmp_path, "config", "init", "--force")[0] == 0
    assert file.read_text() == EXAMPLE.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ("sessions.qeue_limit=5", "sessions.qeue_limit is not a known key; did you mean sessions.queue_limit?"),
        ("sessions.queue_limit=many", "sessions.queue_limit must be a whole number, not text."),
        ("gateway.token=short", f"gateway.token is shorter than 24 characters. {HOW_TO_GENERATE}."),
        ("queue_limit=5", "'queue_limit' cannot be set with --set; write it into the file."),
        ("nonsense", "--set takes KEY=VALUE, as in --set sessions.queue_limit=5."),
    ],
)
def test_init_refuses_what_a_start_would_refuse_and_leaves_nothing(wish: str, sentence: str, tmp_path: Path) -> None:
    code, out, err = exuvia(tmp_path, "config", "init", "--set", wish)
    assert (code, out) == (2, "")
    assert err.startswith("exuvia: ")
    assert err.endswith(f"{sentence}\n")
    assert list(tmp_path.iterdir()) == []


# --- check ------------------------------------------------------------------------------------------------------------

MANY_FAULTS = """\
[gateway]
port = "high"
allowed_hosts = [
    "a:1",
    5,
]
tokken = "x"

[agent]
model = "nobody:x"
temperature = 9

[providers.openai]
api_key = "env:NOT_SET"
base_ulr = "x"

[providers.opnai]
a = 1
"""


def test_check_names_every_fault_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(MANY_FAULTS)
    code, out, _ = exuvia(tmp_path, "config", "check", EXUVIA__SESSIONS__RESUME="maybe", EXUVIA_LOG_LEVEL="loud")
    assert code == 1
    *faults, count = out.splitlines()
    assert count == "10 faults."
    assert sorted(fault.replace(f"{file}, ", "") for fault in faults) == sorted(
        [
            "line 2: gateway.port must be a whole number, not text.",
            "line 3: gateway.allowed_hosts[1] must be text, not a whole number.",
            "line 7: gateway.tokken is not a known key; did you mean gateway.token?",
            "line 10: agent.model names 'nobody:x', which is not provider:model with one of"
            " anthropic, gemini, llama_server, lm_studio, local, ollama, openai, scripted.",
            "line 11: agent.temperature must be at most 2.0.",
            "line 14: providers.openai.api_key cannot be resolved: the environment variable NOT_SET is not set.",
            "line 15: providers.openai.base_ulr is not a known key; did you mean providers.openai.base_url?",
            "line 17: providers.opnai is for a provider that does not exist; the providers are"
            " anthropic, gemini, llama_server, lm_studio, local, ollama, openai, scripted.",
            "EXUVIA__SESSIONS__RESUME: sessions.resume must be auto or offer or never, not 'maybe'.",
            "EXUVIA_LOG_LEVEL: log.level must be debug or info or warning or error, not 'loud'.",
        ]
    )


def test_check_of_a_file_that_is_no_toml_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[agent]\nmodel = scripted:echo\n")
    code, out, _ = exuvia(tmp_path, "config", "check", str(file))
    assert (code, out) == (1, f"{file}, line 2, column 9: Invalid value.\n1 fault.\n")


def test_check_says_that_all_is_well_and_what_should_not_stay(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert exuvia(tmp_path, "config", "check")[:2] == (
        0,
        f"{file} does not exist; the defaults are used.\n",
    )
    file.write_text(f'[providers.openai]\napi_key = "{KEY}"\n')
    code, out, _ = exuvia(tmp_path, "config", "check", "--json")
    found = json.loads(out)
    assert (code, found["faults"]) == (0, [])
    assert found["warnings"][0].startswith(f"providers.openai.api_key is stored as plain text in {file};")
    assert KEY not in out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[gateway]\nhost = "0.0.0.0"\n', "line 2: gateway.host accepts connections from other machines;"),
        ('[gateway]\ntoken = "changeme-changeme-changeme"\n', "line 2: gateway.token is a placeholder."),
        ('[plugins]\nallow = ["nobody"]\n', "The plugin 'nobody' is not used: plugins.allow names it, and no"),
        ('[agent]\nmodel = "scripted"\n', "line 2: agent.model names 'scripted', which is not provider:model with one of"),
        ('[agent]\nfallback_models = ["auto"]\n', "line 2: agent.fallback_models names 'auto', which is not provider:model"),
        (
            '[compaction]\nmodel = "gpt-5"\n',
            "line 2: compaction.model names 'gpt-5', which is not provider:model with one of",
        ),
        (
            '[compaction]\nsummarizer = "poet"\n',
            "line 2: compaction.summarizer is 'poet', which does not exist; choose one of",
        ),
        ('[people.ana]\ntoken = "short"\n', "line 2: people.ana.token is shorter than 24 characters."),
        ("[people.ana]\n[people.ben]\n", "people.ana.token is missing.\n"),
        ("[people.ana]\n[people.ben]\n", "people.ben.token is missing.\n"),
        ('[agent]\ntimezone = "Mars/Olympus"\n', "line 2: agent.timezone must be a time zone known to this machine"),
    ],
)
def test_check_finds_what_fits_its_form_and_cannot_be_used(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(text)
    code, out, _ = exuvia(tmp_path, "config", "check")
    assert code == 1
    assert sentence in out


def test_check_of_a_file_that_is_not_there_cannot_be_done(tmp_path: Path) -> None:
    code, out, err = exuvia(tmp_path, "config", "check", str(tmp_path / "missing.toml"))
    assert (code, out) == (2, "")
    assert "does not exist" in err


# --- show -------------------------------------------------------------------------------------------------------------


def test_show_says_every_value_and_where_it_comes_from_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    file = tmp_path / "config.toml"
    file.write_text(
        '[gateway]\nport = 7200\n[sessions]\nresume_within = "5400s"\n[agent]\ntimezone = "Europe/Berlin"\n'
        f'[providers.openai]\napi_key = "file:key"\n[providers.openai.headers]\n"x key" = "{KEY}"\n'
    )
    variables = {
        "EXUVIA_TOKEN": "a-token-for-tests-that-is-long-enough",
        "EXUVIA__AGENT__VERBOSE": "true",
        "EXUVIA__PROVIDERS__ANTHROPIC__API_KEY": KEY,
    }
    code, out, err = exuvia(tmp_path, "config", "show", "--sources", **variables)
    assert (code, err) == (0, "")
    assert KEY not in out
    assert variables["EXUVIA_TOKEN"] not in out
    for line in (
        f"port = 7200  # {file}, line 2",
        'host = "127.0.0.1"  # default',
        'token = "env:EXUVIA_TOKEN"  # EXUVIA_TOKEN',
        f'resume_within = "90m"  # {file}, line 4',
        "verbose = true  # EXUVIA__AGENT__VERBOSE",
        f'timezone = "Europe/Berlin"  # {file}, line 6',
        f'api_key = "file:key"  # {file}, line 8',
        f'"x key" = "(hidden)"  # {file}, line 10',
        'api_key = "env:EXUVIA__PROVIDERS__ANTHROPIC__API_KEY"  # EXUVIA__PROVIDERS__ANTHROPIC__API_KEY',
    ):
        assert line in out.splitlines()
    plain = exuvia(tmp_path, "config", "show", **variables)[1]
    as_json = exuvia(tmp_path, "config", "show", "--json", **variables)[1]
    assert tomllib.loads(plain) == tomllib.loads(out) == json.loads(as_json)


def test_what_show_prints_is_a_configuration_with_the_same_values(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[sessions]\nqueue_limit = 7\n")
    first = exuvia(tmp_path, "config", "show")[1]
    (tmp_path / "config.toml").write_text(first)
    assert tomllib.loads(exuvia(tmp_path, "config", "show")[1]) == tomllib.loads(first)


def test_show_of_a_configuration_that_is_refused_says_why(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[sessions]\nqueue_limit = 0\n")
    code, out, err = exuvia(tmp_path, "config", "show")
    assert (code, out) == (2, "")
    assert "line 2: sessions.queue_limit must be at least 1." in err
