"""A reply of OpenAI's Responses API: the events of its stream, and its reasoning and compaction items in later requests.

Source: the API reference (streaming events, the response object). Items are added, grow by deltas and are done; the response
itself is completed, incomplete or failed, and nothing follows. Events and items of unknown kinds are ignored. Compatible
servers and proxies leave out deltas, indexes or intermediate items, or do not stream at all.

A reply's `opaque` contains the reasoning, encrypted by the service, the phase of each message (commentary or the final
answer), and the order of all items. Text and calls are in the message already, so only their sizes and order are kept.
Reasoning is sent back only to the model that produced it: others refuse it. The `opaque` of other providers is ignored. If
the service compacted the conversation, the compaction item is kept too, also encrypted; a separate prefix identifies such
messages without decoding them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from plugins.api.chat import CallDraft, Delta, Reasoning, Reply
from plugins.providers.hosted.openai_errors import UNREADABLE_REASONING, error_code, stream_error
from plugins.support.errors import ProviderError, StreamCut
from plugins.support.http_errors import StatusRefused, error_message
from plugins.support.lenient_json import count, decoded, is_json
from sessions.events.events import StopReason
from sessions.events.messages import AssistantMessage, Message, Usage

# --- the stream -------------------------------------------------------------------------------------------------------

SEPARATOR = "\n\n"
"""The separator of two messages of one reply."""


class _Item(msgspec.Struct):
    """An item of any kind, with the fields of all kinds."""

    type: str = ""
    id: str | None = None
    content: Any = None
    phase: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    summary: Any = None
    encrypted_content: str | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    model: str | None = None
    output: list[_Item] | None = None
    usage: Any = None
    incomplete_details: _Incomplete | None = None
    error: Any = None


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int | None = None
    summary_index: int | None = None
    item_id: str | None = None
    item: _Item | None = None
    delta: Any = None
    response: _Response | None = None
    error: Any = None
    code: Any = None
    message: Any = None
    param: Any = None


_event = msgspec.json.Decoder(_Event, strict=False).decode
_response = msgspec.json.Decoder(_Response, strict=False).decode
_encode = msgspec.json.Encoder().encode


class _Draft:
    """An item that grows with each piece of text or of a call's arguments."""

    def __init__(self) -> None:
        self.item = _Item()
        self.pieces: list[str] = []
        self.gap = 0

    def call(self) -> CallDraft | None:
        """Return the call, if the item is one, with the arguments of the finished item, or else the pieces so far."""
        item = self.item
        if item.type != "function_call" or not item.name:
            return None
        whole = item.arguments if isinstance(item.arguments, str) else _encode(item.arguments).decode()
        arguments = "".join(self.pieces) if whole in ("", "null") else whole
        return CallDraft(id=item.call_id or item.id or "", tool=item.name, arguments=arguments)

    def step(self) -> Step | None:
        """Return the reasoning, the compaction or the message that the item is; None for other items."""
        item = self.item
        if item.type == "compaction" and item.encrypted_content:
            return Step(compaction={"type": item.type, "id": item.id or "", "encrypted_content": item.encrypted_content})
        if item.type == "reasoning" and item.encrypted_content:
            # Other fields are only for responses: `status` and plain `content` are refused in a request.
            thought = {
                "type": "reasoning",
                "id": item.id or "",
                "summary": item.summary if isinstance(item.summary, list) else [],
            }
            return Step(thought={**thought, "encrypted_content": item.encrypted_content})
        if item.type not in ("message", ""):
            return None
        return Step(size=sum(map(len, self.pieces)), gap=self.gap, phase=item.phase or "")


class ResponsesAccumulator:
    """One reply, built from the events of its stream."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._drafts: dict[int | str, _Draft] = {}
        self._text: list[str] = []
        self._summary: tuple[object, object] | None = None
        """The item and the part of the last piece of reasoning."""
        self._refused = False
        self._end: _Response | None = None
        self.progress = 0
        """The number of events with text, reasoning or part of a call."""

    @property
    def done(self) -> bool:
        """True once the reply has its end: nothing follows."""
        return self._end is not None

    complete = done

    def take(self, data: bytes) -> Iterator[Delta | Reasoning]:
        """Add an event's data and yield its new text and reasoning. Raises BadAnswer, or the error that it contains:
        StatusRefused if the service refuses the reasoning in the request, as it may also do with a status."""
        event = decoded(_event, data)
        self.progress += bool(event.delta) or event.type in ("response.output_item.done", "response.completed")
        match event.type:
            case "error":
                raise self._stream_error(event.error or {"code": event.code, "message": event.message, "param": event.param})
            case "response.output_item.added" | "response.output_item.done" if event.item:
                yield from self._take_item(self._draft(event), event.item)
            case "response.output_text.delta" | "response.refusal.delta" if isinstance(event.delta, str):
                self._refused = self._refused or event.type == "response.refusal.delta"
                yield from self._add_text(self._draft(event), event.delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" if isinstance(event.delta, str):
                yield from self._add_reasoning(event, event.delta)
            case "response.function_call_arguments.delta" if isinstance(event.delta, str):
                self._draft(event).pieces.append(event.delta)
            case "response.completed" | "response.incomplete" | "response.failed":
                yield from self._finish(event.response or _Response(), event.type.removeprefix("response."))
            case "" if event.error:
                raise self._stream_error(event.error)
            case "":
                whole = decoded(_response, data)
                if whole.status:
                    yield from self._finish(whole, whole.status)

    def _draft(self, event: _Event) -> _Draft:
        """Return the item of an event. Some proxies give an item a new id in each event, others no index."""
        item_id = event.item_id or (event.item.id if event.item else None) or ""
        return self._drafts.setdefault(item_id if event.output_index is None else event.output_index, _Draft())

    def _add_reasoning(self, event: _Event, text: str) -> Iterator[Reasoning]:
        """Yield a piece of a summary, or of the reasoning of an open model, with an empty line between two parts."""
        part = (event.output_index, event.summary_index)
        between = SEPARATOR if self._summary not in (None, part) else ""
        self._summary = part
        if text:
            yield Reasoning(between + text)

    def _take_item(self, draft: _Draft, item: _Item) -> Iterator[Delta | Reasoning]:
        if item.type == "reasoning" and self._summary is None and (text := _summary_of(item)):  # of a server without deltas
            self._summary = (None, None)
            yield Reasoning(text)
        draft.item = item
        if item.type == "message":
            texts, refusals = _joined(item.content, "text"), _joined(item.content, "refusal")
            self._refused = self._refused or bool(refusals)
            text, streamed = texts or refusals, "".join(draft.pieces)
            if text.startswith(streamed):
                yield from self._add_text(draft, text[len(streamed) :])

    def _add_text(self, draft: _Draft, text: str) -> Iterator[Delta]:
        if not text:
            return
        if not draft.pieces and self._text:
            draft.gap = len(SEPARATOR)
            self._text.append(SEPARATOR)
            yield Delta(SEPARATOR)
        draft.pieces.append(text)
        self._text.append(text)
        yield Delta(text)

    def _finish(self, response: _Response, status: str) -> Iterator[Delta | Reasoning]:
        if status == "failed":
            raise self._stream_error(response.error or {"message": "it gave no reason"})
        if status not in ("completed", "incomplete"):
            raise StreamCut(f"The provider interrupted the reply: {error_message(status.encode())}.")
        if not self._drafts:
            self._drafts = {index: _Draft() for index in range(len(response.output or ()))}
        for index, item in enumerate(response.output or ()):
            draft = self._drafts.get(index) or self._drafts.get(item.id or "")
            if draft and not draft.item.type:
                yield from self._take_item(draft, item)
        response.status = status
        self._end = response

    def _stream_error(self, error: Any) -> ProviderError:
        """Return the error for an error inside the stream."""
        body = _encode({"error": error})
        return StatusRefused(400, body) if error_code(body) == UNREADABLE_REASONING else stream_error(error, self._model)

    def reply(self) -> Reply:
        """Return the whole reply. Raises StreamCut without an end."""
        end = self._end
        if end is None:
            raise StreamCut("The reply was interrupted before its end.")
        reason = (end.incomplete_details.reason if end.incomplete_details else None) or "max_output_tokens"
        incomplete = reason if end.status == "incomplete" else ""
        calls, steps = self._calls_and_steps(incomplete)
        stop: StopReason = "calls" if calls else "length" if incomplete else "end"
        if not calls and (self._refused or incomplete == "content_filter"):
            stop = "refused"
        return Reply(
            text="".join(self._text),
            model=end.model or self._model,
            stop=stop,
            calls=tuple(calls),
            usage=_usage(end.usage),
            opaque=encode_steps(self._model, steps),
        )

    def _calls_and_steps(self, incomplete: str) -> tuple[list[CallDraft], list[Step]]:
        """Return the calls that may be run, and the order of all items. A refused reply has no calls, and a last call that
        the token limit has cut is dropped."""
        calls: list[CallDraft] = []
        steps: list[Step] = []
        drafts = list(self._drafts.values())
        for draft in drafts:
            if call := draft.call():
                cut = bool(incomplete) and draft is drafts[-1] and not is_json(call.arguments)
                if incomplete != "content_filter" and not cut:
                    calls.append(call)
                    steps.append(Step())
            elif step := draft.step():
                steps.append(step)
        return calls, steps


def _joined(content: Any, field: str) -> str:
    """Return the text of a message's parts in this field."""
    parts = content if isinstance(content, list) else []
    texts = [part.get(field) for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _summary_of(item: _Item) -> str:
    """Return the summary of reasoning, or the reasoning itself of an open model."""
    parts = item.summary or item.content
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return SEPARATOR.join(text for text in texts if text and isinstance(text, str))


def _usage(usage: Any) -> Usage | None:
    """Return the usage. Tokens from the cache are part of the input, reasoning is part of the output."""
    if (read := count(usage, "input_tokens")) is None:
        return None
    cached = count(usage, "input_tokens_details", "cached_tokens") or 0
    return Usage(input=read, output=count(usage, "output_tokens") or 0, cached=cached)


# --- reasoning and compaction -----------------------------------------------------------------------------------------

PREFIX = "openai.responses:"
"""The prefix of our `opaque`; a `_Content` follows as JSON."""

COMPACTED = "openai.responses.compacted:"
"""The prefix if one of the steps is a compaction."""

MAX_LENGTH = 1024 * 1024
"""Maximum characters of reasoning that are kept: they share a line of the journal with the text."""


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a reply: reasoning or a compaction, in the form to send back; or `size` characters of text, after `gap`
    characters that the gateway added; or, without any of them, the next call."""

    thought: dict[str, Any] | None = None
    compaction: dict[str, Any] | None = None
    size: int | None = None
    gap: int = 0
    phase: str = ""

    @property
    def is_call(self) -> bool:
        """True for the next call."""
        return self.thought is None and self.compaction is None and self.size is None


class _Content(msgspec.Struct, frozen=True):
    model: str
    steps: tuple[Step, ...]


_decode_content = msgspec.json.Decoder(_Content).decode


def encode_steps(model: str, steps: Sequence[Step]) -> str | None:
    """Return the steps of a model's reply as `opaque`; None if text and calls are enough."""
    ends = max((index for index, step in enumerate(steps, 1) if step.thought is None), default=0)
    kept = tuple(steps[:ends])  # reasoning at the end would be refused in every request
    if not any(step.thought or step.compaction or step.phase for step in kept):
        return None
    prefix = COMPACTED if any(step.compaction for step in kept) else PREFIX
    text = prefix + _encode(_Content(model, kept)).decode()
    return text if len(text) <= MAX_LENGTH else None


def decode_steps(message: AssistantMessage, model: str) -> tuple[Step, ...]:
    """Return the steps of a message; empty if they are another model's, or do not match the text and the calls."""
    if message.opaque is None or not message.opaque.startswith((PREFIX, COMPACTED)):
        return ()
    try:
        kept = _decode_content(message.opaque.partition(":")[2])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return ()
    sizes = [size for step in kept.steps if step.size is not None for size in (step.gap, step.size)]
    calls = sum(step.is_call for step in kept.steps)
    fits = sum(sizes) == len(message.text) and calls == len(message.calls) and min(sizes, default=0) >= 0
    return kept.steps if fits and kept.model == model else ()


def has_compaction(message: Message, model: str) -> bool:
    """Return True if a message carries a compaction by this model's service, which replaces everything before it."""
    if not (isinstance(message, AssistantMessage) and message.opaque and message.opaque.startswith(COMPACTED)):
        return False
    return any(step.compaction for step in decode_steps(message, model))
