"""Requests to remember are written at once, only once, lose nobody else's edit, and can be found from then on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.stage import Instrument, Model, Stage, says
from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.conversations.notes.appending import NoteNotWritten
from gateway.conversations.notes.day_notes import DayNotes, digest_of
from gateway.conversations.notes.memory_writer import LONGEST, MemoryWriter
from plugins.api.memory.scope import EVERYTHING
from plugins.api.memory_settings import EmbeddingKeys, MemoryKeys
from plugins.memory.memory import Memory
from plugins.memory.sources.notes import Notes
from plugins.testing.contexts import NOON, ManualClock
from plugins.tools.edit import Edit
from plugins.tools.file_target import FileTarget
from sessions.events.events import MemoryRecalled, NoteAppended, PluginFailed
from tests.plugins.workspaces import call, context


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    (tmp_path / "workspace").mkdir()
    keys = MemoryKeys(embedding=EmbeddingKeys(provider="none"))
    sources = [Notes(tmp_path / "workspace")]
    file = tmp_path / "memory.sqlite"
    async with Memory(file, sources, keys=lambda: keys, providers={}, today=NOON.date) as memory:
        yield memory


pytestmark = pytest.mark.usefixtures("unhurried_recall")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


@pytest.fixture
def remembering(memory: Memory, workspace: Path) -> MemoryWriter:
    return MemoryWriter(
        workspace,
        memory,
        Settings(load_config(None, environment={}, overrides={"agent": {"timezone": "UTC"}})),
        ManualClock(),
    )


async def test_an_item_is_appended_to_the_memory_and_found_at_once(
    remembering: MemoryWriter, memory: Memory, workspace: Path
) -> None:
    (workspace / "MEMORY.md").write_text("# About Ada\n\nShe is left-handed.")
    assert await remembering.remember("I prefer\n  Rust.", "owner", group=False) == "MEMORY.md#L5-L5"
    assert await remembering.remember("And tea.", "owner", group=False) == "MEMORY.md#L6-L6"
    assert (workspace / "MEMORY.md").read_text() == (
        "# About Ada\n\nShe is left-handed.\n\n- I prefer Rust. (owner, 2026-11-21)\n- And tea. (owner, 2026-11-21)\n"
    )
    found = await memory.search("Rust", EVERYTHING, eager=False)
    assert [hit.chunk.path for hit in found.hits] == ["MEMORY.md"]


async def test_an_item_that_is_there_is_not_written_again(remembering: MemoryWriter, workspace: Path) -> None:
    """A command that a crash interrupted runs again at the restart."""
    first = await remembering.remember("I prefer Rust.", "owner", group=False)
    before = (workspace / "MEMORY.md").read_bytes()
    assert await remembering.remember(" I prefer Rust.", "owner", group=False) == first == "MEMORY.md#L1-L1"
    assert (workspace / "MEMORY.md").read_bytes() == before


async def test_in_a_group_an_item_goes_to_the_days_note(remembering: MemoryWriter, workspace: Path) -> None:
    assert await remembering.remember("We meet on Friday.", "owner", group=True) == "memory/2026-11-21.md#L1-L1"
    assert not (workspace / "MEMORY.md").exists()


@pytest.mark.parametrize(("text", "why"), [(" \n", "nothing"), ("x" * (LONGEST + 1), "longer")])
async def test_empty_and_too_long_items_are_refused(remembering: MemoryWriter, text: str, why: str) -> None:
    with pytest.raises(NoteNotWritten, match=why):
        await remembering.remember(text, "owner", group=False)


async def test_a_memory_file_that_is_a_link_is_not_followed(
    remembering: MemoryWriter, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere.md").write_text("mine")
    (workspace / "MEMORY.md").symlink_to(tmp_path / "elsewhere.md")
    with pytest.raises(NoteNotWritten, match=r"MEMORY\.md"):
        await remembering.remember("this", "owner", group=False)
    assert (tmp_path / "elsewhere.md").read_text() == "mine"


async def test_a_concurrent_edit_is_not_lost(
    remembering: MemoryWriter, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failure 9: a concurrent append is lost. The person saves between the read of the file and the write."""
    note = workspace / "MEMORY.md"
    note.write_text("- One.\n")
    content = FileTarget.content
    edits = iter(["- One.\n- Two, by hand.\n", "- One.\n- Two, by hand.\n- Three.\n"])

    def looked(self: FileTarget) -> bytes | None:
        before = content(self)
        if (edit := next(edits, None)) is not None:
            note.write_text(edit)
        return before

    monkeypatch.setattr(FileTarget, "content", looked)
    assert await remembering.remember("Four.", "owner", group=False) == "MEMORY.md#L4-L4"
    assert note.read_text() == "- One.\n- Two, by hand.\n- Three.\n- Four. (owner, 2026-11-21)\n"


async def test_concurrent_items_flushes_and_edits_lose_nothing(remembering: MemoryWriter, workspace: Path) -> None:
    flushes, edit = DayNotes(workspace), Edit(context(workspace))
    (workspace / "memory").mkdir()
    (workspace / "memory/2026-11-21.md").write_text("".join(f"- plan {number}.\n" for number in range(8)))

    async def flush(number: int) -> None:
        text = f"## Flush {number}\n\n- flushed {number}"
        await flushes.append("memory/2026-11-21.md", text, digest_of(text))

    async def remember(number: int) -> None:
        await remembering.remember(f"said {number}", "owner", group=True)

    async def change(number: int) -> None:
        arguments = {"old": f"- plan {number}.", "new": f"- plan {number}, done."}
        await edit.run({"path": "memory/2026-11-21.md", **arguments}, call())

    tries = (
        [(change, number) for number in range(8)]
        + [(flush, number) for number in range(4)]
        + [(remember, number) for number in range(4)]
    )
    async with asyncio.TaskGroup() as tasks:
        for do, number in tries:
            tasks.create_task(do(number))
    lines = (workspace / "memory/2026-11-21.md").read_text().split("\n")
    for number in range(4):
        assert lines.count(f"- plan {number}, done.") == 1
        assert lines.count(f"- flushed {number}") == 1
        assert lines.count(f"- said {number} (owner, 2026-11-21)") == 1


# --- for a model without tools ----------------------------------------------------------------------------------------


async def test_a_request_to_a_small_model_to_remember_is_written_and_recalled_in_the_next_session(
    memory: Memory, workspace: Path
) -> None:
    model = Model(says("Fine."))
    model.small = True
    stage = Stage(model, Instrument("write"), workspace=workspace, memory=memory)
    async with stage.playing():
        seq = stage.hear("Remember that my preferred language is Rust")
        await stage.until_settled()
    assert stage.told(NoteAppended) == [NoteAppended(of=seq, path="MEMORY.md")]
    assert not stage.told(MemoryRecalled)
    assert (workspace / "MEMORY.md").read_text() == "- my preferred language is Rust (owner, 2026-11-21)\n"
    later = Stage(model, Instrument("write"), workspace=workspace, memory=memory)
    async with later.playing():
        await later.say("What is my favourite language?")
    assert "my preferred language is Rust" in model.requests[-1].context.messages[-1].text


async def test_a_model_with_tools_writes_the_item_itself(memory: Memory, workspace: Path) -> None:
    stage = Stage(Model(says("Fine.")), Instrument("write"), workspace=workspace, memory=memory)
    async with stage.playing():
        await stage.say("Remember that my preferred language is Rust")
    assert not (workspace / "MEMORY.md").exists()


async def test_an_item_that_cannot_be_written_is_reported_and_the_turn_continues(memory: Memory, workspace: Path) -> None:
    (workspace / "MEMORY.md").mkdir()
    stage = Stage(Model(says("Fine.")), workspace=workspace, memory=memory)
    async with stage.playing():
        await stage.say("Remember that my preferred language is Rust")
    assert [told.hook for told in stage.told(PluginFailed)] == ["remember"]
    assert stage.kinds[-1] == "turn_ended"


WHOLE = "- I prefer grüne Äpfel. (owner, 2026-11-21)\n"


@pytest.mark.parametrize("length", [1, 2, 3, 11, 14, 24, 26, 30, len(WHOLE.encode()) - 1, len(WHOLE.encode())])
@pytest.mark.parametrize("before", ["", "- Tea.\n", "# About Ada\n\nShe is left-handed.\n\n"])
async def test_a_line_cut_short_by_a_power_failure_is_completed(
    length: int, before: str, remembering: MemoryWriter, workspace: Path
) -> None:
    (workspace / "MEMORY.md").write_bytes(before.encode() + WHOLE.encode()[:length])
    line = before.count("\n") + 1
    place = await remembering.remember("I prefer grüne Äpfel.", "owner", group=False)
    assert place == f"MEMORY.md#L{line}-L{line}"
    assert (workspace / "MEMORY.md").read_text() == before + WHOLE


async def test_a_full_memory_file_is_refused_with_advice(remembering: MemoryWriter, workspace: Path) -> None:
    full = "- Something.\n" * 80_659  # 9 bytes below 1 MiB
    (workspace / "MEMORY.md").write_text(full)
    with pytest.raises(NoteNotWritten, match=r"^MEMORY\.md has no room .* 1 MiB; shorten it"):
        await remembering.remember("this", "owner", group=False)
    assert (workspace / "MEMORY.md").read_text() == full


async def test_in_a_group_a_full_note_continues_in_a_second_file(remembering: MemoryWriter, workspace: Path) -> None:
    (workspace / "memory").mkdir()
    (workspace / "memory/2026-11-21.md").write_text("- Something.\n" * 81_000)
    for _ in range(2):
        place = await remembering.remember("We meet on Friday.", "owner", group=True)
        assert place == "memory/2026-11-21-2.md#L1-L1"
    assert (workspace / "memory/2026-11-21-2.md").read_text() == "- We meet on Friday. (owner, 2026-11-21)\n"


@pytest.mark.parametrize(
    "path",
    [
        "memory/../MEMORY.md",
        "memory/../../outside.md",
        "memory/../../workspace/MEMORY.md",
        "memory//../MEMORY.md",
        "{}/MEMORY.md",
        "/{}/../outside.md",
        "./MEMORY.md",
        "memory.md",
        "memory/.hidden.md",
        "memory/link.md",
    ],
)
async def test_no_spelling_of_a_path_takes_lines_out_of_what_is_private_or_lies_elsewhere(
    path: str, remembering: MemoryWriter, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "memory").mkdir()
    files = [workspace / "MEMORY.md", tmp_path / "outside.md", workspace / "memory/.hidden.md"]
    for file in files:
        file.write_text("- Kept.\n")
    (workspace / "memory/link.md").symlink_to(tmp_path / "outside.md")
    with pytest.raises(NoteNotWritten):
        await remembering.forget(f"{path.format(workspace)}#L1-L1", "owner", group=True)
    assert [file.read_text() for file in files] == ["- Kept.\n"] * 3
