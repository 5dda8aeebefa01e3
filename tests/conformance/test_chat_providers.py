"""The kit for chat providers: the built-ins pass, and a provider that is broken in one way fails the check for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import pytest

from exuvia import (
    ChatProviderConformance,
    ChatRequest,
    Delta,
    HostedChatConformance,
    ModelLimits,
    Reply,
    StreamPart,
    Transcript,
    TranscriptionConformance,
    TranscriptionRequest,
)
from plugins.http.client import Timeouts
from plugins.providers.openai.chat import OpenAI
from plugins.providers.scripted import Scripted
from plugins.support.errors import (
    BadAnswer,
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    ProviderError,
    RateLimited,
    StreamCut,
    Unreachable,
)
from plugins.support.secrets import Secret
from plugins.testing.contexts import NORMAL
from plugins.testing.servers.faulty_server import Fault, RawResponse
from tests.conformance.biting import bites, checks_of
from tests.plugins import vendors

# --- the built-ins ----------------------------------------------------------------------------------------------------


class TestScripted(ChatProviderConformance):
    provider = Scripted
    model = "echo"


class Hurried(HostedChatConformance):
    """The built-ins have deadlines of their own, in their settings: here they are the kit's."""

    timeouts = NORMAL

    def asking(self, folder: Path, *answers: Any, timeouts: Timeouts = NORMAL, key: str = "") -> Any:
        self.timeouts = timeouts
        return super().asking(folder, *answers, timeouts=timeouts, key=key)

    def settings(self, url: str, key: str) -> Any:
        timeouts = self.timeouts
        deadlines = {
            "first_seconds": timeouts.first,
            "between_seconds": timeouts.between,
            "reply_seconds": timeouts.whole,
        }
        return self.provider.Settings(**{"base_url": url, "api_key": Secret(key), **deadlines, **self.more()})

    def more(self) -> dict[str, Any]:
        return {}


class OfVendor(Hurried):
    """A provider and its fake, from the table of the vendors."""

    vendor: ClassVar[vendors.Vendor]

    def __init_subclass__(cls) -> None:
        cls.provider, cls.model, cls.key = cls.vendor.kind, cls.vendor.model, cls.vendor.key
        setattr(cls, "server", staticmethod(cls.vendor.server))  # noqa: B010 - some are made by a function

    def more(self) -> dict[str, Any]:
        return self.vendor.harness.settings

    def says(self, text: str, *calls: tuple[str, Any]) -> Any:
        return self.vendor.says(text, *((tool, msgspec.json.decode(arguments)) for tool, arguments in calls))

    def refusal(self, status: int, words: str) -> bytes:
        return self.vendor.refusal(status, words)

    def overflow(self) -> Fault | RawResponse:
        return self.vendor.overflows[0]


class TestOpenAI(OfVendor):
    vendor = vendors.OPENAI


class TestResponses(OfVendor):
    vendor = vendors.RESPONSES


class TestAnthropic(OfVendor):
    vendor = vendors.ANTHROPIC


class TestGemini(OfVendor):
    vendor = vendors.GEMINI


class TestOllama(OfVendor):
    vendor = vendors.OLLAMA


class TestTranscripts(TranscriptionConformance):
    provider = OpenAI


# --- broken ones ------------------------------------------------------------------------------------------------------


class Sound(OpenAI):
    """A provider of a service like OpenAI's chat completions, in which nothing is wrong."""

    name: ClassVar[str] = "sound"


class Misnamed(Sound):
    name: ClassVar[str] = "Sound, Inc."


class Silent(Sound):
    def explain_default(self) -> str:
        return ""


class Picky(Sound):
    def limits(self, model: str) -> ModelLimits:
        return {"gpt-test": ModelLimits()}[model]


class Doubled(Sound):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        async for part in super().stream(request):
            yield part
            if isinstance(part, Reply):
                yield part


class Western(Sound):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        for message in request.context.messages:
            message.text.encode("latin-1")
        async for part in super().stream(request):
            yield part


class Forgetful(Sound):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        self._request = request
        await asyncio.sleep(0)
        async for part in super().stream(self._request):
            yield part


class Clinging(Sound):
    stopped = False

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        if self.stopped:
            raise Unreachable("It was stopped.")
        try:
            async for part in super().stream(request):
                yield part
        except GeneratorExit:
            self.stopped = True
            raise


class Curious(Sound):
    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.models()
        return self


class Brief(Sound):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        last = msgspec.structs.replace(request.context, messages=request.context.messages[-1:])
        async for part in super().stream(msgspec.structs.replace(request, context=last)):
            yield part


class Toolless(Sound):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        async for part in super().stream(request):
            yield msgspec.structs.replace(part, calls=()) if isinstance(part, Reply) else part


class Dull(Sound):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        try:
            async for part in super().stream(request):
                yield part
        except ProviderError as error:
            raise BadRequest("It did not work.") from error


class Telling(Sound):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        try:
            async for part in super().stream(request):
                yield part
        except CredentialsRefused as error:
            raise CredentialsRefused("The key a-wrong-key-9876543210 is wrong.") from error


class Impatient(Sound):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        try:
            async for part in super().stream(request):
                yield part
        except RateLimited as error:
            raise RateLimited(str(error)) from error


class Stuck(Sound):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        try:
            async for part in super().stream(request):
                yield part
        except ContextOverflow as error:
            raise BadRequest(str(error)) from error


class Hopeful(Sound):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        told = []
        try:
            async for part in super().stream(request):
                told += [part.text] if isinstance(part, Delta) else []
                yield part
        except StreamCut:
            yield Reply(text="".join(told), model=request.model, stop="end")


class Believing(Sound):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        try:
            async for part in super().stream(request):
                yield part
        except BadAnswer:
            yield Reply(text="", model=request.model, stop="end")


class Offline(Sound):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        try:
            async for part in super().stream(request):
                yield part
        except Unreachable as error:
            raise OSError("no route to host") from error


class Thorough(Sound):
    """Reads an answer to its end before it lets go of it."""

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamPart, None]:
        parts: asyncio.Queue[StreamPart] = asyncio.Queue()

        async def read() -> None:
            async for part in super(Thorough, self).stream(request):
                parts.put_nowait(part)

        reading = asyncio.create_task(read())
        while not (reading.done() and parts.empty()):
            with suppress(TimeoutError):
                yield await asyncio.wait_for(parts.get(), 0.1)
        await reading


class SoundCase(Hurried):
    """Not collected: its name does not begin with Test."""


BROKEN: dict[str, type[Sound]] = {
    "test_its_class_is_valid": Misnamed,
    "test_it_opens_without_settings": Silent,
    "test_limits_need_no_request": Picky,
    "test_a_stream_is_deltas_and_then_one_reply": Doubled,
    "test_every_conversation_can_be_encoded": Western,
    "test_concurrent_requests_are_not_mixed_up": Forgetful,
    "test_a_stream_can_be_closed_early": Clinging,
    "test_opening_sends_no_request": Curious,
    "test_the_whole_conversation_is_sent": Brief,
    "test_tool_calls_are_returned_unchanged": Toolless,
    "test_each_error_status_is_translated": Dull,
    "test_an_invalid_key_is_reported_but_not_shown": Telling,
    "test_retry_after_is_passed_on": Impatient,
    "test_a_long_conversation_is_a_context_overflow": Stuck,
    "test_a_truncated_stream_is_not_a_reply": Hopeful,
    "test_an_html_page_is_a_bad_answer": Believing,
    "test_an_unresponsive_service_is_unreachable": Offline,
    "test_closing_the_stream_ends_the_request": Thorough,
}


def test_every_check_has_a_provider_that_fails_it() -> None:
    assert set(BROKEN) == checks_of(HostedChatConformance)


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_provider_fails_the_check_for_it_and_a_correct_one_does_not(check: str, tmp_path: Path) -> None:
    bites(SoundCase, check, {"provider": Sound}, {"provider": BROKEN[check]}, tmp_path)


# --- transcripts ------------------------------------------------------------------------------------------------------


class Elsewhere(OpenAI):
    def transcription_address(self, model: str) -> str:
        return "https://example.com"


class Truncates(OpenAI):
    """A provider that sends only the beginning of a recording, under another name."""

    async def transcribe(self, request: TranscriptionRequest) -> AsyncGenerator[Delta | Transcript, None]:
        await asyncio.to_thread(request.path.write_bytes, request.path.read_bytes()[:1000])
        async for part in super().transcribe(request):
            yield part


class Repeats(OpenAI):
    async def transcribe(self, request: TranscriptionRequest) -> AsyncGenerator[Delta | Transcript, None]:
        async for part in super().transcribe(request):
            yield part
            yield part


class LeavesOut(OpenAI):
    async def transcribe(self, request: TranscriptionRequest) -> AsyncGenerator[Delta | Transcript, None]:
        async for part in super().transcribe(request):
            yield part if isinstance(part, Delta) else Transcript(text=part.text)


class Swallows(OpenAI):
    async def transcribe(self, request: TranscriptionRequest) -> AsyncGenerator[Delta | Transcript, None]:
        try:
            async for part in super().transcribe(request):
                yield part
        except ProviderError as error:
            yield Transcript(text=str(error))


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        ("test_it_declares_that_it_transcribes", Scripted),
        ("test_it_says_where_recordings_go", Elsewhere),
        ("test_a_recording_is_sent_whole_with_its_options", Truncates),
        ("test_a_stream_is_deltas_and_then_one_transcript", Repeats),
        ("test_details_and_subtitles", LeavesOut),
        ("test_failures_have_their_errors", Swallows),
        ("test_a_missing_file_is_a_bad_request", Swallows),
    ],
)
def test_a_provider_that_transcribes_wrongly_fails_the_check(check: str, broken: Any, tmp_path: Path) -> None:
    bites(TranscriptionConformance, check, {"provider": OpenAI}, {"provider": broken}, tmp_path)


def test_every_check_of_transcripts_has_a_broken_provider() -> None:
    marks = test_a_provider_that_transcribes_wrongly_fails_the_check.pytestmark
    assert {check for check, _ in marks[0].args[1]} == checks_of(TranscriptionConformance)
