"""`scripted`: a provider without a model, for tests, demonstrations and rehearsals of trouble.

`scripted:echo` says the person's last message back, word by word. `scripted:script` tells a story from a file of JSON
lines, one reply a line:

    {"text": "Let me look.", "calls": [{"tool": "read", "arguments": {"path": "MEMORY.md"}}]}
    {"error": "rate_limited", "retry_after": 0.5}
    {"text": "It is empty.", "deltas": 3, "delay_ms": 20, "stop": "end"}

The story goes on by what the conversation holds, not by what this process remembers: with n answers of the model in the
context, the reply is the one after the n-th line that is not an error. Error lines before it fail one attempt each, and
are forgotten when the process ends. The last reply stays for ever.

A line with a `purpose` ("flush", "summary", "extraction", "distillation") is kept for what is asked beside the conversation
for that purpose; such lines are said in their order, and again from the first on when the process starts.
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

from plugins.api.chat import CallDraft, ChatRequest, Delta, Reply
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
from sessions.state.recall_message import is_recalled

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
    """`script` is the path of the story; `delay_ms` the milliseconds before each delta, unless its line says another."""

    script: str | None = None
    delay_ms: float = 0


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a scripted reply: `arguments`, or `raw` where the text should not be JSON."""

    tool: str
    arguments: dict[str, Any] = {}
    raw: str | None = None

    def draft(self, number: int) -> CallDraft:
        """The call as a provider would give it."""
        arguments = self.raw if self.raw is not None else msgspec.json.encode(self.arguments).decode()
        return CallDraft(id=f"scripted_{number}", tool=self.tool, arguments=arguments)


class ScriptedReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the story. With `error`, the text is said first and then it fails. `deltas` is into how many pieces the
    text is cut (its words by default), `purpose` for what the line is kept, the conversation itself where it has none."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    deltas: int | None = None
    delay_ms: float | None = None
    error: str | None = None
    retry_after: float | None = None
    stop: StopReason | None = None
    purpose: str | None = None

    def pieces(self) -> list[str]:
        """The text as its deltas, none of them empty."""
        if self.deltas is None:
            return _WORDS.findall(self.text)
        count = max(1, min(self.deltas, len(self.text)))
        cuts = [len(self.text) * index // count for index in range(count + 1)]
        return [piece for start, end in pairwise(cuts) if (piece := self.text[start:end])]


class Scripted:
    """The provider. `auto` takes it only where a script is configured."""

    name: ClassVar[str] = "scripted"
    Settings: ClassVar[type] = ScriptedSettings

    def __init__(self, context: ProviderContext) -> None:
        self._settings: ScriptedSettings = context.settings
        self._story: list[ScriptedReply] = []
        self._failed: Counter[tuple[str, str, int]] = Counter()
        self._asides: Counter[str] = Counter()
        """How often each purpose was asked for that has lines of its own."""

    async def __aenter__(self) -> Self:
        if self._settings.script is not None:
            self._story = await asyncio.to_thread(_read_story, Path(self._settings.script))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def default_model(self) -> str | None:
        """`script` where there is one."""
        return "script" if self._settings.script is not None else None

    def explain_default(self) -> str:
        """The end of a sentence."""
        return "providers.scripted.script is set"

    def limits(self, model: str) -> ModelLimits:
        """Nothing limits a script."""
        return ModelLimits()

    def address(self, model: str) -> str:
        """Return an empty address: nothing is sent to anybody."""
        return ""

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        """Say the reply. Raises the error that its line names, NoSuchModel for one that is not there."""
        reply = self._reply(request)
        delay = self._settings.delay_ms if reply.delay_ms is None else reply.delay_ms
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
            said = (message.text for message in messages if not is_recalled(message))
            return ScriptedReply(text=next(said, ""))
        if request.model != "script" or not self._story:
            raise NoSuchModel(f"scripted has no model {request.model!r}; there is echo, and script where one is set.")
        if own := [line for line in self._story if line.purpose == request.purpose]:
            self._asides[request.purpose] += 1
            return own[min(self._asides[request.purpose], len(own)) - 1]
        answers = sum(isinstance(message, AssistantMessage) for message in request.context.messages)
        place = (request.session, request.purpose, answers)
        reply = self._line(answers, self._failed[place])
        if reply.error is not None:
            self._failed[place] += 1
        return reply

    def _line(self, answers: int, failed: int) -> ScriptedReply:
        """The line after `answers` replies and `failed` errors since."""
        story = [line for line in self._story if line.purpose is None] or self._story
        index = 0
        while answers and index < len(story):
            answers -= story[index].error is None
            index += 1
        return story[min(index + failed, len(story) - 1)]


def _read_story(path: Path) -> list[ScriptedReply]:
    where = "providers.scripted.script"
    try:
        lines = path.expanduser().read_bytes().split(b"\n")
    except OSError as error:
        raise SettingsRefused(f"{where}: {path} cannot be read ({error.strerror}).") from error
    story = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            story.append(_parsed(line, f"{where}: line {number} of {path}"))
    if not story:
        raise SettingsRefused(f"{where}: {path} holds no reply.")
    return story


def _parsed(line: bytes, where: str) -> ScriptedReply:
    try:
        reply = msgspec.json.decode(line, type=ScriptedReply)
    except msgspec.MsgspecError as error:
        raise SettingsRefused(f"{where}: {error}.") from error
    if reply.error is not None and reply.error not in _ERRORS:
        raise SettingsRefused(f"{where}: error is none of {', '.join(_ERRORS)}.")
    return reply


def _characters(context: Context) -> int:
    called = (call for m in context.messages if isinstance(m, AssistantMessage) for call in m.calls)
    spoken = sum(len(message.text) for message in context.messages)
    return len(context.instructions) + spoken + sum(len(call.arguments) for call in called)
