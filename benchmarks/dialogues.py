"""Conversations that were made to be looked through, each turn with the facts that it holds, and a model that knows them."""

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
from plugins.languages.prompts import language
from sessions.events.events import FORMAT, Event, MessageReceived, ModelReplied, SessionOpened, TurnEnded, TurnStarted
from sessions.events.messages import Usage

FILE = Path(__file__).with_name("dialogues.toml")

WRAPPED = ("{}", "```json\n{}\n```", "These are the facts [as JSON]:\n{}\nThat is all.")
"""How a model may write what it was asked for."""

_LINE = re.compile(r"(\d+)\. \(\w+\) (.*)")


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, the facts in it, and the earlier facts that the first of them replaces."""

    said: str
    answered: str
    facts: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """A session."""

    name: str
    turns: tuple[Said, ...]

    def events(self) -> Iterator[tuple[int | None, Event]]:
        """Yield the events that the gateway would have recorded, each with its turn."""
        yield None, SessionOpened(format=FORMAT, session=self.name, key=self.name, person="owner")
        for turn, each in enumerate(self.turns, 1):
            yield None, _received(f"{self.name}-{turn}", each.said)
            yield turn, TurnStarted(takes=(4 * turn - 2,), provider="perfect", model="all", window=None, reserve=0)
            usage = Usage(input=40, output=16)
            yield turn, ModelReplied(reply=1, model="all", text=each.answered, calls=(), stop="end", usage=usage)
            yield turn, TurnEnded(outcome="replied", millis=5)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and the fact that answers it."""

    asks: str
    answer: str


class Dialogues(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, in the order in which they were held."""

    sessions: tuple[Talk, ...]
    questions: tuple[Asked, ...]

    def turns(self) -> Iterator[Said]:
        """The turns of all sessions."""
        for talk in self.sessions:
            yield from talk.turns

    def replaced(self) -> dict[str, str]:
        """The facts that no longer hold, each with the one that does."""
        return {old: turn.facts[0] for turn in self.turns() for old in turn.replaces}


def dialogues() -> Dialogues:
    """Return the content of the file."""
    return msgspec.convert(tomllib.loads(FILE.read_text("utf-8")), Dialogues)


class PerfectModel:
    """Finds exactly the facts that a turn holds, keeps each of them, and knows which ones no longer hold: whatever is lost
    behind it, the gateway's own work has lost."""

    name: ClassVar[str] = "perfect"
    Settings: ClassVar[type] = NoSettings

    def __init__(self, told: Dialogues) -> None:
        self._told = told
        self._answers = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def default_model(self) -> str | None:
        """It has one."""
        return "all"

    def explain_default(self) -> str:
        """It was made for this."""
        return "it is measured with"

    def limits(self, model: str) -> ModelLimits:
        """None."""
        return ModelLimits()

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        """Answer about a turn, or about numbered facts; each time written in another way."""
        asked = request.context.messages[-1].text
        rows = self._found(asked) if request.purpose == "extraction" else self._kept(asked)
        text = WRAPPED[self._answers % len(WRAPPED)].format(json.dumps({"facts": rows}, ensure_ascii=False))
        self._answers += 1
        yield Reply(text=text, model="all", stop="end", usage=Usage(input=len(asked) // 4, output=len(text) // 4))

    def _found(self, asked: str) -> list[dict[str, object]]:
        said = next(turn for turn in self._told.turns() if f"\n{turn.said}\n" in asked)
        return [_row(fact) for fact in said.facts]

    def _kept(self, asked: str) -> list[dict[str, object]]:
        numbered = {found[2]: int(found[1]) for line in asked.splitlines() if (found := _LINE.fullmatch(line))}
        new = asked[asked.index(f"{language('en').facts.new}:") :]
        fresh = [content for content in numbered if f" {content}\n" in new]
        replaced = self._told.replaced()
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
