"""Attacks that would have the gateway ask an address of the attacker's choice: redirects, and addresses in requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.support.http_errors import StatusRefused
from tests.gateway.gateways import TOKEN, gateway
from tests.plugins.test_transport import KEY, RawServer, against, says, status, told

SPELLINGS = [
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/latest/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://[::ffff:169.254.169.254]/",
    "//169.254.169.254/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "{listening}",
    "HTTP://{host}@{authority}/",
    "http://{authority}#@example.com/",
]


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", SPELLINGS)
async def test_no_redirect_of_a_model_server_is_followed(location: str, code: int) -> None:
    async with RawServer(says(status(200))).serving() as inside:
        target = spelled(location, inside.url)
        async with against(says(status(code, f"Location: {target}"))) as (transport, server, _):
            with pytest.raises(StatusRefused) as refused:
                await told(transport, server.url, headers={"Authorization": f"Bearer {KEY}"})
            assert (refused.value.status, len(server.heads), inside.heads) == (code, 1, [])


@pytest.mark.parametrize("location", SPELLINGS)
async def test_no_url_of_a_picture_is_requested(location: str, tmp_path: Path) -> None:
    async with RawServer(says(status(200))).serving() as inside, gateway(tmp_path) as g:
        picture = {"type": "image_url", "image_url": {"url": spelled(location, inside.url)}}
        body = {"model": "exuvia", "messages": [{"role": "user", "content": [picture]}]}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with g.http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response:
            assert response.status == 400
            assert (await response.json())["error"]["param"] == "messages[0].content[0].image_url.url"
        assert inside.heads == []


def spelled(location: str, listening: str) -> str:
    """The address, with that of a server that really listens where it names one."""
    authority = listening.removeprefix("http://").partition("/")[0]
    return (
        location.replace("{listening}", listening)
        .replace("{authority}", authority)
        .replace("{host}", authority.partition(":")[0])
    )
