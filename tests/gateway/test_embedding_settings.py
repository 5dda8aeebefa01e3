"""Who makes vectors, and on whose account: what `[memory.embedding]` and the environment say, and to whom."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.configuration.keys import Config, check_embedding, load_config
from gateway.errors import ConfigRefused
from gateway.models.open_providers import open_embeddings
from plugins.contracts import House
from plugins.loading import load_plugins
from plugins.memory.settings import EmbeddingKeys
from plugins.secrets import Secret
from tests.plugins.workspaces import house as plain_house
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
    assert not loaded(tmp_path, FTS_ENABLED="false").memory.search.keywords


def test_nothing_to_search_by_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigRefused, match=r"memory .*search\.keywords is false and embedding\.provider is none"):
        loaded(tmp_path, 'provider = "none"', FTS_ENABLED="false")


@pytest.mark.parametrize("provider", ["voyage", "gemini", "mistral", "ollama", "local", "none"])
def test_another_provider_that_is_named_never_gets_the_seeds_key(tmp_path: Path, provider: str) -> None:
    keys = loaded(tmp_path, f'provider = "{provider}"', **KEY, EMBEDDING_MODEL_NAME="m").memory.embedding
    assert keys == EmbeddingKeys(provider=provider)


def test_a_model_of_this_machine_stands_against_the_seeds_service(tmp_path: Path) -> None:
    keys = loaded(tmp_path, 'local_model_path = "/models/own.gguf"', **KEY).memory.embedding
    assert (keys.wanted, keys.model, keys.api_key) == ("local", None, None)


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
        "is 'lumen', which does not exist; there are auto, local, none."
        " A plugin 'lumen' is installed, which plugins.allow does not list."
    )
    assert "exuvia_lumen" not in sys.modules


def test_nobody_is_told_of_an_account_that_is_not_theirs() -> None:
    account = EmbeddingKeys(
        provider="voyage", model="voyage-4", api_key=Secret("k"), headers={"x": Secret("y")}, dimensions=256, batch_size=7
    )
    assert account.meant_for("voyage") == account
    assert account.meant_for("openai") == account.meant_for("local") == EmbeddingKeys(batch_size=7)
    unnamed = msgspec.structs.replace(account, provider="auto")
    assert (unnamed.wanted, unnamed.meant_for("openai")) == ("openai", unnamed)
    assert unnamed.meant_for("voyage") == EmbeddingKeys(batch_size=7)


async def test_a_key_of_a_chat_provider_is_the_embedding_providers_too_and_a_change_opens_it_anew(tmp_path: Path) -> None:
    def house(name: str, settings: Any) -> House:
        return msgspec.structs.replace(plain_house(tmp_path), settings=settings, environment={})

    config = load_config(None, environment={}, overrides={"providers": {"gemini": {"api_key": "k" * 20}}})
    async with open_embeddings(load_plugins(()).embedding_providers(), house) as providers:
        assert len(await providers.fit(load_config(None, environment={}, overrides={}))) == len(providers)
        before = providers["gemini"]
        assert (before.model(), before.why()) == (None, "neither GEMINI_API_KEY nor memory.embedding.api_key is set")
        with providers.in_use():
            assert await providers.fit(config) == ["gemini"]
            assert providers["gemini"].model() == "gemini-embedding-001"
            assert providers["gemini"].why() == "providers.gemini.api_key is set"
            assert before.model() is None, "what is open never changes"


def test_no_key_is_shown(tmp_path: Path) -> None:
    config = loaded(tmp_path, 'headers = { "x-account" = "a-secret" }', **KEY)
    assert "sk-of-the-seed" not in f"{config!r}{config.memory!r}"
    assert "a-secret" not in f"{config!r}{config.memory!r}"
