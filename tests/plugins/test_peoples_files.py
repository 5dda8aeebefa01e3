"""The file tools and two people in one workspace: each reads what is shared and theirs, and changes what is theirs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exuvia import ToolContext, ToolFailed, workspace_file
from plugins.support.workspace import EVERYBODY, OWNER, belongs_to, is_private, meant, own_note, why_refused
from tests.plugins.workspaces import Workspace, context

OWNERS = {"MEMORY.md": "owner-secret", "memory/2026-11-20.md": "owner-secret", "todo/list.txt": "owner-secret"}
BENS = {"people/ben/MEMORY.md": "ben-secret", "people/ben/draft.txt": "ben-secret"}
SHARED = {"AGENTS.md": "orders", "SOUL.md": "kind", "shared/house.md": "house", "shared/MEMORY.md": "of all"}


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path)
    for path, text in (OWNERS | BENS | SHARED).items():
        (made.folder / path).parent.mkdir(parents=True, exist_ok=True)
        made.put(path, f"{text} in {path}\n")
    return made


async def do(place: Workspace, person: str, tool: str, path: str, *, group: bool = False, **arguments: Any) -> str:
    call = ToolContext(session=person, person=person, turn=1, call="call_1_0", group=group)
    return (await place.tools[tool].run({"path": path, **arguments}, call)).text


async def refusal(place: Workspace, person: str, tool: str, path: str, **arguments: Any) -> str:
    with pytest.raises(ToolFailed) as refused:
        await do(place, person, tool, path, **arguments)
    return str(refused.value)


async def test_what_somebody_writes_lies_in_a_folder_of_their_own_under_the_usual_names(place: Workspace) -> None:
    written = await do(place, "ana", "write", "MEMORY.md", content="- Tea.\n")
    assert written == "Created people/ana/MEMORY.md: 7 bytes, 1 line."
    await do(place, "ana", "write", "memory/2026-11-21.md", content="- Day.\n", mode="append")
    await do(place, "ana", "write", "people/ana/plan/a.txt", content="- A.\n")
    await do(place, "ana", "edit", "people/ana/MEMORY.md", old="Tea", new="Green tea")
    assert await do(place, "ana", "read", "MEMORY.md") == "- Green tea.\n"
    assert await do(place, "ana", "read", f"{place.folder}/people/ana/MEMORY.md") == "- Green tea.\n"
    assert await do(place, "ana", "read", "plan/a.txt") == "- A.\n"
    assert place.text("people/ana/MEMORY.md") == "- Green tea.\n"
    assert place.text("MEMORY.md") == "owner-secret in MEMORY.md\n"


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (".", ["AGENTS.md", "MEMORY.md", "SOUL.md", "draft.txt", "shared/"]),
        ("{}", ["AGENTS.md", "MEMORY.md", "SOUL.md", "draft.txt", "shared/"]),
        ("people/ben", ["MEMORY.md", "draft.txt"]),
        ("shared", ["MEMORY.md", "house.md"]),
    ],
)
async def test_a_listing_names_ones_own_and_what_is_shared(place: Workspace, path: str, names: list[str]) -> None:
    assert (await do(place, "ben", "read", path.format(place.folder))).split("\n") == names


async def test_a_listing_names_nobody_elses_folder(place: Workspace) -> None:
    assert (await do(place, "ana", "read", ".")).split("\n") == ["AGENTS.md", "SOUL.md", "shared/"]
    own = ["AGENTS.md", "MEMORY.md", "SOUL.md", "memory/", "people/", "shared/", "todo/"]
    assert (await do(place, OWNER, "read", ".")).split("\n") == own
    place.put("people/guests.md", "a list of the owner's\n")
    assert await do(place, OWNER, "read", "people") == "guests.md"
    assert await refusal(place, "ana", "read", "people") == "The file cannot be opened: No such file or directory."


async def test_what_is_shared_is_read_by_everybody_and_changed_by_the_owner_alone(place: Workspace) -> None:
    for path, text in SHARED.items():
        for person in (OWNER, "ana"):
            assert await do(place, person, "read", path) == f"{text} in {path}\n"
        if path.startswith("shared/"):
            assert await do(place, "ana", "read", path, group=True)
        said = await refusal(place, "ana", "edit", path, old=text, new="I obey Ana")
        assert said.startswith(("Everybody reads that file; only the owner changes it.", "This file holds the operator's"))
        assert place.text(path) == f"{text} in {path}\n"
    assert "Everybody reads that file" in await refusal(place, "ana", "write", "shared/new.md", content="x")
    await do(place, OWNER, "edit", "shared/house.md", old="house in", new="home in")
    assert place.text("shared/house.md") == "home in shared/house.md\n"


async def test_no_file_takes_the_place_of_a_folder_that_others_lie_in(tmp_path: Path) -> None:
    place = Workspace(tmp_path)
    for person, path in ((OWNER, "people"), (OWNER, "People"), (OWNER, "shared"), ("ana", "people/ana")):
        assert await refusal(place, person, "write", path, content="x") == "The path is a folder."
    assert place.names() == set()


@pytest.mark.parametrize("tool", ["read", "write", "edit"])
async def test_the_owner_has_no_part_in_what_others_wrote_down(place: Workspace, tool: str) -> None:
    more = {"read": {}, "write": {"content": "x", "mode": "append"}, "edit": {"old": "ben", "new": "x"}}[tool]
    for path in ("people/ben/MEMORY.md", "people/ben", "people/Ben/MEMORY.md", f"{place.folder}/people/./ben//MEMORY.md"):
        assert await refusal(place, OWNER, tool, path, **more) == "That belongs to somebody else."
    assert place.text("people/ben/MEMORY.md") == "ben-secret in people/ben/MEMORY.md\n"


async def test_in_a_group_nobodys_memory_is_shown(place: Workspace) -> None:
    for path in ("MEMORY.md", "people/ben/MEMORY.md", "memory.md"):
        assert "is for private chats alone" in await refusal(place, "ben", "read", path, group=True)
    assert (await do(place, "ben", "read", "people/ben", group=True)) == "draft.txt"


PIECES = ["people", "People", "ben", "Ben", "ana", "MEMORY.md", "memory.md", "memory", "2026-11-20.md", "todo", "list.txt"]
PIECES += ["shared", "house.md", "AGENTS.md", "draft.txt", ".", "..", "", " ", "ben ", "ben.", "\u200b", "*", "~"]


async def test_no_spelling_of_a_path_reaches_what_is_somebody_elses(place: Workspace) -> None:
    """Paths that hypothesis draws, by a model of Ana's: what it is told is no secret, and nothing but hers changes."""
    drawn: list[str] = []

    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), st.sampled_from(["", "/", "root"]))
    def draw(pieces: list[str], beginning: str) -> None:
        begins = f"{place.folder}/" if beginning == "root" else beginning
        drawn.append(begins + "/".join(pieces))

    draw()
    drawn += [*OWNERS, *BENS, *(f"{place.folder}/{path}" for path in BENS), f"//{place.folder}/MEMORY.md"]
    before = {path: place.text(path) for path in OWNERS | BENS | SHARED}
    told: list[str] = []
    ways: list[tuple[str, dict[str, Any]]] = [
        ("read", {}),
        ("edit", {"old": "secret", "new": "x"}),
        ("write", {"content": "x"}),
        ("write", {"content": "x", "mode": "append"}),
    ]
    for path in filter(None, drawn):
        for tool, more in ways:
            try:
                told.append(await do(place, "ana", tool, path, **more))
            except ToolFailed as failed:
                told.append(str(failed))
    assert "secret" not in "".join(told)
    assert {path: place.text(path) for path in before} == before
    made = {path for path in place.names() if not path.startswith("people/ana/")}
    assert made <= {*before, "memory", "todo", "shared", "people", "people/ben", "people/ana"}
    place.check_outside()


@pytest.mark.parametrize(
    ("path", "whose", "private"),
    [
        ("MEMORY.md", OWNER, True),
        ("Memory.MD", OWNER, True),
        ("memory/MEMORY.md", OWNER, False),
        (".", OWNER, False),
        ("people", OWNER, False),
        ("people/guests.md", OWNER, False),
        ("people/ana", "ana", False),
        ("people/ana/MEMORY.md", "ana", True),
        ("PEOPLE/ana/memory/x.md", "ana", False),
        ("people/Ana/MEMORY.md", "Ana", True),
        ("shared", EVERYBODY, False),
        ("shared/MEMORY.md", EVERYBODY, False),
        ("shared/x/MEMORY.md", EVERYBODY, False),
        ("Shared/x", OWNER, False),
        ("SOUL.md", EVERYBODY, False),
        ("SOUL.md/x", OWNER, False),
        ("memory/SOUL.md", OWNER, False),
    ],
)
def test_a_path_says_whose_a_file_is(path: str, whose: str, private: bool) -> None:
    parts = tuple(path.split("/"))
    assert (belongs_to(parts), is_private(parts)) == (whose, private)


def test_a_person_whose_id_is_no_name_has_no_files() -> None:
    for person in ("../ben", "", ".", "Ana", "a/b", "owner/../ben"):
        with pytest.raises(ValueError, match="is not a person's id"):
            meant(("MEMORY.md",), person)
        with pytest.raises(ValueError, match="is not a person's id"):
            own_note(person, "MEMORY.md")
        assert why_refused(("people", "ben", "MEMORY.md"), person, group=False)


async def test_a_plugins_tool_is_given_the_file_that_the_person_means_and_may_read_or_change(place: Workspace) -> None:
    rules = context(place.folder)

    def given(person: str, path: str, *, writes: bool = False, group: bool = False) -> str:
        call = ToolContext(session="s", person=person, turn=1, call="call_1_0", group=group)
        try:
            return str(workspace_file(rules, path, call, writes=writes).relative_to(place.folder))
        except ToolFailed as failed:
            return f"no: {failed}"

    assert given(OWNER, "todo/list.txt") == "todo/list.txt"
    assert given("ana", f"{place.folder}/todo//list.txt") == "people/ana/todo/list.txt"
    assert given("ana", "shared/house.md") == "shared/house.md"
    assert given("ana", ".") == "people/ana"
    assert given("ana", "memory/new.md", writes=True) == "people/ana/memory/new.md"
    assert given("ana", "people/ben/draft.txt") == "no: That belongs to somebody else."
    assert given("ana", "../outside") == "no: A path with .. is not followed; name the file from the workspace on."
    assert given("ana", "shared/house.md", writes=True).startswith("no: Everybody reads that file")
    assert given(OWNER, "AGENTS.md", writes=True).startswith("no: This file holds the operator's instructions")
    assert given(OWNER, "MEMORY.md", group=True).startswith("no: MEMORY.md is for private chats alone")
