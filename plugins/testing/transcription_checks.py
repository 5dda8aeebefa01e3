"""Conformance checks for chat providers that transcribe (`TranscribesAudio`). Inherit the class in a test module:

    class TestMyTranscripts(TranscriptionConformance):
        provider = Mine

`server` is a fake of the service, by default one with OpenAI's transcriptions.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from plugins.api.chat import ChatProvider, Delta
from plugins.api.transcription import TranscribesAudio, Transcript, TranscriptionRequest
from plugins.http.client import Timeouts
from plugins.support.errors import BadAnswer, BadRequest, CredentialsRefused, RateLimited, StreamCut
from plugins.support.secrets import Secret
from plugins.testing.checks import check, error_of
from plugins.testing.contexts import NORMAL, make_provider_context
from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import OpenAIServer, refusal

RECORDING = b"RIFF\x00\xffWAVE" + bytes(range(256)) * 2048
"""The content of the recording: longer than what is sent at once, and with every byte."""


class TranscriptionConformance:
    """Checks for a provider that transcribes. `model` is one of its models, `key` the key that the fake accepts."""

    provider: ClassVar[type[ChatProvider]]
    server: ClassVar[type[OpenAIServer]] = OpenAIServer
    model: ClassVar[str] = OpenAIServer.TRANSCRIBES
    key: ClassVar[str] = OpenAIServer.KEY

    def settings(self, url: str, key: str) -> Any:
        """Return `[providers.<name>]` for the service at this address."""
        return self.provider.Settings(base_url=url, api_key=Secret(key))

    @asynccontextmanager
    async def asking(
        self, folder: Path, *transcripts: str | Fault, key: str = "", timeouts: Timeouts = NORMAL
    ) -> AsyncIterator[tuple[Any, OpenAIServer]]:
        """Open the provider and a fake that gives these transcripts."""
        server = self.server()
        server.transcripts = list(transcripts) or ["Hello there."]
        async with (
            server.serving(),
            make_provider_context(folder, self.settings(server.url, key or self.key), timeouts=timeouts) as context,
            self.provider(context) as provider,
        ):
            yield provider, server

    def recording(self, folder: Path, **options: Any) -> TranscriptionRequest:
        """Write a recording, and return the request for its transcript."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "recording"
        path.write_bytes(RECORDING)
        return TranscriptionRequest(model=self.model, path=path, name="voice.wav", media="audio/wav", **options)

    @check
    async def test_it_declares_that_it_transcribes(self) -> None:
        """`transcribe` is an async generator that takes a `TranscriptionRequest`."""
        assert isinstance(self.provider, type)
        method = getattr(self.provider, TranscribesAudio.transcribe.__name__, None)
        assert inspect.isasyncgenfunction(method), f"{self.provider.__name__}.transcribe is no async generator."

    @check
    async def test_it_says_where_recordings_go(self, tmp_path: Path) -> None:
        """`transcription_address` returns the server's address, without a user name or password in it."""
        async with self.asking(tmp_path) as (provider, server):
            address = provider.transcription_address(self.model)
            assert server.url.startswith(address) or address.startswith(server.url), f"It says {address!r}."

    @check
    async def test_a_recording_is_sent_whole_with_its_options(self, tmp_path: Path) -> None:
        """Send the bytes of the file unchanged under its name, and those options that are set."""
        async with self.asking(tmp_path) as (provider, server):
            asked = self.recording(tmp_path, parameters={"language": "de", "timestamp_granularities": ["word", "segment"]})
            transcript, _ = await transcript_of(provider, asked)
            assert transcript.text == "Hello there.", f"The transcript is {transcript.text!r}."
            sent = server.recordings[-1]
            assert sent.content == RECORDING, f"{len(sent.content)} of {len(RECORDING)} bytes arrived, or others."
            assert sent.name == "voice.wav", f"The file is named {sent.name!r}."
            assert sent.fields.get("language") == ["de"], f"These fields were sent: {sent.fields}."

    @check
    async def test_a_stream_is_deltas_and_then_one_transcript(self, tmp_path: Path) -> None:
        """Yield a non-empty `Delta` for each piece, then one `Transcript` whose text joins them, and nothing after it."""
        async with self.asking(tmp_path, "one two three") as (provider, _):
            transcript, deltas = await transcript_of(provider, self.recording(tmp_path, stream=True))
            assert all(deltas), "A Delta is empty."
            assert not deltas or "".join(deltas) == transcript.text, f"{deltas} are not {transcript.text!r}."
            assert transcript.text == "one two three", f"The transcript is {transcript.text!r}."

    @check
    async def test_details_and_subtitles(self, tmp_path: Path) -> None:
        """With `verbose_json`, `details` has what the service reports besides the text; `srt` is the subtitles as text."""
        async with self.asking(tmp_path) as (provider, _):
            transcript, _ = await transcript_of(provider, self.recording(tmp_path, format="verbose_json"))
            assert transcript.details.get("segments"), f"The details are {transcript.details}."
            subtitles, _ = await transcript_of(provider, self.recording(tmp_path, format="srt"))
            assert subtitles.text.startswith("1\n00:"), f"The subtitles are {subtitles.text!r}."
            assert not subtitles.details, f"Subtitles have no details: {subtitles.details}."

    @check
    async def test_failures_have_their_errors(self, tmp_path: Path) -> None:
        """Raise `CredentialsRefused` for a wrong key, `RateLimited` for 429, `BadRequest` for what the service refuses,
        `BadAnswer` or `StreamCut` for an answer without a transcript. Messages contain no key."""
        wrong = "sk-another-0123456789"
        async with self.asking(tmp_path, key=wrong) as (provider, _):
            await error_of(transcript_of(provider, self.recording(tmp_path)), CredentialsRefused, secret=wrong)
        busy, odd = refusal("Rate limit reached.", "rate_limit_exceeded"), refusal("Unsupported file format.", None)
        for fault, kinds in (
            (Fault(status=429, body=busy), (RateLimited,)),
            (Fault(status=400, body=odd), (BadRequest,)),
            (Fault(body=b"{}"), (BadAnswer, StreamCut)),
        ):
            async with self.asking(tmp_path, fault) as (provider, _):
                await error_of(transcript_of(provider, self.recording(tmp_path)), *kinds, secret=self.key)

    @check
    async def test_a_missing_file_is_a_bad_request(self, tmp_path: Path) -> None:
        """Raise `BadRequest` if the file cannot be read."""
        async with self.asking(tmp_path) as (provider, server):
            asked = self.recording(tmp_path)
            asked.path.unlink()
            await error_of(transcript_of(provider, asked), BadRequest)
            assert not server.recordings, "Something was sent nevertheless."


async def transcript_of(provider: Any, request: TranscriptionRequest) -> tuple[Transcript, list[str]]:
    """Return the transcript of a recording and its deltas, and check that nothing follows the transcript."""
    deltas, transcripts = list[str](), list[Transcript]()
    async with aclosing(provider.transcribe(request)) as stream:
        async for part in stream:
            assert not transcripts, f"{part!r} came after the Transcript."
            assert isinstance(part, Delta | Transcript), f"{part!r} is neither a Delta nor a Transcript."
            if isinstance(part, Delta):
                deltas.append(part.text)
            else:
                transcripts.append(part)
    assert transcripts, "The stream ended without a Transcript and without an error."
    return transcripts[0], deltas
