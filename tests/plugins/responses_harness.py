"""A harness for the `openai` provider with the Responses API."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from plugins.api.chat import ChatRequest
from plugins.providers.openai.chat import OpenAI
from sessions.events.messages import Message
from tests.plugins.provider_harness import READ, Harness
from tests.servers.openai_responses_server import KEYS, ResponsesServer

FIRST, SECOND = KEYS
HARNESS = Harness(OpenAI, ResponsesServer, model="gpt-test", key=FIRST)
request, provider = HARNESS.request, HARNESS.asking
asked = partial(HARNESS.serving, api="responses")
THOUGHT = {"type": "reasoning"}
CALL = {"type": "function_call", "name": "read", "arguments": "{}"}
BODY = {"model": "gpt-test", "input": [], "include": ["reasoning.encrypted_content"]}


def asks(*messages: Message, **changes: Any) -> ChatRequest:
    return msgspec.structs.replace(request(*messages, tools=(READ,)), **changes)
