"""A real Synapse in an environment of its own (`make synapse`), and people with clients of Matrix.

`Person` speaks the client-server API by itself. `NioPerson` is a second, widely used client library, matrix-nio with
end-to-end encryption, in a process of Synapse's environment.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4

import aiohttp
import pytest

from benchmarks.ports import free_port
from tests.waiting import DEADLINE, deadline

PYTHON = Path(sys.prefix) / "synapse" / "bin" / "python"
"""The Python of Synapse's environment."""

ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""A prefix of commands that are to end with the thread that started them."""

PASSWORD = "a password of a test"

CONFIGURATION = """
server_name: "test"
pid_file: "{folder}/pid"
listeners: [{{port: {port}, type: http, bind_addresses: ["127.0.0.1"], resources: [{{names: [client]}}]}}]
database: {{name: sqlite3, args: {{database: "{folder}/database"}}}}
log_config: "{folder}/log.yaml"
media_store_path: "{folder}/media"
signing_key_path: "{folder}/signing.key"
registration_shared_secret: "secret"
macaroon_secret_key: "secret"
form_secret: "secret"
report_stats: false
trusted_key_servers: []
suppress_key_server_warning: true
bcrypt_rounds: 4
max_upload_size: 8M
rc_message: {{per_second: 0.5, burst_count: 1}}
rc_joins: {{local: {unlimited}}}
rc_invites: {{per_room: {unlimited}, per_user: {unlimited}, per_issuer: {unlimited}}}
rc_room_creation: {unlimited}
rc_login: {{address: {unlimited}, account: {unlimited}, failed_attempts: {unlimited}}}
rc_registration: {unlimited}
"""

UNLIMITED = "{per_second: 100000, burst_count: 100000}"

LOGGING = """
version: 1
formatters: {{short: {{format: "%(levelname)s %(name)s %(message)s"}}}}
handlers: {{file: {{class: logging.FileHandler, formatter: short, filename: "{folder}/log"}}}}
root: {{level: WARNING, handlers: [file]}}
"""


def required() -> None:
    """Skip a module where Synapse is not installed; fail where it must be."""
    if not PYTHON.exists():
        if os.environ.get("EXUVIA_TESTS_SYNAPSE"):
            pytest.fail("Synapse is not installed: `make synapse`.")
        pytest.skip("Synapse is not installed: `make synapse`.", allow_module_level=True)


class SynapseServer:
    """A homeserver in a folder, which can be killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "homeserver.yaml").write_text(CONFIGURATION.format(folder=folder, port=self.port, unlimited=UNLIMITED))
        (folder / "log.yaml").write_text(LOGGING.format(folder=folder))
        seed = base64.b64encode(os.urandom(32)).decode().rstrip("=")
        (folder / "signing.key").write_text(f"ed25519 a_test {seed}\n")

        self._administrator = ""

    def start(self) -> None:
        """Start it, and return once it answers."""
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [*ENDS_WITH_US, str(PYTHON), "-m", "synapse.app.homeserver", "-c", str(self.folder / "homeserver.yaml")],
                stdout=output,
                stderr=output,
            )
        end = time.monotonic() + DEADLINE
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/_matrix/client/versions", timeout=5).close()
            except OSError:
                assert self._process.poll() is None, (self.folder / "output").read_text()
                assert time.monotonic() < end, "Synapse did not start."
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def expire(self, user: str, device: str) -> None:
        """Start the server again, after the lifetime of a device's access tokens. Not in a thread that ends: so would it."""
        self.kill()
        with closing(sqlite3.connect(self.folder / "database")) as database, database:
            question = "UPDATE access_tokens SET valid_until_ms = 1 WHERE user_id = ? AND device_id = ?"
            assert database.execute(question, (user, device)).rowcount
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def register(self, name: str) -> str:
        """Register an account with PASSWORD and without a limit of its messages, and return its access token."""
        self._administrator = self._administrator or self._register("administrator", admin=True)
        token = self._register(name, admin=False)
        self.limit(name, limited=False)
        return token

    def limit(self, name: str, *, limited: bool) -> None:
        """Limit an account to a message in two seconds, or end that."""
        path = f"/_synapse/admin/v1/users/@{name}:test/override_ratelimit"
        if limited:
            self._ask("DELETE", path, {})
        else:
            self._ask("POST", path, {"messages_per_second": 0, "burst_count": 0})

    def _register(self, name: str, *, admin: bool) -> str:
        path = "/_synapse/admin/v1/register"
        (nonce,) = self._ask("GET", path, None).values()
        what = "admin" if admin else "notadmin"
        proof = hmac.new(b"secret", "\0".join((nonce, name, PASSWORD, what)).encode(), hashlib.sha1).hexdigest()
        account = {"nonce": nonce, "username": name, "password": PASSWORD, "admin": admin, "mac": proof}
        return str(self._ask("POST", path, account)["access_token"])

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._administrator}"} if self._administrator else {}
        request = urllib.request.Request(f"{self.url}{path}", content, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


class Person:
    """Somebody with a client that speaks the client-server API."""

    def __init__(self, url: str, name: str, token: str, *, home: str = "test") -> None:
        self.user = f"@{name}:{home}"
        self.url = url
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """Send a request and return its answer."""
        assert self._session is not None
        headers = {"Authorization": f"Bearer {self._token}"}
        content = {"data": body} if isinstance(body, bytes) else {"json": body} if method != "GET" else {}
        async with self._session.request(method, f"{self.url}{path}", headers=headers, params=query, **content) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def room(self, *invited: str, **more: Any) -> str:
        """Make a room and invite people to it."""
        body = {"preset": "private_chat", "invite": invited, "is_direct": len(invited) == 1} | more
        return str((await self.ask("POST", "/_matrix/client/v3/createRoom", body))["room_id"])

    async def join(self, room: str) -> None:
        """Accept an invitation."""
        await self.ask("POST", f"/_matrix/client/v3/join/{quote(room)}", {})

    async def send(self, room: str, content: Mapping[str, Any], kind: str = "m.room.message") -> str:
        """Send an event."""
        path = f"{_room(room)}/send/{kind}/{uuid4().hex}"
        return str((await self.ask("PUT", path, content))["event_id"])

    async def say(self, room: str, text: str, **more: Any) -> str:
        """Send a text; `more` is added to its content, with `m_` for `m.`."""
        return await self.send(
            room, {"msgtype": "m.text", "body": text} | {key.replace("m_", "m."): value for key, value in more.items()}
        )

    async def edit(self, room: str, event: str, text: str) -> str:
        """Replace the text of an event."""
        new = {"msgtype": "m.text", "body": text}
        relation = {"rel_type": "m.replace", "event_id": event}
        return await self.send(
            room, {"msgtype": "m.text", "body": f"* {text}", "m.new_content": new, "m.relates_to": relation}
        )

    async def react(self, room: str, event: str, key: str) -> str:
        """React to an event."""
        relation = {"rel_type": "m.annotation", "event_id": event, "key": key}
        return await self.send(room, {"m.relates_to": relation}, "m.reaction")

    async def redact(self, room: str, event: str) -> str:
        """Delete an event."""
        return str((await self.ask("PUT", f"{_room(room)}/redact/{quote(event)}/{uuid4().hex}", {}))["event_id"])

    async def upload(self, content: bytes, media: str = "application/octet-stream") -> str:
        """Upload a file and return its address."""
        return str((await self.ask("POST", "/_matrix/media/v3/upload", content))["content_uri"])

    async def download(self, address: str) -> bytes:
        """Return a file."""
        assert self._session is not None
        path = f"/_matrix/client/v1/media/download/{address.removeprefix('mxc://')}"
        async with self._session.get(f"{self.url}{path}", headers={"Authorization": f"Bearer {self._token}"}) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.read()

    async def events(self, room: str, sender: str = "") -> list[dict[str, Any]]:
        """Return all events of a room, of one sender if named, oldest first."""
        found: list[dict[str, Any]] = []
        query = {"dir": "f", "limit": "500"}
        while True:
            page = await self.ask("GET", f"{_room(room)}/messages", **query)
            found += page["chunk"]
            if not page["chunk"] or "end" not in page:
                return [event for event in found if sender in ("", event["sender"])]
            query["from"] = page["end"]

    async def posts(self, room: str, sender: str, count: int = 0) -> list[dict[str, Any]]:
        """Return the messages of somebody in a room, oldest first; wait until there are `count`."""
        async with deadline():
            while True:
                found = [event for event in await self.events(room, sender) if event["type"] == "m.room.message"]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.02)

    async def until_shown(self, room: str, holds: Callable[[dict[str, Any]], object]) -> None:
        """Wait until an event that is not kept, such as typing or a receipt, fulfils a condition."""
        since: dict[str, str] = {}
        async with deadline():
            while True:
                answer = await self.ask("GET", "/_matrix/client/v3/sync", timeout="1000", **since)
                shown = answer.get("rooms", {}).get("join", {}).get(room, {}).get("ephemeral", {}).get("events", [])
                if any(holds(event) for event in shown):
                    return
                since = {"since": answer["next_batch"]}

    async def members(self, room: str) -> set[str]:
        """Return who has joined a room."""
        return set((await self.ask("GET", f"{_room(room)}/joined_members"))["joined"])


class NioPerson:
    """Somebody with matrix-nio, in a process. Used as an async context manager."""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.user = f"@{name}:test"
        self._arguments = (
            *ENDS_WITH_US,
            str(PYTHON),
            str(Path(__file__).with_name("nio_person.py")),
            url,
            name,
            PASSWORD,
            str(folder),
        )
        self._process: asyncio.subprocess.Process
        self._asking = asyncio.Lock()

    async def __aenter__(self) -> Self:
        Path(self._arguments[-1]).mkdir(parents=True, exist_ok=True)
        with (Path(self._arguments[-1]) / "output").open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                limit=2**24,
            )
        await self._line()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        await self._process.wait()

    async def _line(self) -> Any:
        assert self._process.stdout is not None
        async with deadline():
            line = await self._process.stdout.readline()
        assert line, "The client ended."
        return json.loads(line)

    async def ask(self, do: str, *values: Any) -> Any:
        """Have the client do something, and return what it says."""
        assert self._process.stdin is not None
        async with self._asking:
            self._process.stdin.write(json.dumps([do, *values]).encode() + b"\n")
            await self._process.stdin.drain()
            answer = await self._line()
        assert "error" not in answer, answer["error"]
        return answer["result"]

    async def posts(self, room: str, sender: str, count: int = 0) -> list[dict[str, Any]]:
        """Return the decrypted messages of somebody in a room, oldest first; wait until there are `count`."""
        async with deadline():
            while True:
                found: list[dict[str, Any]] = [each for each in await self.ask("events", room) if each["sender"] == sender]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.05)


def _room(room: str) -> str:
    return f"/_matrix/client/v3/rooms/{quote(room)}"


def events_of(texts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the texts of messages."""
    return [str(event["content"].get("body", "")) for event in texts]
