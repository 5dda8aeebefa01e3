"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`: recordings as text, in OpenAI's format ("Audio").

A recording is written to the disk while it arrives, and sent to the provider from there: in memory is one piece at a time.
It is removed when the request ends.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import msgspec
from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.auth.access import Access
from gateway.auth.people import Admission
from gateway.http.concurrency import InFlight, Quota
from gateway.http.event_stream import EventStream, while_connected
from gateway.http.openai.api_errors import ApiError, bad_request
from gateway.http.openai.exchanges import write_stream
from gateway.http.openai.model_names import DEFAULT
from gateway.http.openai.response_writer import CompletionHeader, EventStreamWriter, event
from gateway.http.request_bodies import PIECE_BYTES, PIECE_SECONDS, BodyRefused, BodyShare, is_encoded
from gateway.http.responses import HEADERS, answer
from gateway.models.transcription import Transcriber
from gateway.support.errors import ModelUnknown
from gateway.support.printable import sanitized_name
from plugins.api.chat import CallDraft
from plugins.api.transcription import Transcript, TranscriptFormat, TranscriptionRequest
from sessions.events.events import StopReason
from sessions.events.messages import Usage
from sessions.store.protocols import BlobDraft, Blobs

AUDIO_BYTES = 25 * 1024 * 1024
"""The maximum size of a recording in bytes, as at OpenAI."""

FIELD_BYTES, FIELDS = 64 * 1024, 32
"""The limits of a form: bytes of a field, and fields."""

RECEIVE_SECONDS = 300.0
"""Seconds for a whole form."""

OF_ONE_PERSON, AT_ONCE = 4, 16
"""The limits of concurrent requests, for one person and in total; each may occupy AUDIO_BYTES of the disk."""

_FORMATS = get_args(TranscriptFormat)
_MEDIA = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}", re.ASCII)

_TRANSLATED = frozenset({"model", "prompt", "response_format", "temperature"})
_KNOWN = _TRANSLATED | {"language", "stream", "timestamp_granularities", "chunking_strategy", "include"}
"""The fields of both requests, without `file`. `timestamp_granularities` and `include` are lists."""


class _Form(msgspec.Struct, frozen=True, kw_only=True):
    """A received form: the text fields, a list of values for each, and the name and media type of the recording."""

    fields: Mapping[str, Sequence[str]]
    name: str
    media: str


class Transcriptions:
    """The endpoints for recordings.

    Args:
        transcriber: Transcribes them.
        attachments: The store in whose folder they are written.
        in_flight: Counts the requests that a stop waits for.
        access: Checks whether a token is still valid.
    """

    def __init__(self, transcriber: Transcriber, attachments: Blobs, in_flight: InFlight, access: Access) -> None:
        self._transcriber = transcriber
        self._attachments = attachments
        self._in_flight = in_flight
        self._access = access
        self._running = Quota(OF_ONE_PERSON, AT_ONCE)

    async def transcribe(self, request: web.Request, admission: Admission, _: BodyShare) -> web.StreamResponse:
        """Answer `POST /v1/audio/transcriptions`."""
        return await self._answer(request, admission, translate=False)

    async def translate(self, request: web.Request, admission: Admission, _: BodyShare) -> web.StreamResponse:
        """Answer `POST /v1/audio/translations`."""
        return await self._answer(request, admission, translate=True)

    async def _answer(self, request: web.Request, admission: Admission, *, translate: bool) -> web.StreamResponse:
        model = self._transcriber.check()
        if is_encoded(request):
            raise BodyRefused(415, "bad_request", "Content-Encoding is not supported; send the request unencoded.")
        if (request.content_length or 0) > AUDIO_BYTES + FIELDS * FIELD_BYTES:
            raise _too_large()
        person = admission.person.id
        if exceeded := self._running.exceeded(person):
            whose = " of yours" if exceeded == "one" else ""
            sentence = f"Too many recordings{whose} are being transcribed; try again shortly."
            raise ApiError(sentence, status=429, kind="rate_limit_error", code="busy", retry_after=1)
        with self._running.unit(person), self._in_flight.one():
            draft = await asyncio.to_thread(self._attachments.draft)
            try:
                form = await _receive(request, draft)
                asked = _request(form, draft, model, translate=translate)
                admitted = partial(self._access.still_admits, admission)
                if not admitted():
                    raise ApiError("The token of this request is no longer valid.", status=401, code="invalid_api_key")
                return await self._respond(request, asked, admitted, person)
            finally:
                await asyncio.to_thread(draft.close)

    async def _respond(
        self, request: web.Request, asked: TranscriptionRequest, admitted: Callable[[], bool], person: str
    ) -> web.StreamResponse:
        if asked.stream:
            head = CompletionHeader.new(0, DEFAULT)
            events = _Events()
            writer = EventStreamWriter(EventStream(request), head, events, admitted=admitted)

            async def write(_: object) -> None:
                events.transcript = await self._transcriber.transcribe(asked, writer.text, person)
                await writer.end((), "end", None)

            return await write_stream(request, writer, write)

        async def discard(_: str) -> None:
            pass

        transcript = await while_connected(request, self._transcriber.transcribe(asked, discard, person))
        if asked.format in ("json", "verbose_json"):
            return answer(200, _object(transcript))
        return web.Response(text=transcript.text, content_type="text/plain", charset="utf-8", headers=HEADERS)


class _Events:
    """The events of a streamed transcript, which is set before the last one."""

    def __init__(self) -> None:
        self.transcript = Transcript(text="")

    def text(self, text: str) -> bytes:
        """Return the event for a piece of the text."""
        return event({"type": "transcript.text.delta", "delta": text})

    def reasoning(self, _: str) -> bytes:
        """Return nothing: a transcript has no reasoning."""
        return b""

    def end(self, _calls: Sequence[CallDraft], _stop: StopReason, _usage: Usage | None) -> bytes:
        """Return the last event, which has the whole text."""
        return event({"type": "transcript.text.done", **_object(self.transcript)})

    def fail(self, refused: ApiError) -> bytes:
        """Return the event of an error, which OpenAI's clients raise."""
        return event(refused.body)


def _object(transcript: Transcript) -> dict[str, Any]:
    """Return a transcript as OpenAI's object."""
    found: dict[str, Any] = {"text": transcript.text, **transcript.details}
    if (usage := transcript.usage) is not None:
        total = usage.input + usage.output
        counts = {"input_tokens": usage.input, "output_tokens": usage.output, "total_tokens": total}
        found["usage"] = {"type": "tokens", **counts}
    elif transcript.seconds is not None:
        found["usage"] = {"type": "duration", "seconds": transcript.seconds}
    return found


# --- the form ---------------------------------------------------------------------------------------------------------


async def _receive(request: web.Request, draft: BlobDraft) -> _Form:
    """Read a form, and write its file to `draft`.

    Raises:
        BodyRefused: It is too large, too slow or interrupted.
        ApiError: It is not a valid form with one file.
        StorageFailed: The disk failed.
    """
    if request.content_type != "multipart/form-data":
        raise bad_request("Send a form (multipart/form-data) with the recording as `file`.", "file")
    try:
        async with asyncio.timeout(RECEIVE_SECONDS):
            return await _read_form(request, draft)
    except TimeoutError:
        raise BodyRefused(408, "bad_request", "The body of the request stalled or took too long.") from None
    except (web.RequestPayloadError, ConnectionError):
        raise BodyRefused(400, "bad_request", "The body of the request was interrupted.") from None
    except (ValueError, AssertionError, LookupError, RuntimeError, HttpProcessingError):  # aiohttp's for malformed forms
        raise bad_request("The form is not valid multipart/form-data.", "file") from None


async def _read_form(request: web.Request, draft: BlobDraft) -> _Form:
    fields: dict[str, list[str]] = {}
    file: tuple[str, str] | None = None
    reader = await request.multipart()
    while (part := await _within_pause(reader.next())) is not None:
        if not isinstance(part, BodyPartReader) or part.name is None:
            raise bad_request("Each part of the form needs a name.", "file")
        if part.name != "file":
            if sum(map(len, fields.values())) >= FIELDS:
                raise bad_request(f"A form is limited to {FIELDS} fields.")
            fields.setdefault(part.name.removesuffix("[]"), []).append(await _text_of(part))
            continue
        if file is not None or part.filename is None:
            raise bad_request("Send one file, with its name.", "file")
        media = part.headers.get("Content-Type", "").partition(";")[0].strip()
        file = sanitized_name(part.filename) or "audio", media if _MEDIA.fullmatch(media) else "application/octet-stream"
        await _write(part, draft)
    if file is None or not draft.size:
        raise bad_request("The form has no recording; send it as `file`.", "file")
    return _Form(fields=fields, name=file[0], media=file[1])


async def _write(part: BodyPartReader, draft: BlobDraft) -> None:
    while piece := await _within_pause(part.read_chunk(PIECE_BYTES)):
        if draft.size + len(piece) > AUDIO_BYTES:
            raise _too_large()
        await asyncio.to_thread(draft.write, piece)


async def _text_of(part: BodyPartReader) -> str:
    value = bytearray()
    while piece := await _within_pause(part.read_chunk(FIELD_BYTES)):
        value += piece
        if len(value) > FIELD_BYTES:
            raise bad_request(f"{part.name}: a field is limited to {FIELD_BYTES:,} bytes.", part.name)
    return value.decode()


async def _within_pause(reading: Any) -> Any:
    async with asyncio.timeout(PIECE_SECONDS):
        return await reading


def _too_large() -> BodyRefused:
    return BodyRefused(413, "too_large", f"The limit for a recording is {AUDIO_BYTES // 2**20} MiB.")


def _request(form: _Form, draft: BlobDraft, model: str, *, translate: bool) -> TranscriptionRequest:
    """Return the request of a form. Raises ApiError, ModelUnknown."""
    known = _TRANSLATED if translate else _KNOWN
    for name in form.fields:
        if name not in known:
            raise bad_request(f"Unknown parameter: {name[:100]!r}.", name[:100], "unknown_parameter")
    given = {name: values[-1] for name, values in form.fields.items() if values[-1] or name == "model"}
    _check_model(given.pop("model", ""), model)
    form_name = given.pop("response_format", "json")
    if form_name not in _FORMATS:
        raise bad_request(f"response_format: {form_name[:50]!r} is not one of {', '.join(_FORMATS)}.", "response_format")
    stream = given.pop("stream", "false").lower()
    if stream not in ("true", "false"):
        raise bad_request("stream is `true` or `false`.", "stream")
    parameters: dict[str, Any] = dict(given)
    if "temperature" in given:
        parameters["temperature"] = _temperature(given["temperature"])
    for name in ("timestamp_granularities", "include"):
        if name in given:
            parameters[name] = list(form.fields[name])
    if not {"word", "segment"}.issuperset(parameters.get("timestamp_granularities", ())):
        raise bad_request("timestamp_granularities are `word` and `segment`.", "timestamp_granularities")
    return TranscriptionRequest(
        model=model,
        path=draft.path,
        name=form.name,
        media=form.media,
        translate=translate,
        format=form_name,  # type: ignore[arg-type]  # checked above
        stream=stream == "true",
        parameters=parameters,
    )


def _temperature(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise bad_request("temperature is a number from 0 to 1.", "temperature")
    return value


def _check_model(wanted: str, model: str) -> None:
    if not wanted:
        raise bad_request("The form has no model.", "model")
    if wanted not in (DEFAULT, model, model.partition(":")[2]):
        raise ModelUnknown(
            f"{wanted[:200]!r} does not transcribe here; use {model} or {DEFAULT} (transcription.model selects the model)."
        )
