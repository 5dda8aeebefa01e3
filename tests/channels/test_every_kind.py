"""What holds for channels of every kind, through the whole gateway and the kind's service."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from plugins.api.channel import OutboundMessage
from tests.channels.kinds import serving
from tests.gateway.gateways import TOKEN, Gateway
from tests.waiting import deadline, until


async def outcome(g: Gateway, kind: str) -> int:
    """Return how many messages of the channel had an outcome."""
    async with g.http.get(f"{g.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        lines = (await response.text()).splitlines()
    return sum(
        int(line.split()[-1])
        for line in lines
        if line.startswith("exuvia_channel_messages_total{") and f'outcome="{kind}"' in line
    )


@pytest.mark.parametrize("emoji", ["👍", "👎"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("telegram", "TelegramChannel"),
        ("discord", "Discord"),
        ("slack", "SlackChannel"),
        ("matrix", "MatrixChannel"),
        ("webhook", "WebhookChannel"),
    ],
)
async def test_a_reaction_counts_that_comes_before_the_receipt_of_its_post(
    kind: str, name: str, emoji: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel: Any = getattr(import_module(f"plugins.channels.{kind}.{kind}_channel"), name)
    deliver, posted, known = channel.deliver, asyncio.Event(), asyncio.Event()

    async def slowly(self: Any, message: OutboundMessage) -> str:
        receipt: str = await deliver(self, message)
        if message.choices:
            posted.set()
            await known.wait()
        return receipt

    monkeypatch.setattr(channel, "deliver", slowly)
    calls = [{"tool": "write", "arguments": {"path": "a.txt", "content": "tea"}}]
    script: list[dict[str, Any]] = [{"calls": calls}, {"text": "That is all."}]
    async with serving(kind, tmp_path, script=script, approvals_default="ask") as (service, g), deadline():
        await service.say(service.chats[0], "write")
        await posted.wait()
        ignored = await outcome(g, "ignored")
        await service.react(emoji)
        while await outcome(g, "ignored") == ignored:
            await asyncio.sleep(0.02)
        assert not [line for lines in g.journals().values() for line in lines if line["kind"] == "approval_given"]
        known.set()
        await until(lambda: [line for lines in g.journals().values() for line in lines if line["kind"] == "turn_ended"])
        (given,) = [line for lines in g.journals().values() for line in lines if line["kind"] == "approval_given"]
        assert given["decision"] == ("approve" if emoji == "👍" else "deny")
        assert (g.home / "workspace" / "a.txt").exists() == (emoji == "👍")
