"""Requests and responses of OpenAI's transcriptions (`POST /audio/transcriptions`) and translations.

Sources: OpenAI's API reference ("Audio") and the behaviour of compatible servers: Groq, Mistral (events with names of its
own), speaches, and whisper.cpp's server. Imported with the first transcription.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plugins.api.chat import Delta
from plugins.api.transcription import Transcript, TranscriptionRequest
from plugins.http.multipart import FileForm
from plugins.providers.hosted.openai_errors import stream_error
from plugins.providers.openai.chat_completions import DONE
from plugins.support.errors import BadAnswer, BadRequest
from plugins.support.lenient_json import count, decoded
from sessions.events.messages import Usage

_PLAIN = frozenset({"text", "srt", "vtt"})
"""The formats that are not JSON."""

_DELTAS = frozenset({"transcript.text.delta", "transcription.text.delta"})
_ENDS = frozenset({"transcript.text.done", "transcription.done"})
_ENVELOPE = frozenset({"text", "type", "usage", "model", "object"})
"""Fields that are not details of the transcript."""

_object = msgspec.json.Decoder(dict[str, Any]).decode


def url_of(base: str, request: TranscriptionRequest) -> str:
    """Return the URL of a request."""
    return f"{base}/audio/{'translations' if request.translate else 'transcriptions'}"


def is_streamed(request: TranscriptionRequest) -> bool:
    """Return True if the text is requested as a stream: servers stream only JSON, and no translation."""
    return request.stream and not request.translate and request.format not in _PLAIN


def form_of(request: TranscriptionRequest) -> FileForm:
    """Return the body of a request. Blocks.

    Raises:
        BadRequest: The recording cannot be read.
    """
    fields = [("model", request.model), ("response_format", request.format)]
    if is_streamed(request):
        fields.append(("stream", "true"))
    for name, value in request.parameters.items():
        if isinstance(value, list | tuple):
            fields += [(f"{name}[]", str(each)) for each in value]
        elif value is not None:
            fields.append((name, str(value)))
    try:
        return FileForm(fields, request.path, name=request.name, media=request.media)
    except OSError as error:
        raise BadRequest(f"The recording cannot be read: {error.strerror}.") from error


def transcript_of(body: bytes, request: TranscriptionRequest) -> Transcript:
    """Return the transcript in a response. Raises BadAnswer."""
    if request.format in _PLAIN:
        return Transcript(text=body.decode("utf-8", "replace"))
    return _transcript(decoded(_object, body))


def part_of(data: bytes, request: TranscriptionRequest, *, whole: bool) -> Delta | Transcript | None:
    """Return what an event of a stream contributes; None for nothing. With `whole` it is a response of its own: models that
    cannot stream answer as if that was not requested.

    Raises:
        ProviderError: The event is an error, or invalid.
    """
    if whole:
        return transcript_of(data, request)
    event: dict[str, Any] = {} if data.strip() == DONE else decoded(_object, data)
    if event.get("error"):
        raise stream_error(event["error"], request.model)
    kind = event.get("type")
    if kind in _DELTAS:
        delta = event.get("delta", event.get("text"))
        return Delta(delta) if isinstance(delta, str) and delta else None
    return _transcript(event) if kind in _ENDS else None


def _transcript(value: dict[str, Any]) -> Transcript:
    if not isinstance(text := value.get("text"), str):
        raise BadAnswer("The server's answer has no transcript.")
    usage = value.get("usage")
    return Transcript(
        text=text,
        details={name: each for name, each in value.items() if name not in _ENVELOPE},
        usage=_tokens(usage),
        seconds=_seconds(usage),
    )


def _tokens(usage: Any) -> Usage | None:
    for read, written in (("input_tokens", "output_tokens"), ("prompt_tokens", "completion_tokens")):
        if (tokens := count(usage, read)) is not None:
            return Usage(input=tokens, output=count(usage, written) or 0, cached=0)
    return None


def _seconds(usage: Any) -> float | None:
    given = usage if isinstance(usage, dict) else {}
    seconds = given.get("seconds", given.get("prompt_audio_seconds"))
    return float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < 10**9 else None
