"""Writes what a person wants remembered, as an item at the end of `MEMORY.md`, or of the day's note in a group. Also does so
for a model without tools."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Container
from pathlib import Path

from gateway.config.settings import Settings
from gateway.conversations.notes.appending import TRIES, NoteNotWritten, append_once
from gateway.conversations.notes.day_notes import day_note
from plugins.api.context import Clock
from plugins.memory.memory import Memory
from plugins.memory.sources.notes import Notes, is_note
from plugins.support.safe_open import OutsideFolder
from plugins.support.workspace import MAIN, own_note, parse_citation, why_refused
from plugins.tools.file_target import FileChanged, open_target
from sessions.events.codec import replace_surrogates
from sessions.events.events import NoteAppended, PluginFailed
from sessions.state.transcript import open_turn
from sessions.store.recorder import Recorder

LONGEST = 4000
"""Maximum characters of one item."""

_LINES = re.compile(rb"[^\n]*\n|[^\n]+")

WRITE = "write"
"""The tool by which a model writes notes itself."""


class MemoryWriter:
    """Writes into the notes of a workspace. Dates are those of the configured time zone."""

    def __init__(self, workspace: Path, memory: Memory, settings: Settings, clock: Clock) -> None:
        self.notes = Notes(workspace)
        self._workspace = workspace
        self._memory = memory
        self._settings = settings
        self._clock = clock

    async def remember(self, text: str, person: str, *, group: bool) -> str:
        """Append an item to a note of the person, unless the note has it, index it, and return its citation, such as
        `MEMORY.md#L12-L12`.

        The item names its author and date. Raises NoteNotWritten.
        """
        now = self._clock.now().astimezone(self._settings.zone)
        path = own_note(person, day_note(now) if group else MAIN)
        line_text = " ".join(replace_surrogates(text).split())
        if not line_text:
            raise NoteNotWritten("There is nothing to remember.")
        if len(line_text) > LONGEST:
            raise NoteNotWritten(f"That is longer than {LONGEST:,} characters; write it into a note of its own.")
        item, author = f"- {line_text}", f"({person}, {now:%Y-%m-%d})"
        file, line = await asyncio.to_thread(
            append_once,
            self._workspace,
            path,
            lambda _: f"{item} {author}\n".encode(),
            lambda content: _line_of(content, item, author),
            continued=group,
        )
        await self._memory.refresh()
        return f"{file}#L{line}-L{line}"

    async def forget(self, place: str, person: str, *, group: bool) -> str:
        """Delete the lines of a citation such as `MEMORY.md#L3-L4` from a note of the person, and return them. Raises
        NoteNotWritten."""
        cited = parse_citation(place)
        path = own_note(person, cited[0]) if cited else ""
        if cited is None or not is_note(path):
            raise NoteNotWritten(f"{place} is not a citation of lines in a note, such as {MAIN}#L3-L4.")
        if why := why_refused(tuple(path.split("/")), person, group=group, writes=True):
            raise NoteNotWritten(f"{path}: {why}")
        deleted = await asyncio.to_thread(self._delete_lines, path, *cited[1:])
        await self._memory.refresh()
        return deleted

    def _delete_lines(self, path: str, first: int, last: int) -> str:
        try:
            with open_target(self._workspace, tuple(path.split("/")), make=False) as place:
                for _ in range(TRIES):
                    lines = _LINES.findall(place.content() or b"")
                    if not 1 <= first <= last <= len(lines):
                        raise NoteNotWritten(f"{path} has no lines {first} to {last}; it has {len(lines)}.")
                    try:
                        place.replace(b"".join([*lines[: first - 1], *lines[last:]]), lambda: None)
                    except FileChanged:
                        continue
                    return b"".join(lines[first - 1 : last]).decode(errors="replace").rstrip("\n")
        except FileNotFoundError:
            raise NoteNotWritten(f"There is no note {path}.") from None
        except OutsideFolder as error:
            raise NoteNotWritten(f"{path}: {error}") from error
        except OSError as error:
            raise NoteNotWritten(f"{path} cannot be written: {error.strerror or error}.") from error
        raise NoteNotWritten(f"{path} keeps changing; try again.")


class ExplicitMemory:
    """Handles the requests of one session to remember something. `tools` are those offered to a model, unless it is a
    small one."""

    def __init__(self, recorder: Recorder, memory_writer: MemoryWriter, tools: Container[str]) -> None:
        self._recorder = recorder
        self._memory_writer = memory_writer
        self._tools = tools

    async def write_requested(self, small: bool) -> bool:
        """Write what the messages of the open turn ask to remember. Return False if they ask for nothing, or if the model
        has a tool for it.

        A failure is recorded in the log.
        """
        if WRITE in self._tools and not small:
            return False
        from plugins.memory.remember_requests import text_to_remember  # noqa: PLC0415 - its patterns take milliseconds to compile

        transcript = self._recorder.transcript
        turn, view = open_turn(transcript), transcript.view
        written = False
        for index in range(view.first_from(turn.started), len(view)):
            what = text_to_remember(view.messages[index].text) if view.sources[index] in turn.takes else None
            if what is None:
                continue
            try:
                place = await self._memory_writer.remember(what, transcript.person, group=turn.group)
            except NoteNotWritten as error:
                failed = PluginFailed(plugin="memory", hook="remember", sentence=str(error))
                self._recorder.append(failed, turn=turn.ordinal)
            else:
                appended = NoteAppended(of=view.sources[index], path=place.partition("#")[0])
                self._recorder.append(appended, turn=turn.ordinal)
            written = True
        return written


def _line_of(content: bytes, item: str, author: str) -> int | None:
    """Return the line of an item by any author. An incomplete last line does not count."""
    *lines, last = content.decode(errors="replace").replace("\r\n", "\n").split("\n")
    if not f"{item} {author}".startswith(last):
        lines.append(last)
    return next((n for n, line in enumerate(lines, 1) if line == item or line.startswith(f"{item} (")), None)
