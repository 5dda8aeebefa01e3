"""`exuvia doctor`: each fault is made for real, and reported with the sentence that says how to fix it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from gateway.cli.doctor import CHECKS, run_check
from gateway.cli.memory.facts_commands import import_facts
from gateway.cli.options import Invocation
from gateway.doctor.config_check import check
from gateway.doctor.findings import DoctorContext, Finding
from gateway.doctor.machine_checks import mount_findings
from gateway.support import service_unit
from gateway.support.clock import SystemClock
from gateway.support.home import Home
from plugins.memory.index.indexer import refresh
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.sources.notes import Notes
from plugins.memory.sources.transcripts import Transcripts
from sessions.catalog import sqlite
from sessions.files.home_lock import HomeLock
from sessions.files.journal_folder import JournalFolder
from tests.gateway.gateways import EMPTY_MACHINE, NOBODY, gateway
from tests.memory.without_fts5 import refuse_fts5
from tests.servers.embedding_vendors import OpenAIEmbeddingServer
from tests.servers.search_services import KEY, SearchServer
from tests.sessions.journal_files import extend_journal, messages, write_journal
from tests.waiting import until

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-for-tests-that-is-long-enough"


def context_of(home: Path, text: str = "", *, offline: bool = True, **variables: str) -> DoctorContext:
    """Create a home with this configuration; unless it says otherwise, nothing listens there."""
    home.mkdir(mode=0o700, exist_ok=True)
    home.chmod(0o700)
    (home / "config.toml").write_text(text or "[gateway]\nport = 0\n")
    checked = check(home / "config.toml", variables)
    return DoctorContext(home=Home(home), checked=checked, environment=variables, offline=offline)


def found(name: str, of: DoctorContext) -> list[Finding]:
    """Return the findings of one check."""
    return list(run_check(CHECKS[name], of))


def wrong(name: str, of: DoctorContext) -> Finding:
    """Return the only problem that a check finds."""
    (finding,) = found(name, of)
    assert finding.level == "wrong", finding
    return finding


async def talked(home: Path) -> Path:
    """Run a gateway on a home and hold a conversation; return the journal."""
    async with gateway(home) as running:
        client = await running.connect()
        for text in ("one", "two", "three"):
            await client.chat(text)
    (journal,) = (home / "sessions").glob("*.jsonl")
    return journal


def doctor(home: Path, *arguments: str, before: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program on a home; `before` are shell commands that prepare its environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("EXUVIA_", "OPENAI_"))}
    program = f'exec "{sys.executable}" -m exuvia doctor "$@"'
    return subprocess.run(
        ["sh", "-c", f"{before}{program}", "sh", *arguments],
        cwd=ROOT, env=clean | {"EXUVIA_HOME": str(home)} | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip


# --- the program ------------------------------------------------------------------------------------------------------


async def test_a_used_home_has_no_problems(tmp_path: Path) -> None:
    await talked(tmp_path)
    healthy = context_of(tmp_path, '[gateway]\nport = 0\n[agent]\nmodel = "scripted:echo"\n')
    findings = {name: await asyncio.to_thread(found, name, healthy) for name in CHECKS}
    findings.pop("disk")  # of the machine that the tests run on
    findings.pop("file system")
    assert {name: each for name, each in findings.items() if each} == {}


def test_the_command_prints_findings_and_exits_with_one_after_a_problem(tmp_path: Path) -> None:
    context_of(tmp_path, '[gateway]\nport = 0\n[agent]\nmodel = "scripted:echo"\n')
    (tmp_path / "token").write_text("short")
    done = doctor(tmp_path, "--offline")
    assert (done.returncode, done.stderr) == (1, "")
    assert (
        f"wrong  token: The token in {tmp_path}/token is shorter than 24 characters.\n       → Delete the file"
        in done.stdout
    )
    as_json = json.loads(doctor(tmp_path, "--offline", "--json").stdout)
    assert [each["check"] for each in as_json] == ["gateway", *CHECKS]
    (finding,) = next(each["findings"] for each in as_json if each["check"] == "token")
    assert finding["level"] == "wrong"
    (tmp_path / "token").write_text(TOKEN)
    fixed = doctor(tmp_path, "--offline").stdout
    assert "token:" not in fixed
    assert re.search(r"^\d+ checks passed, \d+ problems? found, in this terminal's environment\.$", fixed.splitlines()[-1])


def test_a_missing_home_is_not_a_problem_and_not_created(tmp_path: Path) -> None:
    home = tmp_path / "none"
    done = doctor(home, "--offline", EXUVIA_PORT="0", EXUVIA__AGENT__MODEL="scripted:echo")
    assert f"note   home: There is no home at {home}." in done.stdout
    assert "check failed" not in done.stdout
    assert not home.exists()


async def test_a_running_gateway_is_not_disturbed(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("one")
        (ledger,) = tmp_path.glob("spending-*.jsonl")
        await until(lambda: b"request_charged" in ledger.read_bytes())  # 50 ms later at most
        # The catalog is written behind, by the gateway itself, whenever it likes.
        files = [path for path in tmp_path.rglob("*") if not path.name.startswith("catalog.sqlite") and path != tmp_path]
        home = {path: path.stat().st_mtime_ns for path in files}
        done = await asyncio.to_thread(doctor, tmp_path, "--offline")
        assert re.search(r"(?m)^\d+ checks passed, ", done.stdout)
        assert {path: path.stat().st_mtime_ns for path in home} == home
        assert await client.chat("two") == "two"


def test_a_failing_check_is_a_finding_and_the_others_still_run(tmp_path: Path) -> None:
    def fails(_: DoctorContext) -> Iterator[Finding]:
        raise PermissionError(13, "Permission denied")

    (finding,) = run_check(fails, context_of(tmp_path))
    assert finding.what == "The check failed: PermissionError: [Errno 13] Permission denied"


# --- the home ---------------------------------------------------------------------------------------------------------


def test_an_invalid_configuration_is_reported(tmp_path: Path) -> None:
    context = context_of(tmp_path, "[sessions]\nqueue_limit = 0\n")
    expected = f"{tmp_path}/config.toml, line 2: sessions.queue_limit must be at least 1."
    assert wrong("configuration", context).what == expected


def test_a_secret_in_the_configuration_is_a_note(tmp_path: Path) -> None:
    (finding,) = found("configuration", context_of(tmp_path, f'[gateway]\ntoken = "{TOKEN}"\n'))
    assert finding.level == "note"
    assert "file:PATH" in finding.mend
    assert TOKEN not in finding.what


async def test_a_home_that_others_can_open_is_reported(tmp_path: Path) -> None:
    await talked(tmp_path)
    context = context_of(tmp_path)
    assert found("permissions", context) == []
    tmp_path.chmod(0o755)
    assert wrong("permissions", context).mend == f"Remove their access: `chmod -R go= {tmp_path}`."


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
async def test_a_file_of_another_user_is_reported(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    os.chown(journal, 12345, 12345)
    assert wrong("permissions", context_of(tmp_path)).what == f"The home and {journal} belong to different users."


@pytest.mark.parametrize(
    ("token", "words"), [("", "is blank"), ("short", "is shorter than 24"), ("x" * 40, "fewer than 6 different characters")]
)
def test_a_weak_token_is_reported(token: str, words: str, tmp_path: Path) -> None:
    context = context_of(tmp_path)
    (tmp_path / "token").write_text(token)
    assert words in wrong("token", context).what
    configured = context_of(tmp_path, f'[gateway]\ntoken = "{TOKEN}"\n')
    assert found("token", configured) == []


async def test_a_damaged_journal_is_reported_with_its_line(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    assert found("journals", context_of(tmp_path)) == []
    content = journal.read_bytes()
    journal.write_bytes(content.replace(b'"two"', b'"too"', 1))
    line = next(n for n, each in enumerate(content.splitlines(), start=1) if b'"two"' in each)
    finding = wrong("journals", context_of(tmp_path))
    assert finding.what.startswith(f"{journal}, line {line} is damaged: ")
    assert "/new" in finding.mend


async def test_a_missing_or_truncated_journal_is_reported(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))
    missing = wrong("journals", context_of(tmp_path)).what
    assert missing.startswith(f"{journal}: acknowledged events are missing: it ends with event {len(lines) - 1}")
    assert "`exuvia sessions forget`" in missing
    journal.unlink()
    missing = wrong("journals", context_of(tmp_path)).what
    assert missing.startswith(f"{journal}: acknowledged events are missing: it is missing")
    assert "`exuvia sessions forget`" in missing


async def test_a_damaged_log_of_facts_is_reported_with_its_line(tmp_path: Path) -> None:
    await talked(tmp_path)
    home, document = Home(tmp_path), tmp_path / "brought.json"
    document.write_text('[{"content": "The port is 3000"}]')
    await asyncio.to_thread(import_facts, Invocation(home, home.config, os.environ, io.StringIO()), document)
    assert found("facts", context_of(tmp_path)) == []
    home.facts.write_bytes(home.facts.read_bytes().replace(b"3000", b"4000"))
    finding = wrong("facts", context_of(tmp_path))
    assert "facts.jsonl" in finding.what
    assert "line 2" in finding.what


async def test_a_renamed_journal_and_one_that_is_no_file_are_reported(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    journal.rename(journal.with_name("20200101-000000-aaaaaa.jsonl"))
    os.mkfifo(journal.with_name("20200101-000000-bbbbbb.jsonl"))
    findings = found("journals", context_of(tmp_path))
    gone, *others = sorted(finding.what.partition(": ")[2] for finding in findings)
    assert gone.startswith("acknowledged events are missing: it is missing")
    assert others == [
        "it is not a regular file.",
        f"it is the journal of {journal.stem}, renamed.",
    ]


async def test_a_torn_tail_is_a_note_unless_a_gateway_is_running(tmp_path: Path) -> None:
    journal = await talked(tmp_path)
    with journal.open("ab") as file:
        file.write(b'{"seq":')
    (finding,) = found("journals", context_of(tmp_path))
    assert finding.level == "note"
    assert "7 bytes" in finding.what
    with HomeLock(tmp_path / "lock"):
        assert found("journals", context_of(tmp_path)) == []


def test_files_in_the_quarantine_are_a_note(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    (tmp_path / "quarantine").mkdir()
    assert found("quarantine", context) == []
    for name in ("one", "two"):
        (tmp_path / "quarantine" / name).touch()
    (finding,) = found("quarantine", context)
    assert finding.what == f"The quarantine contains {tmp_path}/quarantine/one and 1 more."


def test_a_memory_index_that_is_outdated_or_damaged_is_reported(tmp_path: Path) -> None:
    assert found("memory index", context_of(tmp_path)) == []
    notes = tmp_path / "workspace" / "memory"
    notes.mkdir(parents=True)
    (notes / "2026-11-21.md").write_text("The sky is green.")
    journal, _, _ = write_journal(tmp_path / "sessions", 1)
    os.utime(journal, (0, 0))
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        refresh(index, [Notes(tmp_path / "workspace"), Transcripts(JournalFolder(tmp_path / "sessions"), lambda: UTC)])
    extend_journal(journal, *messages(1, 60))
    assert found("memory index", context_of(tmp_path)) == [], "a journal that is not indexed to its end is nothing"
    (notes / "2026-11-22.md").write_text("It is blue again.")
    (behind,) = found("memory index", context_of(tmp_path))
    assert behind.what.endswith("out of date: 1 note has changed since, first memory/2026-11-22.md.")
    assert "exuvia memory index" in behind.mend
    (tmp_path / "memory.sqlite").write_bytes(b"no database" * 500)
    assert "Delete it" in wrong("memory index", context_of(tmp_path)).mend


def test_a_memory_backend_that_is_not_installed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.sqlite").write_bytes(b"an index of before" * 500)
    context = context_of(tmp_path, MEMORY_STORE_BACKEND="chroma")
    monkeypatch.setitem(sys.modules, "chromadb", None)
    finding = wrong("memory backend", context)
    assert finding.what.startswith("The memory backend chroma cannot be used: chromadb is not installed")
    assert finding.mend.endswith("until then sqlite is used.")
    assert found("memory index", context) == []
    for name in ("auto", "sqlite", "local"):
        assert found("memory backend", context_of(tmp_path, MEMORY_STORE_BACKEND=name)) == []
    assert "memory.backend is 'nowhere'" in wrong("configuration", context_of(tmp_path, MEMORY_STORE_BACKEND="nowhere")).what


async def test_a_clock_that_went_back_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as then:
        then.setattr(SystemClock, "now", lambda _: datetime.now(UTC) + timedelta(days=2))
        await talked(tmp_path)
    finding = wrong("clock", context_of(tmp_path))
    assert f"recorded at {datetime.now(UTC) + timedelta(days=2):%Y-%m-%d}" in finding.what
    assert "timedatectl set-ntp true" in finding.mend


# --- the machine ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def mounted(place: Path, options: str) -> Iterator[None]:
    """Mount a small file system in memory."""
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("mounting needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_nearly_full_disk_is_reported(tmp_path: Path) -> None:
    with mounted(tmp_path / "home", "size=4m,mode=700"):
        assert "nearly full: 3 MB left" in wrong("disk", context_of(tmp_path / "home")).what


def test_a_disk_without_free_inodes_is_reported(tmp_path: Path) -> None:
    with mounted(tmp_path / "home", "size=2g,nr_inodes=100,mode=700"):
        assert "more files" in wrong("disk", context_of(tmp_path / "home")).what


def test_a_home_in_memory_is_reported(tmp_path: Path) -> None:
    with mounted(tmp_path / "home", "size=4m,mode=700"):
        assert f"{tmp_path}/home is in memory (tmpfs)" in wrong("file system", context_of(tmp_path / "home")).what


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        ("36 1 0:3 / /srv rw,relatime shared:1 - nfs4 server:/srv rw,vers=4.2", "/srv is a network file system (nfs4)"),
        ("36 1 0:3 / /srv/with\\040space rw - cifs //server/x rw", "is a network file system (cifs)"),
        ("36 1 8:1 / /srv rw,relatime - ext4 /dev/sda1 rw,nobarrier", "mounted with nobarrier"),
        ("36 1 0:9 / /srv rw - overlay overlay rw,lowerdir=/a,volatile", "mounted with volatile"),
        ("36 1 8:1 / /srv rw,relatime - ext4 /dev/sda1 rw", ""),
        ("36 1 0:3 / /srv/elsewhere rw - nfs4 server:/ rw", ""),
    ],
)
def test_a_mount_with_unreliable_syncs_is_reported(mount: str, words: str) -> None:
    # Lines as proc(5) describes them: no server stands here to mount such a thing from.
    mounts = f"22 1 8:2 / / rw,relatime - ext4 /dev/sda2 rw\n{mount}\n"
    findings = list(mount_findings(mounts, "/srv/with space/home" if "space" in mount else "/srv/home"))
    assert [words in finding.what for finding in findings] == ([True] if words else [])


def test_a_low_limit_on_address_space_is_reported_also_of_the_running_gateway(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--offline", before="ulimit -v 1000000; ")
    assert "wrong  address space: The address space is limited to 976 MB" in done.stdout
    holder = subprocess.Popen(
        ["sh", "-c", f'ulimit -v 900000; exec "{sys.executable}" -c "$0" "$1"', HOLD, tmp_path / "lock"],
        cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    holder.stdout.readline()
    assert "limited to 878 MB" in wrong("address space", context_of(tmp_path)).what
    holder.communicate(b"\n")
    assert (
        resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        or found("address space", context_of(tmp_path)) == []
    )


def test_a_low_limit_on_open_files_is_reported_also_of_the_running_gateway(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--offline", before="ulimit -n 200; ")
    assert "wrong  files at once: The gateway can open at most 200 files" in done.stdout
    holder = subprocess.Popen(
        ["sh", "-c", f'ulimit -n 300; exec "{sys.executable}" -c "$0" "$1"', HOLD, tmp_path / "lock"],
        cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    holder.stdout.readline()
    assert "can open at most 300 files" in wrong("files at once", context_of(tmp_path)).what
    holder.communicate(b"\n")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1024 or found("files at once", context_of(tmp_path)) == []


HOLD = """
import pathlib, sys
from sessions.files.home_lock import HomeLock
with HomeLock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("limit", ["instances", "watches"])
def test_a_system_that_refuses_to_watch_files_is_reported(limit: str, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-Ur", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a namespace of its own, in which the limit can be set, needs unshare")
    program = f'echo 0 > /proc/sys/user/max_inotify_{limit}; exec "{sys.executable}" -m exuvia doctor --offline'
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", program],
        cwd=ROOT, env=os.environ | {"EXUVIA_HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "wrong  watching: The operating system refuses to watch files: " in done.stdout
    assert "fs.inotify.max_user_instances" in done.stdout


def test_an_sqlite_without_extensions_is_a_note(tmp_path: Path) -> None:
    stand_in = tmp_path / "packages" / "pysqlite3"
    stand_in.mkdir(parents=True)
    (stand_in / "__init__.py").write_text("raise ImportError('not for this machine')\n")
    plain = importlib.import_module("sqlite3")
    if hasattr(plain.Connection, "enable_load_extension"):
        pytest.skip("this Python's own SQLite loads extensions, so none has to stand in")
    done = doctor(tmp_path / "home", "--offline", PYTHONPATH=str(tmp_path / "packages"))
    assert "note   sqlite: This Python's SQLite loads no extensions" in done.stdout
    assert hasattr(sqlite.in_memory(), "enable_load_extension")
    assert found("sqlite", context_of(tmp_path)) == []


def test_an_extension_that_does_not_load_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "sqlite_vec.py").write_text("def load(connection): connection.load_extension('/nowhere/vec0')\n")
    done = doctor(tmp_path / "home", "--offline", PYTHONPATH=str(tmp_path))
    assert "note   sqlite: SQLite does not load the extension for vectors: /nowhere/vec0" in done.stdout


def test_an_sqlite_without_full_text_search_is_a_note_that_names_the_backend_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_fts5(monkeypatch)
    (finding,) = found("memory backend", context_of(tmp_path))
    assert finding.what == "The memory backend sqlite cannot be used: this Python's SQLite has no full-text search (FTS5)."
    assert finding.mend.startswith("Use a Python whose SQLite has it; until then `local` is used")
    assert found("memory backend", context_of(tmp_path, MEMORY_STORE_BACKEND="local")) == []
    assert found("memory index", context_of(tmp_path)) == []


def test_a_sandbox_below_the_best_level_is_a_note_that_says_how_to_raise_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found("sandbox", context_of(tmp_path / "home")) == []
    monkeypatch.setenv("PATH", "/nowhere")
    (finding,) = found("sandbox", context_of(tmp_path / "home"))
    assert finding.level == "note"
    assert finding.mend.startswith("Install bubblewrap: `apt install bubblewrap`")
    assert finding.what.startswith("The sandbox for commands reaches the level `partial`: bubblewrap is not installed")


def test_a_sandbox_that_cannot_do_what_is_configured_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enabled = "[tools.shell]\nenabled = true\n[sandbox]\n"
    unconfined = wrong("sandbox", context_of(tmp_path / "home", f'{enabled}level = "none"\n'))
    assert unconfined.what.startswith("Commands (shell) run unconfined")
    assert found("sandbox", context_of(tmp_path / "home", '[sandbox]\nlevel = "none"\n')) == []
    monkeypatch.setenv("PATH", "/nowhere")
    network = found("sandbox", context_of(tmp_path / "home", f'{enabled}network = ["example.org"]\n'))
    assert [each.level for each in network] == ["note", "wrong"]
    assert network[1].what.startswith("Commands (shell) have no network, although sandbox.network lists hosts")
    withheld = found("sandbox", context_of(tmp_path / "home", f'{enabled}level = "full"\n'))
    assert [each.level for each in withheld] == ["note", "wrong"]
    assert withheld[1].what.startswith("Commands (shell) are not offered; the sandbox's level is partial: bubblewrap is not")


def test_an_outdated_service_and_one_without_its_program_are_reported(tmp_path: Path) -> None:
    context = context_of(tmp_path / "home", XDG_CONFIG_HOME=str(tmp_path))
    program = tmp_path / "exuvia"
    program.touch()
    path = service_unit.place("user", context.environment)
    path.parent.mkdir(parents=True)
    assert found("service", context) == []
    path.write_text(service_unit.unit("user", f'"{program}" run'))
    assert found("service", context) == []
    path.write_text(service_unit.unit("user", f"{program} run") + "Nice=5\n")
    (finding,) = found("service", context)
    assert (finding.level, finding.what) == ("note", f"The service in {path} was written by another version, or edited.")
    assert "exuvia service install --user" in finding.mend
    program.unlink()
    assert wrong("service", context).what == f"The service in {path} starts a program that does not exist."
    path.write_text("[Service]\nExecStart=/somebody/elses\n")
    assert found("service", context) == []


# --- the network ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def listening() -> Iterator[int]:
    """Listen on a port, as another program."""
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_port_in_use_is_reported_with_the_name_of_the_program(tmp_path: Path) -> None:
    with listening() as port:
        finding = wrong("port", context_of(tmp_path, f"[gateway]\nport = {port}\n"))
        program = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
        assert finding.what == f"127.0.0.1:{port} is in use by another program (process {os.getpid()}, {program})."
        assert "gateway.port" in finding.mend
    time.sleep(0.01)
    assert found("port", context_of(tmp_path, f"[gateway]\nport = {port}\n")) == []


async def test_a_port_in_use_by_another_exuvia_is_reported(tmp_path: Path) -> None:
    async with gateway(tmp_path / "one") as running:
        assert running.daemon.address is not None
        text = f"[gateway]\nport = {running.daemon.address[1]}\n"
        finding = await asyncio.to_thread(wrong, "port", context_of(tmp_path / "two", text))
        assert "is in use by another Exuvia" in finding.what
        with HomeLock(tmp_path / "two" / "lock"):
            assert await asyncio.to_thread(found, "port", context_of(tmp_path / "two", text)) == []


def test_an_address_of_another_machine_is_reported(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = context_of(tmp_path, f'[gateway]\nhost = "192.0.2.1"\nport = {port}\ntoken = "{TOKEN}"\n')
    assert "192.0.2.1" in wrong("port", context).what


# --- models -----------------------------------------------------------------------------------------------------------


Vendor = Callable[..., Awaitable[str]]


@pytest.fixture
def vendor(aiohttp_server: AiohttpServer) -> Vendor:
    """Start a vendor that answers each path of a model list, and return its address."""

    async def serve(status: int = 200, body: Any = None) -> str:
        async def answer(_: web.Request) -> web.Response:
            return web.json_response(body, status=status)

        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        return f"http://127.0.0.1:{(await aiohttp_server(app)).port}"

    return serve


LISTS = {
    "openai": {"data": [{"id": "gpt-4.1"}, {"id": "small-2026-01-01"}]},
    "anthropic": {"data": [{"id": "gpt-4.1"}, {"id": "small-2026-01-01"}]},
    "gemini": {"models": [{"name": "models/gpt-4.1"}, {"name": "models/small-2026-01-01"}]},
    "ollama": {"models": [{"name": "gpt-4.1:latest"}, {"name": "small:1b"}]},
}


def asks(home: Path, provider: str, url: str, model: str, *, offline: bool = False) -> DoctorContext:
    """Create a home whose model is a vendor's, with a key."""
    text = f'[gateway]\nport = 0\n[agent]\nmodel = "{provider}:{model}"\n[providers.{provider}]\nbase_url = "{url}"\n'
    return context_of(home, f'{text}api_key = "env:K"\ndefault_model = "{model}"\n', offline=offline, K="sk-1234567890")


@pytest.mark.parametrize("provider", LISTS)
async def test_an_unknown_model_is_reported(provider: str, vendor: Vendor, tmp_path: Path) -> None:
    url = await vendor(body=LISTS[provider])
    for known in ("gpt-4.1", "small"):
        assert await asyncio.to_thread(found, "models", asks(tmp_path, provider, url, known)) == []
    finding = await asyncio.to_thread(wrong, "models", asks(tmp_path, provider, url, "big"))
    assert finding.what == f"{provider} has no model 'big'."
    assert "gpt-4.1" in finding.mend


async def test_fallback_models_are_checked_too(vendor: Vendor, tmp_path: Path) -> None:
    url = await vendor(body=LISTS["openai"])
    text = '[gateway]\nport = 0\n[agent]\nmodel = "scripted:echo"\nfallback_models = ["openai:big", "openai:small"]\n'
    context = context_of(tmp_path, f'{text}[providers.openai]\nbase_url = "{url}"\n', offline=False)
    assert (await asyncio.to_thread(wrong, "models", context)).what == "openai has no model 'big'."


@pytest.mark.parametrize("provider", LISTS)
async def test_a_refused_key_is_reported_and_not_shown(provider: str, vendor: Vendor, tmp_path: Path) -> None:
    url = await vendor(401, {"error": {"message": "Incorrect API key", "status": "UNAUTHENTICATED"}})
    finding = await asyncio.to_thread(wrong, "models", asks(tmp_path, provider, url, "gpt-4.1"))
    assert "key" in finding.what
    assert f"providers.{provider}." in finding.mend
    assert "sk-1234567890" not in finding.what + finding.mend
    assert await asyncio.to_thread(found, "models", asks(tmp_path, provider, url, "x", offline=True)) == []


async def test_an_unreachable_provider_and_an_invalid_list_are_reported(vendor: Vendor, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        context = asks(tmp_path, "openai", url, "gpt-4.1")
        assert "openai cannot list its models" in (await asyncio.to_thread(wrong, "models", context)).what
    url = await vendor(body=["nonsense"])
    finding = await asyncio.to_thread(wrong, "models", asks(tmp_path, "openai", url, "gpt-4.1"))
    assert "The server's list of models is not valid." in finding.what


async def test_local_model_servers_are_discovered_as_at_a_start(vendor: Vendor, tmp_path: Path) -> None:
    with EMPTY_MACHINE:
        url = await vendor(body={"data": [{"id": "gemma.gguf", "owned_by": "llamacpp"}]})
        local = '[providers.local]\nmodel_path = "/none"\n'
        text = '[gateway]\nport = 0\n{}[providers.llama_server]\nbase_url = "{}"\n'
        healthy = context_of(tmp_path, text.format(local, url), offline=False)
        assert await asyncio.to_thread(found, "models", healthy) == []
        context = context_of(tmp_path, text.format(local, NOBODY), offline=False)
        assert (await asyncio.to_thread(wrong, "models", context)).what == "No model can answer."


def test_a_model_without_a_provider_is_reported(tmp_path: Path) -> None:
    findings = found("models", context_of(tmp_path, '[agent]\nmodel = "nobody:x"\n'))
    assert findings[0].what == "No model can answer."
    assert "nobody:x" in findings[0].mend


def test_a_window_larger_than_the_models_is_reported(tmp_path: Path) -> None:
    text = '[agent]\nmodel = "openai:gpt-4.1"\ncontext_window = {}\n[gateway]\nport = 0\n'
    context = context_of(tmp_path, text.format(2_000_000), OPENAI_API_KEY="sk-1234567890")
    assert wrong("models", context).what == "agent.context_window is 2,000,000 tokens, and openai:gpt-4.1 accepts 1,047,576."
    assert found("models", context_of(tmp_path, text.format(100_000), OPENAI_API_KEY="sk-1234567890")) == []


def test_an_unusable_cache_of_model_lists_is_a_note(tmp_path: Path) -> None:
    sick = context_of(tmp_path, '[gateway]\nport = 0\n[agent]\nmodel = "scripted:echo"\n')
    (tmp_path / "models.json").write_text("{")
    (finding,) = found("models", sick)
    assert (finding.level, "models.json cannot be used" in finding.what) == ("note", True)
    assert "exuvia models refresh" in finding.mend


# --- the gateway that runs --------------------------------------------------------------------------------------------


def of_check(name: str, done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    """Return the findings of one check of the program."""
    findings: list[dict[str, str]] = next(each["findings"] for each in json.loads(done.stdout) if each["check"] == name)
    return findings


async def test_the_running_gateway_checks_its_own_keys_and_models(vendor: Vendor, tmp_path: Path) -> None:
    url = await vendor(body=LISTS["openai"])
    text = f'[gateway]\nport = 0\n[agent]\nmodel = "scripted:echo"\n[providers.openai]\nbase_url = "{url}"\n'
    # The terminal of whoever asks has none of these variables.
    async with gateway(tmp_path, file=text, settings={"agent.model": "openai:big", "compaction.model": "nobody:x"}):
        variables = {"EXUVIA_TOKEN": TOKEN}
        done = await asyncio.to_thread(doctor, tmp_path, "--json", **variables)
        assert done.returncode == 1
        assert [each["what"] for each in of_check("models", done)] == ["openai has no model 'big'."]
        [fault] = of_check("configuration", done)
        assert "EXUVIA__COMPACTION__MODEL: compaction.model names 'nobody:x'" in fault["what"]
        assert of_check("gateway", done) == []
        offline = await asyncio.to_thread(doctor, tmp_path, "--json", "--offline", **variables)
        assert of_check("models", offline) == []


async def test_a_failed_turn_of_the_running_gateway_is_reported(tmp_path: Path) -> None:
    async with gateway(tmp_path, script=[{"error": "credentials_refused"}]) as running:
        client = await running.connect()
        await client.send("hello")
        await client.until_event("turn_ended")
        done = await asyncio.to_thread(doctor, tmp_path, "--json", "--offline", EXUVIA_TOKEN=TOKEN)
        assert done.returncode == 1
        [finding] = of_check("gateway", done)
        assert finding["level"] == "wrong"
        assert finding["what"].startswith("1 of 1 turn failed within the last 10 min (credentials_refused)")


async def test_without_a_running_gateway_the_report_says_whose_environment_it_checked(tmp_path: Path) -> None:
    context_of(tmp_path, '[gateway]\nport = 0\n[agent]\nmodel = "scripted:echo"\n')
    done = await asyncio.to_thread(doctor, tmp_path, "--offline")
    assert f"note   gateway: No gateway runs on {tmp_path}" in done.stdout
    assert "this terminal's environment" in done.stdout.splitlines()[-1]
    async with gateway(tmp_path):
        done = await asyncio.to_thread(doctor, tmp_path, "--json", "--offline", EXUVIA_TOKEN=f"{TOKEN}-not")
        [finding] = of_check("gateway", done)
        assert finding["level"] == "note"
        assert "refuses" in finding["what"]
        assert "EXUVIA_TOKEN" in finding["mend"]
        done = await asyncio.to_thread(doctor, tmp_path, "--json", "--offline", EXUVIA_TOKEN=TOKEN)
        assert of_check("gateway", done) == []
    (tmp_path / "address").write_text('{"host": "127.0.0.1", "port": 9, "process": 4194305}')
    done = await asyncio.to_thread(doctor, tmp_path, "--json", "--offline")
    assert of_check("gateway", done)[0]["what"].startswith(f"No gateway runs on {tmp_path}")


async def test_only_the_owner_may_request_a_self_examination(tmp_path: Path) -> None:
    ben = "a-token-of-ben-that-is-long-enough"
    async with gateway(tmp_path, settings={"people.ben.token": ben}) as running:
        url = f"{running.url}/api/doctor?offline=1"
        async with running.http.post(url, headers={"Authorization": f"Bearer {ben}"}) as answer:
            assert answer.status == 403
        async with running.http.post(url, headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
            assert (answer.status, (await answer.json())["findings"]["models"]) == (200, [])


# --- the memory's vectors ---------------------------------------------------------------------------------------------


def embeds(home: Path, url: str, more: str = "", *, offline: bool = False, key: str = "") -> DoctorContext:
    """Create a home whose notes are embedded by a server."""
    text = f'[gateway]\nport = 0\n[memory.embedding]\nprovider = "openai"\nbase_url = "{url}"\napi_key = "env:K"\n{more}\n'
    return context_of(home, text, offline=offline, K=key or OpenAIEmbeddingServer.KEY)


async def test_the_embedding_provider_is_tried_unless_offline(tmp_path: Path) -> None:
    async with OpenAIEmbeddingServer().serving() as server:
        assert await asyncio.to_thread(found, "embedding", embeds(tmp_path, server.url, offline=True)) == []
        assert server.requests == []
        assert await asyncio.to_thread(found, "embedding", embeds(tmp_path, server.url)) == []
        assert len(server.requests) == 1


async def test_problems_of_the_embedding_provider_are_reported_by_kind(tmp_path: Path) -> None:
    async with OpenAIEmbeddingServer().serving() as server:
        finding = await asyncio.to_thread(wrong, "embedding", embeds(tmp_path, server.url, key="sk-another-0123456789"))
        assert finding.what.startswith("openai: The key of memory.embedding.api_key was refused")
        assert finding.mend.startswith("Set a valid key")
        finding = await asyncio.to_thread(wrong, "embedding", embeds(tmp_path, server.url, 'model = "none-such"'))
        assert "no model 'none-such'" in finding.what
        assert "memory.embedding.model" in finding.mend
    finding = await asyncio.to_thread(wrong, "embedding", embeds(tmp_path, "http://127.0.0.1:9"))
    assert "memory.embedding.base_url" in finding.mend


def test_a_missing_model_file_is_reported_although_another_model_is_used(tmp_path: Path) -> None:
    embedding = f'[memory.embedding]\nlocal_model_path = "{tmp_path}/own.gguf"\nbase_url = "http://127.0.0.1:9"\n'
    finding = wrong("embedding", context_of(tmp_path, f"[gateway]\nport = 0\n{embedding}", offline=True))
    assert finding.what.startswith(f"memory.embedding.local_model_path is {tmp_path}/own.gguf, which does not exist: ")
    assert finding.mend.startswith("Put a model there")


def test_an_embedding_provider_without_a_key_and_an_unknown_one_are_reported(tmp_path: Path) -> None:
    context = context_of(tmp_path, '[gateway]\nport = 0\n[memory.embedding]\nprovider = "voyage"\n')
    assert wrong("embedding", context).what == (
        "The embedding provider voyage cannot be used: neither VOYAGE_API_KEY nor memory.embedding.api_key is set."
    )
    context = context_of(tmp_path, '[gateway]\nport = 0\n[memory.embedding]\nprovider = "voyager"\n')
    assert found("embedding", context) == []
    assert "memory.embedding.provider is 'voyager'" in wrong("configuration", context).what


# --- web search -------------------------------------------------------------------------------------------------------


def searches(home: Path, provider: str, more: str = "", *, offline: bool = False, **variables: str) -> DoctorContext:
    return context_of(home, f'[tools.search]\nprovider = "{provider}"\n{more}', offline=offline, **variables)


def test_a_search_service_without_a_key_or_address_is_reported(tmp_path: Path) -> None:
    assert found("web search", context_of(tmp_path)) == []
    finding = wrong("web search", searches(tmp_path, "brave", offline=True))
    assert finding.mend == 'tools.search.provider is "brave": set tools.search.api_key or BRAVE_API_KEY.'
    assert "tools.search.base_url" in wrong("web search", searches(tmp_path, "searxng", offline=True)).mend
    assert found("web search", searches(tmp_path, "brave", offline=True, BRAVE_API_KEY="a-key-of-somebody")) == []


async def test_a_search_service_is_asked_once(tmp_path: Path) -> None:
    async with SearchServer().serving() as server:
        base = f'base_url = "{server.url}"'
        assert await asyncio.to_thread(found, "web search", searches(tmp_path, "brave", base, BRAVE_API_KEY=KEY)) == []
        assert len(server.queries) == 1
        context = searches(tmp_path, "brave", base, BRAVE_API_KEY="a-wrong-key-of-somebody")
        finding = await asyncio.to_thread(wrong, "web search", context)
        assert finding.what == (
            "The tool search cannot be used: The search service brave refused the key; check tools.search.api_key."
        )
        server.answers_json = False
        finding = await asyncio.to_thread(wrong, "web search", searches(tmp_path, "searxng", base))
        assert "search.formats" in finding.what
    finding = await asyncio.to_thread(wrong, "web search", searches(tmp_path, "searxng", 'base_url = "http://127.0.0.1:9"'))
    assert "cannot be reached" in finding.what
