"""Backups: what is in them, what a crash leaves, and what is restored."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.backup.backup_folder import LONGEST_REST, back_up
from gateway.backup.backup_stream import stream_backup
from gateway.backup.known_backups import note_backup, note_in_backups
from gateway.backup.ledger import delete_again, outstanding
from gateway.backup.manifest import BackupRefused, FileEntry, Manifest, encode_manifest
from gateway.backup.restoring import new_home, newest_ledger, unpack_archive, unpack_folder, verify_backup
from gateway.conversations.deletion.deletion_log import DeletionFinished
from gateway.support.home import Home
from sessions.events.codec import FIRST, encode_line
from sessions.files import fsync
from sessions.store.reading import StoredLog
from tests.gateway.gateways import gateway
from tests.gateway.test_cli_sessions import NEW, OLD, STORY, opened, said, write
from tests.stored import stored
from tests.waiting import DEADLINE


def now() -> datetime:
    return datetime.now(UTC)


def files_of(root: Path, *, but: tuple[str, ...] = ()) -> dict[str, bytes]:
    """The content of all files below a folder."""
    paths = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in sorted(paths.items()) if not name.startswith(but or "\0")}


def a_home(root: Path) -> Home:
    """Make a home with two journals, facts, a plugin's log, a note, an attachment and secrets."""
    write(root, OLD, 20, [opened(OLD, "main"), said("/new")])
    write(root, NEW, 21, STORY)
    shutil.copy(write(root / "elsewhere", "facts", 21, [opened("facts", "facts")]), root / "facts.jsonl")
    shutil.rmtree(root / "elsewhere")
    (root / "plugins/tool").mkdir(parents=True)
    shutil.copy(root / "facts.jsonl", root / "plugins/tool/log.jsonl")
    (root / "agents/cook").mkdir(parents=True)
    shutil.copy(root / "facts.jsonl", root / "agents/cook/facts.jsonl")
    for name, text in {
        "workspace/memory/2026-11-20.md": "# A day\n",
        "attachments/" + "a" * 64: "a file",
        "config.toml": "",
        "token": "a-secret-token",
        "secrets/openai": "sk-secret",
        "channels/chat/login.json": "secret",
        "channels/chat/state.json": "7",
        "catalog.sqlite": "derived",
        "memory.sqlite-wal": "derived",
        "lock": "1",
        "agents/cook/workspace/MEMORY.md": "Soup.\n",
        "agents/cook/workspace/memory.sqlite": "not the gateway's",
        "agents/cook/memory.sqlite": "derived",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Home(root)


NOT_COPIED = ("catalog.sqlite", "memory.sqlite", "lock", "agents/cook/memory.sqlite")
SECRETS = ("token", "secrets/", "channels/chat/login.json")


def restored(folder: Path, root: Path) -> Path:
    with new_home(Home(root)) as draft:
        unpack_folder(folder, draft)
        delete_again(Home(draft), outstanding(Home(draft), [], ""))
    return root


@pytest.mark.parametrize("with_secrets", [False, True])
def test_a_backup_restores_the_home_except_what_is_derived(tmp_path: Path, with_secrets: bool) -> None:
    home = a_home(tmp_path / "home")
    done = back_up(home, tmp_path / "backup", now, with_secrets=with_secrets)
    left_out = NOT_COPIED if with_secrets else (*NOT_COPIED, *SECRETS)
    assert files_of(restored(tmp_path / "backup", tmp_path / "again")) == files_of(home.root, but=left_out)
    assert (done.logs, done.remarks) == (5, ())


def test_the_next_backup_copies_only_what_is_new(tmp_path: Path) -> None:
    home, folder = a_home(tmp_path / "home"), tmp_path / "backup"
    back_up(home, folder, now, with_secrets=False)
    journal = home.sessions / f"{NEW}.jsonl"
    before = journal.stat().st_size
    write(home.root, NEW, 21, [*STORY, said("one more")])
    (home.root / "workspace/new.md").write_text("new")
    done = back_up(home, folder, now, with_secrets=False)
    assert done.copied == journal.stat().st_size - before + len("new")
    assert files_of(restored(folder, tmp_path / "again")) == files_of(home.root, but=(*NOT_COPIED, *SECRETS))
    assert back_up(home, folder, now, with_secrets=False).copied == 0


def test_a_backup_rests_after_each_copy_and_only_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, folder, rests = a_home(tmp_path / "home"), tmp_path / "backup", list[float]()
    monkeypatch.setattr("gateway.backup.backup_folder.time.sleep", rests.append)
    first = back_up(home, folder, now, with_secrets=False)
    assert len(rests) == first.logs + first.files
    assert all(0 < rest <= LONGEST_REST for rest in rests)
    back_up(home, folder, now, with_secrets=False)
    assert len(rests) == first.logs + first.files + 1  # a database is always copied


def test_what_was_rewritten_or_removed_leaves_the_backup(tmp_path: Path) -> None:
    home, folder = a_home(tmp_path / "home"), tmp_path / "backup"
    back_up(home, folder, now, with_secrets=False)
    write(home.root, NEW, 21, [STORY[0], said("another text"), *STORY[2:]])
    (home.sessions / f"{OLD}.jsonl").unlink()
    (home.root / "workspace/memory/2026-11-20.md").write_text("# Other\n")
    back_up(home, folder, now, with_secrets=False)
    assert files_of(restored(folder, tmp_path / "again")) == files_of(home.root, but=(*NOT_COPIED, *SECRETS))
    everything = b"".join(files_of(folder).values())
    assert b"What stands in the notes" not in everything
    assert b"# A day" not in everything


def test_a_crash_leaves_the_previous_backup_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sync of a file or folder fails once, in turn, as if the process had ended there."""
    home, folder = a_home(tmp_path / "home"), tmp_path / "backup"
    back_up(home, folder, now, with_secrets=False)
    first = files_of(home.root, but=(*NOT_COPIED, *SECRETS))
    write(home.root, NEW, 21, [*STORY, said("one more")])
    write(home.root, OLD, 20, [opened(OLD, "main"), said("rewritten")])
    (home.root / "workspace/new.md").write_text("new")
    (home.root / "workspace/memory/2026-11-20.md").unlink()
    failed = 0
    for step in range(100):
        calls = iter(range(100))

        def stop(*_: object, step: int = step, calls: object = calls) -> None:
            if next(calls) == step:  # type: ignore[call-overload]
                raise OSError(5, "the machine stopped")

        with monkeypatch.context() as patched:
            for module in ("gateway.backup.backup_folder", "sessions.files.fsync"):
                patched.setattr(f"{module}.sync_content", stop)
                patched.setattr(f"{module}.sync_folder", stop)
            try:
                back_up(home, folder, now, with_secrets=False)
                break
            except (OSError, BackupRefused):
                failed += 1
        assert verify_backup(folder)[1] == []
        again = files_of(restored(folder, tmp_path / f"again-{step}"))
        assert again in (first, files_of(home.root, but=(*NOT_COPIED, *SECRETS)))
    assert failed > 5
    assert fsync.sync_folder.__name__ == "sync_folder"
    assert files_of(restored(folder, tmp_path / "at-last")) == files_of(home.root, but=(*NOT_COPIED, *SECRETS))


def test_damage_in_the_home_is_reported_and_the_rest_is_copied(tmp_path: Path) -> None:
    home, folder = a_home(tmp_path / "home"), tmp_path / "backup"
    journal = home.sessions / f"{NEW}.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:3], lines[3].replace(b"milk", b"cola"), *lines[4:]]))
    done = back_up(home, folder, now, with_secrets=False)
    assert done.remarks == (f"sessions/{NEW}.jsonl is damaged in line 4; only what is before it is in the backup.",)
    again = restored(folder, tmp_path / "again")
    assert (again / "sessions" / f"{NEW}.jsonl").read_bytes() == b"".join(lines[:3])


def archived(home: Home, root: Path) -> Path:
    """Restore a home from an archive of it."""
    archive = io.BytesIO()
    stream_backup(home, archive, now, with_secrets=True)
    archive.seek(0)
    with new_home(Home(root)) as draft:
        unpack_archive(archive, draft)
    return root


def put(database: sqlite3.Connection, value: str) -> None:
    with database:
        database.execute("INSERT INTO kept VALUES (?)", [value])


def rows_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [value for (value,) in database.execute("SELECT value FROM kept ORDER BY value")]


@pytest.mark.parametrize("name", ["channels/matrix/keys-DEVICE.sqlite", "plugins/tool/own.sqlite", "workspace/own.sqlite"])
def test_a_backup_has_the_rows_that_are_only_in_the_wal_of_an_open_database(tmp_path: Path, name: str) -> None:
    home, folder = a_home(tmp_path / "home"), tmp_path / "backup"
    place = home.root / name
    place.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(place)) as database:
        place.chmod(0o640)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE kept (value TEXT)")
        put(database, "first")
        back_up(home, folder, now, with_secrets=True)
        before = place.stat()
        put(database, "second")
        assert (place.stat().st_size, place.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        assert back_up(home, folder, now, with_secrets=True).copied > 0
        assert back_up(home, folder, now, with_secrets=True).copied == 0
        assert verify_backup(folder)[1] == []
        for again in (restored(folder, tmp_path / "folder"), archived(home, tmp_path / "archive")):
            assert [path.name for path in (again / name).parent.glob("*.sqlite*")] == [place.name]
            assert (again / name).stat().st_mode == before.st_mode
            assert rows_in(again / name) == ["first", "second"]


def test_a_database_whose_transaction_was_interrupted_is_reported(tmp_path: Path) -> None:
    """SQLite cannot roll it back without writing to the home."""
    home = a_home(tmp_path / "home")
    place, there = tmp_path / "own.sqlite", home.root / "plugins/tool/own.sqlite"
    with closing(sqlite3.connect(place)) as database:
        database.execute("CREATE TABLE kept (value TEXT)")
        with database:
            database.executemany("INSERT INTO kept VALUES (?)", [("first" * 100,)] * 100)
        database.execute("PRAGMA cache_size = 1")  # changed pages are written before the commit
        database.execute("UPDATE kept SET value = upper(value)")
        for left in ("", "-journal"):
            shutil.copy(f"{place}{left}", f"{there}{left}")
    for done in (
        back_up(home, tmp_path / "backup", now, with_secrets=False),
        stream_backup(home, io.BytesIO(), now, with_secrets=False),
    ):
        assert len(done.remarks) == 1
        assert done.remarks[0].startswith("plugins/tool/own.sqlite cannot be read by SQLite (")


def test_a_torn_tail_is_not_copied(tmp_path: Path) -> None:
    home, folder = a_home(tmp_path / "home"), tmp_path / "backup"
    journal = home.sessions / f"{NEW}.jsonl"
    whole = journal.read_bytes()
    with journal.open("ab") as file:
        file.write(whole[:50])
    back_up(home, folder, now, with_secrets=False)
    assert (restored(folder, tmp_path / "again") / "sessions" / f"{NEW}.jsonl").read_bytes() == whole


def test_a_changed_byte_in_the_backup_is_found_and_not_restored(tmp_path: Path) -> None:
    home, folder = a_home(tmp_path / "home"), tmp_path / "backup"
    back_up(home, folder, now, with_secrets=False)
    for path in sorted((folder / "logs").rglob("*.jsonl")) + sorted((folder / "content").iterdir()):
        whole = path.read_bytes()
        if not whole:
            continue
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        assert verify_backup(folder)[1] != []
        with pytest.raises(BackupRefused):
            restored(folder, tmp_path / "again")
        assert not (tmp_path / "again").exists()
        path.write_bytes(whole)
    assert verify_backup(folder)[1] == []


def test_a_home_is_never_overwritten(tmp_path: Path) -> None:
    home, folder = a_home(tmp_path / "home"), tmp_path / "backup"
    back_up(home, folder, now, with_secrets=False)
    before = files_of(home.root)
    with pytest.raises(BackupRefused, match="never overwritten"):
        restored(folder, home.root)
    assert files_of(home.root) == before


def test_folders_that_are_no_backup_of_this_home_are_refused(tmp_path: Path) -> None:
    home = a_home(tmp_path / "home")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("Dear")
    for folder, why in {"mine": "holds something else", "home/backup": "overlaps", ".": "overlaps"}.items():
        with pytest.raises(BackupRefused, match=why):
            back_up(home, tmp_path / folder, now, with_secrets=False)
    back_up(home, tmp_path / "backup", now, with_secrets=False)
    with pytest.raises(BackupRefused, match="is a backup of"):
        back_up(a_home(tmp_path / "other"), tmp_path / "backup", now, with_secrets=False)


def exuvia(*arguments: str | Path, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "exuvia", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=DEADLINE, check=False)


def test_a_tar_archive_is_restored_and_a_cut_or_changed_one_refused(tmp_path: Path) -> None:
    home = a_home(tmp_path / "home")
    (home.root / "workspace/link.md").symlink_to("memory/2026-11-20.md")
    (home.root / "manifest.json").write_text("a person's own file")
    done = exuvia("backup", "-", "--home", home.root)
    assert done.returncode == 0, done.stderr
    again = exuvia("restore", "-", "--home", tmp_path / "again", stdin=done.stdout)
    assert again.returncode == 0, again.stderr
    assert files_of(tmp_path / "again") == files_of(home.root, but=(*NOT_COPIED, *SECRETS))
    assert (tmp_path / "again/workspace/link.md").is_symlink()
    content = done.stdout
    place = content.index(b"What stands")
    for broken in (content[: len(content) // 2], content[:place] + b"X" + content[place + 1 :]):
        refused = exuvia("restore", "-", "--home", tmp_path / "broken", stdin=broken)
        assert (refused.returncode, (tmp_path / "broken").exists()) == (2, False)


def test_no_link_of_an_archive_is_written_through_another_one(tmp_path: Path) -> None:
    outside, archive = tmp_path / "outside", io.BytesIO()
    outside.mkdir()
    links = [FileEntry(path=path, bytes=0, sha256="", link=str(outside)) for path in ("a", "a/planted")]
    manifest = Manifest(format=1, home="", version="", began="", ended="", secrets=False, logs=(), files=tuple(links))
    content = encode_manifest(manifest)
    with tarfile.open(fileobj=archive, mode="w") as members:
        member = tarfile.TarInfo("manifest.json")
        member.size = len(content)
        members.addfile(member, io.BytesIO(content))
    archive.seek(0)
    with pytest.raises(BackupRefused, match="outside of a home"), new_home(Home(tmp_path / "home")) as draft:
        unpack_archive(archive, draft)
    assert list(outside.iterdir()) == []


def test_the_log_of_deletions_beside_an_archive_is_that_of_its_home_and_none_is_passed_over(tmp_path: Path) -> None:
    ledgers = {}
    for name in ("one", "two"):
        home, archive = a_home(tmp_path / name), tmp_path / f"exuvia-{name}.tar.age"
        archive.touch()
        line, _ = encode_line(1, "2026-11-29T09:00:00.000Z", None, DeletionFinished(deletion=name), FIRST)
        home.deletions.write_bytes(line)
        note_backup(home, archive, datetime.now(UTC))
        assert str(archive) in note_in_backups(home)[0]
        ledgers[archive] = line
    for archive, line in ledgers.items():
        beside = newest_ledger(archive)
        assert beside is not None
        assert beside.read_bytes() == line
        assert outstanding(Home(tmp_path / "new"), [beside], "").newest.content == line
    other = tmp_path / "deletions.jsonl.old"
    other.write_bytes(line)
    with pytest.raises(BackupRefused, match="cannot be read"):
        outstanding(Home(tmp_path / "new"), [other], "")


@pytest.mark.skipif(shutil.which("age-keygen") is None, reason="needs age, which encrypts backups")
def test_an_archive_is_encrypted_and_needs_its_key(tmp_path: Path) -> None:
    home = a_home(tmp_path / "home")
    key = tmp_path / "key"
    subprocess.run(["age-keygen", "-o", key], check=True, capture_output=True)
    recipient = key.read_text().split("public key: ")[1].split()[0]
    done = exuvia("backup", tmp_path / "backups", "--home", home.root, "--age", recipient, "--json")
    assert done.returncode == 0, done.stderr
    archive = Path(json.loads(done.stdout)["place"])
    assert b"What stands" not in archive.read_bytes()
    assert exuvia("restore", archive, "--home", tmp_path / "again").returncode == 2
    opened_ = exuvia("restore", archive, "--home", tmp_path / "again", "--identity", key)
    assert opened_.returncode == 0, opened_.stderr
    assert files_of(tmp_path / "again") == files_of(home.root, but=(*NOT_COPIED, *SECRETS, "backups.json"))
    assert exuvia("backup", tmp_path / "backups", "--home", home.root, "--age", "nonsense").returncode == 2
    assert [path.name for path in (tmp_path / "backups").iterdir()] == [archive.name]


async def test_a_backup_of_a_running_gateway_has_what_was_acknowledged_before(tmp_path: Path) -> None:
    async with gateway(tmp_path / "home") as running:
        client = await running.connect()
        sending = True
        acknowledged: dict[str, int] = {}

        async def talk() -> None:
            number = 0
            while sending:
                number += 1
                await client.send(f"message {number}", session=f"s{number % 5}")
                frame = await client.until(lambda frame: frame["type"] in {"accepted", "error"})
                acknowledged[frame["session_id"]] = max(acknowledged.get(frame["session_id"], 0), frame["seq"])

        talking = asyncio.create_task(talk())
        for round_ in range(5):
            await client_reached(acknowledged, 5 * (round_ + 1))
            promised = dict(acknowledged)
            await asyncio.to_thread(back_up, Home(tmp_path / "home"), tmp_path / "backup", now, with_secrets=False)
            again = await asyncio.to_thread(restored, tmp_path / "backup", tmp_path / f"again-{round_}")
            for session, seq in promised.items():
                assert StoredLog(stored(again / f"sessions/{session}.jsonl").reader, session).verify().events >= seq
        sending = False
        await talking
    async with gateway(tmp_path / "again-4") as running:
        client = await running.connect()
        await client.chat("hello again", session="s1")


async def client_reached(acknowledged: dict[str, int], total: int) -> None:
    while sum(acknowledged.values()) < total:
        await asyncio.sleep(0)


async def test_a_restored_backup_does_not_bring_back_what_was_deleted(tmp_path: Path) -> None:
    root, folder = tmp_path / "home", tmp_path / "backup"
    async with gateway(root) as running:
        client = await running.connect()
        await client.chat("zyxwvutsrq9canary", session="gone")
        await client.chat("hello", session="kept")
        await asyncio.to_thread(back_up, Home(root), folder, now, with_secrets=False)
        await client.say("delete", id="d", session="gone")
        await client.until(lambda frame: frame.get("id") == "d")
    done = exuvia("restore", folder, "--home", tmp_path / "again", "--ledger", root / "deletions.jsonl")
    assert done.returncode == 0, done.stderr
    assert b"Erasures and deletions applied again: 1." in done.stdout
    assert all(b"zyxwvutsrq9canary" not in content for content in files_of(tmp_path / "again").values())
    async with gateway(tmp_path / "again") as running:
        client = await running.connect()
        await client.say("sessions", id="s")
        listed = await client.until_type("sessions")
        assert [each["session"] for each in listed["sessions"]] == ["kept"]
