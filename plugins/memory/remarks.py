"""What is to be known about a search besides what it found, in sentences. Pure.

A search never returns nothing without saying why.
"""

from __future__ import annotations

from plugins.memory.scope import EVERYTHING, Scope
from plugins.memory.upkeep import Upkept


def remarks_on(state: Upkept, *, by_vectors: bool, missed: str, by_words: bool) -> list[str]:
    """What may be missing from an answer: `by_vectors` and `by_words` say what was compared, `missed` why there were no
    vectors, as the end of a sentence, empty where none are wanted."""
    remarks = list(state.remarks)
    if state.trouble:
        remarks.append(f"The index is not up to date: {state.trouble}")
    if state.left:
        remarks.append(f"The index is behind: {_count(state.left, 'note')} of {state.documents} not indexed yet.")
    if state.unreadable:
        remarks.append(f"{_count(len(state.unreadable), 'note')} could not be read, the first is {state.unreadable[0]}.")
    if missed:
        what = "Only words were compared" if by_words else "Nothing was compared, since words are switched off"
        remarks.append(f"{what}: {missed}.")
    elif by_vectors and state.unembedded:
        remarks.append(
            f"The index is behind: {state.unembedded} of {_count(state.chunks, 'chunk')} have no vector yet"
            + (" and are found by their words alone" if by_words else "")
            + (f". {state.unmade}" if state.unmade else ".")
        )
    return remarks


def nothing_found(state: Upkept, scope: Scope) -> str:
    """Why a search found nothing."""
    if not state.documents:
        return "There are no notes."
    narrowed = scope.sources is not None or scope.sender is not None or scope.since or scope.until
    where = " by that source, sender or time" if narrowed and scope != EVERYTHING else ""
    return f"Nothing{where} matches in {_count(state.documents, 'note')}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
