"""What every chat provider does. Inherit a class in a module of tests, and say which provider is meant:

    class TestMine(HostedChatConformance):
        provider = Mine
        server = MyServer

`ChatProviderConformance` is for a model that runs in this process; `HostedChatConformance` has more, for one that a service
runs, of which `server` is a fake: by itself one like OpenAI's chat completions. Each test is a method that pytest finds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from plugins.api.chat import ChatProvider, ChatRequest, Delta, Reply
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
    """A request with these messages, or with a greeting."""
    said = messages or (UserMessage(text="Say something short."),)
    context = Context(instructions="Be brief.", tools=tools, parameters={}, messages=said)
    return ChatRequest(model=model, context=context, purpose="answer", session="20261121-120000-aaaaaa")


async def reply_of(provider: ChatProvider, request: ChatRequest) -> Reply:
    """The reply to a request, whose stream keeps its promise: deltas with text, then one reply that joins them, and the
    end."""
    told, replies = [], list[Reply]()
    async with aclosing(provider.stream(request)) as stream:  # type: ignore[type-var] # it is a generator
        async for part in stream:
            assert not replies, f"{part!r} came after the Reply."
            if isinstance(part, Reply):
                replies.append(part)
                continue
            assert isinstance(part, Delta), f"{part!r} is neither a Delta nor a Reply."
            assert part.text, "A Delta is empty."
            told.append(part.text)
    assert replies, "The stream ended without a Reply and without an error."
    assert replies[0].text == "".join(told), f"Reply.text is {replies[0].text!r}, and the deltas say {''.join(told)!r}."
    return replies[0]


class ChatProviderConformance:
    """See the module. `model` is one that it has."""

    provider: ClassVar[type[ChatProvider]]
    model: ClassVar[str]

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[ChatProvider]:
        """The provider, ready to be asked."""
        async with make_provider_context(folder, self.provider.Settings()) as context, self.provider(context) as provider:
            yield provider

    @check
    async def test_its_class_is_valid(self) -> None:
        """Fix what the message names: the class needs a `name` of lower-case letters, digits and _, `Settings` as a
        msgspec Struct with a default for every field, and every method of `ChatProvider`, those async that are async there
        and no others. `stream` is an async generator, which is not async in this sense."""
        assert validation.chat_provider(self.provider) == self.provider.name

    @check
    async def test_without_settings_it_opens_and_says_why_it_cannot_be_used(self, tmp_path: Path) -> None:
        """Every provider is opened at each start, set up or not: `__aenter__` must not fail because a key is missing.
        `default_model()` is then None, `why()` the end of a sentence that names what is missing."""
        async with make_provider_context(tmp_path, self.provider.Settings()) as context, self.provider(context) as provider:
            assert provider.default_model() is None or isinstance(provider.default_model(), str)
            check_sentence(provider.explain_default())

    @check
    async def test_limits_are_known_without_asking(self, tmp_path: Path) -> None:
        """`limits` returns a `ModelLimits` for every name, also one that nobody has; what is not known is None."""
        async with self.opened(tmp_path) as provider:
            for model in (self.model, "no-such-model", ""):
                assert isinstance(provider.limits(model), ModelLimits), f"limits({model!r}) is {provider.limits(model)!r}."

    @check
    async def test_an_answer_is_deltas_and_then_one_reply(self, tmp_path: Path) -> None:
        """Yield a `Delta` for each piece of text, none of them empty, then exactly one `Reply` whose text is all of them
        joined, then return. `model` is what answered."""
        async with self.opened(tmp_path) as provider:
            reply = await reply_of(provider, question(self.model))
            assert reply.model, "Reply.model is empty."
            usage = reply.usage
            assert usage is None or min(usage.input, usage.output, usage.cached) >= 0, f"{usage} counts less than nothing."

    @check
    async def test_every_conversation_can_be_sent(self, tmp_path: Path) -> None:
        """A conversation holds calls of tools with their results, emoji and control characters. All of it is
        encoded; `msgspec.json.encode` does that."""
        async with self.opened(tmp_path) as provider:
            await reply_of(provider, question(self.model, *TALK, tools=(READ,)))

    @check
    async def test_two_sessions_at_once_are_not_mixed_up(self, tmp_path: Path) -> None:
        """One provider serves all sessions at the same time: keep nothing of a request on `self`."""
        async with self.opened(tmp_path) as provider:
            asked = [question(self.model, UserMessage(text=text)) for text in ("one two three", "four five six")]
            first, second = await asyncio.gather(*(reply_of(provider, request) for request in asked))
            again = [await reply_of(provider, request) for request in asked]
            assert [first.text, second.text] == [reply.text for reply in again], "Two sessions at once got mixed answers."

    @check
    async def test_whoever_stops_listening_disturbs_nobody(self, tmp_path: Path) -> None:
        """A person stops an answer: the stream is closed after any piece. Use `async with` and `aclosing` around what has to
        be closed, and catch neither GeneratorExit nor CancelledError."""
        async with self.opened(tmp_path) as provider:
            stream = provider.stream(question(self.model))
            async for _ in stream:
                break
            await stream.aclose()  # type: ignore[attr-defined] # the contract says so of every stream
            assert (await reply_of(provider, question(self.model))).model


class HostedChatConformance(ChatProviderConformance):
    """See the module. `key` is what the fake wants to be shown."""

    server: ClassVar[type[FaultyServer[Any]]] = OpenAIServer
    model: ClassVar[str] = OpenAIServer.MODEL
    key: ClassVar[str] = OpenAIServer.KEY

    # --- how the service speaks, where it is not like OpenAI ----------------------------------------------------------

    def settings(self, url: str, key: str) -> Any:
        """What `[providers.<name>]` says when the service is at this address."""
        return self.provider.Settings(base_url=url, api_key=Secret(key))

    def says(self, text: str, *calls: tuple[str, str]) -> Any:
        """An ordinary answer of the fake: text, and calls as a tool with its arguments in JSON."""
        return ScriptedResponse(text, *calls)

    def refusal(self, status: int, words: str) -> bytes:
        """An error's body."""
        return refusal(words, None)

    def overflow(self) -> Fault | RawResponse:
        """How the service says that a conversation is too long."""
        return Fault(status=400, body=refusal("Maximum context length is 8 tokens.", "context_length_exceeded"))

    # --- the checks ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[ChatProvider]:
        """The provider, with a fake that answers."""
        async with self.asking(folder) as (provider, _):
            yield provider

    @asynccontextmanager
    async def asking(
        self, folder: Path, *answers: Any, timeouts: Timeouts = NORMAL, key: str = ""
    ) -> AsyncIterator[tuple[ChatProvider, FaultyServer[Any]]]:
        """The provider and the fake, which gives these answers."""
        async with (
            self.server(*answers).serving() as server,
            make_provider_context(folder, self.settings(server.url, key or self.key), timeouts=timeouts) as context,
            self.provider(context) as provider,
        ):
            yield provider, server

    @check
    async def test_opening_it_asks_nobody(self, tmp_path: Path) -> None:
        """Every provider is opened at each start, also those that nobody uses: no request before the first question."""
        async with self.asking(tmp_path) as (provider, server):
            provider.default_model(), provider.explain_default(), provider.limits(self.model)
            assert not server.paths, "It asked the service before there was a question."
            assert not server.asked_lists, "It asked for the list of models before there was a question."

    @check
    async def test_all_of_a_conversation_is_sent(self, tmp_path: Path) -> None:
        """Send the instructions, every message, every call with its result, and the tools that are offered."""
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
    async def test_calls_come_back_as_the_model_wrote_them(self, tmp_path: Path) -> None:
        """Put the model's calls into `Reply.calls`, with the arguments as JSON text, and `stop="calls"`. Their text is no
        Delta."""
        answer = self.says("I look.", ("read", '{"path": "notes.md"}'))
        async with self.asking(tmp_path, answer) as (provider, _):
            reply = await reply_of(provider, question(self.model, tools=(READ,)))
            assert [(call.tool, json.loads(call.arguments)) for call in reply.calls] == [("read", {"path": "notes.md"})]
            assert reply.stop == "calls", f"stop is {reply.stop!r} where the model calls a tool."
            assert reply.text == "I look."

    @check
    async def test_each_refusal_has_its_meaning(self, tmp_path: Path) -> None:
        """`context.transport` raises StatusRefused with `status` and `body`: raise what it means instead. 401 is
        CredentialsRefused, 404 NoSuchModel, 429 RateLimited, 400 BadRequest, 500 and more Unreachable."""
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
    async def test_a_wrong_key_is_said_and_never_shown(self, tmp_path: Path) -> None:
        """Raise CredentialsRefused. The sentence names the setting that holds the key, not the key."""
        wrong = "a-wrong-key-9876543210"
        async with self.asking(tmp_path, key=wrong) as (provider, _):
            await error_of(reply_of(provider, question(self.model)), CredentialsRefused, secret=wrong)

    @check
    async def test_a_pause_that_the_service_asks_for_is_told(self, tmp_path: Path) -> None:
        """RateLimited carries `retry_after` in seconds: pass on that of the StatusRefused."""
        busy = Fault(status=429, body=self.refusal(429, "slow down"), headers={"Retry-After": "3600"})
        async with self.asking(tmp_path, busy) as (provider, _):
            error = await error_of(reply_of(provider, question(self.model)), RateLimited)
            assert error.retry_after == 3600, f"retry_after is {error.retry_after}, and the service asked for 3600."

    @check
    async def test_a_conversation_that_is_too_long_is_an_overflow(self, tmp_path: Path) -> None:
        """Raise ContextOverflow and nothing else: the gateway then compacts and asks again. As BadRequest the conversation
        would be stuck."""
        async with self.asking(tmp_path, self.overflow()) as (provider, _):
            await error_of(reply_of(provider, question(self.model)), ContextOverflow)

    @check
    async def test_an_answer_that_breaks_off_is_never_a_reply(self, tmp_path: Path) -> None:
        """Wait for what your protocol ends with (`[DONE]`, a finish reason). A stream that ends before is StreamCut, however
        cleanly the connection was closed."""
        for end in ("cut", "reset", "close", "hang"):
            async with self.asking(tmp_path, Fault(end=end, pieces=2), timeouts=SHORT) as (provider, _):
                await error_of(reply_of(provider, question(self.model)), StreamCut)

    @check
    async def test_a_page_instead_of_an_answer_is_a_bad_answer(self, tmp_path: Path) -> None:
        """Proxies and hotel networks answer 200 with a page. What is not the service's own stream is a BadAnswer."""
        for media, body in (
            ("text/html", b"<html><h1>Sign in to this network</h1></html>"),
            ("application/json", b"[" * 100_000),
        ):
            async with self.asking(tmp_path, Fault(media=media, body=body)) as (provider, _):
                await error_of(reply_of(provider, question(self.model)), BadAnswer, StreamCut)

    @check
    async def test_a_service_that_is_away_is_unreachable(self, tmp_path: Path) -> None:
        """Use `context.transport`, which has deadlines, and let its Unreachable pass."""
        async with self.asking(tmp_path, Fault(end="silence"), timeouts=SHORT) as (provider, server):
            await error_of(reply_of(provider, question(self.model)), Unreachable)
        settings = self.settings(server.url, self.key)
        async with make_provider_context(tmp_path, settings) as context, self.provider(context) as provider:
            await error_of(reply_of(provider, question(self.model)), Unreachable)

    @check
    async def test_a_stopped_answer_costs_no_more(self, tmp_path: Path) -> None:
        """Closing the stream closes the request, so that the service stops counting. Close what you read from: `async with
        aclosing(house.transport.stream_events(...)) as events`."""
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
