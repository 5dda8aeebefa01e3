"""`/undo`: what the tools of the last turn changed in files is put back, as far as nobody has changed it since.

The log has the hashes of each file before and after each change; the contents before are kept as attachments. Files are
restored one by one, each atomically, the last change first. After a crash in the middle the command runs again, and files
that have their former content already count as restored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from gateway.conversations.turn.tool_calls import parse_arguments
from plugins.support.errors import ToolFailed
from plugins.tools.file_restore import FileAccess, NotRestored, restore
from sessions.events.events import (
    ChangedFile,
    ChangesUndone,
    ModelReplied,
    Recorded,
    RequestedCall,
    ToolReturned,
    UndoneFile,
)
from sessions.store.protocols import Blobs

FILE_TOOLS = ("write", "edit")
"""The tools of which an interrupted call may have changed the file that it names."""

UNDONE = (
    "The person has undone changes of files that the assistant made in its last turn, with the command /undo. This is a note"
    " by the assistant's own system, no message of the person."
)

UNCERTAIN = "the call was interrupted, and what it did is not known"


class Reversal(msgspec.Struct, frozen=True, kw_only=True):
    """The restoration of a file: from the content with the hash `after` to that with the hash `before`, None for no file.

    `cut` is True if somebody else changed the file between two changes of the turn: only the later ones are undone.
    """

    path: str
    before: str | None
    after: str | None
    cut: bool = False


class TurnChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a turn in files: how to undo them, the last changed file first; files that interrupted calls name;
    and True in `undone` if they were undone before."""

    reversals: tuple[Reversal, ...]
    uncertain: tuple[str, ...]
    undone: bool


def told_to_the_model(files: Sequence[UndoneFile]) -> str:
    """Return the message that tells the model which of its changes were undone; "" if none was."""
    lines = [f"- {file.path} {file.sentence}" for file in files]
    return "\n".join([UNDONE, *lines]) if any(file.outcome != "kept" for file in files) else ""


def changes_of(turn: int, events: Iterable[Recorded]) -> TurnChanges:
    """Return what a turn changed and has not been undone yet, from the events since its start."""
    changes: list[ChangedFile] = []
    done: set[str] = set()
    uncertain: list[str] = []
    calls: dict[tuple[int, int], RequestedCall] = {}
    undone = False
    for recorded in events:
        event = recorded.event
        if isinstance(event, ChangesUndone) and event.of == turn:
            undone = True
            done |= {file.path for file in event.files if file.outcome != "kept"}
        elif recorded.turn == turn and isinstance(event, ModelReplied):
            calls |= {(recorded.seq, index): call for index, call in enumerate(event.calls)}
        elif recorded.turn == turn and isinstance(event, ToolReturned):
            changes += event.changes
            if event.outcome == "unknown":
                uncertain += _named_file(calls.get((event.call.of, event.call.index)))
    reversals = tuple(each for each in _reversals(changes) if each.path not in done)
    return TurnChanges(reversals=reversals, uncertain=tuple(dict.fromkeys(uncertain)), undone=undone)


def _reversals(changes: Sequence[ChangedFile]) -> list[Reversal]:
    found: dict[str, Reversal] = {}
    for change in reversed(changes):
        later = found.get(change.path)
        if later is None:
            found[change.path] = Reversal(path=change.path, before=change.before, after=change.after)
        elif not later.cut:
            joined = change.after == later.before
            before = change.before if joined else later.before
            found[change.path] = msgspec.structs.replace(later, before=before, cut=not joined)
    return list(found.values())


def _named_file(call: RequestedCall | None) -> list[str]:
    if call is None or call.tool not in FILE_TOOLS:
        return []
    try:
        path = parse_arguments(call.arguments).get("path")
    except ToolFailed:
        return []
    return [path] if isinstance(path, str) else []


class FileUndo:
    """Puts files of the workspace back. `protected` returns the paths that only the operator changes."""

    def __init__(self, workspace: Path, protected: Callable[[], Sequence[str]], blobs: Blobs) -> None:
        self._workspace = workspace
        self._protected = protected
        self._blobs = blobs

    async def undo(self, changes: TurnChanges, *, person: str, group: bool) -> tuple[UndoneFile, ...]:
        """Put the files back one after the other, and return what was done with each."""
        access = FileAccess(workspace=self._workspace, protected=self._protected(), person=person, group=group)
        files = [await self._undo(access, each) for each in changes.reversals]
        return (*files, *(UndoneFile(path=path, outcome="kept", why=UNCERTAIN) for path in changes.uncertain))

    async def _undo(self, access: FileAccess, reversal: Reversal) -> UndoneFile:
        try:
            content = None if reversal.before is None else await self._blobs.read(reversal.before)
            await asyncio.to_thread(restore, access, reversal.path, expected=reversal.after, content=content)
        except NotRestored as error:
            return UndoneFile(path=reversal.path, outcome="kept", why=str(error))
        except OSError:
            return UndoneFile(path=reversal.path, outcome="kept", why="its former content cannot be read any more")
        why = "only the latest changes are undone, since something else changed it between them" if reversal.cut else ""
        return UndoneFile(path=reversal.path, outcome="removed" if content is None else "restored", why=why)
