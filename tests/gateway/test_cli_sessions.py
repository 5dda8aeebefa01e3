"""`exuvia sessions …` on journals, with and without a running gateway."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from sessions.attachments.store import Attachments
from sessions.events.codec import FIRST, encode
from sessions.events.events import (
    AttachmentsWithheld,
    CallRef,
    CommandAnswered,
    Event,
    Failure,
    MessageReceived,
    ModelReplied,
    Recorded,
    RequestedCall,
    SessionOpened,
    Succession,
    ToolReturned,
    TurnEnded,
    Withheld,
)
from sessions.events.messages import Attachment
from tests.gateway.gateways import gateway

OLD, NEW, OTHER = "20261120-090000-aaaaaa", "20261121-090000-bbbbbb", "20261121-080000-cccccc"


def said(text: str) -> MessageReceived:
    return MessageReceived(
        id=text, client="phone", sender="owner", channel="websocket", chat="private", text=text, attachments=()
    )


def opened(session: str, key: str, succeeds: Succession | None = None, person: str = "owner") -> SessionOpened:
    return SessionOpened(format=1, session=session, key=key, person=person, succeeds=succeeds)


def write(home: Path, session: str, day: int, events: Sequence[Event]) -> Path:
    """Write a journal of these events, a second apart."""
    lines, previous = [], FIRST
    for seq, event in enumerate(events, start=1):
        recorded = Recorded(seq=seq, at=f"2026-11-{day}T09:00:{seq:02d}.000Z", turn=None, event=event)
        line, previous = encode(recorded, previous)
        lines.append(line)
    path = home / "sessions" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    return path


STORY: list[Event] = [
    opened(NEW, "main", Succession(session=OLD, seq=2)),
    said("What stands in the notes?\x1b[31m"),
    ModelReplied(
        reply=1,
        model="m",
        text="Let me look.",
        calls=(RequestedCall(id="c", tool="read", arguments='{"path":"notes.md"}'),),
        stop="calls",
        usage=None,
    ),
    ToolReturned(call=CallRef(of=3, index=0), outcome="returned", output="```\nmilk\n```"),
    ModelReplied(reply=2, model="m", text="Milk.", calls=(), stop="end", usage=None),
    TurnEnded(outcome="replied", millis=5),
    said("/whoami"),
    CommandAnswered(answers=7, answer="You are the owner.", failed=False),
    TurnEnded(outcome="failed", millis=5, error=Failure(code="unreachable", sentence="No answer came.")),
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two sessions of `main`, one after the other, and one of `work` between them."""
    write(tmp_path, OLD, 20, [opened(OLD, "main"), said("/new")])
    write(tmp_path, NEW, 22, STORY)
    write(tmp_path, OTHER, 21, [opened(OTHER, "work"), said("hi")])
    return tmp_path


def sessions(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["sessions", *arguments, "--home", str(home)])


def test_the_list_names_key_session_events_time_and_size_with_the_latest_at_the_end(home: Path) -> None:
    result = sessions(home, "list")
    rows = [line.split() for line in result.stdout.splitlines()]
    sizes = {name: str((home / "sessions" / f"{name}.jsonl").stat().st_size) for name in (OLD, NEW, OTHER)}
    assert result.exit_code == 0
    assert rows[1:] == [
        ["main", OLD, "2", "2026-11-20T09:00:02.000Z", sizes[OLD]],
        ["work", OTHER, "2", "2026-11-21T09:00:02.000Z", sizes[OTHER]],
        ["main", NEW, "9", "2026-11-22T09:00:09.000Z", sizes[NEW]],
    ]


def test_the_list_as_json_says_the_same(home: Path) -> None:
    rows = json.loads(sessions(home, "list", "--json").stdout)
    assert [(row["key"], row["session"], row["events"], row["readable"]) for row in rows] == [
        ("main", OLD, 2, True),
        ("work", OTHER, 2, True),
        ("main", NEW, 9, True),
    ]


def test_the_list_survives_torn_empty_and_unreadable_journals(home: Path) -> None:
    torn = home / "sessions" / f"{NEW}.jsonl"
    torn.write_bytes(torn.read_bytes() + b'{"seq":10,"at":"2026')
    (home / "sessions" / "20261123-000000-dddddd.jsonl").write_bytes(b"")
    (home / "sessions" / "20261123-000000-eeeeee.jsonl").write_bytes(b"nonsense\n")
    (home / "sessions" / "notes.txt").write_text("not a journal")
    rows = {row["session"]: row for row in json.loads(sessions(home, "list", "--json").stdout)}
    assert len(rows) == 5
    assert (rows[NEW]["events"], rows[NEW]["readable"]) == (9, True)
    assert (rows["20261123-000000-eeeeee"]["key"], rows["20261123-000000-eeeeee"]["readable"]) == ("?", False)
    assert "sessions verify" in sessions(home, "list").stdout


def test_a_copy_under_another_name_is_listed_as_unreadable_and_verified(home: Path) -> None:
    content = (home / "sessions" / f"{NEW}.jsonl").read_bytes()
    copy = home / "sessions" / "a copy (1).jsonl"
    copy.write_bytes(content)
    rows = {row["session"]: row for row in json.loads(sessions(home, "list", "--json").stdout)}
    assert (rows[copy.stem]["readable"], rows[copy.stem]["bytes"]) == (False, len(content))
    assert f"whole   {copy.stem}: 9 events" in sessions(home, "verify").stdout
    copy.write_bytes(content.replace(b'{"seq":2', b'{"seq":3', 1))
    assert f"DAMAGED {copy}, line 2" in sessions(home, "verify").stdout


def test_the_last_event_is_found_behind_a_very_long_line(home: Path) -> None:
    write(home, OTHER, 21, [opened(OTHER, "work"), said("x" * 300_000), said("y" * 40_000)])
    rows = {row["session"]: row for row in json.loads(sessions(home, "list", "--json").stdout)}
    assert (rows[OTHER]["events"], rows[OTHER]["readable"]) == (3, True)


def test_a_transcript_is_for_people(home: Path) -> None:
    result = sessions(home, "show", "main")
    assert result.exit_code == 0
    assert result.stdout == (
        "#2 2026-11-22T09:00:02.000Z person\nWhat stands in the notes?[31m\n\n"
        "#3 2026-11-22T09:00:03.000Z assistant\nLet me look.\n⚙ read notes.md\n\n"
        "#4 2026-11-22T09:00:04.000Z tool (returned): ``` milk ```\n\n"
        "#5 2026-11-22T09:00:05.000Z assistant\nMilk.\n\n"
        "#7 2026-11-22T09:00:07.000Z person\n/whoami\n\n"
        "#8 2026-11-22T09:00:08.000Z gateway\nYou are the owner.\n\n"
        "#9 2026-11-22T09:00:09.000Z gateway\nNo answer came.\n\n"
    )


def test_a_session_is_given_by_its_id_or_by_a_key_for_the_newest(home: Path) -> None:
    assert "/new" in sessions(home, "show", OLD).stdout
    assert "Milk." in sessions(home, "show", "main").stdout
    unknown = sessions(home, "show", "nobody")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert unknown.stderr.startswith("exuvia: There is no session 'nobody'")
    assert sessions(home, "show", "../sessions/" + OLD).exit_code == 2


def test_with_several_people_the_list_says_whose_and_a_name_is_the_owners(home: Path) -> None:
    assert "PERSON" not in sessions(home, "list").stdout
    hers, alone = "20261123-090000-ffffff", "20261124-090000-gggggg"
    write(home, hers, 23, [opened(hers, "main", person="ana"), said("I am Ana.")])
    write(home, alone, 24, [opened(alone, "garden", person="ana"), said("Roses.")])
    rows = [line.split()[:3] for line in sessions(home, "list").stdout.splitlines()]
    assert rows[0] == ["KEY", "PERSON", "SESSION"]
    assert rows[3:] == [["main", "owner", NEW], ["main", "ana", hers], ["garden", "ana", alone]]
    assert "Milk." in sessions(home, "show", "main").stdout
    for command in (("show",), ("export",)):
        assert "I am Ana." in sessions(home, *command, "main", "--person", "ana").stdout
    assert "Roses." in sessions(home, "show", "garden").stdout
    unknown = sessions(home, "show", "work", "--person", "ana")
    assert (unknown.exit_code, "There is no session 'work' of ana; " in unknown.stderr) == (2, True)


def test_a_transcript_may_be_limited_and_be_json(home: Path) -> None:
    entries = json.loads(sessions(home, "show", "main", "--json", "--limit", "2").stdout)
    assert [(entry["seq"], entry["who"], entry["text"]) for entry in entries] == [
        (8, "gateway", "You are the owner."),
        (9, "gateway", "No answer came."),
    ]


def test_an_export_is_the_journals_own_bytes_without_what_is_unfinished(home: Path) -> None:
    path = home / "sessions" / f"{NEW}.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq":10,"at":"2026')
    assert sessions(home, "export", "main").stdout_bytes == whole


def test_an_export_as_markdown_fences_what_tools_returned(home: Path) -> None:
    page = sessions(home, "export", "main", "--format", "markdown").stdout
    assert page.startswith(f"# Session {NEW}\n")
    assert "\n````\n```\nmilk\n```\n````\n" in page
    assert "- `⚙ read notes.md`" in page


def test_whole_journals_verify(home: Path) -> None:
    result = sessions(home, "verify")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "3 checked, 0 damaged."
    one = sessions(home, "verify", "work")
    assert one.stdout.splitlines()[0].startswith(f"whole   {OTHER}: 2 events")
    assert one.stdout.splitlines()[-1] == "1 checked, 0 damaged."


def test_an_unfinished_last_line_is_reported_and_is_not_damage(home: Path) -> None:
    path = home / "sessions" / f"{NEW}.jsonl"
    path.write_bytes(path.read_bytes() + b"\0" * 7)
    result = sessions(home, "verify", NEW)
    assert result.exit_code == 0
    assert "7 of an incomplete last line" in result.stdout


def test_damage_is_named_by_file_line_and_reason_and_the_others_are_checked_all_the_same(home: Path) -> None:
    path = home / "sessions" / f"{NEW}.jsonl"
    path.write_bytes(path.read_bytes().replace(b"Milk.", b"Salt."))
    result = sessions(home, "verify")
    assert result.exit_code == 1
    assert f"DAMAGED {path}, line 5: its sum does not match" in result.stdout
    assert result.stdout.splitlines()[-1] == "3 checked, 1 damaged."
    verdicts = {each["session"]: each for each in json.loads(sessions(home, "verify", "--json").stdout)}
    assert (verdicts[NEW]["whole"], verdicts[NEW]["line"], verdicts[NEW]["events"]) == (False, 5, 4)
    assert verdicts[OLD]["whole"]


def test_a_transcript_of_a_damaged_journal_ends_in_one_sentence(home: Path) -> None:
    path = home / "sessions" / f"{NEW}.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"text":"Milk."', b'"text":nothing'))
    result = sessions(home, "show", NEW)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert f"{NEW}.jsonl, line 5" in result.stderr


def test_without_a_home_every_command_fails(tmp_path: Path) -> None:
    result = sessions(tmp_path / "nowhere", "list")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "There is no home" in result.stderr


def test_a_home_without_sessions_is_well(tmp_path: Path) -> None:
    assert (sessions(tmp_path, "list").exit_code, sessions(tmp_path, "list").stdout) == (0, "")
    assert sessions(tmp_path, "verify").stdout == "0 checked, 0 damaged.\n"


async def test_everything_works_beside_a_running_gateway(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("hello")
        assert "hello" in sessions(tmp_path, "show", "main").stdout
        assert sessions(tmp_path, "verify").exit_code == 0
        assert json.loads(sessions(tmp_path, "list", "--json").stdout)[0]["key"] == "main"


async def test_a_whole_journal_that_ends_before_what_was_acknowledged_is_told(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        client = await g.connect()
        await client.chat("one")
        await client.chat("two")
    assert sessions(tmp_path, "verify").exit_code == 0
    [journal] = (tmp_path / "sessions").glob("*.jsonl")
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)

    def verdict() -> tuple[int, str]:
        result = sessions(tmp_path, "verify")
        return result.exit_code, result.output

    journal.write_bytes(b"".join(lines[:-1]))
    code, said = verdict()
    assert (code, said.splitlines()[-1]) == (1, "1 checked, 1 damaged.")
    assert (
        f"DAMAGED {journal}, line {len(lines)}: acknowledged events are missing: it ends with event {len(lines) - 1}" in said
    )
    assert "without one, stop the gateway: `exuvia sessions forget` continues it from there" in said

    journal.unlink()
    code, said = verdict()
    assert (code, f"DAMAGED {journal}: acknowledged events are missing: it is missing or empty" in said) == (1, True)
    assert sessions(tmp_path, "verify", journal.stem).exit_code == 1

    journal.write_bytes(whole)
    assert verdict()[0] == 0
    journal.write_bytes(b"".join(lines[:-1]))
    (tmp_path / "catalog.sqlite").write_bytes(b"this is no database, whatever its name says" * 100)
    code, said = verdict()
    assert (code, "Truncated journals cannot be detected." in said) == (0, True)
    (tmp_path / "catalog.sqlite").unlink()
    assert verdict() == (0, said.replace(said[said.index(" catalog.sqlite") : -1], ""))


async def test_a_journal_that_was_cut_is_told_after_another_start_too(tmp_path: Path) -> None:
    async with gateway(tmp_path) as g:
        await (await g.connect()).chat("one")
    [journal] = (tmp_path / "sessions").glob("*.jsonl")
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    async with gateway(tmp_path):
        result = sessions(tmp_path, "verify")  # beside the gateway, which writes the catalog
        assert (result.exit_code, "acknowledged events are missing" in result.output) == (1, True)
    result = sessions(tmp_path, "verify")
    assert (result.exit_code, "acknowledged events are missing" in result.output) == (1, True)


def test_a_reader_that_closes_the_pipe_ends_an_export_quietly(home: Path) -> None:
    write(home, OTHER, 21, [opened(OTHER, "work"), *(said("x" * 10_000) for _ in range(100))])
    command = f"{sys.executable} -m exuvia sessions export work --home {home} | head -c 10"
    result = subprocess.run(command, shell=True, capture_output=True, check=False, text=True)
    assert (result.stdout, result.stderr) == ('{"seq":1,"', "")


def test_the_command_line_says_which_version_it_is() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert CliRunner().invoke(cli, ["--version"]).output == f"exuvia {project['version']}\n"


def test_help_imports_nothing_but_the_command_line() -> None:
    program = (
        "import sys; from gateway.cli.main import cli; cli(['--help'], standalone_mode=False);"
        " sys.exit(bool({'aiohttp', 'msgspec', 'structlog', 'asyncio', 'gateway.wiring.daemon'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert all(word in result.stdout for word in ("run", "chat", "sessions"))


def test_the_lists_of_commands_have_whole_sentences() -> None:
    groups, described = [("exuvia", cli)], []
    while groups:
        path, group = groups.pop()
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                groups.append((f"{path} {name}", command))
        listed = CliRunner().invoke(group, ["--help"]).output.partition("Commands:")[2]
        described += [line for line in listed.splitlines() if line.strip()]
    assert len(described) > 30
    assert [line for line in described if not line.endswith(".") or line.endswith("...")] == []


def test_the_gateway_starts_without_importing_terminal_libraries(tmp_path: Path) -> None:
    program = (
        "import sys; from gateway.cli.main import cli\n"
        f"try: cli(['run', '--home', {str(tmp_path)!r}, '--host', '192.0.2.1'])\n"  # which it refuses, once all is there
        "except SystemExit as end: drawing = {'rich', 'rich.console', 'rich.traceback'} & set(sys.modules)\n"
        "assert 'gateway.wiring.daemon' in sys.modules; print(sorted(drawing))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True)
    assert (result.returncode, result.stdout) == (0, "[]\n"), result.stderr
    assert "no token is configured" in result.stderr


def test_run_refuses_a_bad_port_before_anything_is_started(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["run", "--home", str(tmp_path / "home"), "--port", "70000"])
    assert result.exit_code == 2
    assert not (tmp_path / "home").exists()


# --- attachments ------------------------------------------------------------------------------------------------------


def attach(home: Path) -> tuple[Attachment, Attachment]:
    """Store two files, named by a message in a session of its own."""
    kept = Attachments(home / "attachments")
    one, two = (asyncio.run(kept.store(text, "owner", claimed="", name="n.txt")) for text in (b"one", b"two"))
    message = msgspec.structs.replace(said("see"), attachments=(one, two, one))
    withheld = AttachmentsWithheld(model="m", files=(Withheld(sha256=one.sha256, sentence="It is not shown."),))
    write(home, OTHER, 21, [opened(OTHER, "work"), message, withheld])
    return one, two


def test_named_attachments_that_are_whole_verify(home: Path) -> None:
    attach(home)
    result = sessions(home, "verify")
    assert result.exit_code == 0
    assert result.stdout.endswith("3 checked, 0 damaged. Attachments: 2 checked, 0 missing or altered.\n")


def test_a_named_attachment_that_is_missing_or_altered_is_told(home: Path) -> None:
    one, two = attach(home)
    (home / "attachments" / one.sha256).unlink()
    (home / "attachments" / two.sha256).write_bytes(b"owt")
    result = sessions(home, "verify", OTHER)
    assert result.exit_code == 1
    lost = f"LOST    attachment {one.sha256} (n.txt), named in line 2: it is missing"
    assert result.stdout.splitlines()[1:] == [
        lost,
        f"LOST    attachment {two.sha256} (n.txt), named in line 2: it was altered",
        lost,
        "1 checked, 0 damaged. Attachments: 2 checked, 2 missing or altered.",
    ]
    (verdict,) = json.loads(sessions(home, "verify", OTHER, "--json").stdout)
    assert [(fault["seq"], fault["reason"]) for fault in verdict["attachments"]][:2] == [
        (2, "is missing"),
        (2, "was altered"),
    ]
    assert sessions(home, "verify", NEW).exit_code == 0


@pytest.mark.parametrize("command", [("show",), ("export", "--format", "markdown")])
def test_a_transcript_names_the_attachments_and_what_the_model_was_not_shown(home: Path, command: tuple[str, ...]) -> None:
    _, two = attach(home)
    text = sessions(home, *command, OTHER).stdout
    assert "see\n[attached: n.txt, text/plain, 3 bytes: attachments/" in text
    assert f"attachments/{two.sha256}]" in text
    assert "It is not shown." in text
