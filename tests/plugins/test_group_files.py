"""What the file tools do in a group: what is for private chats alone is neither shown nor changed, however it is spelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exuvia import ToolContext, ToolFailed
from tests.plugins.workspaces import Workspace

PRIVATE = "The door code is 4711.\n"
REFUSED = "MEMORY.md is for private chats alone; others read along here."

SPELLINGS = ["MEMORY.md", "./MEMORY.md", ".//MEMORY.md", "MEMORY.md/", "././/MEMORY.md/.", "memory.md", "Memory.MD"]
SPELLINGS += ["{}/MEMORY.md", "{}/./memory.md"]


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path)
    (made.folder / "memory").mkdir()
    made.put("MEMORY.md", PRIVATE)
    made.put("memory/2026-11-21.md", "We met.\n")
    made.put("plan.txt", "Friday.\n")
    return made


async def in_group(place: Workspace, tool: str, path: str, **arguments: Any) -> str:
    call = ToolContext(session="s", person="owner", turn=1, call="call_1_0", group=True)
    return (await place.tools[tool].run({"path": path.format(place.folder), **arguments}, call)).text


async def refusal(place: Workspace, tool: str, path: str, **arguments: Any) -> str:
    with pytest.raises(ToolFailed) as refused:
        await in_group(place, tool, path, **arguments)
    return str(refused.value)


@pytest.mark.parametrize("path", SPELLINGS)
async def test_in_a_group_memory_is_neither_read_nor_changed_however_it_is_spelled(place: Workspace, path: str) -> None:
    ways: list[tuple[str, dict[str, str]]] = [
        ("read", {}),
        ("edit", {"old": "4711", "new": "0000"}),
        ("write", {"content": "x"}),
        ("write", {"content": "x", "mode": "append"}),
        ("write", {"content": "x", "mode": "replace"}),
    ]
    for tool, arguments in ways:
        said = await refusal(place, tool, path, **arguments)
        assert said == REFUSED or (path.endswith(("/", "/.")) and said == "The path is a folder.")
    assert place.text("MEMORY.md") == PRIVATE
    assert place.names() == {"MEMORY.md", "memory", "memory/2026-11-21.md", "plan.txt"}


async def test_in_a_group_it_is_refused_alike_whether_it_exists_or_not(place: Workspace) -> None:
    (place.folder / "MEMORY.md").unlink()
    assert await refusal(place, "read", "MEMORY.md") == REFUSED
    assert await refusal(place, "write", "MEMORY.md", content="x") == REFUSED
    assert not (place.folder / "MEMORY.md").exists()


@pytest.mark.parametrize("path", [".", "./", "", "{}"])
async def test_in_a_group_a_listing_does_not_name_it(place: Workspace, path: str) -> None:
    if path:
        assert (await in_group(place, "read", path)).split("\n") == ["memory/", "plan.txt"]
    assert "MEMORY.md" in await place.do("read", ".")


async def test_in_a_group_the_other_files_are_read_and_changed(place: Workspace) -> None:
    assert await in_group(place, "read", "memory/2026-11-21.md") == "We met.\n"
    assert (await in_group(place, "read", "memory")).split("\n") == ["2026-11-21.md"]
    assert "1 place" in await in_group(place, "edit", "plan.txt", old="Friday", new="Monday")
    await in_group(place, "write", "memory/MEMORY.md", content="a topic of that name\n")


async def test_in_a_private_chat_it_is_read_and_changed(place: Workspace) -> None:
    assert await place.do("read", "MEMORY.md") == PRIVATE
    assert "1 place" in await place.do("edit", "MEMORY.md", old="4711", new="0000")
