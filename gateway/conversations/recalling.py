"""Recall before a turn: what the notes have for the person's message stands behind it when the model is asked.

It never fails a turn, and holds it up for `WITHIN` seconds at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from gateway.conversations.loaded_notes import memory_notes
from gateway.errors import sentence_of
from plugins.context.fencing import harmless, mark_for
from plugins.contracts import Clock
from plugins.memory.recall import chosen
from plugins.memory.scope import Scope
from plugins.memory.settings import RecallKeys
from plugins.memory.small_talk import is_small_talk
from plugins.memory.transcripts import document_of
from sessions.attachments import head_and_tail
from sessions.events import MemoryRecalled, PluginFailed
from sessions.recorder import Recorder
from sessions.transcript import Transcript, open_turn
from sessions.wire import carriable

if TYPE_CHECKING:
    from plugins.memory.memory import Found, Memory
    from plugins.memory.searching import Hit

NOTES, SOURCES = ("notes", "extra"), ("notes", "extra", "sessions")
"""What is recalled. As long as there is no note a question has no vector made of it: each turn would pay for that from the
first conversation on, and what was said is mostly found by its words."""

WITHIN = 0.5
"""Seconds that it may take. Words are found in a few milliseconds; an index that is opened for the first message takes
longer."""

VECTOR_WITHIN = 0.15
"""Seconds of these in which the question's vector is there, or the words alone count."""

PATIENCE = 0.2
"""Seconds of these for a look at the notes, where none was taken yet or nobody watches them."""

QUESTION = 1000
"""Bytes of a message by which is looked for."""

SHARE = 10
"""What is recalled takes no more than this part of the model's window."""

SMALL_TOKENS, SMALL_RESULTS = 160, 2
"""What a small model, which is slow at reading, is shown at most."""

log = structlog.get_logger("exuvia.recall")


class Recalling:
    """Recalls for one session. `keys` says how, `allowed` whether a model may see the memory at all."""

    def __init__(
        self,
        recorder: Recorder,
        memory: Memory,
        *,
        keys: Callable[[], RecallKeys],
        allowed: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._recorder = recorder
        self._memory = memory
        self._keys = keys
        self._allowed = allowed
        self._clock = clock
        self._trouble = ""
        """Why the last recall failed, as a sentence."""

    async def recall(self, window: int | None, small: bool) -> None:
        """Note what bears on the messages that the open turn began with, for a model of this window (tokens; None if
        unknown)."""
        question = head_and_tail(asked(self._recorder.transcript), QUESTION)
        if self._keys().mode == "off" or not self._allowed() or not self._memory.may_have(SOURCES):
            return
        if is_small_talk(question):
            return
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(WITHIN):
                found = await self._search(question)
        except TimeoutError:
            log.info("recall_late", session=self._recorder.transcript.session, seconds=WITHIN)
            return
        except Exception as error:
            self._fail(sentence_of(error))
            return
        self._trouble = ""
        self._note(question, found, window, small, self._clock.monotonic() - began)

    async def _search(self, question: str) -> Found:
        transcript, keys = self._recorder.transcript, self._keys()
        scope = Scope(
            owners=frozenset({transcript.person}),
            private=not open_turn(transcript).group,
            shown=(document_of(transcript.session), transcript.view.begins or 1),
        )
        # Some of what is found may stand in the request already, or have nothing to do with the question.
        by_meaning = keys.mode == "hybrid" and self._memory.may_have(NOTES)
        results, within = 2 * keys.max_results, VECTOR_WITHIN if by_meaning else 0.0
        return await self._memory.search(question, scope, results=results, patience=PATIENCE, eager=False, within=within)

    def _note(self, question: str, found: Found, window: int | None, small: bool, seconds: float) -> None:
        keys, transcript = self._keys(), self._recorder.transcript
        hits = chosen(
            found.hits,
            results=min(keys.max_results, SMALL_RESULTS) if small else keys.max_results,
            tokens=min(keys.max_tokens, window // SHARE if window else keys.max_tokens, SMALL_TOKENS if small else 10**6),
            known=Shown(transcript).has,
        )
        if hits:
            mark = mark_for("\n".join(hit.text for hit in hits))
            millis = round(1000 * seconds)
            event = MemoryRecalled(query=carriable(question), hits=hits, mark=mark, millis=millis)
            self._recorder.note(event, turn=open_turn(transcript).ordinal)

    def _fail(self, sentence: str) -> None:
        """Once for each reason: it may last, and the log is read by people."""
        if sentence != self._trouble:
            failed = PluginFailed(plugin="memory", hook="recall", sentence=carriable(sentence))
            self._recorder.note(failed, turn=open_turn(self._recorder.transcript).ordinal)
        self._trouble = sentence


def asked(transcript: Transcript) -> str:
    """What the person wrote that the open turn began with."""
    view = transcript.view
    first = view.first_from(open_turn(transcript).started)
    return "\n".join(message.text for message in view.said(first, len(view)))


class Shown:
    """What of the memory a request holds already: what was recalled in turns that are still shown, and the notes in the
    instructions, as they were loaded."""

    def __init__(self, transcript: Transcript) -> None:
        self._digests = {digest for digests in transcript.view.recalled.values() for digest in digests}
        self._notes = {note.path: note.text for note in memory_notes(transcript)}

    def has(self, hit: Hit) -> bool:
        """Whether that is there."""
        if hit.chunk.digest() in self._digests:
            return True
        note = self._notes.get(hit.chunk.path)
        text = harmless(hit.chunk.text)
        return note is not None and (text in note or _lines(text) <= _lines(note))


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.split("\n")}
