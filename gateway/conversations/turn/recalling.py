"""Recall before a turn: passages of the memory that are relevant to the person's message are added to the request.

Recall never fails a turn, and delays it by `WITHIN` seconds at most.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import structlog

from gateway.conversations.context.conversation_config import ConversationConfig
from gateway.conversations.context.loaded_notes import memory_notes
from gateway.support.errors import sentence_of
from plugins.api.fact_values import FactOrigin, FactsError
from plugins.facts.fact_log import DOCUMENT, recalled_fact
from plugins.facts.facts import Facts
from plugins.memory.recall import MIN_COSINE, select_hits
from plugins.memory.sources.dialogue import only_asks
from plugins.memory.sources.transcripts import document_of
from plugins.support.fencing import harmless, mark_for
from plugins.support.text.trivial_queries import is_small_talk
from sessions.events.codec import replace_surrogates
from sessions.events.events import MemoryRecalled, PluginFailed, RecalledHit
from sessions.state.transcript import Transcript, open_turn
from sessions.state.truncation import head_and_tail
from sessions.store.recorder import Recorder

if TYPE_CHECKING:
    from plugins.memory.memory import Memory, SearchResult
    from plugins.memory.search.search import Hit

NOTES, SESSIONS = ("notes", "extra"), "sessions"
"""The sources of recalled passages.

While there are no notes, no vector is made of the question: it would delay each turn from the first conversation on, and
past messages are mostly found by their words.
"""

WITHIN = 0.5
"""Seconds that recall may take. A word search takes a few milliseconds; opening the index for the first message takes
longer."""

VECTOR_WITHIN = 0.15
"""Seconds of WITHIN to wait for the question's vector; after that, only words count."""

PATIENCE = 0.2
"""Seconds of WITHIN for indexing the notes, if they are not indexed yet or not watched."""

QUESTION = 1000
"""Maximum bytes of a message that are used as the query."""

SHARE = 10
"""Recalled notes and sessions get at most 1/SHARE of the model's window, and so do facts: a fifth together."""

FACT_TOKENS = 600
"""Maximum tokens of recalled facts."""

SMALL_TOKENS, SMALL_RESULTS = 160, 2
"""Limits for a small model, which reads slowly."""

log = structlog.get_logger("exuvia.recall")


class Recall:
    """The recall of one session."""

    def __init__(self, recorder: Recorder, memory: Memory, facts: Facts, config: ConversationConfig) -> None:
        self._recorder = recorder
        self._memory = memory
        self._facts = facts
        self._config = config
        self._clock = config.clock
        self._problem = ""
        """Why the last recall failed, as a sentence."""

    async def recall(self, window: int | None, small: bool) -> None:
        """Record passages relevant to the messages of the open turn, for a model of this window (tokens; None if
        unknown)."""
        keys = self._config.current.memory.recall
        if keys.mode == "off" or not self._shows_memory or (self._facts.is_empty and not self._may_find()):
            return
        question = head_and_tail(turn_text(self._recorder.transcript), QUESTION)
        if is_small_talk(question):
            return
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(WITHIN):
                facts = await self._relevant_facts(question, window, small)
                found = (await self._search(question)).hits if self._may_find() else ()
        except TimeoutError:
            log.info("recall_late", session=self._recorder.transcript.session, seconds=WITHIN)
            return
        except Exception as error:
            self._fail(sentence_of(error))
            return
        self._problem = ""
        if hits := (*facts, *self._relevant_passages(found, window, small)):
            await self._record(question, hits, self._clock.monotonic() - began)

    @property
    def _shows_memory(self) -> bool:
        """True if the configuration and the person's role let the model see the memory."""
        return self._config.shows_memory and self._config.rights_of(self._recorder.transcript.person).notes != "none"

    async def _relevant_facts(self, question: str, window: int | None, small: bool) -> tuple[RecalledHit, ...]:
        """Return the facts relevant to the question; none if they cannot be read, which `/status` reports."""
        transcript = self._recorder.transcript
        owner = "" if open_turn(transcript).group else transcript.person
        if self._facts.is_empty:
            return ()
        from plugins.facts.fact_recall import COVERED, select_facts  # noqa: PLC0415 - loads language data

        try:
            found, book = await self._facts.recall(question, owner, least=COVERED), await self._facts.book()
        except FactsError:
            return ()
        return select_facts(
            found,
            tokens=self._token_limit(FACT_TOKENS, window, small),
            known={digest for digests in transcript.view.recalled.values() for digest in digests},
            line=lambda fact: book.text_seq(fact.id),
        )

    def _token_limit(self, most: int, window: int | None, small: bool) -> int:
        """Return the tokens for one kind of recalled passages."""
        return min(most, window // SHARE if window else most, SMALL_TOKENS if small else most)

    def _may_find(self) -> bool:
        """Return True if the memory may contain something that is not in the request. In a first session without notes,
        that is only what has left its view."""
        if self._memory.may_contain(NOTES):
            return True
        several = self._memory.state.by_source.get(SESSIONS, 0) > 1 or bool(self._recorder.transcript.cuts)
        return several and self._memory.may_contain([SESSIONS])

    async def _search(self, question: str) -> SearchResult:
        transcript, keys = self._recorder.transcript, self._config.current.memory.recall
        scope = msgspec.structs.replace(
            self._config.scope_of(transcript.person, group=open_turn(transcript).group),
            shown=(document_of(transcript.session), transcript.view.first_seq or 1),
        )
        # Some hits may be in the request already, or be irrelevant to the question.
        by_meaning = self._min_cosine() is not None and self._memory.contains(NOTES)
        results, within = 2 * keys.max_results, VECTOR_WITHIN if by_meaning else 0.0
        return await self._memory.search(question, scope, results=results, patience=PATIENCE, eager=False, within=within)

    def _min_cosine(self) -> float | None:
        """Return the least cosine of a relevant passage; None if only words decide."""
        keys, provider = self._config.current.memory.recall, self._memory.provider()
        if keys.mode != "hybrid" or provider is None:
            return None
        return MIN_COSINE.get(provider.model() or "") if keys.min_cosine is None else keys.min_cosine

    def _is_calibrated(self) -> bool:
        """Return True if the search itself leaves out what does not answer, compared with the best result."""
        from plugins.memory.search.relevance import is_calibrated  # noqa: PLC0415 - the search has imported it

        keys, provider = self._config.current.memory, self._memory.provider()
        return keys.search.fusion == "measured" and provider is not None and is_calibrated(provider.model() or "")

    def _relevant_passages(self, found: Sequence[Hit], window: int | None, small: bool) -> tuple[RecalledHit, ...]:
        """Return the passages of notes and sessions that are relevant to the question."""
        transcript, keys = self._recorder.transcript, self._config.current.memory.recall
        shown, question = ShownMemory(transcript), turn_text(transcript)
        return select_hits(
            found,
            min_cosine=self._min_cosine(),
            calibrated=self._is_calibrated(),
            results=min(keys.max_results, SMALL_RESULTS) if small else keys.max_results,
            tokens=self._token_limit(keys.max_tokens, window, small),
            # Only a part of a long question was searched for; repetitions are compared with all of it.
            known=lambda hit: shown.has(hit) or only_asks(hit.chunk, question),
        )

    async def _record(self, question: str, hits: tuple[RecalledHit, ...], seconds: float) -> None:
        transcript = self._recorder.transcript
        mark = mark_for("\n".join(hit.text for hit in hits))
        event = MemoryRecalled(query=replace_surrogates(question), hits=hits, mark=mark, millis=round(1000 * seconds))
        seq = self._recorder.append(event, turn=open_turn(transcript).ordinal)
        facts = tuple(recalled_fact(hit.digest) for hit in hits if hit.path == DOCUMENT)
        with contextlib.suppress(FactsError):  # recording the use of a fact must not fail a turn
            await self._facts.used(facts, FactOrigin(session=transcript.session, seq=seq))

    def _fail(self, sentence: str) -> None:
        """Record a failure, but not the same one repeatedly."""
        if sentence != self._problem:
            failed = PluginFailed(plugin="memory", hook="recall", sentence=replace_surrogates(sentence))
            self._recorder.append(failed, turn=open_turn(self._recorder.transcript).ordinal)
        self._problem = sentence


def turn_text(transcript: Transcript) -> str:
    """Return the text of the messages that the open turn began with."""
    view = transcript.view
    first = view.first_from(open_turn(transcript).started)
    return "\n".join(message.text for message in view.without_recalled(first, len(view)))


class ShownMemory:
    """The passages of the memory that a request already has: recalled in turns that are still shown, or loaded with the
    instructions."""

    def __init__(self, transcript: Transcript) -> None:
        self._digests = {digest for digests in transcript.view.recalled.values() for digest in digests}
        self._notes = {note.path: note.text for note in memory_notes(transcript)}

    def has(self, hit: Hit) -> bool:
        """Return True if a passage is already in the request."""
        if hit.chunk.digest() in self._digests:
            return True
        note = self._notes.get(hit.chunk.path)
        text = harmless(hit.chunk.text)
        return note is not None and (text in note or _lines(text) <= _lines(note))


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.split("\n")}
