"""`/undo`: files are as they were before the last turn, or the answer says why not."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gateway.conversations.commands.undo import Reversal, changes_of
from sessions.events.events import (
    CallRef,
    ChangedFile,
    ChangesUndone,
    Event,
    ModelReplied,
    Recorded,
    RequestedCall,
    ToolReturned,
    UndoneFile,
)
from tests.docs.test_documents import hash_by_the_page
from tests.gateway.gateways import Client, Gateway, gateway
from tests.gateway.test_workspace_access import asks

SCRIPT = [
    asks("edit", path="plan.md", old="two", new="2"),
    asks("write", path="memory/new.md", content="The gate is green.\n"),
    asks("edit", path="plan.md", old="2", new="II"),
    asks("edit", path="other.md", old="black", new="green"),
    {"text": "Done."},
    {"text": "So be it."},
]

PLAN, OTHER = "one\ntwo\nthree\n", "black tea\n"


def prepared(home: Path) -> Path:
    workspace = home / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "plan.md").write_text(PLAN)
    (workspace / "other.md").write_text(OTHER)
    return workspace


def files(workspace: Path) -> tuple[str, str, bool]:
    return (workspace / "plan.md").read_text(), (workspace / "other.md").read_text(), (workspace / "memory/new.md").exists()


def undone(running: Gateway) -> list[dict[str, Any]]:
    (lines,) = running.journals().values()
    return [line for line in lines if line["kind"] == "changes_undone"]


async def changed(running: Gateway, workspace: Path) -> Client:
    """Let the model change the files, and return a client of the session."""
    client = await running.connect()
    await client.send("change them")
    await client.until_event("turn_ended")
    assert files(workspace) == ("one\nII\nthree\n", "green tea\n", True)
    return client


ANSWER = """Undone:

- `other.md` has its former content again.
- `plan.md` has its former content again.
- `memory/new.md` was new and is removed."""


async def test_the_last_turns_changes_are_undone_once_and_the_model_is_told(tmp_path: Path) -> None:
    workspace = prepared(tmp_path)
    (workspace / "plan.md").chmod(0o640)
    async with gateway(tmp_path, script=SCRIPT) as running:
        client = await changed(running, workspace)
        assert await client.command("/undo") == ANSWER
        assert files(workspace) == (PLAN, OTHER, False)
        assert (workspace / "plan.md").stat().st_mode & 0o777 == 0o640
        await client.send("/undo")
        again = await client.until_event("command_answered")
        assert (again["answer"], again["failed"]) == (
            "The changes of the last turn were undone before; there is nothing left to undo.",
            True,
        )
        await client.send("and now?")
        await client.until_event("turn_ended")
        (event,) = undone(running)
        assert event["of"] == 1
        assert event["told"].endswith(
            "no message of the person.\n- other.md has its former content again.\n- plan.md has its former content again.\n"
            "- memory/new.md was new and is removed."
        )
        assert await client.command("/undo") == (
            "The last turn changed no files with `write` or `edit`; there is nothing to undo."
        )
        (lines,) = running.journals().values()
    plain = [{name: value for name, value in line.items() if name != "sum"} for line in lines]
    sent = [line for line in plain if line["kind"] == "request_sent"]
    assert len(sent) == 6
    assert [each["sha256"] for each in sent] == [hash_by_the_page(plain[: each["seq"] - 1]) for each in sent]


async def test_what_was_changed_since_is_left_and_can_be_undone_later(tmp_path: Path) -> None:
    workspace = prepared(tmp_path)
    async with gateway(tmp_path, script=SCRIPT) as running:
        client = await changed(running, workspace)
        (workspace / "plan.md").write_text("mine\n")
        (workspace / "memory/new.md").unlink()
        (workspace / "other.md").unlink()
        assert await client.command("/undo") == (
            "Undone in part:\n\n- `other.md` is left as it is: it was removed since.\n"
            "- `plan.md` is left as it is: it was changed since.\n- `memory/new.md` was new and is removed."
        )
        assert (workspace / "plan.md").read_text() == "mine\n"
        assert not (workspace / "other.md").exists()
        (workspace / "plan.md").write_text("one\nII\nthree\n")
        assert "- `plan.md` has its former content again." in await client.command("/undo")
        assert (workspace / "plan.md").read_text() == PLAN
        assert (await client.command("/undo")).startswith("Nothing was undone:")
        assert [event.get("told", "") == "" for event in undone(running)] == [False, False, True]


async def test_after_a_restart_the_last_turn_can_be_undone_and_what_became_protected_is_left(tmp_path: Path) -> None:
    workspace = prepared(tmp_path)
    async with gateway(tmp_path, script=SCRIPT) as running:
        await changed(running, workspace)
    async with gateway(tmp_path, script=SCRIPT, settings={"agent.protected_files": ["plan.md"]}) as running:
        client = await running.connect()
        answer = await client.command("/undo")
        assert "- `plan.md` is left as it is: this file holds the operator's instructions;" in answer
        assert files(workspace) == ("one\nII\nthree\n", OTHER, False)


async def test_a_former_content_that_is_lost_is_reported(tmp_path: Path) -> None:
    workspace = prepared(tmp_path)
    async with gateway(tmp_path, script=SCRIPT) as running:
        client = await changed(running, workspace)
        (tmp_path / "attachments" / sha256(OTHER.encode()).hexdigest()).unlink()
        answer = await client.command("/undo")
        assert "- `other.md` is left as it is: its former content cannot be read any more." in answer
        assert files(workspace) == (PLAN, "green tea\n", False)


async def test_without_a_turn_there_is_nothing_to_undo(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        assert "nothing to undo" in await client.command("/undo")
        assert await client.command("/undo plan.md") == "/undo takes no argument."


async def test_a_note_that_was_undone_is_no_longer_found(tmp_path: Path) -> None:
    workspace = prepared(tmp_path)
    async with gateway(tmp_path, script=SCRIPT) as running:
        client = await changed(running, workspace)
        assert "memory/new.md" in await client.command("/memory gate green")
        await client.command("/undo")
        assert "memory/new.md" not in await client.command("/memory gate green")


# --- what is to be undone ---------------------------------------------------------------------------------------------


def recorded(*events: Event, turn: int | None = 1) -> list[Recorded]:
    return [Recorded(seq=10 + number, at="", turn=turn, event=event) for number, event in enumerate(events)]


def change(path: str, before: str | None, after: str | None) -> ToolReturned:
    changed = ChangedFile(path=path, before=before, after=after)
    return ToolReturned(call=CallRef(of=10, index=0), outcome="returned", output="", changes=(changed,))


def test_changes_of_a_file_are_joined_until_somebody_else_came_between() -> None:
    changes = [change("a", "1", "2"), change("b", None, "x"), change("a", "2", "3"), change("a", "9", "4")]
    found = changes_of(1, recorded(*changes))
    assert found.reversals == (
        Reversal(path="a", before="9", after="4", cut=True),
        Reversal(path="b", before=None, after="x"),
    )
    joined = changes_of(1, recorded(change("a", "1", "2"), change("a", "2", "3")))
    assert joined.reversals == (Reversal(path="a", before="1", after="3"),)


def test_only_the_last_turn_and_what_is_not_yet_undone_counts() -> None:
    before = ChangesUndone(
        of=1, answers=3, files=(UndoneFile(path="a", outcome="restored"), UndoneFile(path="b", outcome="kept"))
    )
    found = changes_of(1, recorded(change("a", "1", "2"), change("b", "1", "2"), before))
    assert ([each.path for each in found.reversals], found.undone) == (["b"], True)
    assert changes_of(2, recorded(change("a", "1", "2"))).reversals == ()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (RequestedCall(id="c", tool="edit", arguments='{"path": "a.md"}'), ("a.md",)),
        (RequestedCall(id="c", tool="shell", arguments='{"path": "a.md"}'), ()),
        (RequestedCall(id="c", tool="write", arguments='{"path'), ()),
        (RequestedCall(id="c", tool="write", arguments='{"path": 3}'), ()),
    ],
)
def test_an_interrupted_change_is_named(call: RequestedCall, named: tuple[str, ...]) -> None:
    replied = ModelReplied(reply=1, model="m", text="", calls=(call,), stop="calls", usage=None)
    lost = ToolReturned(call=CallRef(of=10, index=0), outcome="unknown", output="")
    assert changes_of(1, recorded(replied, lost)).uncertain == named
