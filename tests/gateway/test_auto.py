"""`agent.model = "auto"`: configured providers come first, then servers on this machine; nothing else is asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.config.agents import AgentKeys
from gateway.models.registry import ModelRegistry
from gateway.support.errors import ModelUnknown
from plugins.api.chat import ChatProvider
from plugins.providers.local_servers import LlamaServer, LMStudio
from plugins.providers.ollama import address as ollama_address
from plugins.providers.ollama.chat import Ollama
from plugins.providers.openai.chat import OpenAI
from plugins.support.errors import NoSuchModel
from plugins.support.secrets import Secret
from plugins.testing.servers.faulty_server import Fault, Json
from plugins.testing.servers.openai_server import OpenAIServer, ScriptedResponse
from tests.gateway.gateways import EMPTY_MACHINE, NOBODY, Client, gateway
from tests.gateway.listing import Serve
from tests.plugins.provider_harness import opened, question
from tests.plugins.test_missing_models import ABSENT, MISSING
from tests.plugins.vendors import VENDORS, Vendor

LLAMA = {
    "/v1/models": {"object": "list", "data": [{"id": "gemma.gguf", "object": "model", "owned_by": "llamacpp"}]},
    "/props": {"default_generation_settings": {"n_ctx": 8192}, "total_slots": 1},
}
STUDIO = {
    "/api/v0/models": {
        "data": [
            {"id": "text-embedding-nomic", "type": "embeddings", "state": "loaded"},
            {"id": "big", "type": "llm", "state": "not-loaded", "max_context_length": 131_072},
            {"id": "small", "type": "vlm", "state": "loaded", "max_context_length": 32_768, "loaded_context_length": 4096},
        ]
    }
}
OLLAMA = {
    "/api/tags": {
        "models": [
            {"name": "gpt-oss:120b-cloud", "remote_host": "https://ollama.com:443"},
            {"name": "nomic-embed-text:latest"},
            {"name": "qwen3:4b"},
        ]
    }
}


class Machine:
    """Servers on this machine, and the model that `auto` chooses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    @asynccontextmanager
    async def models(
        self, *, llama: str = NOBODY, studio: str = NOBODY, ollama: str = NOBODY, key: str = ""
    ) -> AsyncIterator[ModelRegistry]:
        self._monkeypatch.setattr(ollama_address, "PORT", int(ollama.rpartition(":")[2]))
        providers: dict[str, ChatProvider] = {}
        async with AsyncExitStack() as stack:
            for kind, settings in (
                (OpenAI, {"api_key": (Secret(key),) if key else None}),
                (Ollama, {}),
                (LlamaServer, {"base_url": llama}),
                (LMStudio, {"base_url": studio}),
            ):
                asked = await stack.enter_async_context(opened(kind, model="", **settings))
                providers[kind.name] = asked.provider
            yield ModelRegistry(providers, AgentKeys())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


async def test_without_any_model_the_error_names_every_way_to_get_one(machine: Machine) -> None:
    async with machine.models() as models:
        await models.discover_models()
        with pytest.raises(ModelUnknown) as none:
            models.choose()
    for way in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "OLLAMA_HOST",
        "Ollama",
        "llama-server",
        "LM Studio",
    ):
        assert way in str(none.value)


async def test_ollama_is_preferred_to_llama_server_and_that_to_lm_studio(machine: Machine, serve: Serve) -> None:
    llama, studio, ollama = await serve(LLAMA), await serve(STUDIO), await serve(OLLAMA)
    chosen = []
    for running in (
        {"llama": llama.url, "studio": studio.url, "ollama": ollama.url},
        {"llama": llama.url, "studio": studio.url},
        {"studio": studio.url},
    ):
        async with machine.models(**running) as models:
            await models.discover_models()
            chosen.append(models.choose())

    assert [model.name for model in chosen] == ["ollama:qwen3:4b", "llama_server:gemma.gguf", "lm_studio:small"]
    assert [model.window for model in chosen[1:]] == [8192, 4096]
    assert f"agent.model is auto and llama-server runs on {llama.url[7:]}" in chosen[1].why


async def test_with_a_key_no_server_on_this_machine_is_asked(machine: Machine, serve: Serve) -> None:
    llama = await serve(LLAMA)
    async with machine.models(llama=llama.url, key="a-key") as models:
        await models.discover_models()
        assert models.choose().name.startswith("openai:")
    assert llama.asked == []


async def test_no_key_is_ever_shown_to_a_server_that_was_found(serve: Serve) -> None:
    environment = {"OPENAI_API_KEY": "secret", "OPENAI_BASE_URL": "http://elsewhere.example"}
    llama = await serve(LLAMA)
    async with opened(LlamaServer, model="gemma.gguf", environment=environment, base_url=llama.url) as asked:
        await asked.provider.discover_server()
        with pytest.raises(NoSuchModel):
            await asked.ask()
    assert llama.asked == ["GET /v1/models", "GET /props", "POST /v1/chat/completions"]
    assert not any("secret" in value for headers in llama.headers for value in headers.values())


@pytest.mark.parametrize(
    "answers",
    [
        {"/v1/models": {"data": [{"id": "gpt-5", "owned_by": "openai"}]}},
        {"/v1/models": []},
        {"/v1/models": {"data": "none"}},
        {"/v1/models": {"data": [None, {"owned_by": "llamacpp"}]}},
        {},
    ],
)
async def test_a_server_that_does_not_identify_itself_is_not_chosen(
    machine: Machine, serve: Serve, answers: dict[str, Any]
) -> None:
    other = await serve(answers)
    async with machine.models(llama=other.url, studio=other.url, ollama=other.url) as models:
        await models.discover_models()
        assert models.configured() is None
    assert {line.partition(" ")[0] for line in other.asked} == {"GET"}


async def test_a_server_that_stops_is_no_longer_chosen(machine: Machine, serve: Serve) -> None:
    llama = await serve(LLAMA)
    async with machine.models(llama=llama.url) as models:
        await models.discover_models()
        assert models.configured() == "llama_server:gemma.gguf"
        await llama.close()
        await models.discover_models()
        assert models.configured() is None


@pytest.mark.parametrize("place", ["llama", "studio", "ollama"])
async def test_a_server_that_is_too_busy_to_list_its_models_stays_chosen(machine: Machine, serve: Serve, place: str) -> None:
    server = await serve({**LLAMA, **STUDIO, **OLLAMA})
    async with machine.models(**{place: server.url}) as models:
        await models.discover_models()
        chosen = models.configured()
        assert chosen is not None
        server.busy = True
        await models.discover_models()
        assert models.configured() == chosen


async def test_a_server_that_never_listed_its_models_is_not_chosen(machine: Machine, serve: Serve) -> None:
    server = await serve(LLAMA)
    async with machine.models(llama=server.url) as models:
        server.busy = True
        await models.discover_models()
        assert models.configured() is None


def test_no_gateway_of_a_test_finds_a_server_of_this_machine() -> None:
    with EMPTY_MACHINE:
        assert ollama_address.server_address("") == NOBODY
        assert (LlamaServer.default_url, LMStudio.default_url) == (NOBODY, NOBODY)


async def test_through_the_gateway_a_llama_server_that_runs_answers(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OLLAMA_HOST", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    llama = await serve(LLAMA)
    async with gateway(tmp_path, file=f'[providers.llama_server]\nbase_url = "{llama.url}"\n') as running:
        client = await running.connect()
        answer = ""
        while "llama-server runs" not in answer:
            answer = await client.command("/model")
    assert "llama_server:gemma.gguf" in answer


# --- a server that somebody named -----------------------------------------------------------------------------------------

VLLM = {"Qwen/Qwen3-8B": {"owned_by": "vllm", "max_model_len": 40_960}}


def missing(model: str) -> Fault:
    """Refuse a model that is not served, as vLLM does."""
    told = {"message": f"The model `{model}` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}
    return Fault(status=404, body=json.dumps({"error": told}).encode())


@asynccontextmanager
async def serving(*names: str, **models: Any) -> AsyncIterator[OpenAIServer]:
    """A server that answers for the models it lists and requires no key."""

    def respond(body: Json) -> ScriptedResponse | Fault:
        return ScriptedResponse("Hello!") if body["model"] in server.models else missing(body["model"])

    server = OpenAIServer(respond=respond)
    server.models = {name: {} for name in names} | models
    setattr(server, "key_refused", lambda _: None)  # noqa: B010 - so that the types need no word
    async with server.serving():
        yield server


@pytest.fixture
def nothing_set_up(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OLLAMA_HOST", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


async def test_the_first_message_is_answered_by_the_model_of_a_server_that_the_environment_names(
    tmp_path: Path, nothing_set_up: pytest.MonkeyPatch
) -> None:
    async with serving(**VLLM) as server:
        nothing_set_up.setenv("OPENAI_BASE_URL", server.url)
        async with gateway(tmp_path, file="") as g:
            client = await g.connect()
            assert await client.chat("Are you there?") == "Hello!"
            told = await client.command("/model")
            assert "Context: " in (status := await client.command("/status"))
    assert "openai:Qwen/Qwen3-8B, because agent.model is auto and OPENAI_BASE_URL is set" in told
    assert "40,960" in status


async def test_a_message_is_answered_by_the_model_that_a_server_has_by_now(
    tmp_path: Path, nothing_set_up: pytest.MonkeyPatch
) -> None:
    async with serving(**VLLM) as server:
        server.instead_of_list = Fault(status=503)  # it is still loading
        nothing_set_up.setenv("OPENAI_BASE_URL", server.url)
        async with gateway(tmp_path, file="") as g:
            client = await g.connect()
            server.instead_of_list = None
            assert await client.chat("Are you there?") == "Hello!"
            server.models = {"another": {}}
            assert await client.chat("And now?") == "Hello!"
            server.models = {}
            assert "has no model 'another'" in await error_of(client)
    assert [body["model"] for body in server.requests] == ["gpt-4.1", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "another", "another"]


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [
        (("text-embedding-bge", "bge-reranker", "qwen3-8b", "llama-70b"), "qwen3-8b"),
        (("gpt-4o", "gpt-4.1"), "gpt-4.1"),
        (("nomic-embed-text",), "gpt-4.1"),
        ((), "gpt-4.1"),
    ],
)
async def test_the_usual_model_of_a_list_or_else_the_first_chat_model_is_chosen(
    listed: tuple[str, ...], chosen: str
) -> None:
    async with serving(*listed) as server, opened(OpenAI, model="", base_url=server.url) as asked:
        models = ModelRegistry({"openai": asked.provider}, AgentKeys())
        for _ in range(3):
            await models.discover_models()
        assert models.configured() == f"openai:{chosen}"


@pytest.mark.parametrize(
    ("fetched", "chosen"),
    [
        (("nomic-embed-text:latest", "qwen3:4b", "llama3.3:70b"), "qwen3:4b"),
        (("qwen3:4b", "llama3.2:latest"), "llama3.2"),
        (("gpt-oss:120b-cloud", "qwen3:4b"), "qwen3:4b"),
        ((), "llama3.2"),
    ],
)
async def test_the_usual_model_of_a_remote_ollama_or_else_its_first_chat_model_is_chosen(
    serve: Serve, fetched: tuple[str, ...], chosen: str
) -> None:
    server = await serve({"/api/tags": {"models": [{"name": name} for name in fetched]}})
    async with opened(Ollama, model="", environment={"OLLAMA_HOST": server.url}) as asked:
        models = ModelRegistry({"ollama": asked.provider}, AgentKeys())
        for _ in range(3):
            await models.discover_models()
        assert models.configured() == f"ollama:{chosen}"
        assert "OLLAMA_HOST is set" in models.choose().why
    assert server.asked.count("GET /api/tags") == (1 if fetched else 3)


async def test_chat_models_are_recognised_by_more_than_their_names() -> None:
    mute = {
        "one": {"type": "embedding"},
        "two": {"capabilities": {"completion_chat": False}},
        "three": {"architecture": {"output_modalities": ["image"]}},
        "four": {"type": "chat"},
    }
    async with serving(**mute) as server, opened(OpenAI, model="", base_url=server.url) as asked:
        await asked.provider.discover()
        assert asked.provider.default_model() == "four"


async def test_a_known_model_needs_no_list() -> None:
    async with serving("qwen3-8b") as server:
        async with opened(OpenAI, model="", base_url=server.url, default_model="mine") as asked:
            await asked.provider.discover()
            assert asked.provider.default_model() == "mine"
        assert server.asked_lists == []
        async with opened(OpenAI, model="", base_url=server.url) as asked:
            for _ in range(3):
                await asked.provider.discover()
        assert len(server.asked_lists) == 1


async def test_a_server_that_is_started_later_or_serves_another_model_then_is_asked_again() -> None:
    async with serving("first") as server, opened(OpenAI, model="", base_url=server.url) as asked:
        server.instead_of_list = Fault(status=503)
        await asked.provider.discover()
        assert asked.provider.default_model() == "gpt-4.1"
        server.instead_of_list = None
        await asked.provider.discover()
        assert asked.provider.default_model() == "first"
        server.models = {"second": {}}
        with pytest.raises(NoSuchModel):
            await asked.ask(question(model="first"))
        await asked.provider.discover()
        assert asked.provider.default_model() == "second"


async def test_an_ollama_elsewhere_that_has_another_model_by_now_is_asked_again(serve: Serve) -> None:
    server = await serve({"/api/tags": {"models": [{"name": "first"}]}})
    async with opened(Ollama, model="", environment={"OLLAMA_HOST": server.url}) as asked:
        models = ModelRegistry({"ollama": asked.provider}, AgentKeys())
        await models.discover_models()
        assert models.configured() == "ollama:first"
        server.answers = {"/api/tags": {"models": [{"name": "second"}]}}
        with pytest.raises(NoSuchModel):
            await asked.ask(question(model="first"))
        await models.discover_models()
        assert models.configured() == "ollama:second"
        server.answers = {"/api/tags": {"models": [{"name": "third"}]}}
        await asked.provider.models()
        assert models.configured() == "ollama:third"


# --- a model that is not there ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
async def test_an_error_about_an_unknown_model_names_those_that_there_are_and_how_to_choose(
    vendor: Vendor, tmp_path: Path
) -> None:
    name = vendor.kind.name
    async with vendor.server(Fault(status=404, body=ABSENT[vendor.name])).serving() as server:
        given = {"base_url": server.url, "api_key": vendor.key, **vendor.harness.settings}
        wanted = {"agent.model": f"{name}:{MISSING}"} | {f"providers.{name}.{key}": value for key, value in given.items()}
        async with gateway(tmp_path, settings=wanted) as g:
            client = await g.connect()
            await client.send("Hello?")
            error = (await client.until_event("turn_ended"))["error"]
    assert error["code"] == "no_such_model"
    assert f"has no model '{MISSING}'" in error["sentence"]
    assert "It has " in error["sentence"]
    assert f"choose one with /model {name}:NAME, or for all conversations with agent.model." in error["sentence"]


async def error_of(client: Client) -> str:
    """Send a message and return the error sentence of its turn."""
    await client.send("Hello?")
    sentence: str = (await client.until_event("turn_ended"))["error"]["sentence"]
    return sentence


def asking_for_none_of(server: OpenAIServer) -> dict[str, Any]:
    return {"agent.model": "openai:nope", "providers.openai.base_url": server.url}


async def test_of_many_models_the_first_are_named_and_their_list_is_asked_for_once(tmp_path: Path) -> None:
    async with (
        serving(*(f"model-{number}" for number in range(300))) as server,
        gateway(tmp_path, settings=asking_for_none_of(server)) as g,
    ):
        client = await g.connect()
        first, second = await error_of(client), await error_of(client)
        assert "It has model-0, model-1, " in first
        assert "and 2" in first
        assert first.endswith("with agent.model.")
        assert second == first
        assert len(server.asked_lists) == 1


async def test_a_list_that_names_the_model_which_is_not_there_any_more_is_asked_for_again(tmp_path: Path) -> None:
    async with serving("nope", "other") as server, gateway(tmp_path, settings=asking_for_none_of(server)) as g:
        client = await g.connect()
        await client.chat("Hello?")
        assert "`openai:nope`" in await client.command("/model")
        server.models = {"other": {}}
        assert "It has other; choose one with /model openai:NAME" in await error_of(client)


async def test_of_a_server_whose_list_has_nothing_that_answers_no_model_is_named(tmp_path: Path) -> None:
    for names, instead in ((["bge-m3"], None), ([], Fault(status=404))):
        async with serving(*names) as server:
            server.instead_of_list = instead
            async with gateway(tmp_path / str(len(names)), settings=asking_for_none_of(server)) as g:
                sentence = await error_of(await g.connect())
        assert ". Choose one with /model openai:NAME" in sentence
        assert "It has" not in sentence
