"""The loss of facts by the gateway itself, and the time of recall.

The scripted model of `dialogues` extracts and keeps exactly the facts of each turn, so any missing, duplicated or outdated
fact is an error of the gateway. The measures are those of HaluMem (Chen et al., 2025) for extraction and updating. The
facts pass through the whole pipeline: journals on disk, extraction, JSON parsing, the log of facts, distillation, recall.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks.dialogues import Dialogues, PerfectModel, dialogues
from benchmarks.figures import Figure, figure
from benchmarks.journals import write_events
from benchmarks.setting import Setting
from gateway.config.agents import AgentKeys
from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.conversations.facts.fact_extraction import FactExtraction
from gateway.metrics.counters import Counters
from gateway.models.call import ModelCaller
from gateway.models.registry import ModelRegistry
from gateway.support.clock import SystemClock
from plugins.api.fact_values import Fact
from plugins.api.memory_settings import FactKeys, MemoryKeys
from plugins.facts.fact_recall import COVERED, select_facts
from plugins.facts.facts import Facts
from plugins.facts.scoring import RecallStats
from sessions.files.committer import Committer
from sessions.files.journal_folder import JournalFolder
from sessions.files.journals import Journals
from sessions.store.catalog import SessionRow
from sessions.store.log_writer import stamp
from sessions.store.protocols import START, Log, Position

KEPT, DAILY = 100, 1800
"""Facts of full stores: the limit of long-term facts, and three facts for each of twenty turns on thirty days."""

QUESTIONS = 200
BAR = 3.0
"""Limit in milliseconds for the recall of a turn."""

TOKENS = 1000
"""Limit of the facts added to a message."""

KEYS = FactKeys(quiet_seconds=0, distill_threshold=0, distill_interval_hours=0)

_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "ai", "en", "or")]


class SessionRows:
    """The rows of the sessions, in place of a catalog."""

    def __init__(self) -> None:
        self.rows: dict[str, SessionRow] = {}

    async def find(self, session: str) -> SessionRow | None:
        """Return the row of a session."""
        return self.rows.get(session)

    async def changed_since(self, at: str) -> list[SessionRow]:
        """Return no rows: the benchmark reports each session itself."""
        return []


def run(setting: Setting) -> list[Figure]:
    """Measure the loss of facts in the dialogues, and the time of recall from full stores."""
    with tempfile.TemporaryDirectory(dir=setting.folder, ignore_cleanup_errors=True) as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    script = dialogues()
    async with _opened(folder / "dialogues") as facts:
        await _extract(script, folder / "dialogues", facts)
        figures = await _losses(script, facts)
    async with _opened(folder / "full") as facts:
        await _fill(facts)
        return [*figures, await _speed(facts)]


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[Facts]:
    await asyncio.to_thread(folder.mkdir)
    async with Committer() as committer:
        journals = Journals(folder, folder / "quarantine", committer)

        async def opener(fold: Callable[[bytes], None]) -> tuple[Log, Position]:
            return await journals.create("facts"), START

        clock = SystemClock()
        async with Facts(opener, keys=lambda: KEYS, workspace=lambda: folder / "workspace", now=clock.now) as facts:
            yield facts


async def _extract(script: Dialogues, folder: Path, facts: Facts) -> None:
    """Extract and distil the facts of each session after its end."""
    config = load_config(None, environment={}, overrides={})
    rows, models = SessionRows(), ModelRegistry({"perfect": PerfectModel(script)}, AgentKeys(model="perfect:all"))
    extraction = FactExtraction(
        facts,
        JournalFolder(folder),
        rows,
        settings=Settings(msgspec.structs.replace(config, memory=MemoryKeys(facts=KEYS))),
        models=models,
        caller=ModelCaller(Counters()),
        clock=SystemClock(),
    )
    running = asyncio.create_task(extraction.run())
    for session in script.sessions:
        end = await asyncio.to_thread(write_events, folder, session.name, session.events())
        rows.rows[session.name] = _row(session.name, end)
        extraction.on_event(session.name, end.seq)
        while not (await facts.book()).has_extracted_turn(session.name, len(session.turns)):  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0.005)
        await extraction.distill("owner", None, session.name)
    running.cancel()


async def _losses(script: Dialogues, facts: Facts) -> list[Figure]:
    book = await facts.book()
    expected = [fact for turn in script.turns() for fact in turn.facts]
    daily = [fact.content for fact in book.layer("daily")]
    kept = {fact.content: fact for fact in book.layer("longterm")}
    replaced = script.replaced()
    current = set(expected) - set(replaced)
    applied = sum(new in kept and (old not in kept or _is_less(kept[old], kept[new])) for old, new in replaced.items())
    answered = {each.text: await _recalled(facts, each.text) for each in script.questions}
    updated = [each for each in script.questions if each.answer in replaced.values()]
    return [
        _share("facts extracted (recall)", len(set(daily) & set(expected)), len(expected)),
        _share("extracted facts in a turn, without duplicates (precision)", len(set(daily) & set(expected)), len(daily)),
        _share("current facts kept by distillation", len(set(kept) & current), len(current)),
        _share("updates applied", applied, len(replaced)),
        _share("contradictions resolved", sum(answered[q.text][:1] == [q.answer] for q in updated), len(updated)),
        _share(
            "questions whose fact is recalled",
            sum(q.answer in answered[q.text] for q in script.questions),
            len(answered),
        ),
    ]


def _is_less(old: Fact, new: Fact) -> bool:
    return old.importance < new.importance


def _share(measure: str, count: int, of: int) -> Figure:
    """Return the figure of a percentage that must be 100."""
    share = 100 * count / of if of else 100.0
    return figure("facts", f"{measure}, of {of}", "%", [share], against="bar", reference=100.0, holds=count == of)


async def _recalled(facts: Facts, question: str) -> list[str]:
    """Return the facts recalled for a question, best first."""
    hits = _chosen(await facts.recall(question, "owner", least=COVERED))
    book = await facts.book()
    return [book.facts[each].content for each in hits]


def _chosen(found: Sequence[RecallStats]) -> list[str]:
    return [hit.digest for hit in select_facts(found, tokens=TOKENS, known=frozenset(), line=lambda _: 1)]


async def _fill(facts: Facts) -> None:
    """Fill the stores with facts of random words, with frequencies similar to a natural language."""
    draw = random.Random(5)
    words = [draw.choice(_SYLLABLES) + draw.choice(_SYLLABLES) + draw.choice(("", "n", "st")) for _ in range(3000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    at = stamp(datetime.now(UTC))
    await facts.import_facts(
        [
            Fact(
                id=str(number),
                content=" ".join(draw.choices(words, weights, k=14)),
                created=at,
                source="auto-extracted",
                layer="longterm" if number < KEPT else "daily",
            )
            for number in range(KEPT + DAILY)
        ],
        "benchmark",
    )


async def _speed(facts: Facts) -> Figure:
    """Measure the processor time of recall, in milliseconds. Recall waits for nothing else."""
    draw = random.Random(6)
    stored = list((await facts.book()).facts.values())
    await facts.recall(stored[0].content, "owner")  # the first recall builds the word index
    taken = []
    for _ in range(QUESTIONS):
        question = " ".join(draw.sample(draw.choice(stored).content.split(), 8))
        began = time.process_time()
        _chosen(await facts.recall(question, "owner", least=COVERED))
        taken.append((time.process_time() - began) * 1000)
    measure, holds = f"recall among {len(stored):,} facts, processor time", statistics.median(taken) <= BAR
    return figure("facts", measure, "ms", taken, against="bar", reference=BAR, holds=holds)


def _row(session: str, end: Position) -> SessionRow:
    at = stamp(datetime.now(UTC))
    return SessionRow(
        session=session,
        key=session,
        person="owner",
        opened_at=at,
        succeeds=None,
        head=end.seq,
        at=at,
        size=end.offset,
        mtime_ns=0,
        settled=True,
        closed=False,
    )
