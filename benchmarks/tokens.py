"""The error of the token estimate of requests, compared with the counts of their provider."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from benchmarks.agent_session import DATA, lines_of
from benchmarks.figures import Figure, figure
from benchmarks.setting import Setting
from gateway.models.token_counts import o200k
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage
from sessions.events.tokens import MESSAGE, TokenFeatures, message_features, text_features
from sessions.state.request_sizes import Calibration, RequestSizes

WARM = 10
"""Initial replies excluded from the error."""

BAR = 5.0
"""Limit of the median error in per cent."""


class Step(msgspec.Struct, frozen=True):
    """A request and its reply: their features, the provider's usage, and the counts of characters and of tiktoken (0 if
    there is no text)."""

    units: TokenFeatures
    characters: int
    tiktoken: int
    said: TokenFeatures
    usage: Usage
    opaque: bool = False
    said_tiktoken: int = 0

    @property
    def by_tiktoken(self) -> Step:
        """The same step with the features replaced by tiktoken counts."""
        units = TokenFeatures(words=self.tiktoken, frames=self.units.frames)
        said = TokenFeatures(words=self.said_tiktoken, frames=self.said.frames)
        return msgspec.structs.replace(self, units=units, said=said)


def run(_setting: Setting) -> list[Figure]:
    """Measure simulated tokenizers, the cost of estimation, and the recorded agent's session if it exists."""
    figures = [each for name, steps in simulated().items() for each in _compared(name, steps)]
    figures += _costs()
    if DATA.exists():
        return figures + list(_compared("agent's session", list(recorded(lines_of(DATA)))))
    print(f"  {DATA.name} not found: skipped", file=sys.stderr)
    return figures


def _compared(name: str, steps: list[Step]) -> Iterator[Figure]:
    """Yield the error of each estimate in per cent, after the first replies."""
    counts = exact = RequestSizes()
    ways: dict[str, list[float]] = {"estimate": [], "whole request estimated": [], "not calibrated": []}
    if steps[0].characters:
        ways |= {"tiktoken alone": [], "characters / 4": [], "whole request by tiktoken, calibrated": []}
    for step in steps:
        whole = counts.calibration("").tokens(step.units, whole=True)
        calibrated = exact.calibration("").tokens(step.by_tiktoken.units, whole=True)
        simple = (step.units.total, step.tiktoken, step.characters / 4)
        guesses = (counts.estimate(step.units, ""), whole, *simple, calibrated)
        for off, guess in zip(ways.values(), guesses, strict=False):
            off.append(100 * abs(guess - step.usage.input) / step.usage.input)
        counts, exact = (_calibrated(known, each) for known, each in ((counts, step), (exact, step.by_tiktoken)))
    for way, off in ways.items():
        bar = {"against": "bar", "reference": BAR} if way == "estimate" else {"against": "", "reference": None}
        yield figure("tokens", f"{name}: {way}", "%", off[WARM:], **bar)


def _calibrated(counts: RequestSizes, step: Step) -> RequestSizes:
    return counts.after_request(step.units, "").after_reply(step.said, step.usage, opaque=step.opaque)


def _costs() -> Iterator[Figure]:
    text = "def area(self, width: int) -> int:\n    return self.height * width\n" * 80
    yield figure("tokens", "count a text of 5 kB", "ms", _millis(lambda: text_features(text)))
    units = TokenFeatures(words=800, marks=300, frames=10)
    yield figure("tokens", "calibrate by a reply", "ms", _millis(lambda: Calibration().updated(units, 1200)))


def _millis(work: Callable[[], object]) -> list[float]:
    samples = []
    for _ in range(200):
        began = time.perf_counter()
        work()
        samples.append((time.perf_counter() - began) * 1000)
    return samples


# --- a recorded session -----------------------------------------------------------------------------------------------


def recorded(lines: Iterable[dict[str, Any]]) -> Iterator[Step]:
    """Yield the requests of a recorded session with a usage from the provider."""
    lines = list(lines)
    texts = [_message(line["message"])[1] if line["type"] == "message" else line.get("summary", "") for line in lines]
    exact = o200k(texts, patience=60) or [0] * len(texts)
    view: list[tuple[int, TokenFeatures]] = []
    for index, line in enumerate(lines):
        if line["type"] == "compaction":
            kept = [entry for entry in view if entry[0] >= line["firstKeptEntryIndex"]]
            view = [(index, text_features(texts[index]) + TokenFeatures(frames=MESSAGE)), *kept]
        if line["type"] != "message":
            continue
        message, _ = _message(line["message"])
        if isinstance(message, AssistantMessage):
            usage = _usage(line["message"]["usage"])
            if usage.input:
                units = sum((entry[1] for entry in view), TokenFeatures())
                opaque = message.opaque is not None
                visible = [at for at, _ in view]
                sizes = sum(len(texts[at]) for at in visible), sum(exact[at] for at in visible)
                yield Step(units, *sizes, message_features(message), usage, opaque, exact[index])
            if not (message.text or message.calls or message.opaque):
                continue
        view.append((index, message_features(message)))


def _message(line: dict[str, Any]) -> tuple[Message, str]:
    """Return a message and all of its text."""
    if line["role"] == "bashExecution":
        text = f"{line['command']}\n{line['output']}"
        return UserMessage(text=text), text
    parts = line["content"]
    text = "".join(part.get("text", "") for part in parts)
    if line["role"] == "assistant":
        thoughts = "".join(part["thinking"] for part in parts if part["type"] == "thinking")
        calls = tuple(_call(part) for part in parts if part["type"] == "toolCall")
        said = text + thoughts + "".join(call.arguments for call in calls)
        return AssistantMessage(text=text, calls=calls, opaque=thoughts or None), said
    return (UserMessage(text=text) if line["role"] == "user" else ToolMessage(id="", tool="", text=text)), text


def _call(part: dict[str, Any]) -> ToolCall:
    return ToolCall(id="", tool=part["name"], arguments=msgspec.json.encode(part["arguments"]).decode())


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(input=usage["input"] + usage["cacheRead"] + usage["cacheWrite"], output=usage["output"])


# --- simulated tokenizers ---------------------------------------------------------------------------------------------


def simulated() -> dict[str, list[Step]]:
    """Return sessions whose simulated providers count differently from the estimate."""
    return {
        "Chinese costs 1.4": _simulated({"unspaced": 1.4}, ("unspaced", "unspaced", "words"), added=0),
        "Code costs 1.3, 900 added": _simulated({"words": 1.15, "marks": 1.3}, ("words", "marks"), added=900),
        "Pictures cost half": _simulated({"pictures": 0.5}, ("pictures", "words", "words"), added=0),
    }


def _simulated(factors: dict[str, float], kinds: tuple[str, ...], *, added: int) -> list[Step]:
    """Return 120 requests with a random error of up to 20 % per text; most of the context is removed every 50 requests."""
    chance = random.Random(11)
    parts: list[tuple[TokenFeatures, float]] = [(TokenFeatures(head=2000), 2000.0 + added)]
    steps = []
    for number in range(120):
        if number % 50 == 49:
            parts[1:-20] = []
        for _ in range(2):
            kind, size = chance.choice(kinds), chance.randint(100, 1500)
            tokens = size * factors.get(kind, 1.0) * chance.uniform(0.8, 1.2)
            parts.append((TokenFeatures(frames=MESSAGE) + TokenFeatures(**{kind: size}), MESSAGE + tokens))
        units = sum((each for each, _ in parts), TokenFeatures())
        steps.append(Step(units, 0, 0, TokenFeatures(), Usage(input=round(sum(tokens for _, tokens in parts)))))
    return steps
