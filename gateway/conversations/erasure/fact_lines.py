"""Erases facts from the lines of their log, in which forgotten and edited ones are kept otherwise. All functions block."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from gateway.conversations.erasure.erasure_plan import Reached, facts_from
from gateway.conversations.erasure.tombstones import ERASED
from gateway.conversations.facts.fact_store import LOG
from plugins.api.fact_values import Fact
from plugins.facts.fact_events import FactEdited, FactEvent, FactsDistilled, FactsExtracted, FactsWritten, LoggedFactEvent
from plugins.facts.fact_log import decode
from sessions.events.codec import InvalidLine, encode_line
from sessions.events.errors import JournalDamaged, UnknownSession
from sessions.store.protocols import START, LogReader
from sessions.store.reading import verify_lines


class ErasedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts to erase: their ids, and all texts that they ever had."""

    ids: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()


def facts_to_erase(
    logs: LogReader, reached: Mapping[str, Reached], known: Collection[str] = (), owner: str | None = None
) -> ErasedFacts:
    """Return the facts that came from events that are reached, those with a `known` id, and all of an `owner`, also if they
    were forgotten.

    Raises StorageFailed, JournalDamaged.
    """
    entries, edits = dict[str, Fact](), list[FactEdited]()

    def collect(line: bytes) -> None:
        match decode(line).event:
            case FactsExtracted(entries=found) | FactsWritten(entries=found) | FactsDistilled(entries=found):
                entries.update({fact.id: fact for fact in found})
            case FactEdited() as edit:
                edits.append(edit)

    try:
        with logs.read(LOG) as lines:
            verify_lines(lines, START, collect)
    except UnknownSession:
        return ErasedFacts()
    except InvalidLine as error:
        raise JournalDamaged(LOG, 0, str(error)) from error
    chosen = {fact.id for fact in facts_from(entries.values(), reached)}
    chosen |= entries.keys() & set(known)
    chosen |= {id_ for id_, fact in entries.items() if owner is not None and fact.owner == owner}
    texts = [entries[each].content for each in sorted(chosen)]
    return ErasedFacts(ids=frozenset(chosen), texts=(*texts, *(edit.content for edit in edits if edit.id in chosen)))


class FactEraser:
    """The change to a line of the facts' log."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._ids = frozenset(ids)

    def __call__(self, line: bytes) -> bytes:
        """Return a line without the facts; the same object if it has none of them."""
        if not any(each.encode() in line for each in self._ids):
            return line
        logged = decode(line)
        match logged.event:
            case FactsExtracted() | FactsWritten() | FactsDistilled() as event:
                left = tuple(fact for fact in event.entries if fact.id not in self._ids)
                return _encoded(logged, msgspec.structs.replace(event, entries=left))
            case FactEdited(id=id_) as edit if id_ in self._ids:
                return _encoded(logged, msgspec.structs.replace(edit, content=ERASED, tags=()))
            case _:
                return line


def _encoded(logged: LoggedFactEvent, event: FactEvent) -> bytes:
    return encode_line(logged.seq, logged.at, None, event, b"erased")[0]
