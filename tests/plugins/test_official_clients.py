"""The vendors' own Python clients against the fakes: what the clients understand and accept, the fakes say rightly.

Each client holds a conversation with a tool: it streams a call, sends the call back with its result as it does by itself,
and streams the answer. Then it is refused, and knows its own error. OpenAI's Responses API stands in its own tests.
Two of the clients are in the extra `wire`, which `make test` installs; the others are large. One that is missing is skipped.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugins.testing.servers import openai_server
from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import OpenAIServer
from tests.servers import anthropic_server, gemini_server, ollama_server
from tests.servers.anthropic_server import AnthropicServer
from tests.servers.gemini_server import GeminiServer
from tests.servers.ollama_server import OllamaServer
from tests.waiting import DEADLINE

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}
ARGUMENTS = {"path": "a.md"}


async def test_openais_client_talks_to_the_fake() -> None:
    openai = pytest.importorskip("openai", reason="the client of OpenAI is in the extra `wire`")
    tools = [{"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": SCHEMA}}]
    answers = (
        openai_server.ScriptedResponse("I look.", ("read", json.dumps(ARGUMENTS))),
        openai_server.ScriptedResponse("done"),
    )
    busy = Fault(status=429, body=openai_server.refusal("Slow down.", "rate_limit_exceeded"))
    async with (
        OpenAIServer(*answers, busy).serving() as server,
        openai.AsyncOpenAI(api_key=openai_server.KEY, base_url=server.url, max_retries=0, timeout=DEADLINE) as client,
    ):
        messages: list[Any] = [{"role": "user", "content": "go"}]
        for calls in (1, 0):
            stream = client.chat.completions.stream(model="gpt-test", messages=messages, tools=tools)
            async with stream as events:
                message = (await events.get_final_completion()).choices[0].message
            messages.append(message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
            assert [json.loads(c.function.arguments) for c in message.tool_calls or ()] == [ARGUMENTS] * calls
            messages += [{"role": "tool", "tool_call_id": c.id, "content": "text"} for c in message.tool_calls or ()]
        assert message.content == "done"
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="gpt-test", messages=messages, stream=True)
        with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
            await client.with_options(api_key="wrong").chat.completions.create(model="gpt-test", messages=messages)


async def test_anthropics_client_talks_to_the_fake() -> None:
    anthropic = pytest.importorskip("anthropic", reason="the client of Anthropic is not installed: pip install anthropic")
    tools = [{"name": "read", "description": "Reads.", "input_schema": SCHEMA}]
    answers = (
        anthropic_server.Says("I look.", ("read", json.dumps(ARGUMENTS)), thoughts="I had better look."),
        anthropic_server.Says("done"),
    )
    busy = Fault(status=529, body=anthropic_server.refusal("Overloaded", "overloaded_error"))
    async with (
        AnthropicServer(*answers, busy).serving() as server,
        anthropic.AsyncAnthropic(
            api_key=anthropic_server.KEY, base_url=server.url, max_retries=0, timeout=DEADLINE
        ) as client,
    ):
        messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
        options: dict[str, Any] = {"model": "claude-test", "max_tokens": 100, "tools": tools}
        for reason in ("tool_use", "end_turn"):
            async with client.messages.stream(messages=messages, **options) as stream:
                message = await stream.get_final_message()
            assert message.stop_reason == reason
            blocks = [block.model_dump(exclude_none=True) for block in message.content]
            calls = [block for block in blocks if block["type"] == "tool_use"]
            assert [call["input"] for call in calls] == [ARGUMENTS] * len(calls)
            results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "text"} for call in calls]
            messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
        assert (message.content[0].text, server.refusals) == ("done", [])
        assert server.requests[1]["messages"][1]["content"][0]["type"] == "thinking", "signed, and found whole"
        with pytest.raises(anthropic.APIStatusError, match="overloaded_error"):
            async with client.messages.stream(messages=messages[:3], **options) as stream:
                await stream.get_final_message()
        with pytest.raises(anthropic.AuthenticationError):
            await client.with_options(api_key="wrong").messages.create(messages=messages[:1], **options)


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
async def test_googles_client_talks_to_the_fake() -> None:
    genai = pytest.importorskip("google.genai", reason="the client of Google is not installed: pip install google-genai")
    declared = {"name": "read", "description": "Reads.", "parameters_json_schema": SCHEMA}
    config = {"tools": [{"function_declarations": [declared]}], "automatic_function_calling": {"disable": True}}
    answers = (gemini_server.Says("I look.", ("read", ARGUMENTS)), gemini_server.Says("done"))
    busy = Fault(status=429, body=gemini_server.quota("26s", "PerMinute"))
    async with (
        GeminiServer(*answers, busy).serving() as server,
        genai.Client(api_key=gemini_server.KEY, http_options={"base_url": server.url}).aio as client,
        genai.Client(api_key="wrong", http_options={"base_url": server.url}).aio as stranger,
    ):
        contents: list[Any] = [{"role": "user", "parts": [{"text": "go"}]}]

        async def said(client: Any) -> list[Any]:
            chunks = await client.models.generate_content_stream(model="gemini-3-test", contents=contents, config=config)
            return [part async for chunk in chunks for part in chunk.candidates[0].content.parts]

        parts = await said(client)
        (call,) = [part.function_call for part in parts if part.function_call]
        assert (call.name, call.args) == ("read", ARGUMENTS)
        contents.append({"role": "model", "parts": [part for part in parts if part.text or part.function_call]})
        answer = {"id": call.id, "name": call.name, "response": {"output": "text"}}
        contents.append({"role": "user", "parts": [{"function_response": answer}]})
        assert "".join(part.text for part in await said(client) if part.text) == "done"
        signed = server.requests[1]["contents"][1]["parts"][-1]["thoughtSignature"]
        assert signed.rstrip("=") in {signature.rstrip("=") for signature in server.signatures}
        with pytest.raises(genai.errors.ClientError, match="RESOURCE_EXHAUSTED"):
            await said(client)
        with pytest.raises(genai.errors.ClientError, match="API key not valid"):
            await said(stranger)


async def test_ollamas_client_talks_to_the_fake() -> None:
    ollama = pytest.importorskip("ollama", reason="the client of Ollama is in the extra `wire`")
    tools = [{"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": SCHEMA}}]
    answers = (ollama_server.Says("I look.", ("read", ARGUMENTS), thinking="I had better look."), ollama_server.Says("done"))
    async with OllamaServer(*answers).serving() as server, ollama.AsyncClient(host=server.url) as client:
        messages: list[Any] = [{"role": "user", "content": "go"}]

        async def said(**options: Any) -> list[Any]:
            options = {"model": ollama_server.MODEL, "messages": messages, "tools": tools, **options}
            return [part async for part in await client.chat(stream=True, think=True, **options)]

        parts = await said()
        (call,) = [call for part in parts for call in part.message.tool_calls or ()]
        assert (call.function.name, dict(call.function.arguments)) == ("read", ARGUMENTS)
        assert "".join(part.message.thinking or "" for part in parts) == "I had better look."
        assert (parts[-1].done, parts[-1].eval_count) == (True, 2)
        messages.append({"role": "assistant", "content": "", "tool_calls": [call.model_dump()]})
        messages.append({"role": "tool", "tool_name": "read", "content": "text"})
        assert "".join(part.message.content or "" for part in await said()) == "done"
        with pytest.raises(ollama.ResponseError, match="model 'other' not found"):
            await said(model="other")
