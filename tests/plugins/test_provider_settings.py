"""The settings of providers that no other test covers: another value changes the behaviour."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from plugins.api.chat import ChatProvider
from plugins.http.client import Timeouts
from plugins.providers.local import process as local_process
from plugins.providers.local.chat import LocalProvider
from plugins.providers.local_servers import LlamaServer, LMStudio
from plugins.providers.ollama.chat import Ollama
from plugins.providers.openai.chat import OpenAI
from plugins.support.errors import ProviderError, StreamCut, Unreachable
from plugins.support.secrets import Secret
from plugins.testing.servers import openai_server
from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import OpenAIServer
from tests.plugins.embedding_vendors import OPENAI
from tests.plugins.provider_harness import opened
from tests.plugins.test_local import plugin_context, request

ONCE = Timeouts(attempts=1)


async def test_organization_project_and_headers_are_sent_to_openai() -> None:
    more: dict[str, Any] = {"organization": "org-one", "project": "proj-two", "headers": {"X-Team": Secret("blue")}}
    async with (
        OpenAIServer().serving() as server,
        opened(OpenAI, model="gpt-test", base_url=server.url, api_key=Secret(openai_server.KEY), **more) as client,
    ):
        await client.ask()
        told = server.headers[0]
        assert (told["OpenAI-Organization"], told["OpenAI-Project"], told["X-Team"]) == ("org-one", "proj-two", "blue")


async def test_configured_headers_are_sent_to_the_embedding_server() -> None:
    async with OPENAI.serving(headers={"X-Team": Secret("blue")}) as (client, server):
        await client.embed()
        assert server.headers[0]["X-Team"] == "blue"


@pytest.mark.parametrize("kind", [OpenAI, Ollama, LlamaServer, LMStudio])
@pytest.mark.parametrize("pictures", [True, False])
async def test_vision_can_be_configured(kind: type[ChatProvider], pictures: bool) -> None:
    async with opened(kind, model="m", base_url="http://127.0.0.1:9", pictures=pictures) as client:
        assert (client.provider.limits("gemma-of-my-own").vision is not None) == pictures


@pytest.mark.parametrize("kind", [LlamaServer, LMStudio])
@pytest.mark.parametrize(
    ("key", "fault", "error"),
    [
        ("first_seconds", Fault(end="silence"), Unreachable),
        ("between_seconds", Fault(end="hang", pieces=2), StreamCut),
        ("reply_seconds", Fault(end="hang"), StreamCut),
    ],
)
async def test_the_timeouts_of_a_local_server_can_be_configured(
    kind: type[ChatProvider], key: str, fault: Fault, error: type[ProviderError], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, settings = OpenAIServer(fault), {key: 0.1}
    monkeypatch.setattr(server, "key_refused", lambda _: None)
    async with server.serving(), opened(kind, model="gpt-test", base_url=server.url, **cast(Any, settings)) as client:
        with pytest.raises(error):
            await client.ask()


STANDING_IN = """
import sys
open({told!r}, "w").write(sys.stdin.readline())
print('{{"kind":"ready"}}', flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("threads", [None, 3])
async def test_a_local_model_uses_the_configured_threads(
    threads: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, model = tmp_path / "told.json", tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    program = STANDING_IN.format(told=str(told))
    monkeypatch.setattr(local_process, "COMMAND", (sys.executable, "-c", program))
    settings: dict[str, Any] = {"model_path": str(model), "threads": threads}
    async with LocalProvider(plugin_context(**settings)) as provider:
        with pytest.raises(ProviderError):  # what stands in for the model's process says nothing
            await anext(provider.stream(request("Hello!", model="model")))
    assert json.loads(told.read_text())["threads"] == threads
