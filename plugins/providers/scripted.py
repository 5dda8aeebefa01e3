"""The provider `scripted`, without a model, for tests, demonstrations and failure drills.

`scripted:echo` repeats the user's last message. `scripted:script` replies from a file of JSON lines, one reply a line:

    {"text": "Let me look.", "calls": [{"tool": "read", "arguments": {"path": "MEMORY.md"}}]}
    {"error": "rate_limited", "retry_after": 0.5}
    {"text": "It is empty.", "reasoning": "The file has no lines.", "deltas": 3, "delay_ms": 20, "stop": "end"}

The position in the script depends on the conversation, not on this process: with n replies of the model in the context, the
next reply is the one after the n-th line that is not an error. Each error line before it fails one attempt; this count is
lost when the process ends. The last reply is repeated.

A line with a `purpose` ("flush", "summary", "title", "extraction", "distillation") replies to requests for that purpose
only. These lines are used in order, from the first one after each start.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import msgspec

from plugins.api.chat import CallDraft, ChatRequest, Delta, Reasoning, Reply, StreamPart
from plugins.api.context import ProviderContext
from plugins.api.models import ModelLimits
from plugins.support.errors import (
    BadAnswer,
    BadRequest,
    ContextOverflow,
    CredentialsRefused,
    NoSuchModel,
    ProviderError,
    RateLimited,
    SettingsRefused,
    StreamCut,
    Unreachable,
)
from sessions.events.events import StopReason
from sessions.events.messages import AssistantMessage, Usage, UserMessage
from sessions.state.context import Context
from sessions.state.view import is_recalled

_ERRORS: dict[str, type[ProviderError]] = {
    kind.code: kind
    for kind in (
        BadAnswer,
        BadRequest,
        ContextOverflow,
        CredentialsRefused,
        NoSuchModel,
        RateLimited,
        StreamCut,
        Unreachable,
    )
}

_WORDS = re.compile(r"\S+\s*|\s+")


class ScriptedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`script` is the path of the script; `delay_ms` the milliseconds before each delta, unless its line has its own."""

    script: str | None = None
    delay_ms: float = 0


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a scripted reply: `arguments`, or `raw` for text that is not JSON."""

    tool: str
    arguments: dict[str, Any] = {}
    raw: str | None = None

    def draft(self, number: int) -> CallDraft:
        """Return the call in the form of a provider's reply."""
        arguments = self.raw if self.raw is not None else msgspec.json.encode(self.arguments).decode()
        return CallDraft(id=f"scripted_{number}", tool=self.tool, arguments=arguments)


class ScriptedReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the script. With `error`, the text is sent first and then the request fails. `reasoning` is sent word by
    word before the text. `deltas` is the number of pieces of the text (its words by default), `purpose` the purpose of the
    requests that it replies to (the conversation's by default)."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    deltas: int | None = None
    delay_ms: float | None = None
    error: str | None = None
    retry_after: float | None = None
    stop: StopReason | None = None
    purpose: str | None = None

    def pieces(self) -> list[str]:
        """Return the text as non-empty deltas."""
        if self.deltas is None:
            return _WORDS.findall(self.text)
        count = max(1, min(self.deltas, len(self.text)))
        cuts = [len(self.text) * index // count for index in range(count + 1)]
        return [piece for start, end in pairwise(cuts) if (piece := self.text[start:end])]


class Scripted:
    """The `ChatProvider` for scripts. `auto` chooses it only if a script is configured."""

    name: ClassVar[str] = "scripted"
    Settings: ClassVar[type] = ScriptedSettings

    def __init__(self, context: ProviderContext) -> None:
        self._settings: ScriptedSettings = context.settings
        self._script: list[ScriptedReply] = []
        self._failed: Counter[tuple[str, str, int]] = Counter()
        self._purpose_counts: Counter[str] = Counter()
        """The number of requests for each purpose with lines of its own."""

    async def __aenter__(self) -> Self:
        if self._settings.script is not None:
            self._script = await asyncio.to_thread(_read_script, Path(self._settings.script))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def default_model(self) -> str | None:
        """Return `script` if one is configured."""
        return "script" if self._settings.script is not None else None

    def explain_default(self) -> str:
        """Return what is set, as the end of a sentence."""
        return "providers.scripted.script is set"

    def limits(self, model: str) -> ModelLimits:
        """Return no limits."""
        return ModelLimits()

    def address(self, model: str) -> str:
        """Return an empty address: requests do not leave this process."""
        return ""

    async def stream(self, request: ChatRequest) -> AsyncIterator[StreamPart]:
        """Yield the reply. Raises the error of its line, or NoSuchModel for an unknown model."""
        reply = self._reply(request)
        delay = self._settings.delay_ms if reply.delay_ms is None else reply.delay_ms
        for piece in _WORDS.findall(reply.reasoning):
            await asyncio.sleep(delay / 1000)
            yield Reasoning(piece)
        for piece in reply.pieces():
            await asyncio.sleep(delay / 1000)
            yield Delta(piece)
        if reply.error is not None:
            raise _ERRORS[reply.error](f"The script says {reply.error}.", retry_after=reply.retry_after)
        yield Reply(
            text=reply.text,
            model=request.model,
            stop=reply.stop or ("calls" if reply.calls else "end"),
            calls=tuple(call.draft(number) for number, call in enumerate(reply.calls)),
            usage=Usage(input=_characters(request.context) // 4, output=len(reply.text) // 4),
        )

    def _reply(self, request: ChatRequest) -> ScriptedReply:
        if request.model == "echo":
            messages = (m for m in reversed(request.context.messages) if isinstance(m, UserMessage))
            texts = (message.text for message in messages if not is_recalled(message))
            return ScriptedReply(text=next(texts, ""))
        if request.model != "script" or not self._script:
            raise NoSuchModel(f"scripted has no model {request.model!r}; available: echo, and script if one is configured.")
        if own := [line for line in self._script if line.purpose == request.purpose]:
            self._purpose_counts[request.purpose] += 1
            return own[min(self._purpose_counts[request.purpose], len(own)) - 1]
        answers = sum(isinstance(message, AssistantMessage) for message in request.context.messages)
        position = (request.session, request.purpose, answers)
        reply = self._line(answers, self._failed[position])
        if reply.error is not None:
            self._failed[position] += 1
        return reply

    def _line(self, answers: int, failed: int) -> ScriptedReply:
        """Return the line after `answers` replies and `failed` errors since."""
        script = [line for line in self._script if line.purpose is None] or self._script
        index = 0
        while answers and index < len(script):
            answers -= script[index].error is None
            index += 1
        return script[min(index + failed, len(script) - 1)]


def _read_script(path: Path) -> list[ScriptedReply]:
    where = "providers.scripted.script"
    try:
        lines = path.expanduser().read_bytes().split(b"\n")
    except OSError as error:
        raise SettingsRefused(f"{where}: {path} cannot be read ({error.strerror}).") from error
    script = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            script.append(_parsed(line, f"{where}: line {number} of {path}"))
    if not script:
        raise SettingsRefused(f"{where}: {path} contains no reply.")
    return script


def _parsed(line: bytes, where: str) -> ScriptedReply:
    try:
        reply = msgspec.json.decode(line, type=ScriptedReply)
    except msgspec.MsgspecError as error:
        raise SettingsRefused(f"{where}: {error}.") from error
    if reply.error is not None and reply.error not in _ERRORS:
        raise SettingsRefused(f"{where}: error must be one of {', '.join(_ERRORS)}.")
    return reply


def _characters(context: Context) -> int:
    called = (call for m in context.messages if isinstance(m, AssistantMessage) for call in m.calls)
    text = sum(len(message.text) for message in context.messages)
    return len(context.instructions) + text + sum(len(call.arguments) for call in called)
