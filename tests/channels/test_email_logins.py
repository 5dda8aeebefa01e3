"""Logins of the email channel by OAuth 2, and where its servers are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from plugins.api.channel import OutboundMessage
from plugins.channels.email.access_tokens import AccessTokens, _mark
from plugins.channels.email.email_channel import EmailChannel
from plugins.channels.email.email_settings import OAuthSettings, server_of
from plugins.support import secrets
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.secrets import HIDDEN, Secret, scrubbed
from plugins.support.state_file import StateFile
from plugins.testing.channel_checks import RecordingInbox
from plugins.testing.contexts import ManualClock, make_context
from tests.channels.link import Link
from tests.channels.mail_stage import PEOPLE, mail, settings_for
from tests.servers.mail_servers import OURS, MailServers, mail_servers
from tests.waiting import DEADLINE, deadline, until


class TokenServer:
    """A server that gives out tokens, each with a new refresh token, and accepts only the last one. Mail servers ask it for
    access tokens."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.valid = "refresh-0"
        self.url = ""
        self.active: set[str] = set()
        self.gives_active = True
        self.introspected: list[str] = []

    async def token(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        self.asked.append(form)
        if form["refresh_token"] != self.valid:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.valid = f"refresh-{len(self.asked)}"
        if self.gives_active:
            self.active = {f"access-{len(self.asked)}"}
        return web.json_response(
            {"access_token": f"access-{len(self.asked)}", "expires_in": 3600, "refresh_token": self.valid}
        )

    async def introspect(self, request: web.Request) -> web.Response:
        """Say whether an access token is active, see RFC 7662."""
        token = str((await request.post())["token"])
        self.introspected.append(token)
        return web.json_response({"active": token in self.active, "username": OURS})


@pytest.fixture
async def token_server() -> Any:
    server = TokenServer()
    app = web.Application()
    app.router.add_post("/token", server.token)
    app.router.add_post("/introspect", server.introspect)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    yield server
    await runner.cleanup()


async def test_a_token_is_renewed_before_it_ends_and_new_refresh_tokens_are_kept(
    token_server: TokenServer, tmp_path: Path
) -> None:
    settings = OAuthSettings(token_url=token_server.url, client_id="me", refresh_token=Secret("refresh-0"), scope="mail")
    async with make_context(tmp_path) as context:
        clock = ManualClock()
        state = StateFile(tmp_path / "token.json")
        tokens = AccessTokens(settings, context.transport, clock, state)
        assert [await tokens.current(), await tokens.current()] == ["access-1", "access-1"]
        clock.move(3500)
        assert await tokens.current() == "access-2"
        again = AccessTokens(settings, context.transport, clock, state)
        assert await again.current() == "access-3"
        assert [each["refresh_token"] for each in token_server.asked] == ["refresh-0", "refresh-1", "refresh-2"]
        assert token_server.asked[0] | {"refresh_token": ""} == {
            "grant_type": "refresh_token",
            "client_id": "me",
            "refresh_token": "",
            "scope": "mail",
        }

        token_server.valid = "refresh-new"
        with pytest.raises(PluginError, match="The refresh token is refused; obtain a new one"):
            await AccessTokens(settings, context.transport, clock, state).current()
        replaced = OAuthSettings(token_url=token_server.url, client_id="me", refresh_token=Secret("refresh-new"))
        assert await AccessTokens(replaced, context.transport, clock, state).current() == "access-5"


async def test_a_kept_refresh_token_and_the_last_renewed_tokens_are_secrets(
    token_server: TokenServer, tmp_path: Path
) -> None:
    settings = OAuthSettings(token_url=token_server.url, client_id="me", refresh_token=Secret("refresh-configured"))
    token_server.valid = "refresh-kept-4711"
    async with make_context(tmp_path) as context:
        clock = ManualClock()
        state = StateFile(tmp_path / "token.json")
        await state.save({"of": _mark("refresh-configured"), "refresh_token": token_server.valid})
        tokens = AccessTokens(settings, context.transport, clock, state)
        await tokens.current()
        assert scrubbed("refresh-kept-4711") == HIDDEN
        before = len(secrets._whole)
        for number in range(2, 40):
            clock.move(3500)
            assert await tokens.current() == f"access-{number}"
        assert len(secrets._whole) <= before + 2 * secrets.RENEWALS
        assert scrubbed("access-39 access-38 refresh-39 refresh-38") == " ".join([HIDDEN] * 4)


class LoggedIn(NamedTuple):
    """A running channel that has logged in with access tokens."""

    channel: EmailChannel
    inbox: RecordingInbox
    running: asyncio.Task[None]
    clock: ManualClock
    servers: MailServers
    link: Link
    tokens: TokenServer

    async def answer(self, number: int) -> None:
        await self.channel.deliver(OutboundMessage(id=f"s/{number}", chat=f"ana@{PEOPLE}", text="Yes."))
        async with deadline():
            await self.servers.arrived.get()

    async def arrives(self, text: str) -> None:
        self.servers.post(mail(text))
        async with deadline():
            while (await self.inbox.arrived.get()).text != text:  # an earlier one may come again after a lost connection
                pass


@asynccontextmanager
async def logged_in(tokens: TokenServer, folder: Path) -> AsyncIterator[LoggedIn]:
    """Run a channel. dovecot and the SMTP server ask `tokens` for each token."""
    async with mail_servers(tokens.url.replace("/token", "/introspect")) as servers, Link(servers.imap) as link:
        servers.is_active = lambda token: token in tokens.active
        oauth = OAuthSettings(token_url=tokens.url, client_id="me", refresh_token=Secret("refresh-0"))
        settings = settings_for(servers, imap=f"127.0.0.1:{link.port}", password=None, oauth=oauth)
        async with make_context(folder, settings) as context, EmailChannel(context) as channel:
            inbox, clock = RecordingInbox(), context.clock
            assert isinstance(clock, ManualClock)
            running = asyncio.create_task(channel.run(inbox))
            try:
                yield LoggedIn(channel, inbox, running, clock, servers, link, tokens)
            finally:
                running.cancel()
                await asyncio.wait([running])


async def test_both_servers_accept_the_access_token(token_server: TokenServer, tmp_path: Path) -> None:
    async with logged_in(token_server, tmp_path) as on:
        await on.arrives("hello")
        await on.answer(1)
        await until(lambda: on.servers.box(folder="Sent"))
        assert len(token_server.asked) == 1
        assert set(token_server.introspected) == {"access-1"}


async def test_a_token_that_is_refused_before_its_end_is_replaced_once(token_server: TokenServer, tmp_path: Path) -> None:
    async with logged_in(token_server, tmp_path) as on:
        await on.arrives("hello")
        token_server.active.clear()
        on.clock.move(600)
        on.link.sever()
        await on.arrives("again")
        assert (len(token_server.asked), on.servers.logins) == (2, 1)
        await on.answer(1)
        token_server.active.clear()
        on.clock.move(600)
        await on.answer(2)
        assert len(token_server.asked) == 3
        assert on.servers.logins == 4  # at the start, for each answer, and the refused one


async def test_an_account_that_is_refused_gets_a_sentence_and_no_loop_of_logins(
    token_server: TokenServer, tmp_path: Path
) -> None:
    async with logged_in(token_server, tmp_path) as on:
        await on.arrives("hello")
        token_server.active.clear()
        token_server.gives_active = False
        on.clock.move(600)
        before = len(token_server.introspected)
        with pytest.raises(
            PluginError, match=r"The SMTP server .* refuses the login of 'bot@.*The access token is new: allow"
        ):
            await on.answer(1)
        assert (len(token_server.asked), on.servers.logins) == (2, 3)
        on.link.sever()
        await asyncio.wait([on.running], timeout=DEADLINE)
        with pytest.raises(
            PluginError, match=r"The IMAP server .* refuses the login of 'bot@.*The access token is new: allow"
        ):
            on.running.result()
        assert token_server.introspected[before:] == ["access-2"]
        assert len(token_server.asked) == 2
    token_server.valid = "refresh-0"
    with pytest.raises(PluginError, match="The access token is new"):
        async with logged_in(token_server, tmp_path / "another"):
            pass
    assert len(token_server.asked) == 3


@pytest.mark.parametrize(
    ("host", "security", "found"),
    [
        ("mail.x.org", "auto", ("mail.x.org", 993, "tls")),
        ("mail.x.org:143", "auto", ("mail.x.org", 143, "starttls")),
        ("mail.x.org:993", "starttls", ("mail.x.org", 993, "starttls")),
        ("127.0.0.1:1143", "none", ("127.0.0.1", 1143, "none")),
        ("[::1]:1143", "none", ("::1", 1143, "none")),
        ("[2001:db8::1]", "auto", ("2001:db8::1", 993, "tls")),
    ],
)
def test_a_server_is_found_by_its_host_and_port(host: str, security: Any, found: tuple[str, int, str]) -> None:
    assert server_of("imap", host, security, tls_port=993) == found


def test_passwords_cross_no_network_unencrypted() -> None:
    with pytest.raises(SettingsRefused, match="on this machine only"):
        server_of("imap", "mail.x.org:143", "none", tls_port=993)
