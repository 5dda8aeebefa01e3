"""The stream of Google's Gemini API as a reply.

After the API's reference (`GenerateContentResponse`, `FinishReason`, `UsageMetadata`). A stream has no terminator of its
own: an answer is whole when a chunk has said why it finished. Calls are never split over chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from plugins.api.chat import CallDraft, Delta, Reply
from plugins.providers.gemini.errors import in_stream
from plugins.providers.gemini.signatures import Signature, write_seals
from plugins.support.errors import BadAnswer, BadRequest, StreamCut
from plugins.support.http_errors import error_message
from plugins.support.lenient_json import count, decoded
from sessions.events.events import StopReason
from sessions.events.messages import Usage


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
"""Finish reasons by which the model says that it went astray; the next attempt may not."""


class StreamAccumulator:
    """One answer as its chunks come. `take` gives the text that is new; `reply` the whole once `complete`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._text: list[str] = []
        self._calls: list[CallDraft] = []
        self._seals: list[Signature] = []
        self._finish: str | None = None
        self._why = ""
        self._usage: Any = None
        self.said = 0
        """The parts with text, thoughts or calls that have come."""

    @property
    def complete(self) -> bool:
        """Whether the answer has its end, by its own word."""
        return self._finish is not None

    def take(self, data: bytes) -> Iterator[Delta]:
        """The new text of one event's data. Raises BadAnswer, BadRequest, or what an error inside the stream means."""
        chunks = _parse(data)
        for chunk in chunks if isinstance(chunks, list) else (chunks,):
            if chunk.error:
                raise in_stream(chunk.error, self._model)
            if (feedback := chunk.prompt_feedback) and feedback.block_reason:
                words = error_message(f"{feedback.block_reason} {feedback.block_reason_message or ''}".encode())
                raise BadRequest(f"The provider refused the conversation: {words}")
            self._model = chunk.model_version or self._model
            self._usage = chunk.usage_metadata or self._usage
            for candidate in chunk.candidates or ():
                if candidate.index == 0:
                    yield from self._take_candidate(candidate)

    def _take_candidate(self, candidate: _Candidate) -> Iterator[Delta]:
        self.said += bool(candidate.finish_reason)
        for part in (candidate.content.parts if candidate.content else None) or ():
            self.said += bool(part.text or part.function_call or part.thought_signature)
            if part.function_call is not None:
                self._take_call(part.function_call, part.thought_signature or "")
            elif not part.thought:
                yield from self._take_text(part.text or "", part.thought_signature or "")
        self._finish = candidate.finish_reason or self._finish
        self._why = candidate.finish_message or self._why

    def _take_text(self, text: str, signature: str) -> Iterator[Delta]:
        """Text without a signature continues such text; a signature may come on a part of its own without any."""
        last = self._seals[-1] if self._seals else None
        if not signature and last and last.size is not None and not last.signature:
            self._seals[-1] = Signature(size=last.size + len(text))
        elif text or signature:
            self._seals.append(Signature(size=len(text), signature=signature))
        if text:
            self._text.append(text)
            yield Delta(text)

    def _take_call(self, call: _Call, signature: str) -> None:
        if call.name:
            arguments = bytes(call.args).decode()
            arguments = "{}" if arguments in ("", "null") else arguments
            self._calls.append(CallDraft(id=call.id or "", tool=call.name, arguments=arguments))
            self._seals.append(Signature(id=call.id or "", signature=signature))

    def reply(self) -> Reply:
        """The whole answer; StreamCut if it has no end, BadRequest if the request was not what the model demands."""
        if self._finish is None:
            raise StreamCut("The answer broke off before its end.")
        words = error_message(f"{self._finish} {self._why}".encode())
        if self._finish in _BROKEN:
            raise StreamCut(f"The provider broke off: {words}")
        if self._finish == "MISSING_THOUGHT_SIGNATURE":
            raise BadRequest(f"The provider refused the request: {words}")
        stop = _STOPS.get(self._finish, "end")
        calls, seals = self._calls, self._seals
        if stop == "refused":  # a call of an answer that was withheld is not run
            calls, seals = [], [seal for seal in seals if seal.size is not None]
        return Reply(
            text="".join(self._text),
            model=self._model,
            stop="calls" if calls else stop,
            calls=tuple(calls),
            usage=_usage(self._usage),
            opaque=write_seals(seals),
        )


def _parse(data: bytes) -> _Chunks:
    """One chunk, or all of them where a proxy does not stream. Lone surrogates are replaced."""
    try:
        return decoded(_chunks.decode, data)
    except ValueError as error:
        raise BadAnswer(f"The provider sent what is no chunk of an answer: {error_message(data[:200])}") from error


def _usage(usage: Any) -> Usage | None:
    """Thinking is output that was paid for; what was read from the cache is a part of the prompt."""
    if (read := count(usage, "promptTokenCount")) is None:
        return None
    return Usage(
        input=read + (count(usage, "toolUsePromptTokenCount") or 0),
        output=(count(usage, "candidatesTokenCount") or 0) + (count(usage, "thoughtsTokenCount") or 0),
        cached=count(usage, "cachedContentTokenCount") or 0,
    )
