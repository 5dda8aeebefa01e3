"""The backups of PostgreSQL itself, as `docs/operations.md` and `docs/erasure.md` describe them, made with its programs."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from benchmarks.cluster.postgres_programs import PostgresPrograms, PostgresServer
from benchmarks.ports import free_port
from gateway.cli.main import cli
from gateway.support.home import Home
from tests.gateway.test_erasures import CANARY, MAIN, MESSAGE, a_home, check_logs, places

SETTINGS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off", "shared_buffers": "32MB"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in which the user of the server may create others."""
    folder = Path(tempfile.mkdtemp(prefix="exuvia-postgres-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def server(programs: PostgresPrograms, data: Path, settings: Mapping[str, object]) -> Iterator[str]:
    """Run a server, and yield the URL of its database."""
    port = free_port()
    running = PostgresServer(programs, data, {**SETTINGS, **settings, "port": port})
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        running.stop()


def exuvia(*arguments: str | Path) -> None:
    done = CliRunner().invoke(cli, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output


def copied(url: str, root: Path) -> Home:
    """Return a new home with the logs and attachments of a database."""
    exuvia("store", "copy", "--from", url, "--to", root)
    return Home(root)


def pages_with_canary(data: Path) -> list[str]:
    """Return the files of tables and indexes that have an erased text."""
    paths = [path for path in (data / "base").rglob("*") if path.is_file()]
    return [path.relative_to(data).as_posix() for path in paths if CANARY.encode() in path.read_bytes()]


def test_an_erased_text_leaves_the_files_of_a_database_which_is_restored_from_an_incremental_backup(
    tmp_path: Path, folder: Path
) -> None:
    home = asyncio.run(a_home(tmp_path / "home"))
    programs = PostgresPrograms(folder)
    data, full, incremental, restored = (folder / name for name in ("data", "full", "incremental", "restored"))
    programs.initialize(data)
    with server(programs, data, {"summarize_wal": "on"}) as url:
        exuvia("store", "copy", "--from", home.root, "--to", url)
        programs.run("pg_basebackup", "-D", str(full), "-d", url, "-X", "stream", "--checkpoint=fast", "--no-sync")
        for log in [*home.sessions.iterdir(), home.facts]:
            log.unlink()
        (home.root / "config.toml").write_text(f'[store]\nkind = "postgres"\nurl = "{url}"\n')
        exuvia("erase", "message", "main", str(MESSAGE), "--home", home.root, "--yes")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            assert pages_with_canary(data), "old versions of rows stay"
            connection.execute("VACUUM FULL")
            connection.execute("CHECKPOINT")
        assert pages_with_canary(data) == []
        manifest = f"--incremental={full / 'backup_manifest'}"
        programs.run("pg_basebackup", "-D", str(incremental), "-d", url, "-X", "stream", "-c", "fast", "--no-sync", manifest)
    programs.run("pg_combinebackup", str(full), str(incremental), "-o", str(restored), "--no-sync")
    with server(programs, restored, {}) as url:
        after = copied(url, tmp_path / "after")
        check_logs(after)
        assert places(after.root) == set()
    with server(programs, full, {}) as url:
        before = copied(url, tmp_path / "before")
        assert f"sessions/{MAIN}.jsonl" in places(before.root), "a backup of the server from before has it"
