"""Invalid addresses are refused with their place in the configuration, in every section, before any request."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.doctor.config_check import check

WEB = [
    "providers.openai.base_url",
    "providers.anthropic.base_url",
    "providers.gemini.base_url",
    "providers.llama_server.base_url",
    "providers.lm_studio.base_url",
    "memory.embedding.base_url",
]
SERVER = "providers.ollama.base_url"


def faults(folder: Path, text: str, **environment: str) -> list[str]:
    """Return the errors of a configuration."""
    file = folder / "config.toml"
    file.write_text(text)
    return [fault.replace(str(folder), "") for fault in check(file, environment).faults]


def with_key(key: str, value: str) -> str:
    section, _, name = key.rpartition(".")
    return f"[{section}]\n{name} = {value}\n"


@pytest.mark.parametrize("key", [*WEB, SERVER])
@pytest.mark.parametrize(
    "address",
    [
        "htp:/foo",
        "htp://foo",
        "http:/foo",
        "http://",
        "http://a b",
        "http://[::1",
        "http://a:high",
        "http://a?b=c",
        "ftp://a/b",
    ],
)
def test_what_is_no_address_is_refused_with_its_place(key: str, address: str, tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, with_key(key, f'"{address}"'))
    assert fault.startswith(f"/config.toml, line 2: {key} must be an address such as http")


@pytest.mark.parametrize("key", WEB)
def test_an_address_without_a_scheme_is_refused(key: str, tmp_path: Path) -> None:
    assert len(faults(tmp_path, with_key(key, '"models.example.org/v1"'))) == 1


@pytest.mark.parametrize("key", [*WEB, SERVER])
@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:8080/v1", "https://me:secret@models.example.org/v1/", "http://[::1]:1", " http://gpu "]
)
def test_what_is_an_address_is_taken(key: str, address: str, tmp_path: Path) -> None:
    assert faults(tmp_path, with_key(key, f'"{address}"')) == []


@pytest.mark.parametrize("address", ["gpu", "gpu:11434", ":11434", "[::1]:1", "::1", "0.0.0.0"])
def test_ollamas_own_spellings_are_taken(address: str, tmp_path: Path) -> None:
    assert faults(tmp_path, with_key(SERVER, f'"{address}"')) == []
    embedding = f'[memory.embedding]\nprovider = "ollama"\nmodel = "m"\nbase_url = "{address}"\n'
    assert faults(tmp_path, embedding) == []


def test_a_secret_in_an_address_that_is_none_is_not_shown(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, with_key("providers.openai.base_url", '"htp://me:hunter2@a"'))
    assert "hunter2" not in fault


@pytest.mark.parametrize(
    ("key", "value", "end"),
    [
        (
            "gateway.allowed_origins",
            "chat.example.org",
            "allowed_origins[1] must be an origin such as https://chat.example.org.",
        ),
        ("gateway.allowed_origins", "https://a.example/b", "must be an origin such as https://chat.example.org."),
        ("gateway.allowed_hosts", "https://a.example", "must be a host such as chat.example.org or chat.example.org:8443."),
        ("gateway.allowed_hosts", "a b", "must be a host such as chat.example.org or chat.example.org:8443."),
        ("sandbox.network", "https://pypi.org", "must be a host such as pypi.org, *.example.com or example.com:8443."),
        ("sandbox.network", "*", "must be a host such as pypi.org, *.example.com or example.com:8443."),
        ("sandbox.network", "a.*.com", "must be a host such as pypi.org, *.example.com or example.com:8443."),
        ("sandbox.network", "::1", "must be a host such as pypi.org, *.example.com or example.com:8443."),
    ],
)
def test_an_origin_and_a_host_are_what_a_request_would_name(key: str, value: str, end: str, tmp_path: Path) -> None:
    fine = "https://b.example:8443" if key == "gateway.allowed_origins" else "b.example:8443"
    (fault,) = faults(tmp_path, with_key(key, f'["{fine}", "{value}"]'))
    assert fault.endswith(end)
    more = {
        "gateway.allowed_origins": ["app://x.y", "null", "http://localhost"],
        "gateway.allowed_hosts": ["[::1]", "b"],
        "sandbox.network": ["*.b.example", "b"],
    }[key]
    assert faults(tmp_path, with_key(key, str(more))) == []


def test_the_variables_that_name_a_server_are_checked_too(tmp_path: Path) -> None:
    assert faults(tmp_path, "", OPENAI_BASE_URL="http://a/v1", OLLAMA_HOST="0.0.0.0:11434") == []
    (openai, ollama) = faults(tmp_path, "", OPENAI_BASE_URL="htp:/foo", OLLAMA_HOST="htp:/foo")
    assert openai.startswith("OPENAI_BASE_URL must be an address such as https://")
    assert ollama.startswith("OLLAMA_HOST must be an address such as http://")
    (fault,) = faults(tmp_path, "", EXUVIA__PROVIDERS__OPENAI__BASE_URL="htp:/foo")
    assert fault.startswith("EXUVIA__PROVIDERS__OPENAI__BASE_URL: providers.openai.base_url must be")
