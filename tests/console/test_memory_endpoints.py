"""The memory over HTTP: searched with what each score is made of, notes written only over what was read, facts kept."""

from __future__ import annotations

import io
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.memory.facts_commands import import_facts
from gateway.cli.options import Invocation
from gateway.http.console import notes_editor
from gateway.http.console.notes_editor import NoteChanged, NoteRefused, write_note
from gateway.support.home import Home
from plugins.support.workspace import OWNER
from plugins.tools.file_target import MAX_FILE_BYTES, FileTarget
from tests.console.asked import Answered, ask
from tests.gateway.gateways import TOKEN, Gateway, gateway

BOB = "a-token-for-bob-that-is-long-enough"
PORT = {"id": "11111111-port", "content": "The staging server listens on port 3000", "importance": 0.7}
TEA = {"id": "22222222-tea", "content": "Somebody drinks oolong tea", "layer": "daily", "owner": "owner"}
BOBS = {"id": "33333333-bob", "content": "Bob's password hint is a fish", "owner": "bob"}
NEW = {"If-None-Match": "*"}
MEMORY = "# Kitchen\n\n- The kettle is blue\n\n# Garden\n\n- The roses are red\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two notes and three facts."""
    place, document = Home(tmp_path / "home"), tmp_path / "facts.json"
    place.make()
    document.write_text(json.dumps([PORT, TEA, BOBS]))
    assert import_facts(Invocation(place, place.config, os.environ, io.StringIO()), document) == 0
    workspace = place.root / "workspace"
    (workspace / "memory").mkdir(parents=True, exist_ok=True)
    (workspace / "MEMORY.md").write_text(MEMORY)
    (workspace / "memory" / "2026-11-20.md").write_text("# Tea\n\nThe kettle boils at noon.\n")
    return place.root


@asynccontextmanager
async def remembering(home: Path) -> AsyncIterator[Gateway]:
    async with gateway(home, settings={"memory.embedding.provider": "none", "people.bob.token": BOB}) as running:
        yield running


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


async def test_a_search_returns_the_parts_of_each_score(home: Path) -> None:
    async with remembering(home) as running:
        found = (await ask(running, "/api/memory", params={"q": "which kettle is blue"})).json
        nothing = (await ask(running, "/api/memory", params={"q": "  "})).json
        bobs = (await ask(running, "/api/memory", params={"q": "kettle"}, token=BOB)).json
    best = found["hits"][0]
    assert (best["citation"], best["headings"], best["editable"]) == ("MEMORY.md#L3-L3", ["Kitchen"], True)
    assert "The kettle is blue" in best["text"]
    assert [best["text"][start:end] for start, end in best["matches"]] == ["kettle", "blue"]
    for hit in found["hits"]:
        assert sum(part["worth"] for part in hit["parts"]) == pytest.approx(hit["fused"])
        assert hit["fused"] * hit["decay"] == pytest.approx(hit["score"])
    assert nothing == {"hits": [], "remarks": []}
    assert bobs["hits"] == []


async def test_the_forms_of_a_querys_words_at_a_citation_are_told(home: Path) -> None:
    async with remembering(home) as running:

        async def forms(at: str, query: str, token: str = TOKEN) -> object:
            return (await ask(running, "/api/memory/forms", params={"at": at, "q": query}, token=token)).json

        assert await forms("memory/2026-11-20.md#L1-L3", "boiling teas, KETTLES") == {"words": ["Tea", "kettle", "boils"]}
        assert await forms("memory/2026-11-20.md#L1", "kettle") == {"words": []}
        assert await forms("memory/2026-11-20.md#L3", "kettle", BOB) == {"words": []}
        assert await forms("memory/nobody.md#L3", "kettle") == {"words": []}
        refused = await ask(running, "/api/memory/forms", params={"at": "MEMORY.md", "q": "kettle"})
        assert (refused.status, refused.json["code"]) == (400, "bad_request")


async def test_only_its_person_gets_the_key_of_a_session(home: Path) -> None:
    async with remembering(home) as running:
        await (await running.connect()).chat("Hello")
        [session] = running.journals()
        path = f"/api/sessions/{session}"
        assert (await ask(running, path)).json == {"session": session, "key": "main", "agent": "main"}
        assert (await ask(running, path, token=BOB)).status == 404
        place = {"at": f"sessions/{session}.jsonl#L1-L9", "q": "saying hellos"}
        assert (await ask(running, "/api/memory/forms", params=place)).json == {"words": ["Hello"]}
        assert (await ask(running, "/api/memory/forms", params=place, token=BOB)).json == {"words": []}
        assert (await ask(running, "/api/sessions/nobody-knows-it")).status == 404


async def test_a_written_note_is_found_by_its_new_words(home: Path) -> None:
    async with remembering(home) as running:
        listed = (await ask(running, "/api/notes")).json
        read = await ask(running, "/api/notes/MEMORY.md")
        new = MEMORY.replace("blue", "turquoise")
        headers = {"If-Match": read.headers["ETag"]}
        written = await ask(running, "/api/notes/MEMORY.md", "PUT", data=new.encode(), headers=headers)
        found = (await ask(running, "/api/memory", params={"q": "turquoise"})).json
    assert {note["path"] for note in listed["notes"]} == {"MEMORY.md", "memory/2026-11-20.md"}
    assert read.json == {"path": "MEMORY.md", "text": MEMORY, "digest": digest(MEMORY), "editable": True}
    assert (written.status, written.json["digest"]) == (200, digest(new))
    assert (home / "workspace" / "MEMORY.md").read_text() == new
    assert "turquoise" in found["hits"][0]["text"]


async def test_a_note_that_changed_meanwhile_is_returned_and_not_overwritten(home: Path) -> None:
    place = home / "workspace" / "MEMORY.md"
    async with remembering(home) as running:
        etag = (await ask(running, "/api/notes/MEMORY.md")).headers["ETag"]
        theirs = MEMORY + "\n- Written in an editor\n"
        place.write_text(theirs)
        answered = await ask(running, "/api/notes/MEMORY.md", "PUT", data=b"mine", headers={"If-Match": etag})
        place.unlink()
        gone = await ask(running, "/api/notes/MEMORY.md", "PUT", data=b"mine", headers={"If-Match": etag})
        assert not place.exists()
        place.write_text(theirs)
        new = await ask(running, "/api/notes/MEMORY.md", "PUT", data=b"mine", headers={"If-None-Match": "*"})
        bare = await ask(running, "/api/notes/MEMORY.md", "PUT", data=b"mine")
    assert answered.status == 409
    assert answered.json["theirs"] == {"path": "MEMORY.md", "text": theirs, "digest": digest(theirs), "editable": True}
    assert (gone.status, gone.json["theirs"]) == (409, None)
    assert (new.status, new.json["theirs"]["text"]) == (409, theirs)
    assert bare.status == 428
    assert place.read_text() == theirs


async def test_a_new_note_is_created(home: Path) -> None:
    async with remembering(home) as running:
        path = "/api/notes/memory/trips/alps.md"
        made = await ask(running, path, "PUT", data=b"# Alps\n", headers={"If-None-Match": "*"})
        again = await ask(running, path)
    assert (made.status, again.json["text"]) == (200, "# Alps\n")
    assert (home / "workspace/memory/trips/alps.md").read_text() == "# Alps\n"


async def test_a_note_is_moved_and_deleted_only_as_it_was_read(home: Path) -> None:
    old, new = home / "workspace/memory/2026-11-20.md", home / "workspace/memory/days/friday.md"
    text = old.read_bytes()
    match = {"If-Match": digest(text.decode())}
    async with remembering(home) as running:

        async def asked(path: str, method: str, to: str | None = None, **headers: str) -> Answered:
            body: dict[str, Any] = {"data": json.dumps({"to": to}).encode()} if to else {}
            return await ask(running, f"/api/notes/{path}", method, headers=headers, **body)

        assert (await asked("memory/2026-11-20.md", "POST", "memory/days/friday.md")).status == 428
        assert (await asked("memory/2026-11-20.md", "DELETE")).status == 428
        stale = await asked("memory/2026-11-20.md", "POST", "memory/x.md", **{"If-Match": digest("other")})
        assert (stale.status, stale.json["theirs"]["text"]) == (409, text.decode())
        assert (await asked("memory/2026-11-20.md", "POST", "MEMORY.md", **match)).status == 422  # there is one
        assert (await asked("memory/2026-11-20.md", "POST", "../out.md", **match)).status == 422
        assert (await asked("memory/2026-11-20.md", "POST", **match)).status == 400
        assert old.read_bytes() == text
        moved = await asked("memory/2026-11-20.md", "POST", "memory/days/friday.md", **match)
        assert (moved.status, moved.json["path"]) == (200, "memory/days/friday.md")
        assert (old.exists(), new.read_bytes()) == (False, text)
        assert (await asked("memory/days/friday.md", "DELETE", **{"If-Match": digest("other")})).status == 409
        assert (await asked("memory/days/friday.md", "DELETE", **match)).status == 200
        gone = await asked("memory/days/friday.md", "DELETE", **match)
    assert (new.exists(), gone.status, gone.json["theirs"]) == (False, 409, None)


def test_a_note_that_changes_while_it_is_moved_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "MEMORY.md").write_text("before")
    delete = notes_editor.delete_note
    tried: list[str] = []

    def slow(workspace: Path, path: str, expected: str, person: str) -> None:
        if not tried:
            (tmp_path / "MEMORY.md").write_text("changed in between")
        tried.append(path)
        delete(workspace, path, expected, person)

    monkeypatch.setattr(notes_editor, "delete_note", slow)
    with pytest.raises(NoteChanged):
        notes_editor.move_note(tmp_path, "MEMORY.md", "memory/new.md", digest("before"), OWNER)
    assert tried == ["MEMORY.md", "memory/new.md"]
    assert (tmp_path / "MEMORY.md").read_text() == "changed in between"
    assert not (tmp_path / "memory/new.md").exists()


@pytest.mark.parametrize(
    "path",
    [
        "../token",
        "memory/../../token",
        "memory/%2e%2e/%2e%2e/token",
        "..%2ftoken",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "SOUL.txt",
        "memory/tune.txt",
        "memory/.hidden.md",
        "memory/.git/hook.md",
        "memory/a%00.md",
        "memory",
        "memory/link.md",
        "memory/twin.md",
        "memory/elsewhere/note.md",
    ],
)
async def test_only_notes_of_the_workspace_are_read_or_written(home: Path, path: str) -> None:
    workspace, secret = home / "workspace", home / "secret.md"
    secret.write_text("the secret")
    (workspace / "memory" / "link.md").symlink_to(secret)
    (workspace / "memory" / "twin.md").hardlink_to(secret)
    (home / "outside").mkdir()
    (home / "outside" / "note.md").write_text("the secret")
    (workspace / "memory" / "elsewhere").symlink_to(home / "outside")
    before = {place: place.read_bytes() for place in home.rglob("*") if place.is_file() and place.suffix in (".md", "")}
    async with remembering(home) as running:
        read = await ask(running, f"/api/notes/{path}")
        written = [
            await ask(running, f"/api/notes/{path}", "PUT", data=b"mine", headers=given)
            for given in ({"If-None-Match": "*"}, {"If-Match": digest("the secret")})
        ]
    assert read.status == 404
    assert b"the secret" not in read.body
    assert {each.status for each in written} <= {404, 409, 422}
    assert {place: place.read_bytes() for place in before} == before


async def test_people_write_their_own_notes_and_read_shared_ones(home: Path) -> None:
    workspace = home / "workspace"
    for path, text in {"people/bob/MEMORY.md": "Bob's kettle.\n", "shared/house.md": "The kettle is shared.\n"}.items():
        (workspace / path).parent.mkdir(parents=True)
        (workspace / path).write_text(text)
    bob = f"{digest(text := (workspace / 'people/bob/MEMORY.md').read_text())}"
    async with remembering(home) as running:

        async def listed(token: str = TOKEN) -> dict[str, bool]:
            paths = [note["path"] for note in (await ask(running, "/api/notes", token=token)).json["notes"]]
            read = [(await ask(running, f"/api/notes/{path}", token=token)).json for path in paths]
            return {note["path"]: note["editable"] for note in read}

        assert await listed() == {"MEMORY.md": True, "memory/2026-11-20.md": True, "shared/house.md": True}
        assert await listed(BOB) == {"people/bob/MEMORY.md": True, "shared/house.md": False}
        assert (await ask(running, "/api/notes/MEMORY.md", token=BOB)).json == {
            "path": "people/bob/MEMORY.md",
            "text": text,
            "digest": bob,
            "editable": True,
        }
        found = (await ask(running, "/api/memory", params={"q": "kettle"}, token=BOB)).json["hits"]
        assert {hit["path"]: hit["editable"] for hit in found} == {"people/bob/MEMORY.md": True, "shared/house.md": False}
        changed = await ask(running, "/api/notes/MEMORY.md", "PUT", data=b"New.\n", headers={"If-Match": bob}, token=BOB)
        made = await ask(running, "/api/notes/memory/trip.md", "PUT", data=b"x\n", headers=NEW, token=BOB)
        assert (changed.json["path"], made.json["path"]) == ("people/bob/MEMORY.md", "people/bob/memory/trip.md")
    assert (workspace / "people/bob/MEMORY.md").read_text() == "New.\n"
    assert (workspace / "people/bob/memory/trip.md").read_text() == "x\n"
    assert (workspace / "MEMORY.md").read_text() == MEMORY


@pytest.mark.parametrize(
    "path",
    [
        "shared/house.md",
        "people/ana/MEMORY.md",
        "people//ana/MEMORY.md",
        "People/ana/MEMORY.md",
        "people/Ana/MEMORY.md",
        "people/bob/../ana/MEMORY.md",
        "people%2Fana%2FMEMORY.md",
        "%2e/people/ana/MEMORY.md",
        "people/bob/../../MEMORY.md",
        "memory/../../../MEMORY.md",
        "people/bob/%2e%2e/%2e%2e/memory/2026-11-20.md",
        "people/bob",
        "people",
        "AGENTS.md",
    ],
)
async def test_no_spelling_of_a_path_reaches_another_persons_note(home: Path, path: str) -> None:
    workspace = home / "workspace"
    for note in ("people/ana/MEMORY.md", "shared/house.md"):
        (workspace / note).parent.mkdir(parents=True)
        (workspace / note).write_text("the secret\n")
    before = {place: place.read_bytes() for place in workspace.rglob("*.md")}
    async with remembering(home) as running:
        read = await ask(running, f"/api/notes/{path}", token=BOB)
        match = {"If-Match": digest("the secret\n")}
        written = [
            await ask(running, f"/api/notes/{path}", "PUT", data=b"x", headers=how, token=BOB) for how in (NEW, match)
        ]
    assert b"the secret" not in read.body or path.startswith("shared/")
    assert b"kettle" not in read.body
    assert {each.status for each in written} <= {404, 409, 422}
    assert not any(b"the secret" in each.body for each in written)
    assert {place: place.read_bytes() for place in workspace.rglob("*.md")} == before


async def test_people_see_only_their_own_facts(home: Path) -> None:
    async with remembering(home) as running:
        facts = (await ask(running, "/api/facts", token=BOB)).json["facts"]
        why = await ask(running, f"/api/facts/{TEA['id']}", token=BOB)
        forget = await ask(running, f"/api/facts/{TEA['id']}", "DELETE", token=BOB)
        mine = (await ask(running, "/api/facts")).json["facts"]
    assert {fact["id"] for fact in facts} == {PORT["id"], BOBS["id"]}
    assert (why.status, forget.status) == (404, 404)
    assert {fact["id"] for fact in mine} == {PORT["id"], TEA["id"]}


async def test_a_fact_can_be_pinned_explained_and_forgotten(home: Path) -> None:
    path = f"/api/facts/{PORT['id']}"
    async with remembering(home) as running:
        pinned = (await ask(running, f"{path}/pin", "POST")).json["fact"]
        unpinned = (await ask(running, f"{path}/unpin", "POST")).json["fact"]
        gone = (await ask(running, path, "DELETE")).json["fact"]
        story = (await ask(running, path)).json
        left = (await ask(running, "/api/facts")).json["facts"]
        unknown = await ask(running, "/api/facts/99999999/pin", "POST")
    assert (pinned["pinned"], unpinned["pinned"], gone["content"]) == (True, False, PORT["content"])
    assert [each["sentence"] for each in story["happened"]] == [
        "Written by operator.",
        "Pinned by owner.",
        "Unpinned by owner.",
        "Forgotten by owner.",
    ]
    assert not story["there"]
    assert [fact["id"] for fact in left] == [TEA["id"]]
    assert (unknown.status, unknown.json["message"]) == (404, "There is no fact 99999999.")


async def test_a_fact_is_edited_as_it_was_read(home: Path) -> None:
    path = f"/api/facts/{PORT['id']}"
    new = {"content": "The staging server listens on port 4000", "type": "decision", "tags": ["ops"], "everywhere": True}

    async def edit(running: Gateway, body: object, revision: object, token: str = TOKEN) -> Answered:
        headers = {"If-Match": f'"{revision}"'} if revision is not None else {}
        return await ask(running, path, "PATCH", token=token, data=json.dumps(body).encode(), headers=headers)

    async with remembering(home) as running:
        seen = next(each for each in (await ask(running, "/api/facts")).json["facts"] if each["id"] == PORT["id"])
        edited = await edit(running, new, seen["revision"])
        late = await edit(running, {"content": "mine"}, seen["revision"])
        blind = await edit(running, {"content": "mine"}, None)
        bodies: list[Any] = [{"layer": "daily"}, [], {"type": "x"}]
        wrong = [await edit(running, body, edited.json["fact"]["revision"]) for body in bodies]
        strange = await edit(running, {"content": "mine"}, "9" * 400)
        foreign = await edit(running, {"content": "theirs"}, edited.json["fact"]["revision"], BOB)
        story = (await ask(running, path)).json
    fact = edited.json["fact"]
    assert {name: fact[name] for name in ("content", "type", "tags")} == {
        name: new[name] for name in ("content", "type", "tags")
    }
    assert fact["revision"] > seen["revision"]
    assert (late.status, late.json["theirs"]) == (409, fact)
    assert (blind.status, strange.status) == (428, 428)
    assert [(each.status, each.json["code"]) for each in wrong] == [
        (400, "bad_request"),
        (400, "bad_request"),
        (422, "fact_not_edited"),
    ]
    assert (foreign.status, foreign.json["message"]) == (
        422,
        "This fact is shared with everybody; only the owner of the gateway can edit it.",
    )
    assert [each["before"] and each["before"]["content"] for each in story["happened"]] == [None, PORT["content"]]
    assert story["fact"] == fact


async def test_without_facts_the_list_is_empty_and_no_log_is_created(tmp_path: Path) -> None:
    async with remembering(tmp_path) as running:
        assert (await ask(running, "/api/facts")).json == {"facts": []}
    assert not (tmp_path / "facts.jsonl").exists()


# --- the file itself --------------------------------------------------------------------------------------------------


def test_a_note_keeps_its_line_endings(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_bytes(b"one\r\ntwo\r\n")
    read = notes_editor.read_note(tmp_path, "MEMORY.md", OWNER)
    assert read.text == "one\ntwo\n"
    write_note(tmp_path, "MEMORY.md", "one\ntwo\nthree\n", read.digest, OWNER)
    assert (tmp_path / "MEMORY.md").read_bytes() == b"one\r\ntwo\r\nthree\r\n"


def test_the_size_limit_of_a_note_counts_its_line_endings(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_bytes(b"one\r\n")
    read = notes_editor.read_note(tmp_path, "MEMORY.md", OWNER)
    for text in ("x" * (MAX_FILE_BYTES + 1), "\n" * (MAX_FILE_BYTES // 2 + 1)):
        with pytest.raises(NoteRefused, match="A note may have 1 MiB"):
            write_note(tmp_path, "MEMORY.md", text, read.digest, OWNER)
    assert (tmp_path / "MEMORY.md").read_bytes() == b"one\r\n"


def test_a_note_that_is_not_utf_8_is_shown_and_never_written(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_bytes(b"caf\xe9\n")
    read = notes_editor.read_note(tmp_path, "MEMORY.md", OWNER)
    assert (read.text, read.editable) == ("caf\ufffd\n", False)
    with pytest.raises(NoteRefused, match="not UTF-8"):
        write_note(tmp_path, "MEMORY.md", "cafe\n", read.digest, OWNER)
    assert (tmp_path / "MEMORY.md").read_bytes() == b"caf\xe9\n"


def test_a_change_just_before_the_replacement_is_a_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "MEMORY.md"
    place.write_text("before")
    replace = FileTarget.replace

    def late(self: FileTarget, content: bytes, _: object) -> None:
        replace(self, content, lambda: place.write_text("theirs, late"))

    monkeypatch.setattr(FileTarget, "replace", late)
    with pytest.raises(NoteChanged) as changed:
        write_note(tmp_path, "MEMORY.md", "mine", digest("before"), OWNER)
    assert changed.value.theirs is not None
    assert changed.value.theirs.text == "theirs, late"
    assert place.read_text() == "theirs, late"


async def test_each_agent_has_a_memory_of_its_own(home: Path) -> None:
    async with gateway(home, file="[agents.work]\n", settings={"memory.embedding.provider": "none"}) as running:
        work = {"agent": "work"}
        assert (await ask(running, "/api/notes", params=work)).json["notes"] == []
        written = await ask(running, "/api/notes/MEMORY.md", "PUT", data=b"# Ledger\n", headers=NEW, params=work)
        assert written.status == 200
        assert (home / "agents" / "work" / "workspace" / "MEMORY.md").read_text() == "# Ledger\n"
        assert (await ask(running, "/api/notes/MEMORY.md")).json["text"] == MEMORY
        assert (await ask(running, "/api/facts", params=work)).json == {"facts": []}
        assert len((await ask(running, "/api/facts")).json["facts"]) == 2
        assert (await ask(running, "/api/memory", params={"q": "kettle", **work})).json["hits"] == []
        for nobody in ("nobody", "../work", "Work"):
            assert (await ask(running, "/api/notes", params={"agent": nobody})).status == 404
        assert sorted(path.name for path in (home / "agents").iterdir()) == ["work"]
