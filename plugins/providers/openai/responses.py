"""OpenAI's Responses API (`POST /v1/responses`), in which a model's reasoning is sent back to it.

Sources: its API reference and the pages on function calling, reasoning and conversation state. Nothing is stored at the
service (`store: false`), so each request contains the whole conversation as items, with encrypted reasoning. A call and its
output are separate items, joined by `call_id`.

According to its page on compaction, the service compacts by itself above a threshold, and its response contains an encrypted
item that replaces everything before it. The replaced messages are then left out as long as the item can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import msgspec

from plugins.api.chat import SHOWN_PURPOSES, ChatRequest, RequestOptions
from plugins.providers.hosted.encoding import EncodingCache, accepted_name
from plugins.providers.hosted.images import available_images, data_url
from plugins.providers.hosted.openai_errors import UNREADABLE_REASONING
from plugins.providers.openai.chat_completions import SAMPLING
from plugins.providers.openai.models import is_reasoning_model
from plugins.providers.openai.responses_reply import ResponsesAccumulator, Step, decode_steps, has_compaction
from plugins.support.http_errors import error_object
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

Json: TypeAlias = dict[str, Any]

_encode = msgspec.json.Encoder().encode

_ENCRYPTED = "reasoning.encrypted_content"

_UNSUPPORTED = frozenset({"effort", "stop", "seed", "presence_penalty", "frequency_penalty"})
"""Parameters that this API does not have under these names."""

MIN_THRESHOLD = 1000
"""The lowest compaction threshold of the service in tokens."""

_MAX_SESSIONS = 1000
"""Maximum number of sessions whose refused reasoning is remembered; a forgotten one costs one refused request."""


class ResponsesEncoder:
    """An encoder of requests. The items of each session's last request are kept as bytes, so only new ones are encoded.

    It adapts to refusals: which models do not reason, summarize or compact, and which sessions contain encrypted items that
    cannot be read, as after a change to a key of another organization.
    """

    def __init__(self, cache: EncodingCache | None = None) -> None:
        self._cache = cache or EncodingCache()
        self._without_reasoning: set[str] = set()
        self._without_summaries: set[str] = set()
        self._without_compaction: set[str] = set()
        self._unreadable: dict[str, int] = {}  # by session: the number of messages before the first readable one

    def body(self, request: ChatRequest, *, max_tokens: int | None = None, effort: str | None = None) -> bytes:
        """Return the JSON body of a streaming request. `max_tokens` limits the reply, its reasoning included, if the
        context's parameters do not; `effort` is the service's effort level for reasoning models."""
        head = self._head(request, max_tokens=max_tokens, effort=effort)
        return b"".join((_encode(head)[:-1], b',"input":[', self._items(request), b"]}"))

    def accumulator(self, request: ChatRequest) -> ResponsesAccumulator:
        """Return an empty accumulator for the reply."""
        return ResponsesAccumulator(request.model)

    def is_compacted(self, request: ChatRequest) -> bool:
        """Return True if messages are left out because the service has compacted them."""
        return bool(_compacted(request, self._readable_from(request)))

    def adapt(self, request: ChatRequest, body: bytes) -> bool:
        """Leave out from now on what a refusal names. Returns True if it was sent before, so that another request may
        succeed."""
        error = error_object(body)
        param, words = str(error.get("param")), str(error.get("message")).lower()
        if param.startswith("context_management"):
            known = request.model in self._without_compaction
            self._without_compaction.add(request.model)
            return not known
        if param == "reasoning.summary":  # also for keys of an organization that is not verified
            known = request.model in self._without_summaries
            self._without_summaries.add(request.model)
            return not known
        if param == "include" or (param.startswith("reasoning") and "unsupported parameter" in words):
            known = not self._reasons(request.model)
            self._without_reasoning.add(request.model)
            return not known
        if param.startswith("reasoning") or not (error.get("code") == UNREADABLE_REASONING or "reasoning" in words):
            return False
        return self._drop_encrypted(request)

    def _drop_encrypted(self, request: ChatRequest) -> bool:
        """Leave out from now on the encrypted items of the request's messages; return False if it had none."""
        messages = request.context.messages
        sent_back = messages[self._readable_from(request) :]
        answers = [message for message in sent_back if isinstance(message, AssistantMessage)]
        steps = (step for answer in answers for step in decode_steps(answer, request.model))
        if not any(step.thought or step.compaction for step in steps):
            return False
        self._unreadable.pop(request.session, None)
        self._unreadable[request.session] = len(messages)
        if len(self._unreadable) > _MAX_SESSIONS:
            del self._unreadable[next(iter(self._unreadable))]
        return True

    def _readable_from(self, request: ChatRequest) -> int:
        """Return the index of the first message whose reasoning is sent back. After a compaction the index is unknown, so
        all reasoning is sent."""
        index = self._unreadable.get(request.session, 0)
        return index if index <= len(request.context.messages) else 0

    def _reasons(self, model: str) -> bool:
        return is_reasoning_model(model) and model not in self._without_reasoning

    def _head(self, request: ChatRequest, *, max_tokens: int | None, effort: str | None) -> Json:
        """Return the fields before the items."""
        context, reasons = request.context, self._reasons(request.model)
        head: Json = {"model": request.model, "stream": True, "store": False, "prompt_cache_key": request.session[:64]}
        if request.compact_at and request.compact_at >= MIN_THRESHOLD and request.model not in self._without_compaction:
            head["context_management"] = [{"type": "compaction", "compact_threshold": request.compact_at}]
        if reasons:
            head["include"] = [_ENCRYPTED]
        summarized = request.purpose in SHOWN_PURPOSES and request.model not in self._without_summaries
        if reasons and (reasoning := ({"effort": effort} if effort else {}) | ({"summary": "auto"} if summarized else {})):
            head["reasoning"] = reasoning
        given = context.parameters.items()
        options = {name: value for name, value in given if value is not None and name not in _UNSUPPORTED}
        limit = options.pop("max_tokens", max_tokens)
        if limit is not None:
            head["max_output_tokens"] = limit
        head |= {name: value for name, value in options.items() if not (reasons and name in SAMPLING)}
        if context.instructions:
            head["instructions"] = context.instructions
        if context.tools:
            # By default the service would make each schema strict, with every property required.
            head["tools"] = [{"type": "function", **msgspec.structs.asdict(t), "strict": False} for t in context.tools]
        return head | _option_fields(request.options)

    def _items(self, request: ChatRequest) -> bytearray:
        """Return the items of the conversation, joined by commas."""
        messages, model = request.context.messages, request.model
        readable = self._readable_from(request)
        compacted = _compacted(request, readable)
        cache_key = f"{request.session} {model} {readable} {compacted}"  # the bytes depend on these
        known, joined = self._cache.take(cache_key, messages)
        for index in range(max(known, compacted or 0), len(messages)):
            included = _Included(reasoning=index >= readable, compaction=index == compacted)
            for item in _items_of(messages[index], request, included):
                joined += b"," * bool(joined) + _encode(item)
        self._cache.put(cache_key, messages, joined)
        return joined


def _option_fields(request_options: RequestOptions) -> Json:
    fields: Json = {}
    if request_options.require_tool:
        fields["tool_choice"] = {"type": "function", "name": request_options.tool} if request_options.tool else "required"
    if request_options.single_tool_call:
        fields["parallel_tool_calls"] = False
    if (form := request_options.response_format) is not None:
        # By default the service would make the schema strict.
        schema = {"type": "json_schema", "name": form.name, "schema": form.schema, "strict": bool(form.strict)}
        described = {"description": form.description} if form.description else {}
        fields["text"] = {"format": {"type": "json_object"} if form.schema is None else {**schema, **described}}
    return fields


class _Included(NamedTuple):
    """The optional items of a message that are sent."""

    reasoning: bool
    compaction: bool


def _compacted(request: ChatRequest, readable: int) -> int | None:
    """Return the index of the newest message with a compaction, before which nothing is sent; None if there is none."""
    if request.compact_at is None:
        return None
    messages = request.context.messages
    indices = range(len(messages) - 1, readable - 1, -1)
    return next((index for index in indices if has_compaction(messages[index], request.model)), None)


def _items_of(message: Message, request: ChatRequest, included: _Included) -> Iterator[Json]:
    match message:
        case UserMessage(attachments=()):
            yield {"role": "user", "content": message.text}
        case UserMessage():
            parts: list[Json] = [
                {"type": "input_image", "image_url": data_url(*each), "detail": "auto"}
                for each in available_images(message, request.pictures)
            ]
            if message.text or not parts:
                parts.append({"type": "input_text", "text": message.text})
            yield {"role": "user", "content": parts}
        case ToolMessage():
            yield {"type": "function_call_output", "call_id": message.id, "output": message.text}
        case AssistantMessage():
            yield from _answer(message, request.model, included)


def _answer(message: AssistantMessage, model: str, included: _Included) -> Iterator[Json]:
    """Yield the items of a reply in their original order, as far as it is known. Only reasoning keeps its id: since nothing
    is stored, the service would look up other ids and not find them."""
    position, calls = 0, iter(message.calls)
    text = [Step(size=len(message.text))] if message.text else []
    for step in decode_steps(message, model) or (*text, *(Step() for _ in message.calls)):
        if step.thought is not None:
            if included.reasoning:
                yield step.thought
        elif step.compaction is not None:
            if included.compaction:
                yield step.compaction
        elif step.size is None:
            yield _call(next(calls))
        else:
            start = position + step.gap
            position = start + step.size
            phase = {"phase": step.phase} if step.phase else {}
            yield {"role": "assistant", "content": message.text[start:position], **phase}


def _call(call: ToolCall) -> Json:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": accepted_name(call.tool),
        "arguments": call.arguments or "{}",
    }
