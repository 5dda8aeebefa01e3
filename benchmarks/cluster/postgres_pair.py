"""A primary and a synchronous standby on this machine, which can be killed, frozen, promoted and joined again.

Both listen on unix sockets alone, each in a folder of its own, so that no port has to be free. Which of the two is the
primary changes with each failover. As with Patroni's `synchronous_mode`, commits wait for the standby while there is one.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from benchmarks.cluster.postgres_programs import PostgresPrograms, PostgresServer

NAMES = ("a", "b")
PORT = 5432
"""The number in the names of the sockets."""

WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.02


class PostgresPair:
    """Two servers, used as a context manager. All methods block.

    Args:
        synchronous: False if commits do not wait for the standby, which loses some of them in a failover.
        durable: False if nothing is synced to the disk; the processes can still be killed.
    """

    def __init__(self, *, synchronous: bool = True, durable: bool = True) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="exuvia-pg-"))
        self._folder.chmod(0o755)
        self._programs = PostgresPrograms(self._folder)
        self._synchronous = synchronous
        self._durable = durable
        self._servers: dict[str, PostgresServer] = {}
        self.primary, self.standby = NAMES
        """The names of the two servers."""

    def __enter__(self) -> Self:
        try:
            for name in NAMES:
                self._programs.own(self.socket_folder(name)).chmod(0o755)
            self._programs.initialize(self._data(self.primary))
            self._start(self.primary)
            self.join()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop both servers and remove their files."""
        for server in self._servers.values():
            server.kill()  # the files are removed: nothing has to be written
        shutil.rmtree(self._folder, ignore_errors=True)

    def socket_folder(self, name: str) -> Path:
        """Return the folder of a server's socket."""
        return self._folder / f"socket-{name}"

    def socket(self, name: str) -> Path:
        """Return the path of a server's socket."""
        return self.socket_folder(name) / f".s.PGSQL.{PORT}"

    def url(self, database: str, **options: str) -> str:
        """Return a URL that names both servers, of which clients use the primary."""
        hosts = ",".join(str(self.socket_folder(name)) for name in NAMES)
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://postgres@/{database}?host={hosts}{more}"

    def create_database(self, name: str) -> None:
        """Create an empty database."""
        self._run(self.primary, f"CREATE DATABASE {name}")

    def server(self, name: str) -> PostgresServer:
        """Return one of the servers by its name."""
        return self._servers[name]

    def fail_over(self) -> float:
        """Kill the primary and promote the standby. Return the seconds from one to the other."""
        begun = time.monotonic()
        self._servers[self.primary].kill()
        self.promote()
        return time.monotonic() - begun

    def restart_standby(self) -> None:
        """End the standby at once and start it again: what it had received and not written is lost."""
        self._servers[self.standby].kill()
        self._start(self.standby)

    def promote(self) -> None:
        """Make the standby the primary; the other one must be killed."""
        self.primary, self.standby = self.standby, self.primary
        self._run(self.primary, "SELECT pg_promote(true, 30)")

    def join(self) -> None:
        """Make the server that is not the primary its standby, with a new copy of its files, and wait until commits wait for
        it."""
        data = self._data(self.standby)
        if self.standby in self._servers:
            self._servers[self.standby].kill()
            shutil.rmtree(data)
        source = f"host={self.socket_folder(self.primary)} port={PORT} user=postgres application_name={self.standby}"
        self._programs.own(data)
        self._programs.run("pg_basebackup", "-D", str(data), "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        with (data / "postgresql.auto.conf").open("a") as settings:
            settings.write("synchronous_standby_names = ''\n")  # once promoted, it is alone
        self._start(self.standby)
        self._wait("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
        if self._synchronous:
            self._run(self.primary, f"ALTER SYSTEM SET synchronous_standby_names = '{self.standby}'")
            self._run(self.primary, "SELECT pg_reload_conf()")
            self._wait("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")

    def _data(self, name: str) -> Path:
        return self._folder / f"data-{name}"

    def _start(self, name: str) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": self.socket_folder(name),
            "port": PORT,
            "fsync": "on" if self._durable else "off",
            "shared_buffers": "64MB",
            "max_connections": 200,
            "wal_keep_size": "64MB",
            "wal_receiver_timeout": "5s",
            "wal_sender_timeout": "5s",
            "wal_retrieve_retry_interval": "200ms",  # a standby that was away on a busy machine is back at once
        }
        self._servers[name] = PostgresServer(self._programs, self._data(name), settings)

    def _run(self, name: str, statement: str) -> list[tuple[Any, ...]]:
        place = f"host={self.socket_folder(name)} port={PORT} user=postgres dbname=postgres"
        with psycopg.connect(place, autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return found.fetchall() if found.description else []

    def _wait(self, counted: str) -> None:
        """Wait until a count on the primary is not 0. Raises TimeoutError."""
        until = time.monotonic() + WAIT_SECONDS
        while self._run(self.primary, counted) == [(0,)]:
            if time.monotonic() > until:
                raise TimeoutError(f"The standby does not follow: {counted}")
            time.sleep(_POLL_SECONDS)
