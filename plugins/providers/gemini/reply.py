"""A reply of Google's Gemini API: the chunks of its stream, and its signatures in later requests.

Source: the API's reference (`GenerateContentResponse`, `FinishReason`, `UsageMetadata`). A stream has no terminator: a reply
is complete once a chunk has a finish reason. Calls are never split over chunks.

Signatures must be sent back on the same parts, neither merged nor moved. Text and calls are in the message already, so a
reply's `opaque` contains only sizes and order: `gemini:[{"size":12},{"signature":"…","id":"…"}]` is twelve characters of
text, then a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from plugins.api.chat import CallDraft, Delta, Reasoning, Reply
from plugins.providers.gemini.errors import stream_error
from plugins.support.errors import BadRequest, StreamCut
from plugins.support.http_errors import error_message
from plugins.support.lenient_json import count, decoded
from sessions.events.events import StopReason
from sessions.events.messages import AssistantMessage, Usage

# --- the stream -------------------------------------------------------------------------------------------------------


class _Call(msgspec.Struct):
    name: str = ""
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"")


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool = False
    function_call: _Call | None = None
    thought_signature: str | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int = 0


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: Any = None
    model_version: str | None = None
    error: Any = None


_Chunks: TypeAlias = list[_Chunk] | _Chunk

_chunks: msgspec.json.Decoder[_Chunks] = msgspec.json.Decoder(_Chunks, strict=False)

_STOPS: dict[str, StopReason] = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "refused",
    "RECITATION": "refused",
    "LANGUAGE": "refused",
    "BLOCKLIST": "refused",
    "PROHIBITED_CONTENT": "refused",
    "SPII": "refused",
    "IMAGE_SAFETY": "refused",
    "IMAGE_PROHIBITED_CONTENT": "refused",
    "IMAGE_RECITATION": "refused",
    "ESCALATION": "refused",
    "MODEL_ARMOR": "refused",
    "PUP_LIMITED_DISABLED": "refused",
}

_BROKEN = frozenset(
    {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS", "UNEXPECTED_TOOL_CALL", "OTHER"}
)
"""Finish reasons of a failed generation, which may succeed in another attempt."""


class StreamAccumulator:
    """One reply, built from the chunks of its stream."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._text: list[str] = []
        self._calls: list[CallDraft] = []
        self._signed: list[SignedPart] = []
        self._finish: str | None = None
        self._finish_message = ""
        self._usage: Any = None
        self.done = False
        """Always False: a stream has no terminator."""
        self.progress = 0
        """The number of parts with text, thinking or calls."""

    @property
    def complete(self) -> bool:
        """True once the reply has a finish reason."""
        return self._finish is not None

    def take(self, data: bytes) -> Iterator[Delta | Reasoning]:
        """Add an event's data and yield its new text and thoughts. Raises BadAnswer, BadRequest, or the error in it."""
        chunks = decoded(_chunks.decode, data)  # a list if a proxy does not stream
        for chunk in chunks if isinstance(chunks, list) else (chunks,):
            if chunk.error:
                raise stream_error(chunk.error, self._model)
            if (feedback := chunk.prompt_feedback) and feedback.block_reason:
                words = error_message(f"{feedback.block_reason} {feedback.block_reason_message or ''}".encode())
                raise BadRequest(f"The provider refused the conversation: {words}")
            self._model = chunk.model_version or self._model
            self._usage = chunk.usage_metadata or self._usage
            for candidate in chunk.candidates or ():
                if candidate.index == 0:
                    yield from self._take_candidate(candidate)

    def _take_candidate(self, candidate: _Candidate) -> Iterator[Delta | Reasoning]:
        self.progress += bool(candidate.finish_reason)
        for part in (candidate.content.parts if candidate.content else None) or ():
            self.progress += bool(part.text or part.function_call or part.thought_signature)
            if part.function_call is not None:
                self._take_call(part.function_call, part.thought_signature or "")
            elif part.thought:
                if part.text:
                    yield Reasoning(part.text)
            else:
                yield from self._take_text(part.text or "", part.thought_signature or "")
        self._finish = candidate.finish_reason or self._finish
        self._finish_message = candidate.finish_message or self._finish_message

    def _take_text(self, text: str, signature: str) -> Iterator[Delta]:
        """Add text. Unsigned text continues unsigned text; a signature may be on a part without text."""
        last = self._signed[-1] if self._signed else None
        if not signature and last and last.size is not None and not last.signature:
            self._signed[-1] = SignedPart(size=last.size + len(text))
        elif text or signature:
            self._signed.append(SignedPart(size=len(text), signature=signature))
        if text:
            self._text.append(text)
            yield Delta(text)

    def _take_call(self, call: _Call, signature: str) -> None:
        if call.name:
            arguments = bytes(call.args).decode()
            arguments = "{}" if arguments in ("", "null") else arguments
            self._calls.append(CallDraft(id=call.id or "", tool=call.name, arguments=arguments))
            self._signed.append(SignedPart(id=call.id or "", signature=signature))

    def reply(self) -> Reply:
        """Return the whole reply. Raises StreamCut without an end, BadRequest for a request without a required signature."""
        if self._finish is None:
            raise StreamCut("The reply was interrupted before its end.")
        words = error_message(f"{self._finish} {self._finish_message}".encode())
        if self._finish in _BROKEN:
            raise StreamCut(f"The provider interrupted the reply: {words}")
        if self._finish == "MISSING_THOUGHT_SIGNATURE":
            raise BadRequest(f"The provider refused the request: {words}")
        stop = _STOPS.get(self._finish, "end")
        calls, signed = self._calls, self._signed
        if stop == "refused":  # calls of a refused reply are not run
            calls, signed = [], [part for part in signed if part.size is not None]
        return Reply(
            text="".join(self._text),
            model=self._model,
            stop="calls" if calls else stop,
            calls=tuple(calls),
            usage=_usage(self._usage),
            opaque=encode_signatures(signed),
        )


def _usage(usage: Any) -> Usage | None:
    """Return the usage. Thinking counts as output; tokens from the cache are part of the prompt."""
    if (read := count(usage, "promptTokenCount")) is None:
        return None
    return Usage(
        input=read + (count(usage, "toolUsePromptTokenCount") or 0),
        output=(count(usage, "candidatesTokenCount") or 0) + (count(usage, "thoughtsTokenCount") or 0),
        cached=count(usage, "cachedContentTokenCount") or 0,
    )


# --- signatures -------------------------------------------------------------------------------------------------------

PREFIX = "gemini:"
"""The prefix of our `opaque`, which other providers' values do not have."""


class SignedPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a reply: `size` characters of text, or the next call, with the vendor's `id` if there is one."""

    size: int | None = None
    id: str = ""
    signature: str = ""


_decode = msgspec.json.Decoder(tuple[SignedPart, ...]).decode


def encode_signatures(signed: Sequence[SignedPart]) -> str | None:
    """Return the parts as `opaque`; None if none has a signature or an id."""
    if not any(part.signature or part.id for part in signed):
        return None
    return PREFIX + msgspec.json.encode(signed).decode()


def decode_signatures(message: AssistantMessage) -> tuple[SignedPart, ...]:
    """Return the parts of a message; empty if it is not Gemini's, or was changed."""
    if not (message.opaque or "").startswith(PREFIX):
        return ()
    try:
        signed = _decode((message.opaque or "").removeprefix(PREFIX))
    except msgspec.MsgspecError:
        return ()
    sizes = [part.size for part in signed if part.size is not None]
    whole = sum(sizes) == len(message.text) and len(signed) - len(sizes) == len(message.calls)
    return signed if whole and min(sizes, default=0) >= 0 else ()
