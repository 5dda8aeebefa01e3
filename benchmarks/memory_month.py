"""Measure what remains of a month of conversation: the share of questions that can be answered from the final request.

A development conversation of LoCoMo is replayed on a gateway: one speaker writes the messages, the scripted model replies
with the other speaker's turns, and the clock advances so that the sessions spread over a month. Flush, compaction, the
extraction and distillation of facts, the index and the recall are the product's own. Afterwards each question is asked in a
fork of the conversation, and the request that the model receives is searched for the turns that answer it.

The scripted model is strict: it knows no question, and whatever it writes into a note, a summary or a fact is copied from
the text that it was given, and bounded in length. So what is missing from the final request was lost by the gateway, or
had to make room within the model's limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import aiohttp
import msgspec

from benchmarks.figures import Figure, figure
from benchmarks.gateway_process import TOKEN
from benchmarks.locomo import CONVERSATIONS
from benchmarks.setting import Setting
from gateway.config.keys import load_config
from gateway.conversations.turn import recalling
from gateway.support.clock import SystemClock
from gateway.support.home import Home
from gateway.wiring.daemon import Daemon
from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.api.context import NoSettings, ProviderContext
from plugins.api.hookspecs import hookimpl
from plugins.api.models import ModelLimits
from plugins.facts.ended_turns import TurnText
from plugins.facts.extraction import may_contain_facts
from plugins.host.loading import PluginFolder
from plugins.policies.summary_sections import CONTEXT, GOALS, format_sections, parse_sections
from sessions.events.messages import Usage
from sessions.state.context import Context

WINDOW, THRESHOLD, RECENT = 32_000, 4_000, 1_000
"""Tokens of the model's window, of the messages that are compacted, and of those that a compaction keeps."""

DAYS = 30
FIRST_DAY = datetime(2026, 3, 1, 18, 0, tzinfo=UTC)

NOTE_CHARACTERS, SUMMARY_CHARACTERS = 3_000, 2_500
"""The lengths to which the model keeps its notes and its summaries."""

FACTS_OF_A_TURN = 2
KEY = "main"
UNKNOWN = "I do not know."

CONFIGURATION = f"""
[gateway]
port = 0
token = "{TOKEN}"
[agent]
model = "strict:copy"
[compaction]
threshold_tokens = {THRESHOLD}
keep_recent_tokens = {RECENT}
[compaction.memory_flush]
soft_threshold_tokens = 1000
[memory.embedding]
provider = "local"
[memory.facts]
quiet_seconds = 0.0
"""

PYPROJECT = """
[project]
name = "exuvia-strict"
version = "1"
[project.entry-points.exuvia]
strict = "benchmarks.memory_month:PLUGIN"
"""

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_ENTRY = re.compile(r"^\[[0-9a-f]{8}\] (.*):$", re.MULTILINE)
_FACT = re.compile(r"^(\d+)\. \(\w+\) (.*)$", re.MULTILINE)


class Question(msgspec.Struct, frozen=True):
    """A question, and the texts of the turns that answer it."""

    text: str
    evidence: tuple[str, ...]


class Month(msgspec.Struct, frozen=True):
    """A conversation: for each session the messages with their replies, and the questions about all of it."""

    name: str
    sessions: tuple[tuple[tuple[str, str], ...], ...]
    questions: tuple[Question, ...]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the final requests of a month, as shares between 0 and 1.

    `whole` is the share of questions whose evidence is shown in full, `evidence` the share of all evidence that is shown,
    `parts` the same by the part of the request that contains it.
    """

    whole: float
    evidence: float
    parts: Mapping[str, float]


def run(setting: Setting) -> list[Figure]:
    """Run the months and return the figures of the final requests."""
    shown = []
    for month in _months(setting.conversations):
        with tempfile.TemporaryDirectory(dir=setting.folder, ignore_cleanup_errors=True) as folder:
            shown.append(asyncio.run(_shown_after(month, Path(folder))))
    if not shown:
        return []
    figures = [
        _share("questions whose evidence is shown in full", [each.whole for each in shown]),
        _share("evidence that is shown", [each.evidence for each in shown]),
    ]
    return figures + [_share(f"… {part}", [each.parts[part] for each in shown]) for part in shown[0].parts]


def _share(measure: str, shares: Sequence[float]) -> Figure:
    return figure("memory-month", measure, "%", [100 * share for share in shares])


# --- the conversations ------------------------------------------------------------------------------------------------


def _months(most: int) -> Iterator[Month]:
    """Yield the first conversations of the data, none if the data is missing."""
    if CONVERSATIONS.exists():
        for data in json.loads(CONVERSATIONS.read_text())["conversations"][:most]:
            yield month_of(data)


def month_of(data: Mapping[str, Any]) -> Month:
    """Convert a conversation of the data set. The speaker who begins is the person."""
    turns = data["turns"]
    texts = {turn["id"]: " ".join(turn["text"].split()) for turn in turns}
    person = turns[0]["speaker"]
    sessions = tuple(tuple(_exchanges(list(session), person)) for _, session in groupby(turns, lambda turn: turn["session"]))
    questions = (
        Question(each["question"], tuple(texts[turn] for turn in each["relevant"] if turn in texts))
        for each in data["questions"]
    )
    return Month(data["id"], sessions, tuple(each for each in questions if each.evidence))


def _exchanges(turns: Sequence[Mapping[str, Any]], person: str) -> Iterator[tuple[str, str]]:
    """Yield messages with their replies. A session that the other speaker begins gets a greeting as its first message."""
    message = ""
    for is_person, group in groupby(turns, lambda turn: turn["speaker"] == person):
        text = "\n".join(" ".join(turn["text"].split()) for turn in group)
        if is_person:
            message = text
        else:
            yield message or "Hello!", text
            message = ""
    if message:
        yield message, "I see."


# --- the model --------------------------------------------------------------------------------------------------------


class StrictModel:
    """A chat provider that replies with the turns of a month, and copies bounded excerpts for everything else."""

    name: ClassVar[str] = "strict"
    Settings: ClassVar[type] = NoSettings
    month: ClassVar[Month]
    answers: ClassVar[dict[str, str]]
    extracted: ClassVar[int]
    requests: ClassVar[dict[str, dict[str, str]]]
    """The final requests by their questions: the text of each part."""

    def __init__(self, context: ProviderContext) -> None:
        pass

    @classmethod
    def prepare(cls, month: Month) -> None:
        """Clear the recorded requests, and reply from this month."""
        cls.month, cls.extracted, cls.requests = month, 0, {}
        cls.answers = {message: reply for session in month.sessions for message, reply in session}
        cls.answers |= dict.fromkeys((question.text for question in month.questions), UNKNOWN)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def default_model(self) -> str | None:
        """Return the only model."""
        return "copy"

    def explain_default(self) -> str:
        """Return the reason for the default."""
        return "the only model"

    def limits(self, model: str) -> ModelLimits:
        """Return the window."""
        return ModelLimits(window=WINDOW)

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        """Reply to a turn, or write the notes, the summary or the facts that were requested."""
        messages = request.context.messages
        if request.purpose == "answer":
            position, message = self._asked([each.text for each in messages])
            text = self.answers[message]
            if text == UNKNOWN:
                self._record(message, request.context, position)
        else:
            write = {"flush": _notes, "summary": _summary, "distillation": _distilled}.get(request.purpose, self._facts)
            text = write(messages[-1].text)
        yield Reply(text=text, model="copy", stop="end", usage=Usage(input=1, output=len(text) // 4))

    def _asked(self, texts: Sequence[str]) -> tuple[int, str]:
        """Return the person's last message and its position; what was recalled for it follows in a message of its own."""
        return next((position, text) for position, text in reversed(list(enumerate(texts))) if text in self.answers)

    def _facts(self, asked: str) -> str:
        StrictModel.extracted += 1
        rows = [_fact(sentence) for sentence in _longest(_statements(_quoted(asked)), FACTS_OF_A_TURN)]
        return json.dumps({"facts": rows}, ensure_ascii=False)

    def _record(self, question: str, context: Context, position: int) -> None:
        earlier, later = (
            "\n".join(json.dumps(msgspec.to_builtins(message), ensure_ascii=False) for message in messages)
            for messages in (context.messages[:position], context.messages[position + 1 :])
        )
        self.requests[question] = {
            "in the instructions": context.instructions,
            "in the summary and the last messages": earlier,
            "in what was recalled for it": later,
        }


class StrictPlugin:
    """Registers the strict model."""

    @hookimpl
    def register_chat_providers(self) -> Sequence[type[StrictModel]]:
        """Return the provider."""
        return [StrictModel]


PLUGIN = StrictPlugin()


def _notes(asked: str) -> str:
    lines = (f"- {sentence}" for sentence in _statements(_quoted(asked)))
    return "\n".join(_within(NOTE_CHARACTERS, _thinned(list(lines)))) or "NO_REPLY"


def _summary(asked: str) -> str:
    quoted = _quoted(asked)
    earlier = parse_sections(quoted).get(CONTEXT, "").splitlines()
    lines = [f"- {sentence}" for sentence in _thinned(list(_statements(quoted)))]
    kept = list(_within(SUMMARY_CHARACTERS, reversed([*earlier, *lines])))
    return format_sections({GOALS: "- To talk.", CONTEXT: "\n".join(reversed(kept))})


def _distilled(asked: str) -> str:
    rows = [{**_fact(found[2]), "from": [int(found[1])], "supersedes": []} for found in _FACT.finditer(asked)]
    return json.dumps({"facts": rows}, ensure_ascii=False)


def _fact(content: str) -> dict[str, Any]:
    return {"content": content, "type": "fact", "importance": 0.6, "tags": []}


def _quoted(asked: str) -> str:
    """Return the text between the marks of a quoted conversation."""
    parts = _ENTRY.split(asked)
    return "\n".join(parts[2::2])


def _statements(text: str) -> Iterator[str]:
    """Yield the sentences that state something: six words or more, and no question."""
    for found in _SENTENCE.finditer(text):
        sentence = found[0].strip()
        if len(sentence.split()) >= 6 and not sentence.endswith("?") and not sentence.startswith(("[", "-", "#")):
            yield sentence


def _longest(sentences: Iterable[str], most: int) -> list[str]:
    return sorted(sentences, key=lambda sentence: -len(sentence))[:most]


def _thinned(lines: Sequence[str]) -> list[str]:
    """Return the longer half of the lines, in their order."""
    chosen = set(_longest(lines, (len(lines) + 1) // 2))
    return [line for line in lines if line in chosen]


def _within(characters: int, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        characters -= len(line) + 1
        if characters < 0:
            return
        yield line


# --- the month --------------------------------------------------------------------------------------------------------


class MonthClock(SystemClock):
    """The system's clock, moved to a day of the month."""

    def __init__(self) -> None:
        self._offset = timedelta()

    def move(self, to: datetime) -> None:
        """Continue at a time."""
        self._offset = to - super().now()

    def now(self) -> datetime:
        """Return the time in the month."""
        return super().now() + self._offset


async def _shown_after(month: Month, folder: Path) -> Shown:
    recalling.WITHIN = recalling.VECTOR_WITHIN = 60.0  # the figures do not depend on the speed of the machine
    StrictModel.prepare(month)
    plugin, home = folder / "plugin", Home(folder / "home")
    plugin.mkdir()
    (plugin / "pyproject.toml").write_text(PYPROJECT)
    home.root.mkdir()
    home.config.write_text(CONFIGURATION)
    home.make()
    clock = MonthClock()
    async with _serving(home, clock, plugin) as connection:
        expected = 0
        for number, session in enumerate(month.sessions):
            clock.move(FIRST_DAY + timedelta(days=DAYS * number // len(month.sessions)))
            for turn, (message, reply) in enumerate(session):
                await connection.turn(KEY, f"{number}-{turn}", message)
                expected += may_contain_facts(_ended(message, reply))
            await _until(lambda wanted=expected: StrictModel.extracted >= wanted)
    clock.move(FIRST_DAY + timedelta(days=DAYS))
    await _index(home)
    async with _serving(home, clock, plugin) as connection:
        for number, question in enumerate(month.questions):
            await connection.fork(KEY, f"question-{number}")
            await connection.turn(f"question-{number}", f"question-{number}", question.text)
    return _measure(month, StrictModel.requests)


def _ended(message: str, reply: str) -> TurnText:
    return TurnText(ordinal=1, first=1, end=2, asked=message, answered=reply, group=False, replied=True, model="")


async def _until(condition: Any, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0.01)


async def _index(home: Home) -> None:
    """Index what the gateway has not indexed yet, so that the figures do not depend on timing."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "exuvia", "memory", "index", "--home", str(home.root), stdout=asyncio.subprocess.DEVNULL
    )
    if await process.wait():
        raise RuntimeError("The memory was not indexed.")


class Connection:
    """A websocket connection that waits for the result of each frame."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def turn(self, key: str, message_id: str, text: str) -> None:
        """Send a message and wait until its turn has ended."""
        await self._socket.send_json({"type": "send", "id": message_id, "session": key, "text": text})
        ended = await self._receive(lambda frame: frame["type"] == "event" and frame["event"]["kind"] == "turn_ended")
        if ended["event"]["outcome"] != "replied":
            raise RuntimeError(f"A turn failed: {ended}")

    async def fork(self, parent: str, key: str) -> None:
        """Create a session that continues from the end of another."""
        await self._socket.send_json({"type": "fork", "id": f"fork-{key}", "session": parent, "key": key})
        await self._receive(lambda frame: frame["type"] == "forked")

    async def _receive(self, is_last: Any) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while True:
                frame: dict[str, Any] = await self._socket.receive_json()
                if frame["type"] == "error":
                    raise RuntimeError(frame["message"])
                if is_last(frame):
                    return frame


@contextlib.asynccontextmanager
async def _serving(home: Home, clock: MonthClock, plugin: Path) -> AsyncIterator[Connection]:
    config = load_config(home.config, environment={}, overrides={})
    daemon = Daemon(home, config, clock=clock, folders=[PluginFolder(plugin)])
    async with contextlib.AsyncExitStack() as stack, aiohttp.ClientSession() as http:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))  # the link to the console
        running = asyncio.create_task(daemon.serve(stack))
        try:
            await _until(lambda: running.done() or not daemon.readiness.refuses)
            if running.done():
                running.result()
            assert daemon.address is not None
            url = f"http://{daemon.address[0]}:{daemon.address[1]}/ws"
            async with http.ws_connect(url, headers={"Authorization": f"Bearer {TOKEN}"}) as socket:
                yield Connection(socket)
        finally:
            daemon.stop()
            await running


# --- the figures ------------------------------------------------------------------------------------------------------


def _measure(month: Month, requests: Mapping[str, Mapping[str, str]]) -> Shown:
    whole, every, count = 0, 0.0, 0
    parts: dict[str, float] = dict.fromkeys(next(iter(requests.values())), 0.0)
    for question in month.questions:
        texts = {part: " ".join(text.replace("\\n", " ").split()) for part, text in requests[question.text].items()}
        shown = [any(is_shown(each, text) for text in texts.values()) for each in question.evidence]
        whole, every, count = whole + all(shown), every + sum(shown), count + len(shown)
        for part, text in texts.items():
            parts[part] += sum(is_shown(each, text) for each in question.evidence)
    return Shown(
        whole=whole / len(month.questions),
        evidence=every / count,
        parts={part: found / count for part, found in parts.items()},
    )


def is_shown(evidence: str, text: str) -> bool:
    """Return True if sentences that make up at least half of a turn's text occur in a request."""
    sentences = [found[0].strip() for found in _SENTENCE.finditer(evidence)]
    found = sum(len(sentence) for sentence in sentences if sentence in text)
    return 2 * found >= sum(map(len, sentences))
