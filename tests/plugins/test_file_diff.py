"""What a person is shown of a changed file."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exuvia import ApprovalRequest, DescribesCalls, ToolContext, ToolFailed
from plugins.tools import file_diff
from plugins.tools.file_diff import unified_diff
from tests.plugins.workspaces import Workspace

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")


def patched(old: str, diff: str) -> str:
    """Apply a unified diff; every unchanged and removed line must be where the diff says."""
    lines = old.split("\n")
    taken, out = 0, []
    rows = re.findall(r"[^\n]*\n", diff)[2:]
    for number, row in enumerate(rows):
        ends_open = rows[number + 1 : number + 2] == ["\\ No newline at end of file\n"]
        if hunk := HUNK.fullmatch(row):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            start = first - (count > 0)
            out += [f"{line}\n" for line in lines[taken:start]]
            taken = start
        elif row[0] in " -":
            assert lines[taken] == row[1:-1]
            taken += 1
        if row[0] in " +":
            out.append(row[1:-1] if ends_open else row[1:])
    rest = "\n".join(lines[taken:])
    return "".join(out) + rest


TEXTS = st.lists(st.sampled_from(["a", "b", "--- c", "+", "", " d\r", "\u2028", "e\x0c"]), max_size=14).map("\n".join)


@given(TEXTS, TEXTS)
@example("a\nb", "a\nb\n")
@example("", "\n")
@example("a\n" * 20, "b\n" + "a\n" * 20 + "c")
def test_a_diff_says_exactly_what_changes(old: str, new: str) -> None:
    diff = unified_diff("x", old.encode(), new.encode())
    assert (diff == "") == (old == new)
    if diff:
        assert patched(old, diff) == new


def test_a_diff_is_one_that_git_applies(tmp_path: Path) -> None:
    old = "".join(f"line {number}\n" for number in range(40))
    new = old.replace("line 3\n", "").replace("line 5\n", "line five\nand more\n").replace("line 39\n", "the end")
    (tmp_path / "x").write_text(old)
    diff = unified_diff("x", old.encode(), new.encode())
    subprocess.run(["git", "apply", "-p0"], cwd=tmp_path, input=diff.encode(), check=True, capture_output=True)
    assert (tmp_path / "x").read_text() == new
    assert diff.count("@@ -") == 2


def test_a_file_that_did_not_exist_or_is_no_text_has_a_diff_too() -> None:
    assert unified_diff("x", None, b"a\n") == "--- /dev/null\n+++ x\n@@ -0,0 +1 @@\n+a\n"
    assert unified_diff("x", b"a\xff\n", b"a\xff\nb\n") == "--- x\n+++ x\n@@ -1 +1,2 @@\n a\\xff\n+b\n"
    assert unified_diff("x", b"a\n", None) == "--- x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"


def test_a_rewritten_file_is_not_compared_line_by_line() -> None:
    old, new = (("".join(f"{name} {number % 7}\n" for number in range(20_000))).encode() for name in ("a", "b"))
    began = time.process_time()
    diff = unified_diff("x", old, new)
    assert time.process_time() - began < 2
    assert diff.startswith("--- x\n+++ x\n@@ -1,20000 +1,20000 @@\n-a 0\n")


def test_common_lines_of_long_texts_are_compared_in_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_diff, "MAX_PAIRS", 10)
    assert unified_diff("x", b"a\nb\nc\nd\n", b"b\na\nd\nc\n").count("\n-") == 4


# --- the tools --------------------------------------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def call(number: int = 0) -> ToolContext:
    return ToolContext(session="s", person="owner", turn=1, call=f"s/4/{number}")


async def described(workspace: Workspace, tool: str, **arguments: object) -> ApprovalRequest:
    one = workspace.tools[tool]
    assert isinstance(one, DescribesCalls)
    request = await one.approval(arguments, call())
    assert request is not None
    return request


async def test_a_call_is_described_by_the_difference_that_it_then_makes(workspace: Workspace) -> None:
    workspace.put("a.md", "one\ntwo\n")
    edit = {"path": "./a.md", "old": "two", "new": "2"}
    request = await described(workspace, "edit", **edit)
    assert (request.what, request.path, request.rememberable) == ("a.md", "a.md", True)
    assert request.detail == "--- a.md\n+++ a.md\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert workspace.text("a.md") == "one\ntwo\n"
    output = await workspace.tools["edit"].run(edit, call())
    assert output.diff == request.detail
    (change,) = output.changes
    assert (change.path, change.before, change.after) == ("a.md", b"one\ntwo\n", b"one\n2\n")

    write = {"path": "new/b.md", "content": "b"}
    request = await described(workspace, "write", **write)
    assert request.detail == "--- /dev/null\n+++ new/b.md\n@@ -0,0 +1 @@\n+b\n\\ No newline at end of file\n"
    assert workspace.names() == {"a.md"}
    output = await workspace.tools["write"].run(write, call(1))
    assert (output.diff, output.changes[0].before) == (request.detail, None)
    more = await workspace.tools["write"].run({**write, "mode": "append", "content": "c\n"}, call(2))
    assert more.diff.endswith("@@ -1 +1,2 @@\n-b\n\\ No newline at end of file\n+b\n+c\n")


async def test_a_call_that_would_fail_is_not_described(workspace: Workspace) -> None:
    workspace.put("a.md", "one\n")
    for tool, arguments, why in (
        ("edit", {"path": "a.md", "old": "three", "new": "3"}, "The passage does not occur in the file"),
        ("edit", {"path": "no.md", "old": "three", "new": "3"}, "The file does not exist."),
        ("edit", {"path": "a.md", "old": "one", "new": "one"}, "are the same"),
        ("write", {"path": "a.md", "content": "x"}, "already exists"),
        ("write", {"path": "../a.md", "content": "x"}, "\\.\\."),
        ("write", {"path": "AGENTS.md", "content": "x"}, "only the operator"),
        ("write", {"path": "b.md", "content": "x" * (1024 * 1024 + 1)}, "larger than 1 MiB"),
    ):
        with pytest.raises(ToolFailed, match=why):
            await described(workspace, tool, **arguments)
    assert workspace.names() == {"a.md"}


async def test_a_file_that_changed_since_its_change_was_described_is_left_alone(workspace: Workspace) -> None:
    workspace.put("a.md", "one\n")
    edit = {"path": "a.md", "old": "one", "new": "1"}
    before = await described(workspace, "edit", **edit)
    workspace.put("a.md", "one and more\n")
    with pytest.raises(ToolFailed, match="has changed since this was approved"):
        await workspace.tools["edit"].run(edit, call())
    assert workspace.text("a.md") == "one and more\n"
    assert (await described(workspace, "edit", **edit)).state != before.state
    await workspace.tools["edit"].run(edit, call())
    assert workspace.text("a.md") == "1 and more\n"
