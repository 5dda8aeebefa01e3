"""The events of OpenAI's Responses API as a reply.

After its API reference (streaming events, the response object): items are added, grow by deltas and are done; the response
itself is completed, incomplete or failed, and nothing follows. Events and items of kinds that are not known are left out.
Compatible servers and proxies leave out deltas, indexes or the items in between, or do not stream at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from plugins.api.chat import CallDraft, Delta, Reply
from plugins.providers.hosted.openai_errors import UNREADABLE, error_code, in_stream
from plugins.providers.openai.responses_reasoning import Step, written
from plugins.support.errors import BadAnswer, ProviderError, StreamCut
from plugins.support.http_errors import StatusRefused, error_message
from plugins.support.lenient_json import count, decoded, is_json
from sessions.events.events import StopReason
from sessions.events.messages import Usage

T = TypeVar("T")

BETWEEN = "\n\n"
"""What is said between two messages of one answer, which are paragraphs of their own."""


class _Item(msgspec.Struct):
    """An item of any kind; what differs from kind to kind is looked at where the kind is known."""

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
    """An item as its pieces come: of a message's text, or of a call's arguments."""

    def __init__(self) -> None:
        self.item = _Item()
        self.pieces: list[str] = []
        self.gap = 0

    def call(self) -> CallDraft | None:
        """The call, if the item is one; its arguments as they stand in the item once it is done, until then as they came."""
        item = self.item
        if item.type != "function_call" or not item.name:
            return None
        whole = item.arguments if isinstance(item.arguments, str) else _encode(item.arguments).decode()
        arguments = "".join(self.pieces) if whole in ("", "null") else whole
        return CallDraft(id=item.call_id or item.id or "", tool=item.name, arguments=arguments)

    def step(self) -> Step | None:
        """The reasoning, the compaction or the message that the item is; None if it is none of them."""
        item = self.item
        if item.type == "compaction" and item.encrypted_content:
            return Step(compaction={"type": item.type, "id": item.id or "", "encrypted_content": item.encrypted_content})
        if item.type == "reasoning" and item.encrypted_content:
            # What else it has belongs to answers: its `status` and its plain `content` are refused when they come back.
            thought = {
                "type": "reasoning",
                "id": item.id or "",
                "summary": item.summary if isinstance(item.summary, list) else [],
            }
            return Step(thought={**thought, "encrypted_content": item.encrypted_content})
        if item.type not in ("message", ""):
            return None
        return Step(size=sum(map(len, self.pieces)), gap=self.gap, phase=item.phase or "")


class StreamAccumulator:
    """One answer as its events come. `take` gives the text that is new; `reply` the whole once `done`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._drafts: dict[int | str, _Draft] = {}
        self._text: list[str] = []
        self._refused = False
        self._end: _Response | None = None
        self.said = 0
        """The events that have brought text, reasoning or a part of a call."""

    @property
    def done(self) -> bool:
        """Whether the answer has its end, by its own word: nothing follows."""
        return self._end is not None

    @property
    def begun(self) -> bool:
        """Whether something was said already."""
        return bool(self._text)

    def take(self, data: bytes) -> Iterator[Delta]:
        """The new text of one event's data. Raises BadAnswer, or what an error inside the stream means: StatusRefused, as
        the service does at other times, where what was sent back of its reasoning is refused."""
        event = _parsed(_event, data)
        self.said += bool(event.delta) or event.type in ("response.output_item.done", "response.completed")
        match event.type:
            case "error":
                raise self._broken(event.error or {"code": event.code, "message": event.message, "param": event.param})
            case "response.output_item.added" | "response.output_item.done" if event.item:
                yield from self._take_item(self._draft(event), event.item)
            case "response.output_text.delta" | "response.refusal.delta" if isinstance(event.delta, str):
                self._refused = self._refused or event.type == "response.refusal.delta"
                yield from self._say(self._draft(event), event.delta)
            case "response.function_call_arguments.delta" if isinstance(event.delta, str):
                self._draft(event).pieces.append(event.delta)
            case "response.completed" | "response.incomplete" | "response.failed":
                yield from self._finish(event.response or _Response(), event.type.removeprefix("response."))
            case "" if event.error:
                raise self._broken(event.error)
            case "":
                whole = _parsed(_response, data)
                if whole.status:
                    yield from self._finish(whole, whole.status)

    def _draft(self, event: _Event) -> _Draft:
        """The item that an event is of. Some proxies give an item a new id in each event, others give no index."""
        item_id = event.item_id or (event.item.id if event.item else None) or ""
        return self._drafts.setdefault(item_id if event.output_index is None else event.output_index, _Draft())

    def _take_item(self, draft: _Draft, item: _Item) -> Iterator[Delta]:
        draft.item = item
        if item.type == "message":
            texts, refusals = _said(item.content, "text"), _said(item.content, "refusal")
            self._refused = self._refused or bool(refusals)
            text, said = texts or refusals, "".join(draft.pieces)
            if text.startswith(said):
                yield from self._say(draft, text[len(said) :])

    def _say(self, draft: _Draft, text: str) -> Iterator[Delta]:
        if not text:
            return
        if not draft.pieces and self._text:
            draft.gap = len(BETWEEN)
            self._text.append(BETWEEN)
            yield Delta(BETWEEN)
        draft.pieces.append(text)
        self._text.append(text)
        yield Delta(text)

    def _finish(self, response: _Response, status: str) -> Iterator[Delta]:
        if status == "failed":
            raise self._broken(response.error or {"message": "it gave no reason"})
        if status not in ("completed", "incomplete"):
            raise StreamCut(f"The provider broke off: {error_message(status.encode())}.")
        if not self._drafts:
            self._drafts = {index: _Draft() for index in range(len(response.output or ()))}
        for index, item in enumerate(response.output or ()):
            draft = self._drafts.get(index) or self._drafts.get(item.id or "")
            if draft and not draft.item.type:
                yield from self._take_item(draft, item)
        response.status = status
        self._end = response

    def _broken(self, error: Any) -> ProviderError:
        """What an error inside the stream means."""
        body = _encode({"error": error})
        return StatusRefused(400, body) if error_code(body) == UNREADABLE else in_stream(error, self._model)

    def reply(self) -> Reply:
        """The whole answer; StreamCut if it has no end."""
        end = self._end
        if end is None:
            raise StreamCut("The answer broke off before its end.")
        why = (end.incomplete_details.reason if end.incomplete_details else None) or "max_output_tokens"
        incomplete = why if end.status == "incomplete" else ""
        calls, steps = self._calls_and_steps(incomplete)
        stop: StopReason = "calls" if calls else "length" if incomplete else "end"
        if not calls and (self._refused or incomplete == "content_filter"):
            stop = "refused"
        return Reply(
            text="".join(self._text),
            model=end.model or self._model,
            stop=stop,
            calls=tuple(calls),
            usage=_counted(end.usage),
            opaque=written(self._model, steps),
        )

    def _calls_and_steps(self, incomplete: str) -> tuple[list[CallDraft], list[Step]]:
        """The calls that may be run: none of an answer that was withheld, no last one that an early end has cut. And the
        order of everything."""
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


def _said(content: Any, field: str) -> str:
    """What a message's parts have in this field."""
    parts = content if isinstance(content, list) else []
    said = [part.get(field) for part in parts if isinstance(part, dict)]
    return "".join(text for text in said if isinstance(text, str))


def _parsed(decode: Callable[[bytes | str], T], data: bytes) -> T:
    """One event, or a response; text with lone surrogates is kept with replacements. Raises BadAnswer."""
    try:
        return decoded(decode, data)
    except ValueError as error:
        raise BadAnswer(f"The provider sent what is no event of an answer: {error_message(data[:200])}") from error


def _counted(usage: Any) -> Usage | None:
    """What was read from the cache is a part of the input; reasoning is a part of the output."""
    if (read := count(usage, "input_tokens")) is None:
        return None
    cached = count(usage, "input_tokens_details", "cached_tokens") or 0
    return Usage(input=read, output=count(usage, "output_tokens") or 0, cached=cached)
