"""While a provider asks for a pause, clients know until when."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

from gateway.protocol.client_frames import Paused
from gateway.terminal.client.client import ChatClient
from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse, refusal
from tests.gateway.gateways import TOKEN, gateway
from tests.waiting import deadline

REFUSING = Fault(status=429, body=refusal("Slow down, Ana.", "rate_limit_exceeded"), headers={"Retry-After": "1"})


def asking(provider: OpenAIServer) -> dict[str, str]:
    return {"agent.model": "openai:fake", "providers.openai.base_url": provider.url, "providers.openai.api_key": KEY}


async def test_clients_are_told_of_a_pause_without_the_providers_text(tmp_path: Path) -> None:
    async with (
        OpenAIServer(REFUSING, ScriptedResponse("Now.")).serving() as provider,
        gateway(tmp_path, settings=asking(provider)) as running,
    ):
        client = await running.connect()
        assert await client.chat("Hello") == "Now."
    (paused,) = [frame for frame in client.frames if frame["type"] == "paused"]
    assert (paused["session"], paused["turn"], paused["reason"]) == ("main", 1, "status 429")
    assert 0 <= paused["seconds"] <= 1
    order = [frame["event"]["kind"] if frame["type"] == "event" else frame["type"] for frame in client.frames]
    assert order.index("request_sent") < order.index("paused") < order.index("delta")


async def test_the_terminal_client_is_told_of_a_pause(tmp_path: Path) -> None:
    async with (
        OpenAIServer(REFUSING, ScriptedResponse("Now.")).serving() as provider,
        gateway(tmp_path, settings=asking(provider)) as running,
        deadline(),
        ChatClient(running.url, TOKEN) as client,
        aclosing(client.signals()) as signals,
    ):
        client.send("Hello", message_id="m1")
        while not isinstance(paused := await anext(signals), Paused):
            pass
    assert (paused.session, paused.turn, paused.reason) == ("main", 1, "status 429")
    assert 0 <= paused.seconds <= 1


async def test_a_client_of_openais_api_has_its_answer_after_a_pause(tmp_path: Path) -> None:
    async with (
        OpenAIServer(REFUSING, ScriptedResponse("Now.")).serving() as provider,
        gateway(tmp_path, settings=asking(provider)) as running,
    ):
        body = {"model": "exuvia", "messages": [{"role": "user", "content": "Hello"}]}
        headers = {"Authorization": f"Bearer {TOKEN}", "X-Exuvia-Session": "main"}
        async with (
            deadline(),
            running.http.post(f"{running.url}/v1/chat/completions", json=body, headers=headers) as response,
        ):
            answer = await response.json()
    assert answer["choices"][0]["message"]["content"] == "Now."
