"""What is to be known about a search besides what it found, in sentences. Pure.

A search never returns nothing without saying why.
"""

from __future__ import annotations

from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.memory.index.indexer import IndexState
from plugins.memory.sources.markdown_files import LARGEST

NOTHING = "by nothing: words are switched off, and nobody makes vectors"


def remarks_on(state: IndexState, scope: Scope, *, by_vectors: bool, missed: str, by_words: bool) -> list[str]:
    """What may be missing from an answer to whom the scope is of, who is told of no note by its name that they may not read:
    `by_vectors` and `by_words` say what was compared, `missed` why there were no vectors, as the end of a sentence, empty
    where none are wanted."""
    remarks = [
        *state.remarks,
        *(f"{path} is larger than {LARGEST >> 20} MiB and is not indexed." for path in state.large if scope.reads(path)),
    ]
    if state.trouble:
        remarks.append(f"The index is not up to date: {state.trouble}")
    if state.left:
        remarks.append(f"The index is behind: {_count(state.left, 'note')} of {state.documents} not indexed yet.")
    if state.unreadable:
        first = next((f", the first is {path}" for path in state.unreadable if scope.reads(path)), "")
        remarks.append(f"{_count(len(state.unreadable), 'note')} could not be read{first}.")
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


def how_found(vectors: str, *, by_words: bool) -> str:
    """How notes are found: `by words and by meaning (model)`; `vectors` names the model, empty where nobody makes any."""
    meaning = f"by meaning ({vectors})" if vectors else ""
    return " and ".join(filter(None, ["by words" if by_words else "", meaning])) or NOTHING


def found_without_vectors(*, by_words: bool) -> str:
    """How notes are found where nobody makes vectors, as the end of a sentence."""
    return "found by their words alone" if by_words else f"found {NOTHING}"


def without_vectors(*, by_words: bool) -> str:
    """What it means that no vectors come, as the beginning of a sentence."""
    return f"Notes are {'found by their words alone' if by_words else 'not found, since words are switched off'}"


def nothing_found(state: IndexState, scope: Scope) -> str:
    """Why a search found nothing."""
    if not state.documents:
        return "There are no notes."
    narrowed = scope.sources is not None or scope.sender is not None or scope.since or scope.until
    where = " by that source, sender or time" if narrowed and scope != EVERYTHING else ""
    return f"Nothing{where} matches in {_count(state.documents, 'note')}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
