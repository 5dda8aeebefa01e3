"""A long session on a `Stage`, with a model that rejects requests above its window and tools that return up to 200 kB.

Flush and summary are the built-in ones.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.stage import Instrument, Model, Stage
from gateway.config.agents import AgentKeys
from gateway.config.keys import CompactionKeys
from gateway.conversations.context.conversation_config import compaction_rules
from plugins.api.chat import CallDraft, ChatRequest, Delta, Reply
from plugins.api.models import ModelLimits
from plugins.api.pruning import PruningRules
from plugins.policies.summary_sections import GOALS, IDENTIFIERS, format_sections
from plugins.support.errors import ContextOverflow, ProviderError
from plugins.testing.contexts import NOON
from sessions.events.codec import decode
from sessions.events.events import RequestSent
from sessions.events.messages import AssistantMessage, Message, Usage, UserMessage
from sessions.events.tokens import MESSAGE, estimate
from sessions.state.context import Context, Gauge, assemble, canonical_head
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript

TextAnswer = Callable[[str], str | ProviderError]
"""The answer to the text of an auxiliary request, such as a flush or a summary."""

TICKET = re.compile(r"CRAB-\d+")


def counted(context: Context) -> int:
    """Return the estimated tokens of a request."""
    return estimate(canonical_head(context).decode()) + sum(MESSAGE + estimate(_whole(each)) for each in context.messages)


def _whole(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        return message.text + "".join(f"{call.id} {call.tool} {call.arguments}" for call in message.calls)
    return message.text


class StrictModel(Model):
    """A model that rejects requests above its window, counting `factor` times the estimated tokens.

    It calls tools at random before it answers. `beside` holds its answers to flush and summary requests, `asked` the purpose
    and tokens of each request, and `refused` those of the rejected ones.
    """

    def __init__(self, window: int, seed: int, *, factor: float = 1.0) -> None:
        super().__init__(self._answered)
        self.window = window
        self.factor = factor
        self.chance = random.Random(seed)
        self.asked: list[tuple[str, int]] = []
        self.refused: list[tuple[str, int]] = []
        self.beside: dict[str, TextAnswer] = {"flush": notes, "summary": summary}

    def limits(self, model: str) -> ModelLimits:
        return ModelLimits(window=self.window)

    async def _answered(self, request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        tokens = round(self.factor * counted(request.context))
        self.asked.append((request.purpose, tokens))
        if tokens > self.window:
            self.refused.append((request.purpose, tokens))
            raise ContextOverflow("The request was longer than the window.")
        if request.purpose == "answer":
            reply = self._turn(request.context.messages)
        else:
            said = self.beside[request.purpose](request.context.messages[-1].text)
            if isinstance(said, ProviderError):
                raise said
            reply = Reply(text=said, model=request.model, stop="end")
        used = Usage(input=tokens, output=round(self.factor * estimate(reply.text)))
        yield msgspec.structs.replace(reply, usage=used)

    def _turn(self, messages: Sequence[Message]) -> Reply:
        """Return up to three tool calls or an answer; repeated calls within a turn are less likely."""
        if self.chance.random() < (0.6 if isinstance(messages[-1], UserMessage) else 0.3):
            count = self.chance.choice((1, 1, 2, 3))
            calls = tuple(CallDraft(id=str(index), tool="read", arguments='{"path":"a.py"}') for index in range(count))
            return Reply(text="Let me look.", model="model", stop="calls", calls=calls)
        return Reply(text="So it is. " * self.chance.randint(1, 40), model="model", stop="end")


def notes(record: str) -> str:
    """Return a flush with the tickets of the record."""
    return "\n".join(f"- {ticket} was spoken of." for ticket in tickets(record)) or "NO_REPLY"


def summary(record: str) -> str:
    """Return a summary with the latest tickets of the record."""
    return format_sections(
        {GOALS: "- Fulfil the requests.", IDENTIFIERS: "\n".join(f"- {each}" for each in tickets(record)[-12:])}
    )


def tickets(text: str) -> list[str]:
    """Return the distinct tickets in a text."""
    return list(dict.fromkeys(TICKET.findall(text)))


THRESHOLDS = compaction_rules(CompactionKeys(), AgentKeys(), NOON).thresholds
"""The compaction thresholds of a `long_stage`."""


def long_stage(folder: Path, model: StrictModel, *, longest: int = 200_000, **given: Any) -> Stage:
    """Return a stage with the built-ins, pruning, and a tool that returns at most `longest` characters, usually few."""
    (folder / "workspace").mkdir(parents=True)
    chance = random.Random(1)

    def output() -> str:
        size = int(200 * (longest / 200) ** chance.random())
        return f"CRAB-{chance.randint(1, 9_999)} " + ("shell x=1; " * (size // 11 + 1))[:size]

    given = {"pruning": PruningRules(mode="always"), "compaction": CompactionKeys(), **given}
    return Stage(model, Instrument("read", output), workspace=folder / "workspace", **given)


def evolved(lines: list[bytes]) -> Transcript:
    """Fold a log into its transcript."""
    transcript = Transcript()
    for line in lines:
        transcript = evolve(transcript, decode(line), len(line))
    return transcript


def hashes_of_the_log(lines: list[bytes]) -> list[str]:
    """Return the hash of each past request of the conversation, computed from the log alone."""
    hashes, transcript, gauge = [], Transcript(), Gauge()
    for line in lines:
        recorded = decode(line)
        if isinstance(recorded.event, RequestSent) and recorded.event.purpose == "answer":
            hashes.append(gauge.measure(assemble(transcript)).sha256)
        transcript = evolve(transcript, recorded, len(line))
    return hashes
