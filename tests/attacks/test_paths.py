"""Attacks by paths and names: each way in which one reaches the file system, with each spelling that could lead elsewhere.

What a single tool or route refuses, and why, stands in its own tests (`test_changing_files`, `test_workspace_files`,
`test_peoples_files`, `test_memory_endpoints`). Here every entrance meets every spelling, through a whole gateway; a
snapshot of all that must stay as it is is compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from click.testing import CliRunner
from yarl import URL

from benchmarks.ports import free_port
from gateway.cli.main import cli
from gateway.support.errors import ConfigRefused
from plugins.support.workspace import meant
from tests.attacks.test_identity import routed
from tests.console.test_transcripts import SESSION, told, write
from tests.faults.gateway_process import start_process
from tests.gateway.gateways import TOKEN, gateway
from tests.waiting import DEADLINE, deadline

SECRET = "the-secret-that-lies-outside"
INSIDE = "the-line-that-only-the-owner-reads"

PATHS = {
    "a parent": "../outside/secret.md",
    "a parent within": "memory/../../outside/secret.md",
    "many parents": "../" * 60 + "etc/passwd",
    "a parent at the end": "memory/..",
    "parents with dots": "memory/....//....//outside/secret.md",
    "absolute": "{outside}/secret.md",
    "absolute, twice": "//{outside}//secret.md",
    "absolute, within, then out": "{workspace}/../outside/secret.md",
    "a name like the workspace's": "{workspace}-other/secret.md",
    "home": "~/secret.md",
    "another's home": "~root/.bashrc",
    "a variable": "$HOME/secret.md",
    "a URL": "file://{outside}/secret.md",
    "encoded": "%2e%2e/outside/secret.md",
    "encoded twice": "%252e%252e%252foutside%252fsecret.md",
    "an encoded slash": "..%2foutside%2fsecret.md",
    "overlong UTF-8": "..\u00c0\u00afoutside\u00c0\u00afsecret.md",
    "a fullwidth slash": "..\uff0foutside\uff0fsecret.md",
    "fullwidth dots": "\uff0e\uff0e/outside/secret.md",
    "a fraction slash": "..\u2044outside\u2044secret.md",
    "a backslash": "..\\outside\\secret.md",
    "a drive": "C:\\outside\\secret.md",
    "a NUL": "memory/a.md\0.txt",
    "a NUL before": "\0../outside/secret.md",
    "a line feed": "memory/a.md\n../outside/secret.md",
    "an override": "memory/\u202edm.a",
    "half of a pair": "memory/\ud800.md",
    "a long name": "memory/" + "x" * 300 + ".md",
    "a long path": "memory/" + "x/" * 4000 + "a.md",
    "a megabyte": "x" * 1_000_000,
    "a link to a file": "memory/link.md",
    "a link to a folder": "memory/elsewhere/secret.md",
    "a link to the root": "memory/root/etc/passwd",
    "a link in a circle": "memory/circle/a.md",
    "a link to nothing": "memory/nothing.md",
    "a second name": "memory/twin.md",
    "a pipe": "memory/pipe.md",
    "a socket": "memory/socket.md",
    "a device": "memory/device.md",
    "an endless device": "/dev/zero",
    "a terminal": "/dev/tty",
    "the memory of the process": "/proc/self/mem",
    "the environment": "/proc/self/environ",
    "an open file": "/proc/self/fd/0",
    "the working folder": "/proc/self/cwd/pyproject.toml",
    "the token": "../token",
    "the configuration": "../config.toml",
    "the journals": "../sessions/{session}.jsonl",
    "hidden": "memory/.hidden.md",
    "version control": ".git/hooks/post-commit",
    "a folder": "memory",
    "a slash at the end": "memory/a.md/",
    "a dot at the end": "memory/a.md.",
    "a space at the end": "memory/a.md ",
    "in capitals": "MEMORY/SEALED.MD",
    "other Unicode": "memory/se\u0301aled.md",
    "empty": "",
    "a dot": ".",
}  # fmt: skip


class Trap:
    """A home in which files lie that nobody may read or change through the gateway."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.workspace = self.home / "workspace"
        self.outside = self.home / "outside"
        notes = self.workspace / "memory"
        for folder in (notes, self.outside, self.home / "workspace-other", self.workspace / ".git" / "hooks"):
            folder.mkdir(parents=True)
        for place in (self.outside / "secret.md", self.home / "workspace-other" / "secret.md"):
            place.write_text(f"{SECRET}\n")
        (notes / ".hidden.md").write_text("A hidden file is read, and never written.\n")
        (self.workspace / "MEMORY.md").write_text(f"- {INSIDE}\n")
        (notes / "sealed.md").write_text("The operator's own orders.\n")
        (self.workspace / ".git" / "hooks" / "post-commit").write_text("#!/bin/sh\n")
        (notes / "link.md").symlink_to(self.outside / "secret.md")
        (notes / "elsewhere").symlink_to(self.outside)
        (notes / "root").symlink_to("/")
        (notes / "circle").symlink_to(notes / "circle")
        (notes / "nothing.md").symlink_to(self.outside / "made")
        os.link(self.outside / "secret.md", notes / "twin.md")
        os.mkfifo(notes / "pipe.md")
        os.mknod(notes / "device.md", 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
        with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(notes):
            listening.bind("socket.md")
        self._before = self._snapshot()

    def spelled(self, name: str) -> str:
        """The path of that name."""
        spelling = PATHS[name].replace("{outside}", str(self.outside)).replace("{workspace}", str(self.workspace))
        return spelling.replace("{session}", SESSION)

    def changed(self) -> set[str]:
        """Return the changes outside the plain files of the workspace: files that were changed, removed or added."""
        now = self._snapshot()
        lost = {place for place, was in self._before.items() if now.get(place) != was}
        added = {place for place in now.keys() - self._before.keys() if not self._may_be_added(Path(place))}
        return lost | added

    def _may_be_added(self, place: Path) -> bool:
        within = place.is_relative_to(self.workspace) and not place.is_symlink() and place.resolve() == place
        return within and not any(part.startswith(".") for part in place.relative_to(self.workspace).parts)

    def _snapshot(self) -> dict[str, bytes | str]:
        found: dict[str, bytes | str] = {}
        for place in (*self.workspace.rglob("*"), *self.outside.rglob("*"), *(self.home / "workspace-other").rglob("*")):
            if place.is_symlink():
                found[str(place)] = os.readlink(place)
            elif place.is_file():
                found[str(place)] = place.read_bytes()
            else:
                found[str(place)] = str(place.stat().st_mode)
        return found


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


SETTINGS: Mapping[str, Any] = {
    "memory.embedding.provider": "none",
    "agent.protected_files": ["memory/sealed.md", "memory/s\u00e9aled.md"],
}


def leaks(said: str | bytes) -> bool:
    """Return True if something was said that stands in no file which this path may name."""
    said = said if isinstance(said, str) else said.decode("utf-8", "replace")
    return SECRET in said or "root:x:0" in said or TOKEN in said


async def test_no_path_from_a_model_leaves_the_workspace(trap: Trap) -> None:
    """Each tool that takes a path, with each spelling; what was refused is said and the turn goes on."""

    def calls(path: str) -> list[dict[str, Any]]:
        asked: list[tuple[str, dict[str, Any]]] = [
            ("read", {"path": path}),
            ("memory_get", {"path": path, "from": 1, "lines": 10}),
            *(("write", {"path": path, "content": "mine", "mode": mode}) for mode in ("create", "replace", "append")),
            ("edit", {"path": path, "old": SECRET, "new": "mine"}),
            (path[:200], {}),
        ]
        return [{"tool": tool, "arguments": arguments} for tool, arguments in asked]

    names = [name for name in PATHS if name != "half of a pair"]  # no JSON holds one
    script = [reply for name in names for reply in ({"calls": calls(trap.spelled(name)[:100_000])}, {"text": "done"})]
    settings = {**SETTINGS, "agent.context_window": 100_000_000}
    harm: dict[str, object] = {}
    async with gateway(trap.home, script=script, settings=settings) as g:
        client = await g.connect()
        for name in names:
            begun = len(client.frames)
            async with deadline():
                await client.send("go")
                assert (await client.until_event("turn_ended"))["outcome"] == "replied"
            events = [frame["event"] for frame in client.frames[begun:] if frame["type"] == "event"]
            outputs = [event for event in events if event["kind"] == "tool_returned"]
            assert len(outputs) == len(calls(""))
            if leaks(json.dumps([output["output"] for output in outputs])) or trap.changed():
                harm[name] = [output["output"][:200] for output in outputs], trap.changed()
    assert harm == {}


async def test_no_command_reads_or_changes_a_file_outside_the_workspace(trap: Trap) -> None:
    harm: dict[str, object] = {}
    async with gateway(trap.home, settings=SETTINGS) as g:
        client = await g.connect()
        for name in PATHS:
            path = trap.spelled(name)[:20_000]
            for command in (f"/forget {path}#L1-L1", f"/forget {path}", f"/memory {path}", f"/why {path}", f"/pin {path}"):
                async with deadline():
                    answer = await client.command(command.encode("utf-8", "replace").decode())
                if leaks(answer) or trap.changed():
                    harm[command[:80]] = answer, trap.changed()
    assert harm == {}


async def test_no_url_reaches_a_file(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every route that has a part of a path in it, with the spelling as it is, encoded and encoded twice."""
    harm: dict[str, object] = {}
    async with routed(trap.home, monkeypatch, **SETTINGS) as (g, routes):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for name in PATHS:
            path = trap.spelled(name).encode("utf-8", "replace").decode()[:2000]
            spellings = dict.fromkeys((quote(path, safe="/"), quote(path, safe=""), quote(quote(path, safe=""))))
            for (method, route), spelled in itertools.product(routes, spellings):
                parts = [part.split("}")[0] for part in route.split("{")[1:]]
                aim = route
                for part in parts:
                    aim = aim.replace("{" + part + "}", spelled)
                more: dict[str, Any] = {"headers": headers}
                if method == "PUT":
                    more = {"data": b"mine", "headers": headers | {"If-None-Match": "*"}}
                if not parts:
                    continue
                async with deadline(), g.http.request(method, URL(f"{g.url}{aim}", encoded=True), **more) as response:
                    body = await response.read()
                if leaks(body) or response.status >= 500 or trap.changed():
                    harm[f"{method} {aim[:80]}"] = response.status, body[:100], trap.changed()
    assert harm == {}


async def test_the_name_of_an_upload_is_never_used_as_a_path(trap: Trap) -> None:
    async with gateway(trap.home, settings=SETTINGS) as g:
        client = await g.connect()
        url, headers = f"{g.url}/attachments", {"Authorization": f"Bearer {TOKEN}"}
        named = []
        for number, name in enumerate(PATHS):
            path = trap.spelled(name)[:1000].encode("utf-8", "replace").decode()
            async with g.http.post(url, params={"name": path}, data=b"words", headers=headers) as response:
                assert response.status == 201
                kept = await response.json()
            sent = [{"sha256": kept["sha256"], "name": path}, {"data": "d29yZHM=", "name": path}]
            await client.say("send", id=str(number), session="main", text="hi", attachments=sent)
            event = await client.until_event("message_received")
            named += [kept.get("name", ""), *(each.get("name", "") for each in event["attachments"])]
        assert {each for each in named if set(each) & set("/\\\0\n") or len(each) > 200 or each in (".", "..")} == set()
        files = {place.name for place in (trap.home / "attachments").rglob("*") if place.is_file()}
        assert all(set(each.removesuffix(".json")) <= set("0123456789abcdef") for each in files), files
        assert trap.changed() == set()


async def test_the_name_of_a_session_is_never_used_as_a_path(trap: Trap) -> None:
    """Keys and ids have letters of their own, so most spellings are no name; the rest names no file."""
    fields: dict[str, dict[str, Any]] = {
        "send": {"text": "hi"}, "subscribe": {}, "history": {}, "fork": {}, "rename": {"title": "x"}, "cancel": {},
        "pin": {"pinned": True}, "archive": {"archived": True},
    }  # fmt: skip
    async with gateway(trap.home, settings=SETTINGS) as g:
        client = await g.connect()
        await client.chat("hello")
        before = {place.name for place in (trap.home / "sessions").iterdir()}
        taken: list[tuple[str, str, object]] = []
        for name in PATHS:
            path = trap.spelled(name)[:5000].encode("utf-8", "replace").decode()
            if set(path) <= set("abcdefghijklmnopqrstuvwxyz."):
                continue  # a good key
            for kind, more in fields.items():
                for named in ({"session": path}, {"session": "main", "session_id": path}, {"session": "main", "key": path}):
                    if ("session_id" in named and kind not in ("subscribe", "history", "fork")) or (
                        "key" in named and kind != "fork"
                    ):
                        continue
                    await client.say(kind, id="x", **more, **named)
                    answer = await client.until(lambda frame: frame["type"] != "event")
                    if answer["type"] != "error" or answer["code"] not in ("bad_frame", "unknown_session"):
                        taken.append((name, kind, answer))
            body = {"model": "exuvia", "messages": [{"role": "user", "content": "hi"}]}
            headers = {"Authorization": f"Bearer {TOKEN}", "X-Exuvia-Session": quote(path[:500])}
            async with g.http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response:
                if response.status != 400:
                    taken.append((name, "v1", await response.text()))
        assert taken == []
        assert {place.name for place in (trap.home / "sessions").iterdir()} == before
        assert trap.changed() == set()


@pytest.mark.parametrize(
    "name", [name for name in PATHS if set(PATHS[name]) - set("abcdefghijklmnopqrstuvwxyz.") - set("\0\ud800")]
)
def test_no_command_line_argument_is_used_as_a_path_of_a_journal(name: str, trap: Trap) -> None:
    write(trap.home, told(["hello"]))
    journal = trap.home / "sessions" / f"{SESSION}.jsonl"
    before = journal.read_bytes()
    path = trap.spelled(name)
    for command in (
        ["sessions", "show", path], ["sessions", "export", path], ["sessions", "verify", path], ["sessions", "forget", path],
        ["sessions", "compactions", path], ["sessions", "fork", path], ["sessions", "fork", "main", "--key", path],
        ["sessions", "show", "main", "--person", path], ["context", path],
    ):  # fmt: skip
        done = CliRunner().invoke(cli, [*command[:2], "--home", str(trap.home), *command[2:]])
        assert done.exit_code == 2, (command, done.output)
        assert SECRET not in done.output
        assert "root:x:0" not in done.output
    assert [place.name for place in (trap.home / "sessions").iterdir()] == [journal.name]
    assert journal.read_bytes() == before
    assert trap.changed() == set()


@pytest.mark.parametrize("name", [name for name in PATHS if name not in ("half of a pair", "a folder")])
def test_the_name_of_a_plugin_is_never_used_as_a_path(name: str, trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    """`plugins new` makes a folder by its name, in the folder where one stands."""
    monkeypatch.chdir(trap.workspace)
    path = trap.spelled(name)
    for kind in ("tool", "provider", "command"):
        done = CliRunner().invoke(cli, ["plugins", "new", kind, path])
        assert done.exit_code == 2, done.output
    assert trap.changed() == set()


@pytest.mark.parametrize(
    "person", ["../x", "a/b", "..", ".", "", "A", "ana ", "a\0", "\u202ea", "x" * 200, "*", "a\\b", "~"]
)
async def test_the_name_of_a_person_is_never_used_as_a_path(person: str, trap: Trap) -> None:
    """A person's files lie in a folder of their name."""
    with pytest.raises(ValueError, match="is not a person's id"):
        meant(("MEMORY.md",), person)
    file = f'[people.{json.dumps(person)}]\ntoken = "a-token-of-somebody-0123456789"\n'
    with pytest.raises(ConfigRefused):
        async with gateway(trap.home, file=file):
            pass
    assert trap.changed() == set()


# --- what is swapped while it is looked at ----------------------------------------------------------------------------


@contextlib.contextmanager
def swapping(shown: Path, others: list[Path]) -> Iterator[threading.Event]:
    """Put each of the others in the place of a file, one after the other, as fast as that goes. The event is set once each
    was there."""
    done, round_ = threading.Event(), threading.Event()

    def swap() -> None:
        while not done.is_set():
            for number, other in enumerate(others):
                fresh = shown.with_name(f".swap{number}")
                with contextlib.suppress(FileNotFoundError):
                    fresh.unlink()
                if other.is_symlink():
                    fresh.symlink_to(os.readlink(other))
                elif other.is_fifo():
                    os.mkfifo(fresh)
                else:
                    fresh.write_bytes(other.read_bytes())
                fresh.rename(shown)
                done.wait(0.0005)
            round_.set()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield round_
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("note", ["MEMORY.md", "memory/2026-11-20.md"])
async def test_a_note_replaced_by_a_link_or_a_pipe_while_it_is_read_reveals_nothing(
    note: str, trap: Trap, tmp_path: Path
) -> None:
    """The request, the index, the endpoints and the tools all read it meanwhile. No model writes
    `AGENTS.md`, which may be a link."""
    plain, link, pipe = tmp_path / "plain", tmp_path / "link", tmp_path / "pipe"
    plain.write_text("harmless words about kettles\n")
    link.symlink_to(trap.outside / "secret.md")
    os.mkfifo(pipe)
    place = trap.workspace / note
    place.parent.mkdir(exist_ok=True)
    script: list[dict[str, Any]] = [{"calls": [{"tool": "read", "arguments": {"path": note}}]}, {"text": "done"}]
    settings = {**SETTINGS, "agent.protected_files": []}
    async with gateway(trap.home, script=script * 200, settings=settings) as g:
        client = await g.connect()
        seen = b""
        with swapping(place, [plain, link, pipe]) as swapped:
            for number in range(200):
                if number >= 8 and "harmless words" in json.dumps(client.frames) + seen.decode():
                    break
                async with deadline():
                    await client.send("what of the kettles?")
                    await client.until_event("turn_ended")
                for path in (f"/api/notes/{note}", "/api/notes", "/api/memory/search?q=secret"):
                    async with (
                        deadline(),
                        g.http.get(f"{g.url}{path}", headers={"Authorization": f"Bearer {TOKEN}"}) as response,
                    ):
                        seen += await response.read()
            async with deadline():
                await asyncio.to_thread(swapped.wait)
        assert SECRET not in json.dumps(client.frames)
        assert SECRET.encode() not in seen
        kept = b"".join(path.read_bytes() for path in (trap.home / "sessions").iterdir())
        assert SECRET.encode() not in kept
        assert "harmless words" in json.dumps(client.frames) + seen.decode()


# --- what lies in the home itself -------------------------------------------------------------------------------------

OF_THE_HOME = (
    *(
        "config.toml",
        "token",
        "models.json",
        "signed_out.json",
        "sign_ins.json",
        "held_up.json",
        "catalog.sqlite",
        "memory.sqlite",
        "facts.jsonl",
    ),
    *("lock", "address", "workspace/MEMORY.md", "workspace/AGENTS.md", "workspace/memory/a.md", "sessions/a.jsonl"),
)
"""What a start reads."""


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a link in a circle", "an endless device", "a socket"])
async def test_a_start_does_not_wait_for_pipes_and_devices(kind: str, tmp_path: Path) -> None:
    """It starts, or says in a sentence what is wrong with which file; the next start is tried without that one."""
    for name in OF_THE_HOME:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        put(tmp_path / name, kind)
    wrong = list(OF_THE_HOME)
    while said := await why_not_ready(tmp_path):
        named = [name for name in wrong if Path(name).name in said]
        assert named, said
        place = tmp_path / max(named, key=len)
        wrong.remove(str(place.relative_to(tmp_path)))
        place.rmdir() if kind == "a folder" else place.unlink()
    assert len(wrong) > len(OF_THE_HOME) // 2, "most of them are in the way of no start"


async def why_not_ready(home: Path) -> str:
    """Start a gateway; return the last line of one that ends by itself, "" for one that becomes ready."""
    settings = {"EXUVIA__MEMORY__EMBEDDING__PROVIDER": '"none"'}
    async with aiohttp.ClientSession() as http:
        running = await start_process(home, port=free_port(), settings=settings, wrap=("env", "-u", "EXUVIA_TOKEN"))
        try:
            await running.ready(http, DEADLINE)
        except AssertionError:
            said = running.log.read_text()
            assert running.process.returncode in (1, 2), said
            assert "Traceback" not in said
            return said.splitlines()[-1]
        finally:
            await running.kill()
    return ""


def put(place: Path, kind: str) -> None:
    """Put something that is no plain file in a place."""
    match kind:
        case "a pipe":
            os.mkfifo(place)
        case "a folder":
            place.mkdir()
        case "a link in a circle":
            place.symlink_to(place)
        case "an endless device":
            os.mknod(place, 0o600 | 0o020000, os.makedev(1, 5))
        case _:
            with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(place.parent):
                listening.bind(place.name)
