"""The stage of an attack: a stand-in for the gateway as one user, a fresh workspace, and the attack's program."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal, Self, get_args

import msgspec

from tests.sandbox.exposing import ROOT

User = Literal["root", "nobody"]
SLEEP = f"1234.{os.getpid():07d}"
"""The seconds that surviving processes sleep; no other worker of the tests has the same."""

UIDS: dict[User, int] = {"root": 0, "nobody": 65534}

USERS: tuple[User, ...] = get_args(User) if os.geteuid() == 0 else ()
"""Only root can run the stand-in as each of them."""

PRELUDE = """
import ctypes, errno, fcntl, json, os, resource, signal, socket, struct, subprocess, sys, threading, time
facts = json.loads(os.environ["FACTS"])
pid, home = facts["pid"], facts["home"]
libc = ctypes.CDLL(None, use_errno=True)

def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def call(name, *arguments):
    numbers = {NUMBERS}
    return check(libc.syscall(ctypes.c_long(numbers[name]), *arguments))
"""
"""What the programs of attacks begin with. One that has succeeded prints BREACH."""

NUMBERS = {
    "x86_64": "add_key 248 bpf 321 chroot 161 clone 56 clone3 435 fsopen 430 init_module 175 ioctl 16 io_uring_setup 425"
    " ioprio_set 251 kcmp 312"
    " kexec_load 246 keyctl 250 memfd_create 319 mount 165 name_to_handle_at 303 open_tree 428 openat2 437"
    " perf_event_open 298 personality 135 pidfd_getfd 438 pidfd_open 434 process_vm_readv 310 ptrace 101 request_key 250"
    " sched_setaffinity 203 setns 308 shmget 29 mq_open 240 unshare 272 userfaultfd 323 getpid 39 setxattr 188",
    "aarch64": "add_key 217 bpf 280 chroot 51 clone 220 clone3 435 fsopen 430 init_module 105 ioctl 29 io_uring_setup 425"
    " ioprio_set 30 kcmp 272"
    " kexec_load 104 keyctl 219 memfd_create 279 mount 40 name_to_handle_at 264 open_tree 428 openat2 437"
    " perf_event_open 241 personality 92 pidfd_getfd 438 pidfd_open 434 process_vm_readv 270 ptrace 117 request_key 218"
    " sched_setaffinity 122 setns 268 shmget 194 mq_open 180 unshare 97 userfaultfd 282 getpid 172 setxattr 5",
}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a program: its exit code, the reason and its output."""

    exit_code: int
    reason: str
    output: str
    size: int
    signals: int

    @property
    def breached(self) -> bool:
        return "BREACH" in self.output


class Scene:
    """A stand-in that runs as a user, until the block ends."""

    def __init__(self, user: User) -> None:
        self.user = user
        self._names = itertools.count()
        self.folder = Path(tempfile.mkdtemp(prefix="exuvia-attacked-"))
        self.root = self.folder / "root"

    def __enter__(self) -> Self:
        uid = UIDS[self.user]
        self.folder.chmod(0o755)
        self.root.mkdir()
        os.chown(self.root, uid, uid)
        self._program = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.sandbox.exposing",
                str(uid),
                str(self.folder),
                "tests.sandbox.stand_in",
                str(self.root),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.facts = self.ask("facts")
        return self

    def __exit__(self, *_: object) -> None:
        with self._program:  # closes its input, after which it ends
            pass
        shutil.rmtree(self.folder)

    def ask(self, do: str, **request: Any) -> Any:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._program.stdin.flush()
        line = self._program.stdout.readline()
        assert line, "the stand-in has ended"
        return json.loads(line)

    def workspace(self) -> Path:
        """Return a new workspace with all that is protected."""
        return Path(self.ask("workspace", name=f"workspace-{next(self._names)}"))

    def reached(self) -> list[str]:
        """Return which sockets of the stand-in were reached since the last call."""
        found: list[str] = self.ask("reached")
        return found

    def processes(self) -> list[str]:
        """Return the command lines of the processes that commands have started, and of those that supervise them."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                user = path.stat().st_uid
            except OSError:
                continue
            is_ours = str(self.folder) in words and int(path.name) not in (self._program.pid, os.getpid())
            if is_ours or (f"sleep {SLEEP}" in words and user == UIDS[self.user]):
                found.append(words)
        return found

    def kill(self) -> None:
        """Kill the stand-in as nothing can be that could still do something."""
        self._program.kill()
        self._program.wait()

    def begin(self, program: str, level: str, **request: Any) -> None:
        """Begin to run Python code in the sandbox, whose end is not waited for."""
        assert self._program.stdin is not None
        argv = ["PYTHON", "-I", "-S", "-c", PRELUDE.replace("{NUMBERS}", "{}") + dedent(program)]
        self._program.stdin.write(json.dumps({"do": "run", "argv": argv, "level": level, **request}) + "\n")
        self._program.stdin.flush()

    def run(self, program: str, level: str, workspace: Path | None = None, **request: Any) -> Result:
        """Run Python code in the sandbox."""
        workspace = workspace or self.workspace()
        numbers = NUMBERS[os.uname().machine].split()
        table = repr(dict(zip(numbers[::2], map(int, numbers[1::2]), strict=True)))
        code = PRELUDE.replace("{NUMBERS}", table) + dedent(program)
        argv = ["PYTHON", "-I", "-S", "-c", code]
        return msgspec.convert(self.ask("run", argv=argv, level=level, workspace=str(workspace), **request), Result)
