"""Asking the `openai` provider over the Responses API in a test, and what the answers look like in the next request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from plugins.api.chat import ChatRequest, Reply
from plugins.providers.openai.chat import OpenAI
from plugins.support.secrets import Secret
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage
from tests.plugins.asking import READ, Asked, opened, question
from tests.servers.openai_responses_server import (
    KEYS,
    ResponsesServer,
)

FIRST, SECOND = KEYS
request = partial(question, model="gpt-test")
THOUGHT = {"type": "reasoning"}
CALL = {"type": "function_call", "name": "read", "arguments": "{}"}
BODY = {"model": "gpt-test", "input": [], "include": ["reasoning.encrypted_content"]}


@asynccontextmanager
async def provider(url: str, *, key: str = FIRST, **options: Any) -> AsyncIterator[Asked]:
    async with opened(OpenAI, model="gpt-test", base_url=url, api_key=Secret(key), **options) as client:
        yield client


@asynccontextmanager
async def asked(*answers: Any, **options: Any) -> AsyncIterator[tuple[Asked, ResponsesServer]]:
    async with ResponsesServer(*answers).serving() as server, provider(server.url, api="responses", **options) as asked_:
        yield asked_, server


def as_message(reply: Reply, seq: int = 0) -> tuple[Message, ...]:
    """The reply and the results of its calls, as they stand in the next request."""
    calls = tuple(ToolCall(id=f"call_{seq}_{n}", tool=c.tool, arguments=c.arguments) for n, c in enumerate(reply.calls))
    answer = AssistantMessage(text=reply.text, calls=calls, opaque=reply.opaque)
    return (answer, *(ToolMessage(id=call.id, tool=call.tool, text="result") for call in calls))


def asks(*messages: Message, **changes: Any) -> ChatRequest:
    return msgspec.structs.replace(request(*messages, tools=(READ,)), **changes)
