"""Conformance checks for chat providers. Inherit a class in a test module, and set the provider:

    class TestMine(HostedChatConformance):
        provider = Mine
        server = MyServer

`ChatProviderConformance` is for models that run in this process. `HostedChatConformance` adds checks for hosted
services; `server` is a fake of the service, by default one of OpenAI's chat completions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from plugins.api.chat import ChatProvider, ChatRequest, Delta, Reasoning, Reply
from plugins.api.models import ModelLimits
from plugins.host import validation
from plugins.http.client import Timeouts
from plugins.support.errors import (
    BadAnswer,
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    NoSuchModel,
    RateLimited,
    StreamCut,
    Unreachable,
)
from plugins.support.secrets import Secret
from plugins.testing.checks import check, check_sentence, error_of
from plugins.testing.contexts import NORMAL, SHORT, make_provider_context
from plugins.testing.servers.faulty_server import Fault, FaultyServer, RawResponse
from plugins.testing.servers.openai_server import OpenAIServer, ScriptedResponse, refusal
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolDefinition, ToolMessage, UserMessage
from sessions.state.context import Context

READ = ToolDefinition(
    name="read",
    description="Read a file of the workspace.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)

TALK: tuple[Message, ...] = (
    UserMessage(text="What does notes.md say? 😀 \u202eabc"),
    AssistantMessage(text="I look.", calls=(ToolCall(id="call_4_0", tool="read", arguments='{"path": "notes.md"}'),)),
    ToolMessage(id="call_4_0", tool="read", text="The door code is 4711.\n\x1b[31m"),
    AssistantMessage(text="It says: 4711."),
    UserMessage(text="And half of it?\n\t\x00"),
)


def question(model: str, *messages: Message, tools: tuple[ToolDefinition, ...] = ()) -> ChatRequest:
    """Return a request with these messages, by default a greeting."""
    said = messages or (UserMessage(text="Say something short."),)
    context = Context(instructions="Be brief.", tools=tools, parameters={}, messages=said)
    return ChatRequest(model=model, context=context, purpose="answer", session="20261121-120000-aaaaaa")


async def reply_of(provider: ChatProvider, request: ChatRequest) -> Reply:
    """Return the reply to a request, and check its stream: non-empty deltas and pieces of reasoning, then one reply that
    joins the deltas, then the end."""
    told, replies = [], list[Reply]()
    async with aclosing(provider.stream(request)) as stream:  # type: ignore[type-var] # it is a generator
        async for part in stream:
            assert not replies, f"{part!r} came after the Reply."
            if isinstance(part, Reply):
                replies.append(part)
                continue
            assert isinstance(part, Delta | Reasoning), f"{part!r} is neither a Delta nor Reasoning nor a Reply."
            assert part.text, f"A {type(part).__name__} is empty."
            if isinstance(part, Delta):
                told.append(part.text)
    assert replies, "The stream ended without a Reply and without an error."
    assert replies[0].text == "".join(told), f"Reply.text is {replies[0].text!r}, and the deltas say {''.join(told)!r}."
    return replies[0]


class ChatProviderConformance:
    """Checks for any chat provider. `model` is one of its models."""

    provider: ClassVar[type[ChatProvider]]
    model: ClassVar[str]

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[ChatProvider]:
        """Open the provider."""
        async with make_provider_context(folder, self.provider.Settings()) as context, self.provider(context) as provider:
            yield provider

    @check
    async def test_its_class_is_valid(self) -> None:
        """Fix what the message names: the class needs a `name` of lower-case letters, digits and _, `Settings` as a
        msgspec Struct with a default for every field, and every method of `ChatProvider`, async where it is async
        there. `stream` is an async generator."""
        assert validation.chat_provider(self.provider) == self.provider.name

    @check
    async def test_it_opens_without_settings(self, tmp_path: Path) -> None:
        """Every provider is opened at each start, configured or not: `__aenter__` must not fail because a key is
        missing. Then `default_model()` is None, and `explain_default()` the end of a sentence that names what is
        missing."""
        async with make_provider_context(tmp_path, self.provider.Settings()) as context, self.provider(context) as provider:
            assert provider.default_model() is None or isinstance(provider.default_model(), str)
            check_sentence(provider.explain_default())

    @check
    async def test_limits_need_no_request(self, tmp_path: Path) -> None:
        """`limits` returns a `ModelLimits` for every name, even an unknown one; unknown limits are None."""
        async with self.opened(tmp_path) as provider:
            for model in (self.model, "no-such-model", ""):
                assert isinstance(provider.limits(model), ModelLimits), f"limits({model!r}) is {provider.limits(model)!r}."

    @check
    async def test_a_stream_is_deltas_and_then_one_reply(self, tmp_path: Path) -> None:
        """Yield a non-empty `Delta` for each piece of text, a `Reasoning` for each piece of reasoning if the service shows
        it, then exactly one `Reply` with the joined text, then return.
        `model` is the model that answered."""
        async with self.opened(tmp_path) as provider:
            reply = await reply_of(provider, question(self.model))
            assert reply.model, "Reply.model is empty."
            usage = reply.usage
            assert usage is None or min(usage.input, usage.output, usage.cached) >= 0, f"{usage} has a negative count."

    @check
    async def test_every_conversation_can_be_encoded(self, tmp_path: Path) -> None:
        """Conversations contain tool calls with their results, emoji and control characters. Encode all of it, for
        example with `msgspec.json.encode`."""
        async with self.opened(tmp_path) as provider:
            await reply_of(provider, question(self.model, *TALK, tools=(READ,)))

    @check
    async def test_concurrent_requests_are_not_mixed_up(self, tmp_path: Path) -> None:
        """One provider serves all sessions at the same time: keep nothing about a request on `self`."""
        async with self.opened(tmp_path) as provider:
            asked = [question(self.model, UserMessage(text=text)) for text in ("one two three", "four five six")]
            first, second = await asyncio.gather(*(reply_of(provider, request) for request in asked))
            again = [await reply_of(provider, request) for request in asked]
            assert [first.text, second.text] == [reply.text for reply in again], (
                "The answers of two simultaneous requests were mixed up."
            )

    @check
    async def test_a_stream_can_be_closed_early(self, tmp_path: Path) -> None:
        """If a person stops an answer, the stream is closed after any piece. Use `async with` and `aclosing` for
        resources, and catch neither GeneratorExit nor CancelledError."""
        async with self.opened(tmp_path) as provider:
            stream = provider.stream(question(self.model))
            async for _ in stream:
                break
            await stream.aclose()  # type: ignore[attr-defined] # the contract says so of every stream
            assert (await reply_of(provider, question(self.model))).model


class HostedChatConformance(ChatProviderConformance):
    """Checks for the provider of a hosted service. `key` is the key that the fake accepts."""

    server: ClassVar[type[FaultyServer[Any]]] = OpenAIServer
    model: ClassVar[str] = OpenAIServer.MODEL
    key: ClassVar[str] = OpenAIServer.KEY

    # --- the service's protocol, if it differs from OpenAI's ----------------------------------------------------------

    def settings(self, url: str, key: str) -> Any:
        """Return `[providers.<name>]` for the service at this address."""
        return self.provider.Settings(base_url=url, api_key=Secret(key))

    def says(self, text: str, *calls: tuple[str, str]) -> Any:
        """Return a successful answer of the fake: text, and calls as pairs of a tool and its arguments in JSON."""
        return ScriptedResponse(text, *calls)

    def refusal(self, status: int, words: str) -> bytes:
        """Return the body of an error."""
        return refusal(words, None)

    def overflow(self) -> Fault | RawResponse:
        """Return the service's answer to a conversation that is too long."""
        return Fault(status=400, body=refusal("Maximum context length is 8 tokens.", "context_length_exceeded"))

    # --- the checks ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[ChatProvider]:
        """Open the provider, with a fake that answers."""
        async with self.asking(folder) as (provider, _):
            yield provider

    @asynccontextmanager
    async def asking(
        self, folder: Path, *answers: Any, timeouts: Timeouts = NORMAL, key: str = ""
    ) -> AsyncIterator[tuple[ChatProvider, FaultyServer[Any]]]:
        """Open the provider and a fake that gives these answers."""
        async with (
            self.server(*answers).serving() as server,
            make_provider_context(folder, self.settings(server.url, key or self.key), timeouts=timeouts) as context,
            self.provider(context) as provider,
        ):
            yield provider, server

    @check
    async def test_opening_sends_no_request(self, tmp_path: Path) -> None:
        """Every provider is opened at each start, even if nobody uses it: send nothing before the first request."""
        async with self.asking(tmp_path) as (provider, server):
            provider.default_model(), provider.explain_default(), provider.limits(self.model)
            assert not server.paths, "It asked the service before the first request."
            assert not server.asked_lists, "It asked for the list of models before the first request."

    @check
    async def test_the_whole_conversation_is_sent(self, tmp_path: Path) -> None:
        """Send the instructions, every message, every call with its result, and the offered tools."""
        async with self.asking(tmp_path) as (provider, server):
            await reply_of(provider, question(self.model, *TALK, tools=(READ,)))
            sent = json.dumps(server.requests[-1], ensure_ascii=False)
            for text in (
                "Be brief.",
                "What does notes.md say?",
                "I look.",
                "notes.md",
                "The door code",
                "It says",
                "And half",
            ):
                assert text in sent, f"{text!r} is missing in the request."
            assert "Read a file of the workspace." in sent, "The tool that is offered is missing in the request."

    @check
    async def test_tool_calls_are_returned_unchanged(self, tmp_path: Path) -> None:
        """Put the model's calls into `Reply.calls`, with the arguments as JSON text, and set `stop="calls"`. Calls are
        not part of any Delta."""
        answer = self.says("I look.", ("read", '{"path": "notes.md"}'))
        async with self.asking(tmp_path, answer) as (provider, _):
            reply = await reply_of(provider, question(self.model, tools=(READ,)))
            assert [(call.tool, json.loads(call.arguments)) for call in reply.calls] == [("read", {"path": "notes.md"})]
            assert reply.stop == "calls", f"stop is {reply.stop!r} where the model calls a tool."
            assert reply.text == "I look."

    @check
    async def test_each_error_status_is_translated(self, tmp_path: Path) -> None:
        """`context.transport` raises StatusRefused with `status` and `body`: raise a specific error instead. 401 is
        CredentialsRefused, 404 NoSuchModel, 429 RateLimited, 400 BadRequest, 500 and above Unreachable."""
        for status, meant in (
            (400, BadRequest),
            (401, CredentialsRefused),
            (404, NoSuchModel),
            (429, RateLimited),
            (500, Unreachable),
            (503, Unreachable),
        ):
            async with self.asking(tmp_path, Fault(status=status, body=self.refusal(status, "It is so."))) as (provider, _):
                await error_of(reply_of(provider, question(self.model)), meant, secret=self.key)

    @check
    async def test_an_invalid_key_is_reported_but_not_shown(self, tmp_path: Path) -> None:
        """Raise CredentialsRefused. Its message names the setting that holds the key, not the key."""
        wrong = "a-wrong-key-9876543210"
        async with self.asking(tmp_path, key=wrong) as (provider, _):
            await error_of(reply_of(provider, question(self.model)), CredentialsRefused, secret=wrong)

    @check
    async def test_retry_after_is_passed_on(self, tmp_path: Path) -> None:
        """Set `RateLimited.retry_after`, in seconds, to that of the StatusRefused."""
        busy = Fault(status=429, body=self.refusal(429, "slow down"), headers={"Retry-After": "3600"})
        async with self.asking(tmp_path, busy) as (provider, _):
            error = await error_of(reply_of(provider, question(self.model)), RateLimited)
            assert error.retry_after == 3600, f"retry_after is {error.retry_after}, and the service asked for 3600."

    @check
    async def test_a_long_conversation_is_a_context_overflow(self, tmp_path: Path) -> None:
        """Raise ContextOverflow: the gateway then compacts the conversation and retries. With BadRequest the
        conversation would be stuck."""
        async with self.asking(tmp_path, self.overflow()) as (provider, _):
            await error_of(reply_of(provider, question(self.model)), ContextOverflow)

    @check
    async def test_a_truncated_stream_is_not_a_reply(self, tmp_path: Path) -> None:
        """Wait for the end that your protocol defines (`[DONE]`, a finish reason). A stream that ends earlier is a
        StreamCut, however cleanly the connection was closed."""
        for end in ("cut", "reset", "close", "hang"):
            async with self.asking(tmp_path, Fault(end=end, pieces=2), timeouts=SHORT) as (provider, _):
                await error_of(reply_of(provider, question(self.model)), StreamCut)

    @check
    async def test_an_html_page_is_a_bad_answer(self, tmp_path: Path) -> None:
        """Proxies and captive portals answer 200 with a page. Anything other than the service's own format is a
        BadAnswer."""
        for media, body in (
            ("text/html", b"<html><h1>Sign in to this network</h1></html>"),
            ("application/json", b"[" * 100_000),
        ):
            async with self.asking(tmp_path, Fault(media=media, body=body)) as (provider, _):
                await error_of(reply_of(provider, question(self.model)), BadAnswer, StreamCut)

    @check
    async def test_an_unresponsive_service_is_unreachable(self, tmp_path: Path) -> None:
        """Use `context.transport`, which has timeouts, and do not catch its Unreachable."""
        async with self.asking(tmp_path, Fault(end="silence"), timeouts=SHORT) as (provider, server):
            await error_of(reply_of(provider, question(self.model)), Unreachable)
        settings = self.settings(server.url, self.key)
        async with make_provider_context(tmp_path, settings) as context, self.provider(context) as provider:
            await error_of(reply_of(provider, question(self.model)), Unreachable)

    @check
    async def test_closing_the_stream_ends_the_request(self, tmp_path: Path) -> None:
        """Closing the stream must close the request, so that the service stops generating. Close the inner stream too:
        `async with aclosing(context.transport.stream_events(...)) as events`."""
        answer = self.says(" ".join(["word"] * 200))
        answer.delay = 0.05
        async with self.asking(tmp_path, answer) as (provider, server):
            stream = provider.stream(question(self.model))
            async for _ in stream:
                break
            await stream.aclose()  # type: ignore[attr-defined] # the contract says so of every stream
            for _ in range(100):
                if not server.answering:
                    return
                await asyncio.sleep(0.02)
            raise AssertionError("The service is still answering, two seconds after the stream was closed.")
