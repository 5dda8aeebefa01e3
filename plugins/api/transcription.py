"""Transcription: the optional protocol of chat providers whose services turn speech into text, and its values."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from plugins.api.chat import Delta
from sessions.events.messages import Usage

TranscriptFormat: TypeAlias = Literal["json", "text", "srt", "verbose_json", "vtt"]
"""The formats of a transcript, as in OpenAI's API: `json` and `verbose_json` have the plain text and details, `srt` and
`vtt` are subtitles."""


class TranscriptionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to transcribe a recording.

    Attributes:
        model: The name of the model at the provider.
        path: The file with the recording, which exists until the transcription ends. Read it in a thread.
        name: The name of the recording, without a folder. Services recognize the audio format by its ending.
        media: The media type, such as `audio/webm`.
        translate: Translate the text to English.
        format: The format of the transcript. A provider that does not support it raises `BadRequest`.
        stream: Somebody reads the text while it comes. A provider may yield it at once nevertheless.
        parameters: Further options under OpenAI's names: `language` (ISO 639-1), `prompt`, `temperature`,
            `timestamp_granularities` (a list of `word` and `segment`), `chunking_strategy`. A provider sends those that its
            service supports.
    """

    model: str
    path: Path
    name: str
    media: str
    translate: bool = False
    format: TranscriptFormat = "json"
    stream: bool = False
    parameters: dict[str, Any] = {}


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """A complete transcript.

    Attributes:
        text: The text; for `srt` and `vtt` the subtitles.
        details: What the service reports besides, under OpenAI's names: `language`, `duration`, `segments`, `words`.
            JSON values; empty for `text`, `srt` and `vtt`.
        usage: The tokens; None if the service does not report them.
        seconds: The length of the recording that the service bills, in seconds; None if it does not report it.
    """

    text: str
    details: dict[str, Any] = {}
    usage: Usage | None = None
    seconds: float | None = None


@runtime_checkable
class TranscribesAudio(Protocol):
    """Optional: a chat provider whose service transcribes recordings (`[transcription]`)."""

    def transcription_address(self, model: str) -> str:
        """Return the address that recordings are sent to, without secrets; "" if they stay on this machine.

        The console shows it before people dictate.
        """
        ...

    def transcribe(self, request: TranscriptionRequest) -> AsyncIterator[Delta | Transcript]:
        """Transcribe a recording. Closing the iterator (`aclose`) cancels the request.

        Yields:
            Any number of deltas if the service streams, then exactly one `Transcript` with the whole text.

        Raises:
            ProviderError: The recording could not be transcribed.
        """
        ...
