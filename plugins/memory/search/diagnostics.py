"""Sentences about the limitations of a search. Pure.

A search never returns nothing without a reason.
"""

from __future__ import annotations

from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.memory.index.embedder import SESSIONS
from plugins.memory.index.indexer import IndexState
from plugins.memory.sources.notes import LARGEST

NOTHING = "by nothing: keyword search is off, and no vectors are made"


def remarks_on(state: IndexState, scope: Scope, *, by_vectors: bool, missed: str, by_words: bool) -> list[str]:
    """Return remarks about results that may be missing. Notes outside the scope are not named.

    Args:
        state: The state of the index.
        scope: The scope of the search.
        by_vectors: Vectors were compared.
        missed: Why there were no vectors, as the end of a sentence; "" if none are wanted.
        by_words: Keywords were compared.
    """
    remarks = [
        *state.remarks,
        *(f"{path} is larger than {LARGEST >> 20} MiB and is not indexed." for path in state.large if scope.reads(path)),
    ]
    if state.problem:
        remarks.append(outdated(state))
    if state.pending:
        remarks.append(f"The index is behind: {_count(state.pending, _kind(state))} of {state.documents} not indexed yet.")
    if state.unreadable:
        first = next((f", the first is {path}" for path in state.unreadable if scope.reads(path)), "")
        remarks.append(f"{_count(len(state.unreadable), _kind(state))} could not be read{first}.")
    if missed:
        what = "Only keywords were compared" if by_words else "Nothing was compared, since keyword search is off"
        remarks.append(f"{what}: {missed}.")
    elif by_vectors and state.unembedded:
        remarks.append(
            f"The index is behind: {state.unembedded} of {_count(state.chunks, 'chunk')} have no vector yet"
            + (" and are found by keywords only" if by_words else "")
            + (f". {state.vector_problem}" if state.vector_problem else ".")
        )
    return remarks


def outdated(state: IndexState) -> str:
    """Return why the index could not be updated, as a sentence."""
    return f"The index is not up to date: {state.problem}"


def how_found(vectors: str, *, by_words: bool) -> str:
    """Return how notes are found, such as `by words and by meaning (model)`; `vectors` names the model, "" for none."""
    meaning = f"by meaning ({vectors})" if vectors else ""
    return " and ".join(filter(None, ["by words" if by_words else "", meaning])) or NOTHING


def found_without_vectors(*, by_words: bool) -> str:
    """Return how notes are found without vectors, as the end of a sentence."""
    return "found by keywords only" if by_words else f"found {NOTHING}"


def without_vectors(*, by_words: bool) -> str:
    """Return the effect of missing vectors, as the beginning of a sentence."""
    return f"Notes are {'found by keywords only' if by_words else 'not found, since keyword search is off'}"


def nothing_found(state: IndexState, scope: Scope) -> str:
    """Return why a search found nothing."""
    if not state.documents:
        return "No note is indexed." if state.problem else "There are no notes."
    narrowed = scope.sources is not None or scope.sender is not None or scope.since or scope.until
    where = " by that source, sender or time" if narrowed and scope != EVERYTHING else ""
    sessions = state.by_source.get(SESSIONS, 0)
    notes = [_count(state.documents - sessions, "note")] if state.documents > sessions else []
    return f"Nothing{where} matches in {' and '.join([*notes, *([_count(sessions, 'session')] if sessions else [])])}."


def _kind(state: IndexState) -> str:
    """Return what the documents of the index are called together."""
    return "document" if SESSIONS in state.by_source else "note"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
