"""`agent.model = "auto"`: what is set up comes first, then servers found on this machine, and nobody else is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway.errors import ModelUnknown
from gateway.models.choosing import Models
from plugins.chat import ollama_address
from plugins.chat.ollama import Ollama
from plugins.chat.openai import OpenAI
from plugins.chat.servers_nearby import LlamaServer, LMStudio
from plugins.contracts import ChatProvider
from plugins.errors import NoSuchModel
from plugins.secrets import Secret
from tests.gateway.gateways import NOBODY, empty_machine, gateway
from tests.plugins.asking import opened

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


class Listing:
    """A server with these answers to GET, that notes who asked for what."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.url = ""
        self.busy = False

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Listing]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        self.headers.append(request.headers)
        if self.busy:
            return web.json_response({"error": {"code": 503, "message": "Loading model"}}, status=503)
        answer = self.answers.get(request.path)
        return web.json_response(answer) if answer is not None else web.Response(status=404)


class Machine:
    """Servers on this machine, and what `auto` makes of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    @asynccontextmanager
    async def models(
        self, *, llama: str = NOBODY, studio: str = NOBODY, ollama: str = NOBODY, key: str = ""
    ) -> AsyncIterator[Models]:
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
            yield Models(providers, configured="auto", window=None)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


async def test_without_any_the_sentence_names_every_way(machine: Machine) -> None:
    async with machine.models() as models:
        await models.look_around()
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


async def test_of_those_that_run_ollama_comes_first_then_llama_server_then_lm_studio(machine: Machine) -> None:
    async with Listing(LLAMA).serving() as llama, Listing(STUDIO).serving() as studio, Listing(OLLAMA).serving() as ollama:
        chosen = []
        for running in (
            {"llama": llama.url, "studio": studio.url, "ollama": ollama.url},
            {"llama": llama.url, "studio": studio.url},
            {"studio": studio.url},
        ):
            async with machine.models(**running) as models:
                await models.look_around()
                chosen.append(models.choose())

    assert [model.name for model in chosen] == ["ollama:qwen3:4b", "llama_server:gemma.gguf", "lm_studio:small"]
    assert [model.window for model in chosen[1:]] == [8192, 4096]
    assert f"agent.model is auto and llama-server runs on {llama.url[7:]}" in chosen[1].why


async def test_with_a_key_nobody_on_this_machine_is_asked(machine: Machine) -> None:
    async with Listing(LLAMA).serving() as llama, machine.models(llama=llama.url, key="a-key") as models:
        await models.look_around()
        assert models.choose().name.startswith("openai:")
    assert llama.asked == []


async def test_no_key_is_ever_shown_to_a_server_that_was_found() -> None:
    environment = {"OPENAI_API_KEY": "secret", "OPENAI_BASE_URL": "http://elsewhere.example"}
    async with (
        Listing(LLAMA).serving() as llama,
        opened(LlamaServer, model="gemma.gguf", environment=environment, base_url=llama.url) as asked,
    ):
        await asked.provider.look()
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
async def test_a_server_that_does_not_say_what_it_is_is_not_taken(machine: Machine, answers: dict[str, Any]) -> None:
    async with (
        Listing(answers).serving() as other,
        machine.models(llama=other.url, studio=other.url, ollama=other.url) as models,
    ):
        await models.look_around()
        assert models.configured() is None
    assert {line.partition(" ")[0] for line in other.asked} == {"GET"}


async def test_a_server_that_stops_is_no_longer_chosen(machine: Machine) -> None:
    async with AsyncExitStack() as stack:
        async with Listing(LLAMA).serving() as llama:
            models = await stack.enter_async_context(machine.models(llama=llama.url))
            await models.look_around()
            assert models.configured() == "llama_server:gemma.gguf"
        await models.look_around()
        assert models.configured() is None


@pytest.mark.parametrize("place", ["llama", "studio", "ollama"])
async def test_a_server_that_is_too_busy_to_say_what_it_has_stays_chosen(machine: Machine, place: str) -> None:
    async with Listing({**LLAMA, **STUDIO, **OLLAMA}).serving() as server, machine.models(**{place: server.url}) as models:
        await models.look_around()
        chosen = models.configured()
        assert chosen is not None
        server.busy = True
        await models.look_around()
        assert models.configured() == chosen


async def test_a_server_that_has_been_busy_since_it_was_started_is_not_taken(machine: Machine) -> None:
    async with Listing(LLAMA).serving() as server, machine.models(llama=server.url) as models:
        server.busy = True
        await models.look_around()
        assert models.configured() is None


def test_no_gateway_of_a_test_finds_a_server_of_this_machine() -> None:
    with empty_machine():
        assert ollama_address.server_address("") == NOBODY
        assert (LlamaServer.usual, LMStudio.usual) == (NOBODY, NOBODY)


async def test_through_the_gateway_a_llama_server_that_runs_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OLLAMA_HOST", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    async with Listing(LLAMA).serving() as llama:
        file = f'[providers.llama_server]\nbase_url = "{llama.url}"\n'
        async with gateway(tmp_path, file=file) as running:
            client = await running.connect()
            answer = ""
            while "llama-server runs" not in answer:
                answer = await client.command("/model")
    assert "llama_server:gemma.gguf" in answer
