"""The home and the token: created at the first start, kept private, refused if they protect nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.auth.token import gateway_token, is_loopback, rotate_token, token_weakness
from gateway.config.keys import load_config
from gateway.support.errors import StartRefused
from gateway.support.home import Home
from plugins.support.secrets import Secret

GOOD = "kT3-mPz9_wQx7LrB2vNcYh5d"


def token(home: Home, **environment: str) -> Secret:
    return gateway_token(home, load_config(home.config, environment=environment, overrides={}), environment)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.make()
    return made


def test_the_home_comes_from_the_command_line_the_variable_or_the_default(tmp_path: Path) -> None:
    assert Home.resolve(tmp_path, {"EXUVIA_HOME": "/x"}).root == tmp_path
    assert Home.resolve(None, {"EXUVIA_HOME": "/x/y"}).root == Path("/x/y")
    assert Home.resolve(None, {"EXUVIA_HOME": ""}).root == Path.home() / ".exuvia"
    assert Home.resolve(Path("below"), {}).root == Path.cwd() / "below"


def test_the_first_start_creates_a_private_home_a_workspace_and_a_token(home: Home) -> None:
    made = token(home)
    assert (mode(home.root), mode(home.workspace("workspace")), mode(home.sessions)) == (0o700, 0o700, 0o700)
    assert mode(home.token) == 0o600
    assert len(made.reveal()) == 43
    assert token(home) == made == Secret(home.token.read_text().strip())
    home.make()


def test_an_existing_home_with_only_our_files_is_closed_to_others(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir(mode=0o755)
    for name in ("config.toml", "memory.local", "memory.sqlite", "memory.sqlite-wal"):
        (home.root / name).touch()
    home.make()
    assert mode(home.root) == 0o700
    home.root.chmod(0o755)
    (home.root / "holiday.jpg").touch()
    home.make()
    assert mode(home.root) == 0o755


def test_a_world_writable_home_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(StartRefused, match="Every user may write"):
        Home(tmp_path).make()


def test_a_home_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartRefused, match=r"The home .*/file/home cannot be used: File exists\."):
        Home(tmp_path / "file" / "home").make()


def test_the_workspace_may_be_elsewhere(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make(str(tmp_path / "garden"))
    assert sorted(os.listdir(tmp_path)) == ["garden", "home"]
    assert home.workspace("~/garden") == Path.home() / "garden"


def test_the_token_comes_from_the_configuration_the_credential_or_the_home(home: Home, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(GOOD + "\n")
    credentials = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert token(home, EXUVIA_TOKEN=GOOD + "x", **credentials) == Secret(GOOD + "x")
    assert token(home, **credentials) == Secret(GOOD)
    assert not home.token.exists()


@pytest.mark.parametrize(
    ("text", "weakness"),
    [
        ("", "is blank"),
        ("abc", "is shorter than 24 characters"),
        (GOOD[:-1], "is shorter than 24 characters"),
        ("changeme", "is a placeholder"),
        ("Your-Token-Here-0123456789", "is a placeholder"),
        ("<replace_me>-0123456789-abcdef", "is a placeholder"),
        ("a" * 40, "has fewer than 6 different characters"),
        ("ana-ana-ana-ana-ana-ana-ana-1", "has fewer than 6 different characters"),
        ("abcdefgh" * 4, "is a repeated pattern"),
        ("ababababababababababababba", "has fewer than 6 different characters"),
        ("kT3 mPz9 wQx7 LrB2 vNcY h5d", "has characters that are not allowed in an HTTP header"),
        ("ключ-который-достаточно-длинный", "has characters that are not allowed in an HTTP header"),
    ],
)
def test_a_weak_token_is_refused_wherever_it_comes_from(text: str, weakness: str, home: Home) -> None:
    assert token_weakness(text) == weakness
    with pytest.raises(StartRefused, match=rf"The token {weakness}\. Generate one with .*token_urlsafe\(32\)\)'`\."):
        token(home, EXUVIA_TOKEN=text)
    home.token.write_text(text + "\n")
    home.token.chmod(0o600)
    with pytest.raises(StartRefused, match=rf"/token {weakness}\. Generate one with .*token_urlsafe"):
        token(home)


@pytest.mark.parametrize("good", [GOOD, "a-long-phrase-of-my-own-choosing"])
def test_a_strong_token_is_accepted(good: str) -> None:
    assert token_weakness(good) is None


def test_a_readable_token_file_is_made_private(home: Home) -> None:
    home.token.write_text(GOOD)
    home.token.chmod(0o644)
    assert token(home) == Secret(GOOD)
    assert mode(home.token) == 0o600


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "127.0.0.1.example.org"])
def test_listening_beyond_loopback_requires_a_configured_token(host: str, home: Home) -> None:
    token(home)
    with pytest.raises(StartRefused, match="no token is configured"):
        token(home, EXUVIA_HOST=host)
    assert token(home, EXUVIA_HOST=host, EXUVIA_TOKEN=GOOD) == Secret(GOOD)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_addresses_need_no_configured_token(host: str) -> None:
    assert is_loopback(host)


def test_a_rotated_token_is_durable_including_its_directory_entry(home: Home, steps: list[str]) -> None:
    token(home)
    steps.clear()
    rotate_token(home, load_config(home.config, environment={}, overrides={}).sources, {})
    assert steps == ["sync content", "sync folder", "replace", "sync folder"]


def test_a_rotation_replaces_the_file_atomically_if_it_is_the_source(home: Home, tmp_path: Path) -> None:
    before = token(home)
    config = load_config(home.config, environment={}, overrides={})
    rotate_token(home, config.sources, {})
    assert token(home) != before
    assert (mode(home.token), sorted(path.name for path in home.root.glob("*token*"))) == (0o600, ["token"])
    kept = home.token.read_text()
    (tmp_path / "token").write_text(GOOD)
    elsewhere = load_config(home.config, environment={"EXUVIA_TOKEN": GOOD}, overrides={})
    for refused, environment in ((elsewhere, {}), (config, {"CREDENTIALS_DIRECTORY": str(tmp_path)})):
        with pytest.raises(StartRefused, match=r"The token comes from (EXUVIA_TOKEN|.CREDENTIALS_DIRECTORY), not from"):
            rotate_token(home, refused.sources, environment)
    assert home.token.read_text() == kept
