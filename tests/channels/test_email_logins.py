"""Logins of the email channel by OAuth 2, and where its servers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from plugins.channels.email.access_tokens import AccessTokens
from plugins.channels.email.email_settings import OAuthSettings, server_of
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.secrets import Secret
from plugins.support.state_file import StateFile
from plugins.testing.contexts import ManualClock, make_context


class TokenServer:
    """A server that gives out tokens, each with a new refresh token, and accepts only the last one."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.valid = "refresh-0"
        self.url = ""

    async def token(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        self.asked.append(form)
        if form["refresh_token"] != self.valid:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.valid = f"refresh-{len(self.asked)}"
        return web.json_response(
            {"access_token": f"access-{len(self.asked)}", "expires_in": 3600, "refresh_token": self.valid}
        )


@pytest.fixture
async def token_server() -> Any:
    server = TokenServer()
    app = web.Application()
    app.router.add_post("/token", server.token)
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
