"""A real PostgreSQL for tests. One server serves all tests of a process; each test has a database of its own."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

import psycopg

from benchmarks.cluster.postgres_programs import PostgresPrograms, PostgresServer
from benchmarks.ports import free_port


class Databases:
    """A running server. Nothing is synced to the disk: no test takes the machine's power away."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="exuvia-postgres-"))
        self._folder.chmod(0o755)
        self._numbers = count(1)
        self.port = free_port()
        programs = PostgresPrograms(self._folder)
        programs.initialize(self._folder / "data")
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "shared_buffers": "32MB",
        }
        self._server = PostgresServer(programs, self._folder / "data", settings)

    def close(self) -> None:
        """Stop the server and remove its files."""
        self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def database(self) -> str:
        """Create an empty database and return its URL."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, and disconnect whoever uses it."""
        name = url.rpartition("/")[2]
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def url(self, name: str) -> str:
        """Return the URL of a database of this server."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"


@cache
def postgres_server() -> Databases:
    """Return the server of this process, started when it is first needed."""
    server = Databases()
    atexit.register(server.close)
    return server
