"""A context as the body of a request to OpenAI's Responses API (`POST /v1/responses`).

After its API reference and the pages on function calling, reasoning and conversation state. Nothing is stored with the
service (`store: false`), so each request carries the whole conversation as items, and the reasoning encrypted. A call and
its output are items of their own, joined by `call_id`.

After its page on compaction: from a number of tokens on the service compacts by itself, and its answer has an item,
encrypted, that stands for all that came before. What came before is then left out, as long as the item can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import msgspec

from plugins.api.chat import ChatRequest, RequestOptions
from plugins.providers.hosted.encoding_cache import EncodingCache
from plugins.providers.hosted.images import data_url, sent_with
from plugins.providers.hosted.openai_errors import UNREADABLE
from plugins.providers.hosted.tool_names import taken_name
from plugins.providers.openai.models import reasons
from plugins.providers.openai.responses_reasoning import Step, compacts, steps_of
from plugins.support.http_errors import error_object
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

Json: TypeAlias = dict[str, Any]

_encode = msgspec.json.Encoder().encode

_ENCRYPTED = "reasoning.encrypted_content"

_NO_SAMPLING = frozenset({"temperature", "top_p"})
"""What is configured for all models and refused by those that reason."""

_UNKNOWN = frozenset({"stop", "seed", "presence_penalty", "frequency_penalty"})
"""Parameters that this API does not have."""

LEAST = 1000
"""The fewest tokens from which on the service compacts."""

_SESSIONS = 1000
"""Sessions of which is remembered that their reasoning was refused; each costs one refused request when forgotten."""


class Encoder:
    """Encodes requests. Of each session's last one the items are kept as bytes: only what is new is encoded.

    It learns from refusals: which models take no reasoning or do not compact, and what of whom, being encrypted, cannot be
    read any more, as after a change of the key for one of another organization.
    """

    def __init__(self, remembered: EncodingCache | None = None) -> None:
        self._remembered = remembered or EncodingCache()
        self._thoughtless: set[str] = set()
        self._uncompacting: set[str] = set()
        self._unreadable: dict[str, int] = {}  # by session: so many messages from the first on

    def body(self, request: ChatRequest, *, max_tokens: int | None = None, effort: str | None = None) -> bytes:
        """The JSON body of a streaming request. `max_tokens` bounds the answer, its reasoning included, where the context's
        parameters do not; `effort` is as the service has it, for models that reason."""
        head = self._head(request, max_tokens=max_tokens, effort=effort)
        return b"".join((_encode(head)[:-1], b',"input":[', self._items(request), b"]}"))

    def leaves_out(self, request: ChatRequest) -> bool:
        """Whether the service is not sent all messages, since it has compacted the first ones."""
        return bool(_compacted(request, self._readable_from(request)))

    def learns(self, request: ChatRequest, body: bytes) -> bool:
        """Whether a refusal's body tells of something that is left out from here on, so that asking again may help."""
        error = error_object(body)
        param, words = str(error.get("param")), str(error.get("message")).lower()
        if param.startswith("context_management"):
            known = request.model in self._uncompacting
            self._uncompacting.add(request.model)
            return not known
        if param == "include" or (param.startswith("reasoning") and "unsupported parameter" in words):
            known = not self._reasons(request.model)
            self._thoughtless.add(request.model)
            return not known
        if param.startswith("reasoning") or not (error.get("code") == UNREADABLE or "reasoning" in words):
            return False
        return self._forgets(request)

    def _forgets(self, request: ChatRequest) -> bool:
        """Leave out from here on what is encrypted in the request's messages; False if nothing of it was sent."""
        messages = request.context.messages
        sent_back = messages[self._readable_from(request) :]
        answers = [message for message in sent_back if isinstance(message, AssistantMessage)]
        steps = (step for answer in answers for step in steps_of(answer, request.model))
        if not any(step.thought or step.compaction for step in steps):
            return False
        self._unreadable.pop(request.session, None)
        self._unreadable[request.session] = len(messages)
        if len(self._unreadable) > _SESSIONS:
            del self._unreadable[next(iter(self._unreadable))]
        return True

    def _readable_from(self, request: ChatRequest) -> int:
        """The index of the first message whose reasoning is sent back. In a conversation that was compacted since, nobody
        knows any more: all of it is."""
        index = self._unreadable.get(request.session, 0)
        return index if index <= len(request.context.messages) else 0

    def _reasons(self, model: str) -> bool:
        return reasons(model) and model not in self._thoughtless

    def _head(self, request: ChatRequest, *, max_tokens: int | None, effort: str | None) -> Json:
        """What stands before the items."""
        context, thinks = request.context, self._reasons(request.model)
        head: Json = {"model": request.model, "stream": True, "store": False, "prompt_cache_key": request.session[:64]}
        if request.compact_at and request.compact_at >= LEAST and request.model not in self._uncompacting:
            head["context_management"] = [{"type": "compaction", "compact_threshold": request.compact_at}]
        if thinks:
            head["include"] = [_ENCRYPTED]
        if thinks and effort:
            head["reasoning"] = {"effort": effort}
        given = context.parameters.items()
        options = {name: value for name, value in given if value is not None and name not in _UNKNOWN}
        limit = options.pop("max_tokens", max_tokens)
        if limit is not None:
            head["max_output_tokens"] = limit
        head |= {name: value for name, value in options.items() if not (thinks and name in _NO_SAMPLING)}
        if context.instructions:
            head["instructions"] = context.instructions
        if context.tools:
            # Without a word on it the service would make each schema strict, with every property required.
            head["tools"] = [{"type": "function", **msgspec.structs.asdict(t), "strict": False} for t in context.tools]
        return head | _option_fields(request.options)

    def _items(self, request: ChatRequest) -> bytearray:
        """The conversation's items, joined by commas."""
        messages, model = request.context.messages, request.model
        readable = self._readable_from(request)
        compacted = _compacted(request, readable)
        kept = f"{request.session} {model} {readable} {compacted}"  # other models are sent other bytes
        known, joined = self._remembered.take(kept, messages)
        for index in range(max(known, compacted or 0), len(messages)):
            shown = _Shown(thoughts=index >= readable, compaction=index == compacted)
            for item in _items_of(messages[index], request, shown):
                joined += b"," * bool(joined) + _encode(item)
        self._remembered.keep(kept, messages, joined)
        return joined


def _option_fields(request_options: RequestOptions) -> Json:
    """What a request asks for beside its messages."""
    wished: Json = {}
    if request_options.require_tool:
        wished["tool_choice"] = {"type": "function", "name": request_options.tool} if request_options.tool else "required"
    if request_options.single_tool_call:
        wished["parallel_tool_calls"] = False
    if (form := request_options.response_format) is not None:
        # Without a word on it the service would make the schema strict.
        schema = {"type": "json_schema", "name": form.name, "schema": form.schema, "strict": bool(form.strict)}
        described = {"description": form.description} if form.description else {}
        wished["text"] = {"format": {"type": "json_object"} if form.schema is None else {**schema, **described}}
    return wished


class _Shown(NamedTuple):
    """What of a message is sent beside its text and calls."""

    thoughts: bool
    compaction: bool


def _compacted(request: ChatRequest, readable: int) -> int | None:
    """The index of the newest message that carries a compaction, from which on everything is sent; None if none does."""
    if request.compact_at is None:
        return None
    messages = request.context.messages
    behind = range(len(messages) - 1, readable - 1, -1)
    return next((index for index in behind if compacts(messages[index], request.model)), None)


def _items_of(message: Message, request: ChatRequest, shown: _Shown) -> Iterator[Json]:
    match message:
        case UserMessage(attachments=()):
            yield {"role": "user", "content": message.text}
        case UserMessage():
            parts: list[Json] = [
                {"type": "input_image", "image_url": data_url(*each), "detail": "auto"}
                for each in sent_with(message, request.pictures)
            ]
            if message.text or not parts:
                parts.append({"type": "input_text", "text": message.text})
            yield {"role": "user", "content": parts}
        case ToolMessage():
            yield {"type": "function_call_output", "call_id": message.id, "output": message.text}
        case AssistantMessage():
            yield from _answer(message, request.model, shown)


def _answer(message: AssistantMessage, model: str, shown: _Shown) -> Iterator[Json]:
    """The items of an answer in the order in which they came, as far as it is known. Only reasoning keeps its id: where
    nothing is stored, another item with an id is looked for and not found."""
    position, calls = 0, iter(message.calls)
    said = [Step(size=len(message.text))] if message.text else []
    for step in steps_of(message, model) or (*said, *(Step() for _ in message.calls)):
        if step.thought is not None:
            if shown.thoughts:
                yield step.thought
        elif step.compaction is not None:
            if shown.compaction:
                yield step.compaction
        elif step.size is None:
            yield _call(next(calls))
        else:
            begins = position + step.gap
            position = begins + step.size
            phase = {"phase": step.phase} if step.phase else {}
            yield {"role": "assistant", "content": message.text[begins:position], **phase}


def _call(call: ToolCall) -> Json:
    return {"type": "function_call", "call_id": call.id, "name": taken_name(call.tool), "arguments": call.arguments or "{}"}
