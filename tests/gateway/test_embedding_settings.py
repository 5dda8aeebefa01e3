"""The embedding provider and its account, as `[memory.embedding]` and the environment determine them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.config.keys import Config, check_embedding, load_config
from gateway.doctor.config_check import check
from gateway.models.providers import open_embeddings
from gateway.support.errors import ConfigRefused
from plugins.api.context import ProviderContext
from plugins.api.memory_settings import EmbeddingKeys
from plugins.host.loading import load_plugins
from plugins.providers.local.installable_models import InstallableModel
from plugins.support.secrets import Secret
from tests.gateway.gateways import gateway
from tests.plugins.workspaces import provider_context
from tests.servers.embedding_vendors import OpenAIEmbeddingServer
from tests.shelf import Shelf

KEY = {"EMBEDDING_API_KEY": "sk-of-the-seed"}


def loaded(folder: Path, text: str = "", **environment: str) -> Config:
    (folder / "config.toml").write_text(f"[memory.embedding]\n{text}\n")
    return load_config(folder / "config.toml", environment=environment, overrides={})


def test_a_key_of_the_seeds_brings_the_seeds_service_with_it(tmp_path: Path) -> None:
    assert loaded(tmp_path, **KEY).memory.embedding == EmbeddingKeys(
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        model="text-embedding-v4",
        api_key=Secret("sk-of-the-seed"),
        dimensions=1024,
        max_input_length=8192,
        batch_size=10,
        cache=2000,
    )
    assert loaded(tmp_path, **KEY).memory.embedding.wanted == "openai"


def test_each_variable_of_the_seeds_can_be_set_and_wins_over_the_file(tmp_path: Path) -> None:
    set_there = {
        "EMBEDDING_BASE_URL": "http://127.0.0.1:9/v1",
        "EMBEDDING_MODEL_NAME": "bge-m3",
        "EMBEDDING_DIMENSIONS": "512",
        "EMBEDDING_MAX_INPUT_LENGTH": "1000",
        "EMBEDDING_MAX_BATCH_SIZE": "3",
    }
    keys = loaded(tmp_path, 'model = "of-the-file"', **KEY, **set_there).memory.embedding
    assert (keys.base_url, keys.model, keys.dimensions) == ("http://127.0.0.1:9/v1", "bge-m3", 512)
    assert (keys.max_input_length, keys.batch_size) == (1000, 3)


def test_what_the_file_says_stands_against_the_seeds_defaults(tmp_path: Path) -> None:
    keys = loaded(tmp_path, 'model = "of-the-file"', **KEY).memory.embedding
    assert (keys.model, keys.dimensions) == ("of-the-file", 1024)


def test_the_seeds_switches_of_words_and_of_the_cache_need_no_account(tmp_path: Path) -> None:
    assert loaded(tmp_path, EMBEDDING_MAX_CACHE_SIZE="7").memory.embedding.cache == 7
    assert loaded(tmp_path, EMBEDDING_MAX_CACHE_SIZE="7", EMBEDDING_CACHE_ENABLED="false").memory.embedding.cache == 0
    assert loaded(tmp_path, EMBEDDING_CACHE_ENABLED="true").memory.embedding.cache == 50_000
    assert not loaded(tmp_path, **KEY, FTS_ENABLED="false").memory.search.keywords


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *((word, False) for word in ("false", "False", "FALSE", "0", "no", "No", "off", " false ")),
        *((word, True) for word in ("true", "True", "TRUE", "1", "yes", "YES", "on")),
    ],
)
def test_a_variable_switches_something_on_or_off_in_every_usual_spelling(word: str, meant: bool, tmp_path: Path) -> None:
    config = loaded(tmp_path, **KEY, FTS_ENABLED=word, EXUVIA__AGENT__VERBOSE=word, EMBEDDING_CACHE_ENABLED=word)
    assert (config.memory.search.keywords, config.agent.verbose) == (meant, meant)
    assert config.memory.embedding.cache == (2000 if meant else 0)


@pytest.mark.parametrize("name", ["FTS_ENABLED", "EXUVIA__AGENT__VERBOSE", "EMBEDDING_CACHE_ENABLED"])
def test_a_switch_that_says_neither_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigRefused, match=rf"^{name}\b.* must be true or false, not text\.$"):
        loaded(tmp_path, **KEY, **{name: "maybe"})


def test_nothing_to_search_by_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigRefused, match=r"memory .*search\.keywords is false and embedding\.provider is none"):
        loaded(tmp_path, 'provider = "none"', FTS_ENABLED="false")


NEITHER = (
    r"memory\.search\.keywords is false and no key for embeddings is configured; one of them is needed:"
    r" set EMBEDDING_API_KEY or memory\.embedding\.provider, or enable keyword search again\.$"
)


def test_the_seeds_switch_of_words_without_a_key_for_vectors_is_refused(tmp_path: Path) -> None:
    known = load_plugins(()).embedding_providers()
    with pytest.raises(ConfigRefused, match=rf"^FTS_ENABLED: {NEITHER}"):
        check_embedding(loaded(tmp_path, FTS_ENABLED="false"), known)
    (fault,) = check(tmp_path / "config.toml", {"FTS_ENABLED": "false"}).faults
    assert fault.startswith("FTS_ENABLED: ")
    path = f'local_model_path = "{tmp_path}/own.gguf"'
    with pytest.raises(ConfigRefused, match=rf"^FTS_ENABLED: {NEITHER}"):
        check_embedding(loaded(tmp_path, path, FTS_ENABLED="false"), known)
    (tmp_path / "own.gguf").touch()
    check_embedding(loaded(tmp_path, path, FTS_ENABLED="false"), known)


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("", KEY),
        ("", {"VOYAGE_API_KEY": "k"}),
        ('provider = "local"', {}),
        ('provider = "ollama"', {}),
        ('base_url = "http://127.0.0.1:9/v1"', {}),
        ('[providers.openai]\napi_key = "k"', {}),
    ],
)
def test_with_an_account_or_a_provider_that_is_named_words_may_be_switched_off(
    text: str, environment: dict[str, str], tmp_path: Path
) -> None:
    check_embedding(loaded(tmp_path, text, FTS_ENABLED="false", **environment), load_plugins(()).embedding_providers())


def test_words_switched_off_in_the_file_need_a_model_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = load_plugins(()).embedding_providers()
    config = loaded(tmp_path, "[memory.search]\nkeywords = false")
    check_embedding(config, known)
    check_embedding(config, [*known, "lumen"])
    monkeypatch.setattr(InstallableModel, "weights", lambda _: None)  # as if the extra `local` were not installed
    check_embedding(config, [*known, "lumen"])
    with pytest.raises(ConfigRefused, match=rf"config\.toml, line 3: {NEITHER}"):
        check_embedding(config, known)


@pytest.mark.parametrize("provider", ["voyage", "gemini", "mistral", "ollama", "local", "none"])
def test_another_provider_that_is_named_never_gets_the_seeds_key(tmp_path: Path, provider: str) -> None:
    keys = loaded(tmp_path, f'provider = "{provider}"', **KEY, EMBEDDING_MODEL_NAME="m").memory.embedding
    assert keys == EmbeddingKeys(provider=provider)


def test_a_model_of_this_machine_comes_before_the_seeds_service(tmp_path: Path) -> None:
    keys = loaded(tmp_path, 'local_model_path = "/models/own.gguf"', **KEY).memory.embedding
    assert keys.wanted == "local"
    local, openai, voyage = (keys.for_provider(name) for name in ("local", "openai", "voyage"))
    assert (local.local_model_path, local.model, local.api_key) == ("/models/own.gguf", None, None)
    assert (openai.local_model_path, openai.model, openai.api_key) == (None, "text-embedding-v4", keys.api_key)
    assert (voyage.local_model_path, voyage.model, voyage.api_key) == (None, None, None)


class Embeddings(msgspec.Struct):
    """The embedding provider of a configuration, and the reported problems."""

    used: str
    said: str


async def chosen_by(config: Config, folder: Path, **environment: str) -> Embeddings:
    """Open the embedding providers of a configuration, as the gateway does."""

    def context(name: str, settings: Any) -> ProviderContext:
        return msgspec.structs.replace(provider_context(folder), settings=settings, environment=environment)

    keys = config.memory.embedding
    async with open_embeddings(load_plugins(()).embedding_providers(), context) as providers:
        await providers.reconfigure(config)
        chosen = keys.chosen(providers)
        used = f"{chosen.name}:{chosen.model()}" if chosen else ""
        return Embeddings(used=used, said=keys.fallback_notice(providers))


@pytest.mark.parametrize(
    ("more", "environment", "used"),
    [
        ("", {}, "local:all-minilm-l6-v2-int8"),
        ("", {"OPENAI_API_KEY": "k" * 20}, "local:all-minilm-l6-v2-int8"),
        ('base_url = "http://127.0.0.1:9/v1"', {}, "openai:text-embedding-3-small"),
        ("", KEY, "openai:text-embedding-v4"),
        ("nothing is bundled", {"OPENAI_API_KEY": "k" * 20}, "openai:text-embedding-3-small"),
        ("nothing is bundled", {"MISTRAL_API_KEY": "k" * 20}, "mistral:mistral-embed"),
    ],
)
async def test_a_model_file_that_is_missing_leaves_the_vectors_to_the_next_provider(
    more: str, environment: dict[str, str], used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if more == "nothing is bundled":
        monkeypatch.setattr(InstallableModel, "weights", lambda _: None)  # as if the extra `local` were not installed
        more = ""
    file = tmp_path / "own.gguf"
    config = loaded(tmp_path, f'local_model_path = "{file}"\n{more}', **environment)
    found = await chosen_by(config, tmp_path, **environment)
    assert found.used == used
    assert found.said == (
        f"memory.embedding.local_model_path is {file}, which does not exist:"
        f" vectors are made by {used} until that is fixed and the gateway restarts."
    )


async def test_a_model_file_that_is_missing_with_nobody_else_or_with_its_provider_named_leaves_the_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f'local_model_path = "{tmp_path}/own.gguf"'
    named = loaded(tmp_path, f'provider = "local"\n{path}')
    assert await chosen_by(named, tmp_path, OPENAI_API_KEY="k" * 20) == Embeddings(used="", said="")
    monkeypatch.setattr(InstallableModel, "weights", lambda _: None)
    assert await chosen_by(loaded(tmp_path, path), tmp_path) == Embeddings(used="", said="")


async def test_a_running_gateway_says_in_its_status_and_its_log_that_a_model_file_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with OpenAIEmbeddingServer().serving() as server:
        embedding = {"local_model_path": str(tmp_path / "own.gguf"), "base_url": server.url, "api_key": server.KEY}
        settings = {f"memory.embedding.{key}": value for key, value in embedding.items()}
        async with gateway(tmp_path / "home", settings=settings) as running:
            (running.home / "workspace" / "MEMORY.md").write_text("The sky is painted on Tuesdays.\n")
            client = await running.connect()
            assert "MEMORY.md" in await client.command("/memory painted sky")
            status = await client.command("/status")
    missing = f"memory.embedding.local_model_path is {tmp_path}/own.gguf, which does not exist"
    assert f"{missing}: vectors are made by openai:text-embedding-3-small until that is fixed" in status
    assert any("local_model_missing" in line and missing in line for line in capsys.readouterr().out.splitlines())
    assert server.requests


def test_without_an_account_the_seeds_variables_name_nothing(tmp_path: Path) -> None:
    keys = loaded(tmp_path, EMBEDDING_API_KEY="", EMBEDDING_MODEL_NAME="m", EMBEDDING_DIMENSIONS="8").memory.embedding
    assert keys == EmbeddingKeys()


def test_a_model_without_its_provider_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigRefused, match=r"memory\.embedding must name its provider where it says a model"):
        loaded(tmp_path, 'model = "text-embedding-3-large"')
    assert loaded(tmp_path, 'provider = "openai"\nmodel = "x"').memory.embedding.wanted == "openai"


def test_a_provider_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    known = load_plugins(()).embedding_providers()
    with pytest.raises(
        ConfigRefused, match=r"line 2: memory\.embedding\.provider is 'opneai', which does not exist; .*local"
    ):
        check_embedding(loaded(tmp_path, 'provider = "opneai"'), known)
    check_embedding(loaded(tmp_path), known)
    check_embedding(loaded(tmp_path, 'provider = "none"'), known)


def test_a_provider_whose_plugin_is_installed_and_not_allowed_is_refused_with_what_to_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_lumen", "lumen", "raise SystemExit('imported')")
    with pytest.raises(ConfigRefused) as refused:
        check_embedding(loaded(tmp_path, 'provider = "lumen"'), ["local"])
    assert str(refused.value).endswith(
        "is 'lumen', which does not exist; choose one of auto, local, none."
        " A plugin 'lumen' is installed, but not listed in plugins.allow."
    )
    assert "exuvia_lumen" not in sys.modules


def test_nobody_is_told_of_an_account_that_is_not_theirs() -> None:
    account = EmbeddingKeys(
        provider="voyage", model="voyage-4", api_key=Secret("k"), headers={"x": Secret("y")}, dimensions=256, batch_size=7
    )
    assert account.for_provider("voyage") == account
    assert account.for_provider("openai") == account.for_provider("local") == EmbeddingKeys(batch_size=7)
    unnamed = msgspec.structs.replace(account, provider="auto")
    assert (unnamed.wanted, unnamed.for_provider("openai")) == ("openai", unnamed)
    assert unnamed.for_provider("voyage") == EmbeddingKeys(batch_size=7)


async def test_a_key_of_a_chat_provider_is_the_embedding_providers_too_and_a_change_opens_it_anew(tmp_path: Path) -> None:
    def context(name: str, settings: Any) -> ProviderContext:
        return msgspec.structs.replace(provider_context(tmp_path), settings=settings, environment={})

    config = load_config(None, environment={}, overrides={"providers": {"gemini": {"api_key": "k" * 20}}})
    async with open_embeddings(load_plugins(()).embedding_providers(), context) as providers:
        assert len(await providers.reconfigure(load_config(None, environment={}, overrides={}))) == len(providers)
        before = providers["gemini"]
        assert (before.model(), before.explain_default()) == (
            None,
            "neither GEMINI_API_KEY nor memory.embedding.api_key is set",
        )
        with providers.in_use():
            assert await providers.reconfigure(config) == ["gemini"]
            assert providers["gemini"].model() == "gemini-embedding-001"
            assert providers["gemini"].explain_default() == "providers.gemini.api_key is set"
            assert before.model() is None, "what is open never changes"


def test_no_key_is_shown(tmp_path: Path) -> None:
    config = loaded(tmp_path, 'headers = { "x-account" = "a-secret" }', **KEY)
    assert "sk-of-the-seed" not in f"{config!r}{config.memory!r}"
    assert "a-secret" not in f"{config!r}{config.memory!r}"
