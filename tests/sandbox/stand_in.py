"""A program that stands in for the gateway: it has what the gateway has to lose, and runs the attacks in the sandbox.

It reads requests as lines of JSON and answers each with one. It runs as the user that is tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from plugins.sandbox.detection import detect
from plugins.sandbox.policy import Limits, SandboxPolicy
from plugins.sandbox.process import start

SECRET = "the-secret-of-the-stand-in"
OWN = b"from the stand-in itself"
TOKEN = "the-token-in-the-home"


class StandIn:
    """The facts that attacks are given, and what has become of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.home.mkdir(mode=0o700)
        (self.home / "token").write_text(TOKEN)
        (self.home / "token").chmod(0o600)
        self.reached: list[str] = []
        self.own: set[str] = set()
        self.memory = ctypes.create_string_buffer(SECRET.encode())
        self.signals = 0
        signal.signal(signal.SIGUSR1, self._signalled)
        self.sockets = {
            "tcp": socket.create_server(("127.0.0.1", 0)),
            "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            "unix": socket.socket(socket.AF_UNIX),
            "abstract": socket.socket(socket.AF_UNIX),
            "datagrams": socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
        }
        self.sockets["udp"].bind(("127.0.0.1", 0))
        self.sockets["unix"].bind(str(self.home / "socket"))
        self.sockets["abstract"].bind(f"\0stand-in-{os.getpid()}")
        self.sockets["datagrams"].bind(str(self.home / "datagrams"))
        for name, each in self.sockets.items():
            threading.Thread(target=self._serve, args=(name, each), daemon=True).start()

    def _signalled(self, *_: object) -> None:
        self.signals += 1

    def _serve(self, name: str, each: socket.socket) -> None:
        if each.type == socket.SOCK_STREAM:
            each.listen()
        while True:
            if each.type == socket.SOCK_STREAM:
                with each.accept()[0] as connection:
                    said = connection.recv(100)
            else:
                said = each.recv(100)
            if said == OWN:
                self.own.add(name)
            else:
                self.reached.append(name)

    async def reached_before(self) -> list[str]:
        """Return the sockets that were reached since the last call: all that came before it is reached by itself."""
        for each in self.sockets.values():
            with socket.socket(each.family, each.type) as client:
                client.connect(each.getsockname())
                client.send(OWN)
        async with asyncio.timeout(60):
            while self.own != set(self.sockets):
                await asyncio.sleep(0.01)
        self.own.clear()
        found, self.reached = self.reached, []
        return found

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 of the stand-in\r\n\r\n")
        await writer.drain()
        writer.close()

    def facts(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "home": str(self.home),
            "address": ctypes.addressof(self.memory),
            "secret": SECRET,
            "token": TOKEN,
            "tcp": self.sockets["tcp"].getsockname()[1],
            "udp": self.sockets["udp"].getsockname()[1],
            "abstract": f"stand-in-{os.getpid()}",
            "host_tmp": str(self.root),
        }

    def workspace(self, name: str) -> Path:
        """Make a workspace with everything that is protected."""
        workspace = self.root / name
        (workspace / "skills" / "one").mkdir(parents=True)
        (workspace / "notes").mkdir()
        for file in ("AGENTS.md", "skills/one/SKILL.md", "notes/a.md"):
            (workspace / file).write_text("as it was\n")
        git = ("git", "-c", "init.defaultBranch=main", "-c", "user.name=a", "-c", "user.email=a@example.org")
        for repository in ("project", "deep/down/project"):
            path = workspace / repository
            subprocess.run([*git, "init", "-q", str(path)], check=True)
            (path / "file.txt").write_text("as it was\n")
            subprocess.run([*git, "-C", str(path), "add", "."], check=True)
            subprocess.run([*git, "-C", str(path), "commit", "-q", "-m", "as it was"], check=True)
        subprocess.run([*git, "-C", str(workspace / "project"), "worktree", "add", "-q", "../linked"], check=True)
        (workspace / "deep/down/project/.git/hooks").rename(workspace / "deep/down/project/.git/no-hooks")
        subprocess.run(["rm", "-r", str(workspace / "deep/down/project/.git/no-hooks")], check=True)
        return workspace

    async def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a program in the sandbox; the reply has its output, how it ended and how long that took."""
        before = self.signals
        policy = SandboxPolicy(
            workspace=Path(request["workspace"]),
            protected=("AGENTS.md", "SOUL.md", "skills"),
            readable=(Path(sys.base_prefix),),
            private=(self.home, *map(Path, request.get("private", []))),
            limits=msgspec.convert(request.get("limits", {}), Limits),
            network=request.get("network", False),
        )
        output, size = b"", 0
        async with await start(
            [word.replace("PYTHON", sys.executable) for word in request["argv"]],
            policy,
            level=request["level"],
            environment={"FACTS": json.dumps(self.facts()), **request.get("environment", {})},
            stdin=request.get("stdin", "").encode(),
        ) as process:
            proxy = None
            if process.listener is not None:
                proxy = await asyncio.start_server(self._refuse, sock=process.listener)
            async for chunk in process.output():
                size += len(chunk)
                output = (output + chunk)[-20_000:]
            ended = await process.wait()
            if proxy is not None:
                proxy.close()
        return {
            "exit_code": ended.exit_code,
            "reason": ended.reason,
            "output": output.decode(errors="replace"),
            "size": size,
            "signals": self.signals - before,
        }


async def main() -> None:
    stand_in = StandIn(Path(sys.argv[1]))
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        match request.pop("do"):
            case "run":
                reply: Any = await stand_in.run(request)
            case "workspace":
                reply = str(stand_in.workspace(request["name"]))
            case "reached":
                reply = await stand_in.reached_before()
            case "facts":
                reply = stand_in.facts()
            case _:
                reply = msgspec.to_builtins(await detect())
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
