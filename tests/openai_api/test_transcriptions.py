"""Recordings as text, as OpenAI's own client sends them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from gateway.models.transcription import BYTES_PER_TOKEN
from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import KEY, OpenAIServer, refusal
from plugins.testing.transcription_checks import RECORDING
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.gateway.test_spending import charges, exact, ledger
from tests.openai_api.asking import client_of, vendor_behind
from tests.waiting import deadline, until

MODEL = f"openai:{OpenAIServer.TRANSCRIBES}"
CONFIGURED = {"transcription.model": MODEL}
FILE = ("voice.webm", RECORDING, "audio/webm;codecs=opus")


@asynccontextmanager
async def transcribing(home: Path, *transcripts: str | Fault) -> AsyncIterator[tuple[Gateway, OpenAIServer, Any]]:
    """The gateway, a service that gives these transcripts, and the client."""
    async with deadline(), vendor_behind(home, settings=CONFIGURED) as (g, server, client):
        server.transcripts = list(transcripts) or ["Hello there."]
        yield g, server, client


def left_over(home: Path) -> list[str]:
    """The files of recordings that are still there."""
    return [path.name for path in (home / "attachments").glob("*") if path.is_file()]


async def test_a_recording_is_passed_through(tmp_path: Path) -> None:
    async with transcribing(tmp_path) as (g, server, client):
        told = await client.audio.transcriptions.create(
            model="exuvia", file=FILE, language="de", prompt="Exuvia", temperature=0.5
        )
        async with g.http.get(f"{g.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            metrics = await response.text()
    (sent,) = server.recordings
    assert (told.text, told.usage.type, told.usage.total_tokens) == ("Hello there.", "tokens", 18)
    assert (sent.path, sent.name, sent.media) == ("/v1/audio/transcriptions", "voice.webm", "audio/webm")
    assert sent.content == RECORDING
    assert sent.fields == {
        "model": [OpenAIServer.TRANSCRIBES],
        "response_format": ["json"],
        "language": ["de"],
        "prompt": ["Exuvia"],
        "temperature": ["0.5"],
    }
    assert f'exuvia_spent_tokens_total{{purpose="transcription",model="{MODEL}",direction="input"}} 14' in metrics
    assert left_over(tmp_path) == [], "the recording is not kept"


@pytest.mark.parametrize("form", ["text", "srt", "vtt"])
async def test_plain_formats(form: str, tmp_path: Path) -> None:
    async with transcribing(tmp_path) as (_, _, client):
        told = await client.audio.transcriptions.create(model=MODEL, file=FILE, response_format=form)
    assert isinstance(told, str)
    assert "Hello there.\n" in told
    assert told.startswith({"text": "Hello", "srt": "1\n", "vtt": "WEBVTT"}[form])


async def test_details_of_a_transcript(tmp_path: Path) -> None:
    async with transcribing(tmp_path) as (_, server, client):
        told = await client.audio.transcriptions.create(
            model=OpenAIServer.TRANSCRIBES,
            file=FILE,
            response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
        )
    assert (told.language, told.duration, told.segments[0].text) == ("english", 1.0, "Hello there.")
    assert (told.usage.type, told.usage.seconds) == ("duration", 1)
    assert server.recordings[0].fields["timestamp_granularities[]"] == ["word", "segment"]


async def test_a_stream(tmp_path: Path) -> None:
    async with transcribing(tmp_path, "one two three") as (_, _, client):
        stream = await client.audio.transcriptions.create(model="exuvia", file=FILE, stream=True)
        events = [event async for event in stream]
    assert [event.delta for event in events[:-1]] == ["one ", "two ", "three"]
    assert (events[-1].type, events[-1].text, events[-1].usage.total_tokens) == (
        "transcript.text.done",
        "one two three",
        18,
    )


async def test_a_model_that_cannot_stream_answers_in_one_event(tmp_path: Path) -> None:
    """OpenAI's `whisper-1` ignores `stream`."""
    whole = Fault(body=b'{"text": "one two", "usage": {"type": "duration", "seconds": 3}}')
    async with transcribing(tmp_path, whole) as (_, _, client):
        stream = await client.audio.transcriptions.create(model="exuvia", file=FILE, stream=True)
        events = [event async for event in stream]
    assert [(event.type, getattr(event, "delta", event.text if event is events[-1] else "")) for event in events] == [
        ("transcript.text.delta", "one two"),
        ("transcript.text.done", "one two"),
    ]


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # by the client
async def test_a_translation(tmp_path: Path) -> None:
    async with transcribing(tmp_path, "Good day.") as (_, server, client):
        told = await client.audio.translations.create(model="exuvia", file=FILE, prompt="Wien")
        with pytest.raises(openai.BadRequestError, match="Unknown parameter: 'language'"):
            await client.audio.translations.create(model="exuvia", file=FILE, extra_body={"language": "de"})
    assert (told.text, server.recordings[0].path) == ("Good day.", "/v1/audio/translations")


async def test_the_list_of_models_names_it(tmp_path: Path) -> None:
    async with transcribing(tmp_path) as (_, _, client):
        names = [model.id async for model in client.models.list()]
        found = await client.models.retrieve(MODEL)
    assert (names.count(MODEL), found.id) == (1, MODEL)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "Transcription is not configured: set transcription.model"),
        ({"transcription.model": "nobody:whisper"}, "is not `provider:model` of a known provider"),
        ({"transcription.model": "scripted:echo"}, "scripted cannot transcribe; .*openai"),
    ],
)
async def test_without_a_model_that_transcribes(settings: Any, told: str, tmp_path: Path) -> None:
    async with deadline(), gateway(tmp_path, settings=settings) as g, client_of(g) as client:
        with pytest.raises(openai.NotFoundError, match=told):
            await client.audio.transcriptions.create(model="exuvia", file=FILE)
        assert [model.id async for model in client.models.list() if "whisper" in model.id] == []


async def test_failures_of_the_service(tmp_path: Path) -> None:
    odd = Fault(status=400, body=refusal("Audio file might be corrupted or unsupported", "invalid_value"))
    lost = Fault(status=401, body=refusal("Incorrect API key provided", "invalid_api_key"))
    broken = Fault(body=b'data: {"type":"transcript.text.delta","delta":"one"}\n\n', media="text/event-stream")
    async with transcribing(tmp_path, odd, lost, broken) as (_, _, client):
        with pytest.raises(openai.BadRequestError, match="corrupted or unsupported"):
            await client.audio.transcriptions.create(model="exuvia", file=FILE)
        with pytest.raises(openai.InternalServerError):
            await client.audio.transcriptions.create(model="exuvia", file=FILE)
        stream = await client.audio.transcriptions.create(model="exuvia", file=FILE, stream=True)
        assert (await anext(stream)).delta == "one"
        with pytest.raises(openai.APIError, match="interrupted before its end"):
            await anext(stream)
    assert left_over(tmp_path) == []


async def test_a_recording_is_sent_whole_again_after_a_failure(tmp_path: Path) -> None:
    busy = Fault(status=503, body=b"{}", headers={"Retry-After": "0"})
    async with transcribing(tmp_path, busy, "At last.") as (_, server, client):
        told = await client.audio.transcriptions.create(model="exuvia", file=FILE)
    assert (told.text, [sent.content == RECORDING for sent in server.recordings]) == ("At last.", [True, True])


async def test_another_server_receives_recordings_and_only_its_own_key(tmp_path: Path) -> None:
    async with deadline(), OpenAIServer().serving() as whisper:
        settings = CONFIGURED | {"providers.openai.transcription_url": whisper.url}
        async with vendor_behind(tmp_path, settings=settings) as (_, server, client):
            with pytest.raises(openai.InternalServerError):
                await client.audio.transcriptions.create(model="exuvia", file=FILE)
            assert (whisper.recordings, server.recordings) == ([], []), "the key of the other server was sent"
        settings |= {"providers.openai.transcription_key": KEY}
        async with vendor_behind(tmp_path, settings=settings) as (_, server, client):
            told = await client.audio.transcriptions.create(model="exuvia", file=FILE)
    assert (told.text, len(whisper.recordings), server.recordings) == ("Hello there.", 1, [])


# --- what it costs ----------------------------------------------------------------------------------------------------

PRICED = f'[prices."{MODEL}"]\ninput = 6.0\ncached = 6.0\noutput = 10.0\n'
BUDGET = PRICED + '[budgets."*"]\nday = 1.0\n'
ONE = Fault(body=b'data: {"type":"transcript.text.delta","delta":"one"}\n\n', media="text/event-stream")
SILENT = Fault(end="silence")


@asynccontextmanager
async def priced(home: Path, file: str, transcript: str | Fault) -> AsyncIterator[tuple[OpenAIServer, Any]]:
    """A service whose transcripts have a price, and the client."""
    async with deadline(), vendor_behind(home, settings=CONFIGURED, file=file) as (_, server, client):
        server.transcripts = [transcript]
        yield server, client


def settled(home: Path) -> dict[str, Any]:
    """The only charge in the ledger, which has no other request and none that is open."""
    (line,) = charges(home)
    assert {each["request"] for each in ledger(home)} == {line["request"]}
    assert line["purpose"] == "transcription"
    assert line["micros"] == exact(line)
    return line


@pytest.mark.parametrize("stream", [True, False])
async def test_a_recording_that_does_not_fit_the_budget_is_not_sent(stream: bool, tmp_path: Path) -> None:
    async with priced(tmp_path, PRICED + '[budgets."*"]\nday = 0.0\n', "Hello there.") as (server, client):
        with pytest.raises(openai.RateLimitError, match="The budget of owner for today") as refused:
            await client.audio.transcriptions.create(model="exuvia", file=FILE, stream=stream)
    assert (refused.value.code, server.recordings, ledger(tmp_path)) == ("insufficient_quota", [], [])


@pytest.mark.parametrize("file", [PRICED, BUDGET])
async def test_what_is_reserved_is_replaced_by_what_the_service_counted(file: str, tmp_path: Path) -> None:
    async with priced(tmp_path, file, "Hello there.") as (_, client):
        await client.audio.transcriptions.create(model="exuvia", file=FILE)
        await until(lambda: len(charges(tmp_path)) == 1)
    reserved, line = ledger(tmp_path)[0], settled(tmp_path)
    assert reserved["usage"]["input"] * BYTES_PER_TOKEN >= len(RECORDING)
    assert (reserved["usage"]["output"], "estimated" in line) == (8192, False)
    assert (line["usage"]["input"], line["usage"]["output"]) == (14, 4)


@pytest.mark.parametrize("file", [PRICED, BUDGET])
async def test_a_transcript_that_is_cut_off_is_charged_as_estimated(file: str, tmp_path: Path) -> None:
    async with priced(tmp_path, file, ONE) as (_, client):
        stream = await client.audio.transcriptions.create(model="exuvia", file=FILE, stream=True)
        with pytest.raises(openai.APIError):
            [event async for event in stream]
        await until(lambda: len(charges(tmp_path)) == 1)
    line = settled(tmp_path)
    assert line["estimated"] is True
    assert line["usage"]["input"] * BYTES_PER_TOKEN >= len(RECORDING)
    assert line["usage"]["output"] == 1


@pytest.mark.parametrize("file", [PRICED, BUDGET])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_transcript_whose_client_leaves_is_charged_as_estimated(stream: bool, file: str, tmp_path: Path) -> None:
    async with priced(tmp_path, file, SILENT) as (server, client):
        asking = asyncio.create_task(client.audio.transcriptions.create(model="exuvia", file=FILE, stream=stream))
        await until(lambda: len(server.recordings) == 1)
        asking.cancel()
        await asyncio.wait([asking])
        await until(lambda: len(charges(tmp_path)) == 1)
    assert settled(tmp_path)["estimated"] is True


async def test_a_recording_that_is_refused_costs_nothing(tmp_path: Path) -> None:
    odd = Fault(status=400, body=refusal("Audio file might be corrupted or unsupported", "invalid_value"))
    async with priced(tmp_path, BUDGET, odd) as (_, client):
        with pytest.raises(openai.BadRequestError):
            await client.audio.transcriptions.create(model="exuvia", file=FILE)
        await until(lambda: len(ledger(tmp_path)) == 2)
    assert [line["kind"] for line in ledger(tmp_path)] == ["request_reserved", "request_released"]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"model": "whisper-1"}, "'whisper-1' does not transcribe here; use openai:gpt-test-transcribe or exuvia"),
        ({"response_format": "docx"}, "response_format: 'docx' is not one of json, text"),
        ({"temperature": 7}, "temperature is a number from 0 to 1"),
        ({"timestamp_granularities": ["letter"]}, "timestamp_granularities are `word` and `segment`"),
        ({"extra_body": {"colour": "red"}}, "Unknown parameter: 'colour'"),
        ({"extra_body": {"stream": "maybe"}}, "stream is `true` or `false`"),
        ({"prompt": "x" * 70_000}, "prompt: a field is limited to 65,536 bytes"),
        ({"file": ("voice.wav", b"", "audio/wav")}, "The form has no recording"),
    ],
)
async def test_wrong_options_are_refused_in_one_sentence(options: Any, told: str, tmp_path: Path) -> None:
    async with transcribing(tmp_path) as (_, server, client):
        with pytest.raises((openai.BadRequestError, openai.NotFoundError), match=told):
            await client.audio.transcriptions.create(**{"model": "exuvia", "file": FILE, **options})
        assert server.recordings == []
    assert left_over(tmp_path) == []


async def test_a_recording_is_limited_in_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.openai.transcriptions.AUDIO_BYTES", 100_000)
    async with transcribing(tmp_path) as (g, server, client):
        with pytest.raises(openai.APIStatusError, match="The limit for a recording") as refused:
            await client.audio.transcriptions.create(model="exuvia", file=FILE)
        assert (refused.value.status_code, refused.value.code) == (413, "request_too_large")
        small = ("voice.wav", b"R" * 100_000, "audio/wav")
        assert (await client.audio.transcriptions.create(model="exuvia", file=small)).text == "Hello there."
        announced = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "multipart/form-data; boundary=x"}
        async with g.http.post(
            f"{g.url}/v1/audio/transcriptions", headers=announced, data=io.BytesIO(b"x" * 3_000_000)
        ) as response:
            assert response.status == 413
        assert len(server.recordings) == 1


BODY = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nexuvia\r\n'
FILE_PART = (
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="../../a\\"b.wav"\r\nContent-Type: a b\r\n\r\nabc\r\n'
)


@pytest.mark.parametrize(
    ("body", "media"),
    [
        (b"{}", "application/json"),
        (b"", "multipart/form-data"),
        (b"nothing", "multipart/form-data; boundary=x"),
        (b"--x\r\n", "multipart/form-data; boundary=x"),
        (b"--x\r\n\r\nno name\r\n--x--\r\n", "multipart/form-data; boundary=x"),
        (BODY + b"--x--\r\n", "multipart/form-data; boundary=x"),
        (BODY + FILE_PART + FILE_PART + b"--x--\r\n", "multipart/form-data; boundary=x"),
        (BODY * 40 + FILE_PART + b"--x--\r\n", "multipart/form-data; boundary=x"),
        (FILE_PART + BODY.replace(b"exuvia", b"\xff\xfe") + b"--x--\r\n", "multipart/form-data; boundary=x"),
        (
            BODY.replace(b"\r\n\r\n", b"\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n--y--\r\n"),
            "multipart/form-data; boundary=x",
        ),
        (BODY + FILE_PART, "multipart/form-data; boundary=x"),
        (b"--x\r\n" + b"A: b\r\n" * 20_000, "multipart/form-data; boundary=x"),
    ],
)
async def test_a_malformed_form_is_refused(body: bytes, media: str, tmp_path: Path) -> None:
    async with transcribing(tmp_path) as (g, server, _):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": media}
        async with g.http.post(f"{g.url}/v1/audio/transcriptions", headers=headers, data=body) as response:
            told = await response.json()
        assert (response.status, told["error"]["type"]) == (400, "invalid_request_error")
        assert server.recordings == []
    assert left_over(tmp_path) == []


async def test_the_file_may_come_first_and_its_name_is_harmless(tmp_path: Path) -> None:
    async with transcribing(tmp_path) as (g, server, _):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "multipart/form-data; boundary=x"}
        body = FILE_PART + BODY + b"--x--\r\n"
        async with g.http.post(f"{g.url}/v1/audio/transcriptions", headers=headers, data=body) as response:
            assert response.status == 200
    assert (server.recordings[0].name, server.recordings[0].media) == ("a%22b.wav", "application/octet-stream")


async def test_a_person_needs_a_token_and_has_a_limit(tmp_path: Path) -> None:
    silent = Fault(body=b"{}")
    async with transcribing(tmp_path, silent) as (g, _, client):
        async with client_of(g, "wrong-token-that-is-long-enough") as stranger:
            with pytest.raises(openai.AuthenticationError):
                await stranger.audio.transcriptions.create(model="exuvia", file=FILE)
        gate = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield BODY
            await gate.wait()

        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "multipart/form-data; boundary=x"}
        url = f"{g.url}/v1/audio/transcriptions"
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(g.http.post(url, headers=headers, data=slow())) for _ in range(4)]
            await until(lambda: len(left_over(tmp_path)) == 4)
            with pytest.raises(openai.RateLimitError, match="Too many recordings of yours"):
                await client.audio.transcriptions.create(model="exuvia", file=FILE)
            gate.set()
        for each in waiting:
            each.result().release()
        await until(lambda: left_over(tmp_path) == [])


async def test_a_client_that_leaves_cancels_the_request(tmp_path: Path) -> None:
    async with transcribing(tmp_path) as (g, _, _):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "multipart/form-data; boundary=x"}
        beginning = asyncio.Event()

        async def cut() -> AsyncIterator[bytes]:
            yield BODY + FILE_PART[:-4]
            beginning.set()
            await asyncio.Event().wait()

        async def send() -> None:
            async with aiohttp.ClientSession() as session:
                await session.post(f"{g.url}/v1/audio/transcriptions", headers=headers, data=cut())

        sending = asyncio.create_task(send())
        await beginning.wait()
        await until(lambda: len(left_over(tmp_path)) == 1)
        sending.cancel()
        await asyncio.wait([sending])
        await until(lambda: left_over(tmp_path) == [])
