"""JSON endpoints for search, notes and facts, limited to what the person may see: those of the agent `main`, or with
`?agent=NAME` of another one.

GET    /api/memory?q=…               hits, with the parts of each score
GET    /api/memory/forms?at=…&q=…    the forms in which the words of a query occur at a citation
GET    /api/memory/file?path=…       a file of `memory.extra_paths`
GET    /api/notes                    the notes that this person may read, and the state of the index
GET    /api/notes/{path}             one note, with the digest of its content as its ETag
PUT    /api/notes/{path}             its new text; `If-Match` has the digest that it replaces, `If-None-Match: *` creates it
POST   /api/notes/{path}             `{"to": path}`: move the note with the digest in `If-Match`
DELETE /api/notes/{path}             delete the note with the digest in `If-Match`
GET    /api/facts                    the facts that this person may see
GET    /api/facts/{id}               the origin and history of one
POST   /api/facts/{id}/pin, /unpin   keep it permanently, or no longer
PATCH  /api/facts/{id}               edit it; `If-Match` has the `revision` that was read
DELETE /api/facts/{id}               forget it
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from gateway.auth.people import Admission
from gateway.conversations.commands.memory_view import memory_in_short
from gateway.http.console.notes_editor import (
    NoSuchNote,
    Note,
    NoteChanged,
    NoteRefused,
    delete_note,
    listed_notes,
    move_note,
    read_note,
    write_note,
)
from gateway.http.request_bodies import BodyRefused, read_body
from gateway.http.responses import answer, refusal
from plugins.api.context import Clock
from plugins.api.fact_values import (
    Fact,
    FactChange,
    FactConflict,
    FactNotEditable,
    FactsUnavailable,
    NoSuchFact,
)
from plugins.api.memory.scope import Scope
from plugins.api.plugin_services import IndexUnusable
from plugins.facts.fact_book import FactBook
from plugins.facts.facts import Facts
from plugins.facts.persons_facts import PersonsFacts
from plugins.facts.scoring import current_importance
from plugins.memory.memory import Memory
from plugins.memory.search.diagnostics import remarks_on
from plugins.memory.sources.notes import Notes
from plugins.memory.sources.transcripts import document_of
from plugins.support.text.words import occurrences
from plugins.support.workspace import NotesAccess, parse_citation, why_refused

if TYPE_CHECKING:
    from plugins.memory.search.search import Hit

RESULTS = 12
"""The maximum number of hits."""

FACT_BYTES = 64 * 1024
"""The maximum size of the body of an edit of a fact."""

NOTE_BYTES, NOTE_SECONDS = 1024 * 1024, 60.0
"""The maximum size of a note in bytes, and the seconds for its upload."""

FORMS = 50
"""The maximum number of forms of words."""

DIGITS = 15
"""The maximum length of a revision."""

LONGEST = 1000
"""The maximum length of a query in characters."""


class _Move(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    to: str


class MemoryEndpoints:
    """The endpoints of one agent for an authenticated person, with the rights of a private chat of theirs.

    Args:
        memory: The agent's memory.
        facts: The agent's facts.
        workspace: The agent's workspace.
        clock: The clock.
        notes: Returns the notes that a person's role shows them.
    """

    def __init__(
        self, memory: Memory, facts: Facts, workspace: Path, clock: Clock, notes: Callable[[str], NotesAccess]
    ) -> None:
        self._shown_notes = notes
        self._memory = memory
        self._facts = facts
        self._workspace = workspace
        self._clock = clock

    # --- searching ----------------------------------------------------------------------------------------------------

    async def search(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the hits of a search, best first, with remarks about it."""
        query = request.query.get("q", "").strip()[:LONGEST]
        if not query:
            return answer(200, {"hits": [], "remarks": []})
        person = admission.person.id
        try:
            found = await self._memory.search(query, self._scope(person), results=RESULTS)
        except IndexUnusable as error:
            return refusal(503, "index_unusable", str(error))
        return answer(200, {"hits": [_hit(hit, person, query) for hit in found.hits], "remarks": found.remarks})

    async def forms(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the forms in which the words of a query occur at a citation, so that a page can highlight them there."""
        query, cited = request.query.get("q", "")[:LONGEST], parse_citation(request.query.get("at", ""))
        if cited is None:
            return refusal(400, "bad_request", "`at` must be a citation such as MEMORY.md#L3-L7.")
        path, first, last = cited
        text = await self._memory.excerpt(path, first, max(1, last - first + 1), self._scope(admission.person.id)) or ""
        return answer(200, {"words": await asyncio.to_thread(_forms, text, query)})

    async def file(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return a file of `memory.extra_paths` like a note that nobody may edit."""
        path = request.query.get("path", "")
        text = await self._memory.added_text(path, self._scope(admission.person.id))
        if not text:
            return refusal(404, "not_found", "There is no such file in memory.extra_paths.")
        return answer(200, Note(path=path, text=text, digest="", editable=False))

    # --- notes --------------------------------------------------------------------------------------------------------

    async def notes(self, _: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the notes that this person may read, the last changed first."""
        memory = self._memory
        provider = memory.provider()
        person = admission.person.id
        scope, by_words = self._scope(person), memory.by_words
        remarks = remarks_on(memory.state, scope, by_vectors=provider is not None, missed="", by_words=by_words)
        notes = await asyncio.to_thread(listed_notes, self._workspace, person, self._shown_notes(person))
        return answer(200, {"notes": notes, "index": memory_in_short(memory), "remarks": remarks})

    async def note(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return one note."""
        path, person = request.match_info["path"], admission.person.id
        try:
            shown = self._shown_notes(person)
            return _note_response(await asyncio.to_thread(read_note, self._workspace, path, person, shown))
        except NoSuchNote as error:
            return refusal(404, "not_found", str(error))

    async def write(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Write a note's new text if the precondition holds; otherwise return 409 with the current note."""
        expected = request.headers.get("If-Match", "").strip('"') or None
        if expected is None and request.headers.get("If-None-Match") != "*":
            return refusal(428, "precondition_required", "If-Match or If-None-Match: * is required.")
        path, person = request.match_info["path"], admission.person.id
        try:
            text = (await read_body(request, NOTE_BYTES, NOTE_SECONDS)).decode()
        except BodyRefused as refused:
            return refused.response
        except UnicodeDecodeError:
            return refusal(400, "bad_request", "The text of a note must be UTF-8.")
        return await self._changed(lambda: write_note(self._workspace, path, text, expected, person))

    async def move(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Move a note to a path where none is."""
        expected = request.headers.get("If-Match", "").strip('"')
        path, person = request.match_info["path"], admission.person.id
        if not expected:
            return refusal(428, "precondition_required", "If-Match is required.")
        try:
            move = msgspec.json.decode(await read_body(request, NOTE_BYTES, NOTE_SECONDS), type=_Move)
        except BodyRefused as refused:
            return refused.response
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return refusal(400, "bad_request", 'The body must be {"to": path}.')
        return await self._changed(lambda: move_note(self._workspace, path, move.to, expected, person))

    async def delete(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Delete a note."""
        expected = request.headers.get("If-Match", "").strip('"')
        path, person = request.match_info["path"], admission.person.id
        if not expected:
            return refusal(428, "precondition_required", "If-Match is required.")
        return await self._changed(lambda: delete_note(self._workspace, path, expected, person))

    async def _changed(self, change: Callable[[], Note | None]) -> web.Response:
        """Change a note in a thread, and return what it is now."""
        try:
            note = await asyncio.to_thread(change)
        except NoteChanged as changed:
            return answer(409, {"code": "conflict", "message": str(changed), "theirs": changed.theirs})
        except NoteRefused as error:
            return refusal(422, "note_not_written", str(error))
        self._memory.wake()
        return answer(200, {}) if note is None else _note_response(note)

    # --- facts --------------------------------------------------------------------------------------------------------

    async def facts(self, _: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the facts, newest first."""

        async def listed(facts: PersonsFacts) -> Any:
            if self._facts.is_empty:
                return {"facts": []}
            book = await self._facts.book()
            return {"facts": [self._fact(fact, book) for fact in reversed(await facts.listed())]}

        return await self._answered(admission, listed)

    async def fact(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the history of a fact, as `/why` does."""

        async def story(facts: PersonsFacts) -> Any:
            history = await facts.history(request.match_info["id"])
            return {
                "fact": await self._current(history.fact),
                "there": history.exists,
                "said": await self._source_message(history.fact, admission.person.id),
                "happened": history.changes,
            }

        return await self._answered(admission, story)

    async def pin(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Pin a fact and return it."""
        return await self._pinned(request, admission, pinned=True)

    async def unpin(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Unpin a fact and return it."""
        return await self._pinned(request, admission, pinned=False)

    async def forget(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Forget a fact and return it."""

        async def forgotten(facts: PersonsFacts) -> Any:
            return {"fact": await self._current(await facts.forget(request.match_info["id"]))}

        return await self._answered(admission, forgotten)

    async def edit(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Edit a fact and return it; 409 with the current one if it was edited since it was read."""
        revision = request.headers.get("If-Match", "").strip('"')
        if not revision.isdecimal() or len(revision) > DIGITS:
            return refusal(428, "precondition_required", "If-Match with the revision of the fact is required.")
        try:
            change = msgspec.json.decode(await read_body(request, FACT_BYTES, NOTE_SECONDS), type=FactChange)
        except BodyRefused as refused:
            return refused.response
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            return refusal(400, "bad_request", f"The body is not an edit of a fact: {error}")
        named = request.match_info["id"]

        async def edited(facts: PersonsFacts) -> Any:
            return {"fact": await self._current(await facts.edit(named, change, revision=int(revision)))}

        try:
            return await self._answered(admission, edited)
        except FactNotEditable as error:
            return refusal(422, "fact_not_edited", str(error))
        except FactConflict as error:
            message = str(error)

        async def theirs(facts: PersonsFacts) -> Any:
            history = await facts.history(named)
            return {"code": "conflict", "message": message, "theirs": await self._current(history.fact)}

        return await self._answered(admission, theirs, status=409)

    async def _pinned(self, request: web.Request, admission: Admission, *, pinned: bool) -> web.Response:
        async def changed(facts: PersonsFacts) -> Any:
            return {"fact": await self._current(await facts.pin(request.match_info["id"], pinned=pinned))}

        return await self._answered(admission, changed)

    async def _answered(
        self, admission: Admission, work: Callable[[PersonsFacts], Awaitable[Any]], *, status: int = 200
    ) -> web.Response:
        try:
            return answer(status, await work(PersonsFacts(self._facts, admission.person.id, group=False)))
        except NoSuchFact as error:
            return refusal(404, "not_found", str(error))
        except FactsUnavailable as error:
            return refusal(503, "facts_unavailable", str(error))

    async def _current(self, fact: Fact) -> dict[str, Any]:
        return self._fact(fact, await self._facts.book())

    def _fact(self, fact: Fact, book: FactBook) -> dict[str, Any]:
        return {
            **msgspec.to_builtins(fact),
            "worth": round(current_importance(fact, self._clock.now()), 3),
            "pinned": fact.pinned,
            "revision": book.text_seq(fact.id),
        }

    async def _source_message(self, fact: Fact, person: str) -> str:
        """Return the message that a fact came from; empty if unknown, missing, or another person's."""
        if (origin := fact.origin) is None:
            return ""
        return await self._memory.excerpt(document_of(origin.session), origin.seq, 1, self._scope(person)) or ""

    def _scope(self, person: str) -> Scope:
        return Scope.of_person(person, group=False, notes=self._shown_notes(person))


def _hit(hit: Hit, person: str, query: str) -> dict[str, Any]:
    """Return a hit with the parts of its score.

    `editable` is True if it is a note that this person may change. `matches` has the start and end of each word of the query
    in the text, in code points.
    """
    parts = tuple(hit.chunk.path.split("/"))
    ranked, chunk = hit.ranked, hit.chunk
    return {
        "citation": hit.citation,
        "path": chunk.path,
        "first": chunk.first,
        "last": chunk.last,
        "source": chunk.source,
        "headings": chunk.headings,
        "day": chunk.day,
        "text": chunk.text,
        "matches": occurrences(chunk.text, query),
        "score": ranked.score,
        "fused": ranked.fused,
        "decay": ranked.decay,
        "parts": [
            {"name": part.name, "value": part.value, "weight": part.weight, "worth": part.worth} for part in ranked.parts
        ],
        "keywords": ranked.candidate.keywords,
        "cosine": ranked.candidate.cosine,
        "editable": chunk.source == Notes.name and not why_refused(parts, person, group=False, writes=True),
    }


def _forms(text: str, query: str) -> list[str]:
    """Return the distinct forms of the words of a query in a text, in order."""
    return list({text[start:end].casefold(): text[start:end] for start, end in occurrences(text, query)}.values())[:FORMS]


def _note_response(note: Note) -> web.Response:
    response = answer(200, note)
    response.headers["ETag"] = f'"{note.digest}"'
    return response
