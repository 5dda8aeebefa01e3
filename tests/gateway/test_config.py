"""Configuration: accepted values, precedence of sources, and the sentence for each error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.config.keys import Config, Sections, check_providers, fit_provider, load_config, provider_settings
from gateway.config.rendering import shown
from gateway.config.sources import lines_of
from gateway.config.validation import Seconds
from gateway.support.errors import ConfigRefused
from plugins.providers.local.chat import LocalProvider
from plugins.providers.openai.chat import OpenAI, OpenAISettings
from plugins.support.secrets import Secret
from tests.open_files import open_below

KEY = "sk-" + "0123456789abcdef" * 2


class CloudSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of an arbitrary provider."""

    api_key: Secret | None = None
    base_url: str = "https://example.org/v1"
    headers: dict[str, Secret] = {}
    timeout_seconds: float = 60.0


class ManyKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings with a list of secrets."""

    keys: tuple[Secret, ...] = ()


def load(
    file: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
) -> Config:
    if isinstance(file, str):
        assert folder is not None
        path = folder / "config.toml"
        path.write_text(file)
    else:
        path = file or Path("/nowhere/config.toml")
    return load_config(path, environment=environment or {}, overrides=overrides or {})


def refusal(text: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return the error about a file, without the file's path."""
    with pytest.raises(ConfigRefused) as refused:
        load(text, environment, folder=folder)
    return str(refused.value).replace(str(folder) + "/", "")


def test_a_missing_file_means_the_defaults() -> None:
    config = load()
    assert all(getattr(config, name) == getattr(Sections(), name) for name in Sections.__struct_fields__)
    assert config.warnings == ()


def test_each_source_wins_over_the_one_before_it(tmp_path: Path) -> None:
    text = '[gateway]\nport = 1\nhost = "a"\n[agent]\nmodel = "x:1"\n[sessions]\nqueue_limit = 5\n'
    environment = {
        "EXUVIA__GATEWAY__PORT": "2",
        "EXUVIA_PORT": "3",
        "EXUVIA__GATEWAY__HOST": '"b"',
        "EXUVIA__AGENT__MODEL": "x:2",
    }
    config = load(text, environment, {"gateway": {"port": 4}}, folder=tmp_path)
    assert (config.gateway.port, config.gateway.host, config.agent.model, config.sessions.queue_limit) == (4, "b", "x:2", 5)
    assert load(text, environment, folder=tmp_path).gateway.port == 3


@pytest.mark.parametrize(
    ("name", "text", "read", "value"),
    [
        ("GATEWAY__ALLOWED_HOSTS", '["a:1", "b:2"]', lambda c: c.gateway.allowed_hosts, ("a:1", "b:2")),
        ("AGENT__TEMPERATURE", "1", lambda c: c.agent.temperature, 1.0),
        ("AGENT__MODEL", "1234", lambda c: c.agent.model, "1234"),
        ("AGENT__INSTRUCTIONS", "Be brief.\nx = 1", lambda c: c.agent.instructions, "Be brief.\nx = 1"),
        ("SESSIONS__RESUME_WITHIN", "90s", lambda c: c.sessions.resume_within, 90.0),
        ("SESSIONS__RESUME", "never", lambda c: c.sessions.resume, "never"),
        ("GATEWAY", "{ port = 8 }", lambda c: c.gateway.port, 8),
    ],
)
def test_a_variable_has_the_type_of_its_key(name: str, text: str, read: Any, value: Any) -> None:
    assert read(load(environment={f"EXUVIA__{name}": text})) == value


def test_blank_variables_are_ignored_except_for_the_token() -> None:
    config = load(environment={"EXUVIA_HOST": "", "EXUVIA_PORT": "", "EXUVIA_LOG_LEVEL": "", "EXUVIA_TOKEN": " "})
    assert (config.gateway.host, config.gateway.port, config.log.level) == ("127.0.0.1", 7117, "info")
    assert config.gateway.token == Secret("")


def test_a_level_may_be_shouted_and_a_token_variable_is_no_reference() -> None:
    config = load(environment={"EXUVIA_LOG_LEVEL": "WARNING", "EXUVIA_TOKEN": "env:HOME"})
    assert config.log.level == "warning"
    assert config.gateway.token == Secret("env:HOME")


@pytest.mark.parametrize(
    ("written", "seconds"), [("0s", 0), ("90s", 90), ("5m", 300), ("1.5h", 5400), ("2d", 172800), ("3650d", 315360000)]
)
def test_durations_have_a_unit(written: str, seconds: float, tmp_path: Path) -> None:
    assert load(f'[sessions]\nresume_within = "{written}"', folder=tmp_path).sessions.resume_within == seconds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[gateway]\nprot = 1", "config.toml, line 2: gateway.prot is not a known key; did you mean gateway.port?"),
        ("[gatway]\nport = 1", "config.toml, line 1: gatway is not a known key; did you mean gateway?"),
        ("port = 1", "config.toml, line 1: port is not a known key; did you mean gateway.port?"),
        ("[agent]\nqueue = 'x'", "config.toml, line 2: agent.queue is not a known key; did you mean sessions.queue?"),
        (
            "[gateway]\nlog_level = 'x'",
            "config.toml, line 2: gateway.log_level is not a known key; did you mean log.level?",
        ),
        ("enabled = true", "config.toml, line 1: enabled is not a known key."),
        ("[agent]\nzebra = 1", "config.toml, line 2: agent.zebra is not a known key."),
        ("gateway = 1", "config.toml, line 1: gateway must be a table, not a whole number."),
        ('[gateway]\nport = "7117"', "config.toml, line 2: gateway.port must be a whole number, not text."),
        ("[gateway]\nport = 7117.5", "config.toml, line 2: gateway.port must be a whole number, not a fraction."),
        ("[gateway]\nport = 65536", "config.toml, line 2: gateway.port must be at most 65535."),
        ('[gateway]\nhost = ""', "config.toml, line 2: gateway.host must not be empty."),
        ("[gateway]\ntoken = 5", "config.toml, line 2: gateway.token must be text: env:NAME, file:PATH or credential:NAME."),
        ('[gateway]\nallowed_hosts = "a"', "config.toml, line 2: gateway.allowed_hosts must be a list, not text."),
        (
            "[gateway]\nallowed_hosts = ['a', 1]",
            "config.toml, line 2: gateway.allowed_hosts[1] must be text, not a whole number.",
        ),
        ("[agent]\ntool_rounds = 0", "config.toml, line 2: agent.tool_rounds must be at least 1."),
        ("[agent]\ntemperature = nan", "config.toml, line 2: agent.temperature must be a finite number."),
        ("[agent]\ntemperature = true", "config.toml, line 2: agent.temperature must be a number, not true or false."),
        ('[sessions]\nresume = "yes"', "config.toml, line 2: sessions.resume must be auto or offer or never, not 'yes'."),
        (
            "[sessions]\nresume_within = 3600",
            "config.toml, line 2: sessions.resume_within must be a duration in quotes, such as 90s, 5m, 1h or 2d.",
        ),
        (
            '[sessions]\nresume_within = "3651d"',
            "config.toml, line 2: sessions.resume_within must be a duration such as 90s, 5m, 1h or 2d (at most ten years),"
            " not '3651d'.",
        ),
        ("[providers]\nopenai = 1", "config.toml, line 2: providers.openai must be a table, not a whole number."),
        ('[log]\n"a\\nb\\u001b" = 1', "config.toml, line 2: log.a b is not a known key."),
        ("[gateway\nport = 1", "config.toml, line 1, column 9: Expected ']' at the end of a table declaration."),
        ("[gateway]\nport =", "config.toml, line 2, column 7: Invalid value."),
        ('[gateway]\nhost = "a', "config.toml, line 2, column 10: Unterminated string."),
        ("[gateway]\nport = 1\nport = 2", "config.toml, line 3, column 9: Cannot overwrite a value."),
        ("a = " + "[" * 5000, "config.toml, line 1, column 1: tables or lists are nested too deeply."),
    ],
)
def test_what_is_wrong_in_the_file_is_one_sentence_with_its_place(text: str, sentence: str, tmp_path: Path) -> None:
    assert refusal(text, tmp_path) == sentence


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("EXUVIA_PORT", "high", "EXUVIA_PORT: gateway.port must be a whole number, not text."),
        (
            "EXUVIA__SESIONS__RESUME",
            "auto",
            "EXUVIA__SESIONS__RESUME: sesions is not a known key; did you mean sessions?",
        ),
        ("EXUVIA__PORT", "1", "EXUVIA__PORT: port is not a known key; did you mean gateway.port?"),
        ("EXUVIA__GATEWAY__PORT__X", "1", "EXUVIA__GATEWAY__PORT__X: gateway.port must be a whole number, not a table."),
        (
            "EXUVIA__AGENT__TOOL_ROUNDS",
            "5\nx = 1",
            "EXUVIA__AGENT__TOOL_ROUNDS: agent.tool_rounds must be a whole number, not text.",
        ),
        ("EXUVIA____PORT", "1", "EXUVIA____PORT names no key; write EXUVIA__SECTION__KEY."),
        (
            "EXUVIA__PROVIDERS__OPENAI",
            "1",
            "EXUVIA__PROVIDERS__OPENAI: providers.openai must be a table, not a whole number.",
        ),
    ],
)
def test_what_is_wrong_in_the_environment_names_the_variable(name: str, value: str, sentence: str, tmp_path: Path) -> None:
    assert refusal("", tmp_path, {name: value}) == sentence


def test_a_variable_below_a_key_that_is_no_table_is_refused(tmp_path: Path) -> None:
    sentence = refusal("gateway = 1", tmp_path, {"EXUVIA__GATEWAY__PORT": "1"})
    assert sentence == "EXUVIA__GATEWAY__PORT: gateway must be a table."


def test_a_file_that_is_not_text_names_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b'[gateway]\nhost = "\xff"\n')
    with pytest.raises(ConfigRefused, match=r"config\.toml, line 2, column 9: this is not UTF-8\."):
        load(path)
    path.write_bytes(b"\xef\xbb\xbf[gateway]\nport = 1\n")
    assert load(path).gateway.port == 1


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigRefused, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_secrets_come_from_where_their_references_point(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "cloud").write_text(f"{KEY}2")
    environment = {"MY_KEY": f" {KEY}3 ", "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}
    for reference, secret in [("file:key", KEY), ("credential:cloud", f"{KEY}2"), ("env:MY_KEY", f"{KEY}3")]:
        config = load(f'[gateway]\ntoken = "{reference}"', environment, folder=tmp_path)
        assert config.gateway.token == Secret(secret)
        assert config.warnings == ()


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("env:NOT_SET", "the environment variable NOT_SET is not set"),
        ("file:missing", "missing cannot be read (No such file or directory)"),
        ("file:binary", "binary is not text"),
        ("file:/dev/zero", "/dev/zero is too large for a secret"),
        ("credential:cloud", "the credential cloud needs CREDENTIALS_DIRECTORY, which systemd sets"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused_with_the_key(reference: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    sentence = refusal(f'[gateway]\ntoken = "{reference}"', tmp_path)
    assert sentence == f"config.toml, line 2: gateway.token cannot be resolved: {reason}."


def test_a_credential_cannot_leave_its_folder(tmp_path: Path) -> None:
    sentence = refusal('[gateway]\ntoken = "credential:../key"', tmp_path, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert sentence.endswith("'../key' is not the name of a credential.")


def test_a_literal_secret_is_accepted_and_warned_about_without_being_shown(tmp_path: Path) -> None:
    config = load(f'[gateway]\ntoken = "{KEY}"', folder=tmp_path)
    assert config.gateway.token == Secret(KEY)
    (warning,) = config.warnings
    assert warning.startswith(f"gateway.token is stored as plain text in {tmp_path}/config.toml;")
    assert KEY not in warning + repr(config) + repr(config.gateway) + repr(config.sources) + repr(config.references)
    assert load(environment={"EXUVIA__GATEWAY__TOKEN": KEY}).warnings == ()


def test_a_providers_table_becomes_its_own_struct(tmp_path: Path) -> None:
    text = '[providers.cloud]\nbase_url = "http://127.0.0.1:1/v1"\n[providers.cloud.headers]\nx-key = "env:MY_KEY"\n'
    environment = {
        "MY_KEY": KEY,
        "EXUVIA__PROVIDERS__CLOUD__TIMEOUT_SECONDS": "5",
        "EXUVIA__PROVIDERS__CLOUD__API_KEY": "1234567890",
    }
    settings = provider_settings(load(text, environment, folder=tmp_path), "cloud", CloudSettings)
    assert settings == CloudSettings(
        api_key=Secret("1234567890"), base_url="http://127.0.0.1:1/v1", headers={"x-key": Secret(KEY)}, timeout_seconds=5
    )
    assert provider_settings(load(), "cloud", CloudSettings) == CloudSettings()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("base_url = 1", "providers.cloud.base_url must be text, not a whole number."),
        ("base_ulr = 'x'", "providers.cloud.base_ulr is not a known key; did you mean providers.cloud.base_url?"),
        ("api_key = 'env:NO'", "providers.cloud.api_key cannot be resolved: the environment variable NO is not set."),
        ("headers = { a = 1 }", "providers.cloud.headers must be text: env:NAME, file:PATH or credential:NAME."),
    ],
)
def test_a_providers_key_is_refused_with_its_whole_path(line: str, sentence: str, tmp_path: Path) -> None:
    config = load(f"[providers.cloud]\n{line}", folder=tmp_path)
    with pytest.raises(ConfigRefused) as refused:
        provider_settings(config, "cloud", CloudSettings)
    assert str(refused.value) == f"{tmp_path}/config.toml, line 2: {sentence}"


def test_a_table_for_a_provider_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    config = load("[providers.opnai]", {"EXUVIA__PROVIDERS__LOCAL__THREADS": "1"}, folder=tmp_path)
    with pytest.raises(ConfigRefused, match=r"config\.toml, line 1: providers\.opnai is for a provider that does not exist"):
        check_providers(config, {"openai": OpenAI, "local": LocalProvider})
    check_providers(load(environment={"EXUVIA__PROVIDERS__LOCAL__THREADS": "1"}), {"openai": OpenAI, "local": LocalProvider})


def test_a_table_that_does_not_fit_its_provider_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    config = load("[providers.local]\nthreads = 'two'", folder=tmp_path)
    with pytest.raises(ConfigRefused, match=r"line 2: providers\.local\.threads must be a whole number, not text\."):
        check_providers(config, {"openai": OpenAI, "local": LocalProvider})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[gateway]\n# port = 'a comment'\nport = 'x'\n", 3),
        ("gateway = { host = 'a', port = 'x' }\n", 1),
        ('[agent]\ninstructions = """\n[gateway]\nport = 1\n"""\n[gateway]\n\nport = "x"\n', 8),
        ("gateway.port = 'x'\n[agent]\n", 1),
        ("[gateway]\r\nport = 'x'\r\n", 2),
        ("[gateway]\nhost = 'port'\n'port' = 'x'\n", 3),
    ],
)
def test_the_line_of_a_key_is_told_however_it_is_written(text: str, line: int, tmp_path: Path) -> None:
    sentence = refusal(text, tmp_path)
    assert sentence == f"config.toml, line {line}: gateway.port must be a whole number, not text."


def test_the_lines_of_all_keys_are_found_in_one_pass() -> None:
    text = """a.b = 1
[t]
list = [
  { x = 1 },
  { y = 2 },
]
text = '''
[not.a.table]
z = 1
'''
[t.inner]
"quoted.name" = { deep = { deeper = true } }
[[many]]
one = 1
[[many]]
one = 2
two = 2
"""
    assert lines_of(text) == {
        ("a",): 1, ("a", "b"): 1, ("t",): 2, ("t", "list"): 3, ("t", "list", "x"): 3, ("t", "list", "y"): 3,
        ("t", "text"): 7, ("t", "inner"): 11, ("t", "inner", "quoted.name"): 12, ("t", "inner", "quoted.name", "deep"): 12,
        ("t", "inner", "quoted.name", "deep", "deeper"): 12, ("many",): 13, ("many", "one"): 14, ("many", "two"): 17,
    }  # fmt: skip
    assert lines_of(text.replace("\n", "\r\n")) == lines_of(text)
    assert lines_of("a = 1\nb = [\n" + "1,\n" * 300 + "]\nc = 1\n") == {("a",): 1}
    assert lines_of("") == {}


def test_a_list_of_secrets_is_resolved_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    config = load(f'[providers.many]\nkeys = ["file:key", "{KEY}2"]', folder=tmp_path)
    settings, warnings = fit_provider(config, "many", ManyKeys)
    assert settings == ManyKeys(keys=(Secret(KEY), Secret(f"{KEY}2")))
    assert [warning.partition(" ")[0] for warning in warnings] == ["providers.many.keys[1]"]
    with pytest.raises(ConfigRefused, match=r"line 1: providers\.many\.keys\[0\] cannot be resolved"):
        fit_provider(load('providers.many.keys = ["env:NO"]', folder=tmp_path), "many", ManyKeys)


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "90s"), (3600, "1h"), (5400, "90m"), (0.5, "0.5s"), (172800, "2d"), (0, "0d")]
)
def test_a_duration_is_written_as_it_is_read(seconds: float, text: str) -> None:
    assert Seconds(seconds).written() == text
    assert Seconds.parse(text) == seconds


def test_a_time_zone_must_be_one_that_exists(tmp_path: Path) -> None:
    assert load('[agent]\ntimezone = "Asia/Shanghai"', folder=tmp_path).agent.timezone == "Asia/Shanghai"
    for name in ("Mars/Olympus", "../../etc/passwd", "", "Europe/\\u0000"):
        assert "agent.timezone must be a time zone known to this machine" in refusal(
            f'[agent]\ntimezone = "{name}"', tmp_path
        )
    sentence = refusal("[agent]\ntimezone = 5", tmp_path)
    assert sentence == "config.toml, line 2: agent.timezone must be the name of a time zone, such as Europe/Berlin."


def test_a_file_too_large_for_a_configuration_is_refused(tmp_path: Path) -> None:
    assert refusal("#" * (1024 * 1024 + 1), tmp_path) == "config.toml is too large for a configuration."


def test_no_descriptor_stays_open_after_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for _ in range(3):
        with pytest.raises(ConfigRefused):
            load(tmp_path)
    assert open_below(tmp_path) == []


@pytest.mark.parametrize(
    ("written", "keys"),
    [('"env:ONE"', ["1"]), ('["env:ONE", "env:TWO"]', ["1", "2"])],
)
def test_a_providers_key_may_be_one_or_several(tmp_path: Path, written: str, keys: list[str]) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"[providers.openai]\napi_key = {written}\n")
    secrets = {"ONE": "1", "TWO": "2"}
    in_file = load_config(path, environment=secrets, overrides={})
    in_variable = load_config(None, environment={**secrets, "EXUVIA__PROVIDERS__OPENAI__API_KEY": written}, overrides={})
    for config in (in_file, in_variable):
        settings, warnings = fit_provider(config, "openai", OpenAISettings)
        assert [secret.reveal() for secret in settings.api_key or ()] == keys
        assert warnings == []
        assert shown(config, {"openai": settings})["providers"]["openai"]["api_key"]
        assert not any(key in str(shown(config, {"openai": settings})) for key in ("'1'", "'2'"))


def test_a_variable_that_is_nearly_one_of_ours_is_warned_about() -> None:
    (warning,) = load(environment={"EXUVIA_PROT": "1", "EXUVIA_URL": "x", "EXUVIA_HOME": "/x"}).warnings
    assert warning == "EXUVIA_PROT is not a variable of Exuvia; did you mean EXUVIA_PORT?"
