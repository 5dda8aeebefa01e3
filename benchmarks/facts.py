"""What the gateway's own work loses of facts, and how long it takes to recall them.

With a model that finds and keeps exactly what there is (`dialogues`), every fact that is missing, doubled, or still told
though it no longer holds, was lost between the journal and the person's next message: the questions of HaluMem (Chen et al.,
2025) about extraction and updating, asked of the machinery alone. It goes the gateway's way: journals on the disk, turns
looked through, JSON of three sorts, the log of the facts, distillation, recall.
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
from gateway.config.keys import AgentKeys, load_config
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
"""Facts of full stores: as many as stay, and thirty days of twenty turns with three each."""

QUESTIONS = 200
BAR = 3.0
"""Milliseconds that recall may add to a turn."""

TOKENS = 1000
"""Of facts behind a message."""

KEYS = FactKeys(quiet_seconds=0, distill_threshold=0, distill_interval_hours=0)

_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "ai", "en", "or")]


class Held:
    """The rows of the sessions, as the catalog has them."""

    def __init__(self) -> None:
        self.rows: dict[str, SessionRow] = {}

    async def find(self, session: str) -> SessionRow | None:
        """A session."""
        return self.rows.get(session)

    async def changed_since(self, at: str) -> list[SessionRow]:
        """None: each is named when it was held."""
        return []


def run(setting: Setting) -> list[Figure]:
    """Measure what is lost of the dialogues, and the time of a recall from full stores."""
    with tempfile.TemporaryDirectory(dir=setting.folder, ignore_cleanup_errors=True) as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    told = dialogues()
    async with _opened(folder / "told") as facts:
        await _hold(told, folder / "told", facts)
        figures = await _lost(told, facts)
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


async def _hold(told: Dialogues, folder: Path, facts: Facts) -> None:
    """Have each session looked through when it was held, and distilled."""
    config = load_config(None, environment={}, overrides={})
    rows, models = Held(), ModelRegistry({"perfect": PerfectModel(told)}, AgentKeys(model="perfect:all"))
    finding = FactExtraction(
        facts,
        JournalFolder(folder),
        rows,
        settings=Settings(msgspec.structs.replace(config, memory=MemoryKeys(facts=KEYS))),
        models=models,
        caller=ModelCaller(Counters()),
        clock=SystemClock(),
    )
    running = asyncio.create_task(finding.run())
    for talk in told.sessions:
        end = await asyncio.to_thread(write_events, folder, talk.name, talk.events())
        rows.rows[talk.name] = _row(talk.name, end)
        finding.on_event(talk.name, end.seq)
        while not (await facts.book()).has_extracted_turn(talk.name, len(talk.turns)):  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0.005)
        await finding.distill("owner", None, talk.name)
    running.cancel()


async def _lost(told: Dialogues, facts: Facts) -> list[Figure]:
    book = await facts.book()
    wanted = [fact for turn in told.turns() for fact in turn.facts]
    daily = [fact.content for fact in book.layer("daily")]
    kept = {fact.content: fact for fact in book.layer("longterm")}
    replaced = told.replaced()
    holds = set(wanted) - set(replaced)
    applied = sum(new in kept and (old not in kept or _is_less(kept[old], kept[new])) for old, new in replaced.items())
    answered = {each.asks: await _told(facts, each.asks) for each in told.questions}
    newest = [each for each in told.questions if each.answer in replaced.values()]
    return [
        _share("facts of a turn that were extracted", len(set(daily) & set(wanted)), len(wanted)),
        _share("extracted facts that a turn held, each once", len(set(daily) & set(wanted)), len(daily)),
        _share("facts that still hold and stay after distillation", len(set(kept) & holds), len(holds)),
        _share("updates applied", applied, len(replaced)),
        _share("contradictions resolved", sum(answered[q.asks][:1] == [q.answer] for q in newest), len(newest)),
        _share(
            "questions whose fact stands behind them",
            sum(q.answer in answered[q.asks] for q in told.questions),
            len(answered),
        ),
    ]


def _is_less(old: Fact, new: Fact) -> bool:
    return old.importance < new.importance


def _share(measure: str, count: int, of: int) -> Figure:
    """A share in per cent, which must be whole."""
    share = 100 * count / of if of else 100.0
    return figure("facts", f"{measure}, of {of}", "%", [share], against="bar", reference=100.0, holds=count == of)


async def _told(facts: Facts, question: str) -> list[str]:
    """Return the facts that are recalled for a question, best first."""
    hits = _chosen(await facts.recall(question, "owner", least=COVERED))
    book = await facts.book()
    return [book.facts[each].content for each in hits]


def _chosen(found: Sequence[RecallStats]) -> list[str]:
    return [hit.digest for hit in select_facts(found, tokens=TOKENS, known=frozenset(), line=lambda _: 1)]


async def _fill(facts: Facts) -> None:
    """As many facts as the stores hold, their words as unevenly frequent as in a language."""
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
    """Milliseconds of the processor for the whole of what recall of facts adds to a turn: it waits for nothing else."""
    draw = random.Random(6)
    stored = list((await facts.book()).facts.values())
    await facts.recall(stored[0].content, "owner")  # the first takes the words apart, elsewhere when the log is opened
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
