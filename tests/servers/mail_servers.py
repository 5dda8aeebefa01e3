"""Real mail servers for tests: dovecot (Debian's) for IMAP, and aiosmtpd for SMTP, which delivers into dovecot's folders.

Everything is in a temporary folder and on free ports, and ends with the block that started it.
"""

from __future__ import annotations

import asyncio
import base64
import getpass
import grp
import os
import pwd
import shutil
import signal
import ssl
import subprocess
import tempfile
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from email.message import EmailMessage
from email.policy import SMTP as CRLF
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

from benchmarks.ports import free_port
from tests.waiting import deadline

REQUIRED = "EXUVIA_TESTS_MAIL_SERVERS"
"""The variable that says that tests with dovecot must not be skipped."""

PASSWORD = "correct-horse-battery"
DOMAIN = "exuvia.test"
OURS = f"bot@{DOMAIN}"
AUTHSERV = "mx.exuvia.test"

DOVECOT = """
base_dir = {folder}/run
state_dir = {folder}/run
log_path = {folder}/dovecot.log
protocols = imap
listen = 127.0.0.1
default_internal_user = {user}
default_internal_group = {group}
default_login_user = {user}
first_valid_uid = 1
mail_location = maildir:{folder}/mail/%n
mail_uid = {uid}
mail_gid = {gid}
disable_plaintext_auth = no
ssl = yes
ssl_cert = <{folder}/cert.pem
ssl_key = <{folder}/key.pem
ssl_dh = </usr/share/dovecot/dh.pem
auth_mechanisms = plain login {mechanisms}
mail_max_userip_connections = 200
{oauth2}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}/mail/%n
}}
namespace inbox {{
  inbox = yes
  separator = /
  mailbox Sent {{
    auto = create
    special_use = \\Sent
  }}
}}
service anvil {{
  chroot =
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = {imaps}
  }}
}}
service stats {{
  chroot =
}}
service imap {{
  process_limit = 200
}}
"""

OAUTH2 = """
passdb {{
  driver = oauth2
  mechanisms = xoauth2
  args = {folder}/oauth2.conf
}}
"""

INTROSPECTION = """
introspection_mode = post
introspection_url = {url}
username_attribute = username
active_attribute = active
active_value = true
"""


def skip_without_dovecot() -> None:
    """Skip a test where dovecot is missing; in CI it fails."""
    if dovecot() is None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"dovecot is missing, and {REQUIRED} is set")
        pytest.skip("dovecot is missing: apt install dovecot-imapd")


def dovecot() -> str | None:
    """Return the path of the program."""
    return shutil.which("dovecot", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class MailServers:
    """An IMAP and an SMTP server with a mailbox for each user.

    Attributes:
        folder: Where everything is.
        imap, imaps, smtp, smtps: The ports. `smtp` offers STARTTLS.
        ca_file: The certificate of both servers.
        mails: What the assistant sent, by recipient, in the order of arrival, with repetitions.
        replies: Called with a recipient or "DATA" before the server replies; returns another reply, or None.
        is_active: Returns True for an access token of OAuth 2 that the SMTP server accepts.
        introspection: The address at which dovecot asks for access tokens; "" if it accepts only passwords.
        logins: How many logins the SMTP server has checked.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.imap, self.imaps, self.smtp, self.smtps = (free_port() for _ in range(4))
        self.ca_file = str(folder / "cert.pem")
        self.mails: dict[str, list[bytes]] = {}
        self.arrived: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.replies: Callable[[str], str | None] = lambda _: None
        self.is_active: Callable[[str], bool] = lambda _: False
        self.introspection = ""
        self.logins = 0
        self._names = count(1)

    def post(self, content: bytes | EmailMessage, *, to: str = OURS, folder: str = "") -> None:
        """Put a mail into somebody's mailbox, as a server does that delivers it."""
        maildir = self.folder / "mail" / to.partition("@")[0] / (f".{folder}" if folder else "")
        for name in ("tmp", "new", "cur"):
            if not (maildir / name).is_dir():
                (maildir / name).mkdir(parents=True)
                self._give(maildir / name)
        if isinstance(content, EmailMessage):
            content = content.as_bytes(policy=CRLF)
        name = f"{next(self._names):09}.M{os.getpid()}.test"
        written = maildir / "tmp" / name
        written.write_bytes(content)
        self._give(written)
        written.rename(maildir / "new" / name)

    def _give(self, path: Path) -> None:
        """Have dovecot's user own a file, and the folders above it."""
        _, uid, gid, _ = owner()
        while path != self.folder:
            os.chown(path, uid, gid)
            path = path.parent

    def seen(self, *, to: str = OURS) -> int:
        """Return how many mails in somebody's mailbox are marked as read."""
        return sum(file.name.rpartition(",")[2].count("S") for file in (self._box(to) / "cur").glob("*"))

    def box(self, *, to: str = OURS, folder: str = "") -> list[bytes]:
        """Return the mails in a folder."""
        box = self._box(to) / (f".{folder}" if folder else "")
        return [file.read_bytes() for name in ("cur", "new") for file in sorted((box / name).glob("*"))]

    def _box(self, to: str) -> Path:
        return self.folder / "mail" / to.partition("@")[0]

    # --- the SMTP server ----------------------------------------------------------------------------------------------

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Accept a recipient, unless `replies` says something else."""
        if reply := self.replies(address):
            return reply
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Keep a mail."""
        content = envelope.content
        assert isinstance(content, bytes)
        reply = self.replies("DATA")
        if reply is None or reply.startswith("250"):
            for recipient in envelope.rcpt_tos:
                self.mails.setdefault(recipient, []).append(content)
                self.arrived.put_nowait((recipient, content))
        return reply or "250 Accepted"

    def authenticate(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        """Check a login."""
        self.logins += 1
        return AuthResult(success=data.login == OURS.encode() and data.password == PASSWORD.encode())

    async def auth_XOAUTH2(self, server: SMTP, args: list[str]) -> AuthResult:  # noqa: N802
        """Check a login with an access token. A refusal is explained in a challenge, as Google's server does."""
        self.logins += 1
        user, bearer, *_ = base64.b64decode(args[1]).decode().split("\1")
        if user == f"user={OURS}" and self.is_active(bearer.removeprefix("auth=Bearer ")):
            return AuthResult(success=True)
        await server.push("334 " + base64.b64encode(b'{"status": "401", "schemes": "bearer"}').decode())
        assert await server._reader.readline() == b"\r\n"
        return AuthResult(success=False, handled=False)


@asynccontextmanager
async def mail_servers(introspection: str = "") -> AsyncIterator[MailServers]:
    """Run both servers.

    Args:
        introspection: The address at which dovecot asks for access tokens, by RFC 7662; "" for passwords only.
    """
    skip_without_dovecot()
    with tempfile.TemporaryDirectory(prefix="exuvia-mail-") as name:
        folder = Path(name)
        servers = MailServers(folder)
        servers.introspection = introspection
        make_certificate(folder)
        os.chmod(folder, 0o755)  # dovecot's processes have another user
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        async with (
            running_dovecot(servers),
            smtp_server(servers, servers.smtp, context, starttls=True),
            smtp_server(servers, servers.smtps, context, starttls=False),
        ):
            yield servers


def make_certificate(folder: Path) -> None:
    """Make a certificate for 127.0.0.1 that is its own authority."""
    openssl = shutil.which("openssl")
    assert openssl is not None
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command, *files, "-subj", "/CN=127.0.0.1", "-addext", names], check=True, capture_output=True)


@asynccontextmanager
async def smtp_server(
    servers: MailServers, port: int, context: ssl.SSLContext | None, *, starttls: bool
) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()

    def protocol() -> SMTP:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it does not know that a connection is TLS from the beginning
            return SMTP(
                servers,
                hostname=AUTHSERV,
                tls_context=context if starttls else None,
                require_starttls=starttls,
                authenticator=servers.authenticate,
                auth_required=True,
                auth_require_tls=starttls,
                auth_exclude_mechanism=["LOGIN"],
                loop=loop,
                data_size_limit=50_000_000,
            )

    listening = await loop.create_server(protocol, "127.0.0.1", port, ssl=None if starttls else context)
    try:
        yield
    finally:
        listening.close()


def owner() -> tuple[str, int, int, str]:
    """Return name, user, group and the group's name of the user that runs dovecot: not root."""
    entry = pwd.getpwnam("dovecot" if os.getuid() == 0 else getpass.getuser())
    return entry.pw_name, entry.pw_uid, entry.pw_gid, grp.getgrgid(entry.pw_gid).gr_name


@asynccontextmanager
async def running_dovecot(servers: MailServers) -> AsyncIterator[None]:
    folder = servers.folder
    user, uid, gid, group = owner()
    (folder / "mail").mkdir()
    os.chown(folder / "mail", uid, gid)
    (folder / "oauth2.conf").write_text(INTROSPECTION.format(url=servers.introspection))
    (folder / "dovecot.conf").write_text(
        DOVECOT.format(
            mechanisms="xoauth2" if servers.introspection else "",
            oauth2=OAUTH2.format(folder=folder) if servers.introspection else "",
            folder=folder,
            user=user,
            group=group,
            uid=uid,
            gid=gid,
            password=PASSWORD,
            imap=servers.imap,
            imaps=servers.imaps,
        )
    )
    program = dovecot()
    assert program is not None
    process = await asyncio.create_subprocess_exec(
        program, "-F", "-c", str(folder / "dovecot.conf"), stdout=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    try:
        await _until_listening(servers, process)
        yield
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        async with deadline():
            await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def _until_listening(servers: MailServers, process: asyncio.subprocess.Process) -> None:
    async with deadline():
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", servers.imap)
                greeting = await reader.read(4)
                writer.close()
                if greeting == b"* OK":
                    return
            if process.returncode is not None:
                raise AssertionError((servers.folder / "dovecot.log").read_text())
            await asyncio.sleep(0.02)
