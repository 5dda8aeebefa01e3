"""Scripted conversations with the facts of each turn, and a model that extracts exactly these facts."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import msgspec

from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.api.context import NoSettings
from plugins.api.models import ModelLimits
from plugins.policies.languages.prompts import language
from sessions.events.events import FORMAT, Event, MessageReceived, ModelReplied, SessionOpened, TurnEnded, TurnStarted
from sessions.events.messages import Usage

FILE = Path(__file__).with_name("dialogues.toml")

WRAPPED = ("{}", "```json\n{}\n```", "These are the facts [as JSON]:\n{}\nThat is all.")
"""Formats in which a model may return JSON."""

_LINE = re.compile(r"(\d+)\. \(\w+\) (.*)")


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn with its facts. The first fact supersedes those in `replaces`."""

    message: str
    reply: str
    facts: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session of scripted turns."""

    name: str
    turns: tuple[Turn, ...]

    def events(self) -> Iterator[tuple[int | None, Event]]:
        """Yield the events that the gateway would record, each with its turn."""
        yield None, SessionOpened(format=FORMAT, session=self.name, key=self.name, person="owner")
        for turn, each in enumerate(self.turns, 1):
            yield None, _received(f"{self.name}-{turn}", each.message)
            yield turn, TurnStarted(takes=(4 * turn - 2,), provider="perfect", model="all", window=None, reserve=0)
            usage = Usage(input=40, output=16)
            yield turn, ModelReplied(reply=1, model="all", text=each.reply, calls=(), stop="end", usage=usage)
            yield turn, TurnEnded(outcome="replied", millis=5)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question and the fact that answers it."""

    text: str
    answer: str


class Dialogues(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions in chronological order, and the questions about them."""

    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]

    def turns(self) -> Iterator[Turn]:
        """Yield the turns of all sessions."""
        for session in self.sessions:
            yield from session.turns

    def replaced(self) -> dict[str, str]:
        """Return the superseding fact for each superseded one."""
        return {old: turn.facts[0] for turn in self.turns() for old in turn.replaces}


def dialogues() -> Dialogues:
    """Load the conversations."""
    return msgspec.convert(tomllib.loads(FILE.read_text("utf-8")), Dialogues)


class PerfectModel:
    """A chat provider that extracts exactly the facts of a turn, keeps all of them and supersedes the outdated ones.

    Any fact that is missing afterwards was lost by the gateway itself.
    """

    name: ClassVar[str] = "perfect"
    Settings: ClassVar[type] = NoSettings

    def __init__(self, script: Dialogues) -> None:
        self._dialogues = script
        self._answers = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def default_model(self) -> str | None:
        """Return the only model."""
        return "all"

    def explain_default(self) -> str:
        """Return the reason for the default model."""
        return "the only model"

    def limits(self, model: str) -> ModelLimits:
        """Return no limits."""
        return ModelLimits()

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        """Yield the facts of a turn, or the distilled facts, in alternating formats."""
        prompt = request.context.messages[-1].text
        rows = self._extracted(prompt) if request.purpose == "extraction" else self._distilled(prompt)
        text = WRAPPED[self._answers % len(WRAPPED)].format(json.dumps({"facts": rows}, ensure_ascii=False))
        self._answers += 1
        yield Reply(text=text, model="all", stop="end", usage=Usage(input=len(prompt) // 4, output=len(text) // 4))

    def _extracted(self, prompt: str) -> list[dict[str, object]]:
        found = next(turn for turn in self._dialogues.turns() if f"\n{turn.message}\n" in prompt)
        return [_row(fact) for fact in found.facts]

    def _distilled(self, prompt: str) -> list[dict[str, object]]:
        numbered = {found[2]: int(found[1]) for line in prompt.splitlines() if (found := _LINE.fullmatch(line))}
        new = prompt[prompt.index(f"{language('en').facts.new}:") :]
        fresh = [content for content in numbered if f" {content}\n" in new]
        replaced = self._dialogues.replaced()
        return [
            {
                **_row(content),
                "from": [numbered[content]],
                "supersedes": [numbered[old] for old, now in replaced.items() if now == content and old in numbered],
            }
            for content in fresh
        ]


def _row(content: str) -> dict[str, object]:
    return {"content": content, "type": "fact", "importance": 0.7, "tags": []}


def _received(client_id: str, text: str) -> MessageReceived:
    return MessageReceived(
        id=client_id, client="benchmark", sender="owner", channel="websocket", chat="private", text=text, attachments=()
    )
