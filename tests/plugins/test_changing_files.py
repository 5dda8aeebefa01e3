"""The `write` and `edit` tools: what they do, and what they never do."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exuvia import Tool, ToolFailed
from plugins.support.safe_open import OutsideFolder
from plugins.tools import file_target, read
from plugins.tools.file_changes import SeenFiles
from plugins.tools.file_target import FileTarget
from tests.open_files import open_below
from tests.plugins.test_workspace_files import swapping
from tests.plugins.workspaces import CANARY, Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


# --- write ------------------------------------------------------------------------------------------------------------


async def test_a_new_file_is_for_its_owner_alone_and_its_folders_are_made(workspace: Workspace) -> None:
    said = await workspace.do("write", "memory/2026/day.md", content="one\ntwo")

    assert said == "Created memory/2026/day.md: 7 bytes, 2 lines."
    assert workspace.text("memory/2026/day.md") == "one\ntwo"
    modes = [(workspace.folder / p).stat().st_mode & 0o777 for p in ("memory", "memory/2026", "memory/2026/day.md")]
    assert modes == [0o700, 0o700, 0o600]


async def test_what_is_written_is_durable_with_its_name_and_its_folder(workspace: Workspace, steps: list[str]) -> None:
    await workspace.do("write", "memory/a.md", content="one\n")
    assert steps == ["sync folder", "sync", "rename", "sync folder"]
    steps.clear()
    await workspace.do("write", "memory/a.md", content="two\n", mode="append")
    assert steps == ["sync"]


async def test_creating_never_overwrites(workspace: Workspace) -> None:
    workspace.put("a.md", "mine\n")
    assert await workspace.refusal("write", "a.md", content="theirs") == (
        "The file already exists; read it, then use mode replace or append, or edit."
    )
    assert workspace.text("a.md") == "mine\n"


async def test_a_file_is_replaced_only_by_a_session_that_read_it_as_it_is(workspace: Workspace) -> None:
    file = workspace.put("a.md", "first\n")
    file.chmod(0o640)
    wanted: dict[str, Any] = {"content": "second\n", "mode": "replace"}

    assert "read it first" in await workspace.refusal("write", "a.md", **wanted)
    await workspace.do("read", "a.md")
    assert "read it first" in await workspace.refusal("write", "a.md", session="another", **wanted)
    workspace.put("a.md", "meanwhile\n")
    assert "has changed since" in await workspace.refusal("write", "a.md", **wanted)
    await workspace.do("read", str(file))
    said = await workspace.do("write", "./a.md", **wanted)

    assert said == "Replaced a.md: now 7 bytes, 1 line, before 10 bytes, 1 line."
    assert (workspace.text("a.md"), file.stat().st_mode & 0o777) == ("second\n", 0o640)
    assert await workspace.do("write", "a.md", content="third\n", mode="replace")  # what it wrote itself it knows
    assert workspace.names() == {"a.md"}


async def test_a_file_that_is_too_large_to_change_does_not_count_as_read(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MAX_FILE_BYTES", 10)
    workspace.put("a.md", "x" * 11)
    assert await workspace.do("read", "a.md") == "x" * 11
    assert "read it first" in await workspace.refusal("write", "a.md", content="y", mode="replace")


async def test_a_file_of_which_only_a_part_was_read_is_not_replaced(workspace: Workspace) -> None:
    workspace.put("a.md", "one\ntwo\nthree\nfour\nfive")
    wanted: dict[str, Any] = {"content": "new\n", "mode": "replace"}

    await workspace.do("read", "a.md", limit=2)
    assert await workspace.refusal("write", "a.md", **wanted) == (
        "Lines 3 to 5 were not read in this session; read from offset 3 first, or use edit."
    )
    await workspace.do("read", "a.md", offset=4)
    assert "Line 3 was not read" in await workspace.refusal("write", "a.md", **wanted)
    await workspace.do("read", "a.md", offset=3, limit=1)
    assert "Replaced" in await workspace.do("write", "a.md", **wanted)


async def test_a_long_file_is_replaced_once_it_was_read_to_its_end(workspace: Workspace) -> None:
    workspace.put("a.md", "".join(f"line {n}\n" for n in range(50_000)))
    following, said = 1, "[Truncated; "
    while "[Truncated; " in said:
        assert " not read in this session" in await workspace.refusal("write", "a.md", content="", mode="replace")
        said = await workspace.do("read", "a.md", offset=following)
        following += said.count("\n")
    assert "Replaced" in await workspace.do("write", "a.md", content="", mode="replace")
    await workspace.do("read", "a.md")
    assert "Replaced" in await workspace.do("write", "a.md", content="from empty\n", mode="replace")


async def test_a_line_that_is_too_long_to_be_shown_is_never_taken_for_seen(workspace: Workspace) -> None:
    workspace.put("a.md", "one\n" + "x" * 300_000 + "\nthree\n")
    await workspace.do("read", "a.md")
    assert "is truncated; continue after it" in await workspace.do("read", "a.md", offset=2)
    await workspace.do("read", "a.md", offset=3)
    said = await workspace.refusal("write", "a.md", content="", mode="replace")
    assert said == "Line 2 is too long to be read completely; use edit, or write to another file."


async def test_an_edit_of_a_file_that_was_read_in_part_leaves_known_what_stands_before_it(workspace: Workspace) -> None:
    workspace.put("a.md", "one\ntwo\nthree\nfour\nfive\n")
    await workspace.do("read", "a.md", limit=3)
    await workspace.do("edit", "a.md", old="two", new="2\n2")
    assert "Lines 2 to 6 were" in await workspace.refusal("write", "a.md", content="", mode="replace")
    await workspace.do("read", "a.md", offset=2)
    await workspace.do("edit", "a.md", old="four", new="4")
    assert "Replaced" in await workspace.do("write", "a.md", content="", mode="replace")


TEXTS = st.lists(st.sampled_from([b"a", b"b", b"\n"]), max_size=9).map(b"".join)


@given(before=TEXTS, after=TEXTS, pieces=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1))
def test_what_is_known_of_a_file_is_what_was_shown_of_it(before: bytes, after: bytes, pieces: list[tuple[int, int]]) -> None:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    seen = SeenFiles()
    seen.record_read("s", ("a",), b"another version", (1, 9))
    for piece in pieces:
        seen.record_read("s", ("a",), before, piece)
    shown = {n for start, end in pieces for n in range(start, end)}
    missing = [n for n in range(1, len(old) + 1) if n not in shown]
    assert first_unseen(seen, before) == (missing[0] if missing else None)

    seen.record_change("s", ("a",), before, after)

    same = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    lost = [n for n in range(1, len(new) + 1) if n > same or n not in shown] if missing else []
    assert first_unseen(seen, after) == (lost[0] if lost else None)


def first_unseen(seen: SeenFiles, content: bytes) -> int | None:
    known = seen.known("s", ("a",))
    assert known is not None
    assert known.is_of(content)
    unseen = known.unseen(content)
    return unseen[0] if unseen else None


async def test_appending_begins_a_line_and_needs_no_reading(workspace: Workspace) -> None:
    assert "Created" in await workspace.do("write", "day.md", content="one", mode="append")
    inode = (workspace.folder / "day.md").stat().st_ino
    assert await workspace.do("write", "day.md", session="another", content="two\n", mode="append") == (
        "Appended to day.md: now 8 bytes, 2 lines, before 3 bytes, 1 line."
    )
    await workspace.do("write", "day.md", content="three", mode="append")
    assert workspace.text("day.md") == "one\ntwo\nthree"
    assert (workspace.folder / "day.md").stat().st_ino == inode


async def test_an_appended_note_is_no_leave_to_replace_the_rest(workspace: Workspace) -> None:
    workspace.put("day.md", "much that was never read\n")
    await workspace.do("write", "day.md", content="a line\n", mode="append")
    assert "read it first" in await workspace.refusal("write", "day.md", content="", mode="replace")


async def test_no_file_grows_beyond_a_mebibyte(workspace: Workspace) -> None:
    most = file_target.MAX_FILE_BYTES
    await workspace.do("write", "a", content="x" * most)
    for refused in (
        {"content": "y", "mode": "append"},
        {"content": "x" * (most + 1), "mode": "replace"},
    ):
        assert "larger than 1 MiB" in await workspace.refusal("write", "a", **refused)
    # 64 GiB would be made of this, were the size not known before.
    await workspace.do("write", "b", content="x" * (most // 16))
    assert "larger than 1 MiB" in await workspace.refusal("edit", "b", old="x", new="y" * most, all=True)
    workspace.put("c", "x" * (most + 1))
    assert "larger than 1 MiB" in await workspace.refusal("edit", "c", old="x", new="y")


@pytest.mark.parametrize("content", ["a\0b", "\ud800"])
async def test_what_is_no_text_is_not_written(workspace: Workspace, content: str) -> None:
    await workspace.refusal("write", "a", content=content)
    assert workspace.names() == set()


# --- edit -------------------------------------------------------------------------------------------------------------


async def test_an_edit_changes_one_passage_and_shows_it_among_its_lines(workspace: Workspace) -> None:
    workspace.put("a.md", "".join(f"line {number}\n" for number in range(1, 10))).chmod(0o600)
    said = await workspace.do("edit", "a.md", old="line 4\nline 5", new="LINE 4\nLINE 5")
    assert said == (
        "Edited a.md in 1 place.\n    2  line 2\n    3  line 3\n    4  LINE 4\n    5  LINE 5\n    6  line 6\n    7  line 7"
    )
    assert workspace.text("a.md") == "line 1\nline 2\nline 3\nLINE 4\nLINE 5\nline 6\nline 7\nline 8\nline 9\n"


async def test_a_passage_that_occurs_often_is_named_by_its_lines_or_replaced_everywhere(workspace: Workspace) -> None:
    workspace.put("a.md", "x\ny\nx x\n")
    assert await workspace.refusal("edit", "a.md", old="x", new="z") == (
        "The passage occurs 3 times, in lines 1, 3, 3; include more surrounding text, or set all to true."
    )
    assert (await workspace.do("edit", "a.md", old="x", new="", all="true")).startswith("Edited a.md in 3 places.")
    assert workspace.text("a.md") == "\ny\n \n"


async def test_for_a_passage_that_is_not_there_the_nearest_line_is_shown(workspace: Workspace) -> None:
    workspace.put("a.md", "apples\nThe meeting is on Monday.\n")
    assert await workspace.refusal("edit", "a.md", old="The meeting is on monday", new="z") == (
        "The passage does not occur in the file; the nearest is line 2: The meeting is on Monday."
    )
    assert "read the file again" in await workspace.refusal("edit", "a.md", old="12345", new="z")


async def test_line_ends_and_a_missing_last_one_stay(workspace: Workspace) -> None:
    workspace.put("dos.txt", "one\r\ntwo\r\nthree")
    await workspace.do("edit", "dos.txt", old="one\ntwo", new="1\n1.5\n2")
    assert workspace.text("dos.txt") == "1\r\n1.5\r\n2\r\nthree"


async def test_an_edit_of_a_file_that_others_changed_says_so(workspace: Workspace) -> None:
    workspace.put("a.md", "one\ntwo\n")
    await workspace.do("read", "a.md")
    workspace.put("a.md", "one\ntwo\nthree\n")
    assert "has changed since it was read" in await workspace.do("edit", "a.md", old="one", new="1")
    assert workspace.text("a.md") == "1\ntwo\nthree\n"


async def test_what_is_no_utf8_or_not_there_is_not_edited(workspace: Workspace) -> None:
    (workspace.folder / "latin").write_bytes(b"caf\xe9")
    (workspace.folder / "binary").write_bytes(b"a\0b")
    assert await workspace.refusal("edit", "latin", old="caf", new="x") == "The file is not UTF-8 text and cannot be edited."
    assert await workspace.refusal("edit", "binary", old="a", new="x") == "The file is not a text file."
    assert await workspace.refusal("edit", "none", old="a", new="x") == "The file does not exist."
    assert "No such file" in await workspace.refusal("edit", "no/ne", old="a", new="x")
    assert await workspace.refusal("edit", "latin", old="a", new="a") == "The old and the new passage are the same."
    assert workspace.names() == {"latin", "binary"}


async def test_edits_at_the_same_time_lose_nothing(workspace: Workspace) -> None:
    workspace.put("a.md", "".join(f"<{number}>\n" for number in range(40)))
    await asyncio.gather(
        *(workspace.do("edit", "a.md", session=f"s{n}", old=f"<{n}>", new=f"[{n}]") for n in range(40)),
        *(workspace.do("write", "a.md", session=f"s{n}", content="end\n", mode="append") for n in range(10)),
    )
    assert workspace.text("a.md") == "".join(f"[{number}]\n" for number in range(40)) + "end\n" * 10


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["create", "replace", "append", "edit", "edit all"]),
            st.sampled_from(["a", "b/c"]),
            st.text("ab\n", max_size=4),
            st.text("abé\r\n", max_size=6),
        ),
        max_size=12,
    )
)
@settings(deadline=None, max_examples=60)
def test_any_sequence_of_changes_is_what_it_would_be_in_memory(steps: list[tuple[str, str, str, str]]) -> None:
    async def run(workspace: Workspace) -> None:
        files: dict[str, str] = {}
        for way, path, old, new in steps:
            before = files.get(path)
            try:
                if way.startswith("edit"):
                    await workspace.do("edit", path, old=old, new=new, all=way == "edit all")
                else:
                    await workspace.do("write", path, content=new, mode=way)
            except ToolFailed:
                continue
            finally:
                there = workspace.folder / path
                now = there.read_bytes().decode() if there.exists() else None
                files = files | ({} if now is None else {path: now})
            assert now == expected(way, before, old, new)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Workspace(Path(folder))))


def expected(way: str, before: str | None, old: str, new: str) -> str:
    if way == "append" and before:
        return before + ("" if before.endswith("\n") else "\n") + new
    if way in ("create", "replace", "append"):
        assert way != "create" or before is None
        return new
    assert before is not None
    if "\r\n" in before and not ("\n" in old and old in before) and "\r" not in new:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    assert before.count(old) == 1 or way == "edit all"
    return before.replace(old, new)


# --- what is never written --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("../outside/secret.txt", "A path with .."),
        ("/etc/exuvia", "outside the workspace"),
        ("a\0", "NUL"),
        ("a\nb", "printable"),
        ("a/b.", "end with a space or a dot"),
        (" a", "begin with a space"),
        (".git/hooks/post-commit", "begin with a dot"),
        ("a/.envrc", "begin with a dot"),
        (".", "The path is a folder."),
        ("new/", "The path is a folder."),
        ("folder", "The path is a folder."),
        ("note.md/deeper", "Not a directory"),
        ("NOTE.md", "differ only in case"),
        ("AGENTS.md", "agent.protected_files"),
        ("./agents.MD", "agent.protected_files"),
        ("memory//sealed.md", "agent.protected_files"),
        ("x" * 300, "too long"),
        ("\ud800", "not text"),
    ],
)
async def test_a_name_that_may_not_be_written_is_refused_with_its_reason(
    workspace: Workspace, path: str, sentence: str
) -> None:
    workspace.put("note.md", "kept\n")
    (workspace.folder / "folder").mkdir()
    before = workspace.names()
    assert sentence in await workspace.refusal("write", path, content="x")
    assert workspace.names() == before
    workspace.check_outside()


async def test_no_link_pipe_or_second_name_is_written_through(workspace: Workspace) -> None:
    (workspace.folder / "to_file").symlink_to(workspace.canary)
    (workspace.folder / "to_nothing").symlink_to(workspace.outside / "new")
    (workspace.folder / "to_folder").symlink_to(workspace.outside)
    os.link(workspace.canary, workspace.folder / "second")
    os.mkfifo(workspace.folder / "pipe")

    for path in ("to_file", "to_nothing", "to_folder/secret.txt", "to_folder/new", "to_folder/a/b", "second", "pipe"):
        for mode in ("create", "replace", "append"):
            await workspace.refusal("write", path, content="x", mode=mode)
        await workspace.refusal("edit", path, old="secret", new="x")
    workspace.check_outside()


@given(st.text("ab./\\~\0\n é", max_size=12), st.sampled_from(["create", "replace", "append"]))
@example("link/../../outside/x", "create")
@example("link/secret.txt", "append")
@settings(deadline=None, max_examples=150)
def test_whatever_the_path_nothing_outside_is_touched(path: str, mode: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        for name in ("a", "b", "link"):
            (workspace.folder / name).symlink_to(workspace.outside)
        try:
            asyncio.run(workspace.do("write", path or "x", content="x", mode=mode))
        except ToolFailed:
            assert workspace.names() == {"a", "b", "link"}
        workspace.check_outside()


@pytest.mark.parametrize("swapped", ["folder", "file"])
async def test_a_swap_at_the_worst_moment_lets_nothing_out(workspace: Workspace, tmp_path: Path, swapped: str) -> None:
    folder = workspace.folder / "folder"
    folder.mkdir()
    (folder / "secret.txt").write_text("harmless\n")
    shown = folder if swapped == "folder" else folder / "secret.txt"
    link = tmp_path / "link"
    link.symlink_to(workspace.outside if swapped == "folder" else workspace.canary)
    done = 0
    with swapping(shown, tmp_path / "aside", link):
        for attempt in range(6000):  # on a busy machine the link may stand there each time that somebody looks
            if attempt >= 300 and done:
                break
            for tool, others in (
                ("edit", {"old": "harmless", "new": "harmless"[::-1]}),
                ("edit", {"old": "harmless"[::-1], "new": "harmless"}),
            ):
                try:
                    await workspace.do(tool, "folder/secret.txt", **others)
                    done += 1
                except ToolFailed:
                    continue
    assert workspace.canary.read_text() == CANARY
    assert os.listdir(workspace.outside) == ["secret.txt"]
    assert done


async def test_a_folder_that_is_made_is_never_a_link_that_came_before(workspace: Workspace, tmp_path: Path) -> None:
    made, link, done = workspace.folder / "made", tmp_path / "link", threading.Event()
    link.symlink_to(workspace.outside)

    def swap() -> None:
        while not done.wait(0.003):  # in these pauses the tool makes the folder in peace
            shutil.rmtree(made, ignore_errors=True)
            for _ in range(50):
                with suppress(OSError):  # the tool was quicker and made the folder
                    link.rename(made)
                    made.rename(link)

    thread = threading.Thread(target=swap)
    thread.start()
    written = 0
    try:
        for _ in range(500):
            with suppress(ToolFailed):
                await workspace.do("write", "made/a/b", content="x", mode="append")
                written += 1
    finally:
        done.set()
        thread.join()
    assert os.listdir(workspace.outside) == ["secret.txt"]
    assert written


async def test_no_descriptor_is_left_open(workspace: Workspace) -> None:
    workspace.put("a.md", "old\n")
    (workspace.folder / "folder").mkdir()
    (workspace.folder / "link").symlink_to(workspace.outside)
    os.mkfifo(workspace.folder / "pipe")
    await workspace.do("read", "a.md")
    before = open_below(workspace.folder, workspace.outside)

    for path in ("a.md", "new/a", "folder", "folder/x/y", "link", "link/x", "pipe", "a.md/x"):
        for mode in ("create", "append", "replace"):
            with suppress(ToolFailed):
                await workspace.do("write", path, content="old", mode=mode)
        with suppress(ToolFailed):
            await workspace.do("edit", path, old="old", new="new")

    assert open_below(workspace.folder, workspace.outside) == before


# --- faults -----------------------------------------------------------------------------------------------------------


class Held:
    """Keeps a replacement from counting until it is let go: after the new file is written, before it is renamed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        plain = FileTarget.replace

        def replace(place: FileTarget, content: bytes, go_on: Any) -> None:
            def wait() -> None:
                self.reached.set()
                self.go.wait(10)
                go_on()

            plain(place, content, wait)

        monkeypatch.setattr(FileTarget, "replace", replace)


async def test_a_cancelled_change_is_undone_and_leaves_nothing_behind(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.put("a.md", "old\n")
    held = Held(monkeypatch)
    task = asyncio.create_task(workspace.do("edit", "a.md", old="old", new="new"))
    await asyncio.to_thread(held.reached.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    held.go.set()
    await workspace.do("write", "b.md", content="after it")  # waits for the one before

    assert (workspace.text("a.md"), workspace.names()) == ("old\n", {"a.md", "b.md"})


async def test_a_change_by_somebody_else_in_that_moment_is_not_overwritten(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.put("a.md", "old\n")
    held = Held(monkeypatch)
    task = asyncio.create_task(workspace.refusal("edit", "a.md", old="old", new="new"))
    await asyncio.to_thread(held.reached.wait, 10)
    workspace.put("a.md", "theirs\n")
    held.go.set()

    assert "The file was changed by another process" in await task
    assert (workspace.text("a.md"), workspace.names()) == ("theirs\n", {"a.md"})


async def test_what_a_killed_writer_left_is_removed_once_it_is_old(workspace: Workspace) -> None:
    old, fresh = workspace.put(".exuvia-new-1", "half"), workspace.put(".exuvia-new-2", "half")
    os.utime(old, (0, 0))
    await workspace.do("write", "a.md", content="x")
    assert workspace.names() == {"a.md", fresh.name}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    _run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place))
    try:
        yield place
    finally:
        _run("umount", "-l", str(place))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk of its own is mounted, for which one must be root")
async def test_a_full_or_read_only_disk_is_said_and_nothing_is_changed(disk: Path) -> None:
    workspace = Workspace(disk)
    await workspace.do("write", "a", content="a" * 20_000)
    full = "The file was not written: the disk is full."
    for path, mode in (("a", "replace"), ("a", "append"), ("new", "create")):
        assert await workspace.refusal("write", path, content="b" * 60_000, mode=mode) == full
    assert (workspace.text("a"), workspace.names()) == ("a" * 20_000, {"a"})
    await asyncio.to_thread(_run, "mount", "-o", "remount,ro", str(disk))
    wanted = {"old": "a", "new": "b", "all": True}
    assert await workspace.refusal("edit", "a", **wanted) == "The file was not written: Read-only file system."


def test_they_are_tools_that_are_never_run_again_by_themselves(workspace: Workspace) -> None:
    assert all(isinstance(tool, Tool) for tool in workspace.tools.values())
    assert {name: tool.repeatable for name, tool in workspace.tools.items()} == {"read": True, "write": False, "edit": False}


def test_a_place_above_the_workspace_is_none(tmp_path: Path) -> None:
    (tmp_path / "workspace" / "memory").mkdir(parents=True)
    (tmp_path / "secret.md").write_text("secret")
    for parts in (("..", "secret.md"), ("memory", "..", "..", "secret.md"), ("memory", "..")):
        with (
            pytest.raises(OutsideFolder, match=r"with \.\. are not allowed"),
            file_target.open_target(tmp_path / "workspace", parts, make=True),
        ):
            pass
