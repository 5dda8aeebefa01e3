"""What operators see of channels: in `/status`, `exuvia status`, metrics, the doctor, the console and `exuvia channels`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.conversations.channels import channel_runner, reply_delivery
from tests.gateway.elsewhere import LINES, Elsewhere
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.shelf import Shelf
from tests.waiting import deadline, until

CHECK = """    async def check(self):
        return "Logged in as \\x1b[31mlines\\u202e.\\n"

"""
CHECKED = LINES.replace("    async def deliver(self, delivery):", CHECK + "    async def deliver(self, delivery):")
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Elsewhere]:
    Shelf(tmp_path / "shelf", monkeypatch).install("exuvia_lines", "lines", CHECKED)
    monkeypatch.setattr(channel_runner, "PAUSES", (0.05,))
    monkeypatch.setattr(channel_runner, "REFUSED_PAUSES", (0.05,))
    monkeypatch.setattr(reply_delivery, "PAUSES", (0.05,))
    monkeypatch.setattr(reply_delivery, "CLOSED_SECONDS", 0.05)
    service = Elsewhere()
    await service.open()
    yield service
    service.close()


def configuration(service: Elsewhere) -> str:
    return (
        f'[plugins]\nallow = ["lines"]\nsenders = {{ "lines:ana" = "owner" }}\n[plugins.lines]\nport = {service.port}\n'
        '[agent]\nmodel = "scripted:echo"\n'
    )


@asynccontextmanager
async def running(home: Path, service: Elsewhere) -> AsyncIterator[Gateway]:
    async with gateway(home, file=configuration(service)) as g:
        await until(lambda: service.connections)
        yield g


async def invoke(g: Path | Gateway, *arguments: str) -> Result:
    home = g if isinstance(g, Path) else g.home
    command = [*arguments, "--home", str(home)]
    return await asyncio.to_thread(CliRunner().invoke, cli, command, env={"EXUVIA_TOKEN": TOKEN})


async def channels(g: Gateway) -> Sequence[dict[str, Any]]:
    async with g.http.get(f"{g.url}/status.json", headers=HEADERS) as response:
        found: Sequence[dict[str, Any]] = (await response.json())["channels"]
        return found


async def until_state(g: Gateway, connection: str) -> dict[str, Any]:
    async with deadline():
        while (state := (await channels(g))[0])["connection"] != connection:
            await asyncio.sleep(0.02)
        return state


async def test_a_group_is_not_shown_the_owners_conversations_channels_and_problems(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    async with running(tmp_path / "home", elsewhere) as g:
        client = await g.connect()
        await client.command("/title A surprise for Ben")
        await elsewhere.say("/sessions", id_="1", group=True)
        refused = (await elsewhere.until_heard(room="kitchen"))["text"]
        assert refused == "Others can read this chat; write /sessions in a private one."
        await elsewhere.say("/status", id_="2", group=True)
        assert "Channels" not in (await elsewhere.until_heard(room="kitchen"))["text"]
        await elsewhere.say("/sessions", id_="3")
        assert "A surprise for Ben" in (await elsewhere.until_heard(room="kitchen"))["text"]
        await elsewhere.say("/status", id_="4")
        assert "Channels: lines connected" in (await elsewhere.until_heard(room="kitchen"))["text"]


async def test_a_channel_is_shown_with_what_it_received_and_delivered(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with running(tmp_path / "home", elsewhere) as g:
        await elsewhere.say("hello")
        await elsewhere.until_heard(text="hello")
        await elsewhere.say("never mind", id_="2")
        await elsewhere.say("hello", id_="3", sender="eve")
        await elsewhere.until_heard(no="3")
        async with deadline():
            while not (state := (await channels(g))[0])["abandoned"] or state["waiting"]:
                await asyncio.sleep(0.02)
        listed = await invoke(g, "channels", "list")
        as_json = await invoke(g, "channels", "list", "--json")
        status = await (await g.connect()).command("/status")
        shown = await invoke(g, "status")
        async with g.http.get(f"{g.url}/metrics", headers=HEADERS) as response:
            metrics = await response.text()
    since = state["since"][:16].replace("T", " ")
    assert state == {
        "name": "lines",
        "kind": "lines",
        "connection": "connected",
        "since": state["since"],
        "problem": "",
        "accepted": 2,
        "rejected": 1,
        "delivered": 1,
        "abandoned": 1,
        "abandoned_at": state["abandoned_at"],
        "abandoned_because": "The room is gone.",
        "waiting": 0,
        "waiting_because": "",
    }
    assert listed.exit_code == 0
    assert f"connected since {since} UTC; 2 in, 1 out\n  1 never delivered, the last at " in listed.output
    assert json.loads(as_json.output) == [state]
    assert f"- Channels: lines connected since {since} UTC" in status
    assert f"Channels  lines connected since {since} UTC" in shown.output
    for line in (
        'exuvia_channel_messages_total{channel="lines",outcome="accepted"} 2',
        'exuvia_channel_messages_total{channel="lines",outcome="unknown"} 1',
        'exuvia_channel_replies_total{channel="lines",outcome="delivered"} 1',
        'exuvia_channel_replies_total{channel="lines",outcome="abandoned"} 1',
        'exuvia_channel_connected{channel="lines"} 1',
        'exuvia_channel_waiting_replies{channel="lines"} 0',
    ):
        assert line in metrics.splitlines()


async def test_a_closed_channel_is_shown_with_the_reason_and_what_waits(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with running(tmp_path / "home", elsewhere) as g:
        before = await until_state(g, "connected")
        elsewhere.closes_after("1")
        await elsewhere.say("hello")
        closed = await until_state(g, "closed")
        async with deadline():
            while not (state := (await channels(g))[0])["waiting_because"]:
                await asyncio.sleep(0.02)
        listed = await invoke(g, "channels", "list")
        checked = await invoke(g, "channels", "check")
        sent = await invoke(g, "channels", "send", "lines", "kitchen", "hello")
        assert closed["since"] == state["since"] >= before["since"]  # also after several attempts
        assert (listed.exit_code, checked.exit_code, sent.exit_code) == (1, 1, 2)
        assert "lines (lines): closed since " in listed.output
        assert "\n  1 waiting: It is not open.\n" in listed.output
        assert "FAILED" in checked.output
        assert "The channel 'lines' is not open" in sent.stderr
        await elsewhere.open()
        await until_state(g, "connected")
        await elsewhere.until_heard(text="hello")


async def test_what_the_service_returned_is_shown_as_never_delivered(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with running(tmp_path / "home", elsewhere) as g:
        await elsewhere.say("", room="ana@x.org", bounced="550 No such\x1b[31m user\n")
        await elsewhere.say("hello", id_="2")
        await elsewhere.until_heard(ok="2")
        listed = await invoke(g, "channels", "list")
        status = (await channels(g))[0]
    assert (status["abandoned"], status["abandoned_because"]) == (1, "ana@x.org: 550 No such[31m user")
    assert "  1 never delivered, the last at " in listed.output
    assert "UTC: ana@x.org: 550 No such[31m user\n" in listed.output


async def test_an_open_channel_is_checked_and_sends_a_post(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with running(tmp_path / "home", elsewhere) as g:
        checked = await invoke(g, "channels", "check", "lines")
        assert (checked.exit_code, checked.output) == (0, "lines: ok. Logged in as [31mlines.\n")
        sent = await invoke(g, "channels", "send", "lines", "kitchen", "*hello*", "--thread", "5")
        heard = await elsewhere.until_heard(text="*hello*")
        assert (heard["room"], heard["thread"]) == ("kitchen", "5")
        assert (sent.exit_code, sent.output) == (0, f"Sent as seen {heard['id']}.\n")
        for text, reason in (
            ("never mind", "The room is gone."),
            ("later 5", "Try again in 5 s."),
            ("broken", "RuntimeError"),
        ):
            refused = await invoke(g, "channels", "send", "lines", "kitchen", text)
            assert refused.exit_code == 2
            assert reason in refused.stderr
        for command in (("channels", "check", "nobody"), ("channels", "send", "nobody", "kitchen", "x")):
            refused = await invoke(g, *command)
            assert refused.exit_code == 2
            assert "There is no channel 'nobody'; those that run are: lines." in refused.stderr
        assert g.journals() == {}
        report = await invoke(g, "doctor", "--json")
        assert {"check": "channels", "findings": []} in json.loads(report.output)


async def test_a_long_text_and_files_are_sent_like_an_answer(
    tmp_path: Path, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.txt").write_text("The plan.")
    (tmp_path / "more.txt").write_text("More.")
    files = ["--file", str(tmp_path / "plan.txt"), "--file", str(tmp_path / "more.txt")]
    text = "The first sentence is said here, and is long.\n\nlater 0.01\n\n```python\ntea = 1\nmore_tea = tea + 1\n```"
    async with running(tmp_path / "home", elsewhere) as g:
        lines = sys.modules["exuvia_lines"].Lines
        monkeypatch.setattr(lines, "fits", lambda _, text: len(text) <= 52, raising=False)
        sent = await invoke(g, "channels", "send", "lines", "kitchen", text, *files)
        posts = [await elsewhere.until_heard(room="kitchen") for _ in range(4)]
        assert (sent.exit_code, sent.output) == (0, f"Sent in 4 posts as seen {posts[0]['id']}.\n")
        assert [post["text"] for post in posts] == [
            "The first sentence is said here, and is long.",
            "later 0.01\n\n```python\ntea = 1\nmore_tea = tea + 1\n```",
            "",
            "",
        ]
        assert [post.get("files") for post in posts[2:]] == [{"plan.txt": "The plan."}, {"more.txt": "More."}]
        assert len({post["id"] for post in posts}) == 4
        broken = await invoke(g, "channels", "send", "lines", "kitchen", "It fits. " * 5 + "\n\nbroken now")
        assert broken.exit_code == 2
        assert "It was not sent: " in broken.stderr
        assert broken.stderr.endswith("Sent before: 1 post.\n")
        missing = await invoke(g, "channels", "send", "lines", "kitchen", "x", "--file", str(tmp_path / "gone"))
        assert missing.exit_code == 2
        body = {"chat": "kitchen", "text": "x", "attachments": ["0" * 64]}
        async with g.http.post(f"{g.url}/api/channels/lines/posts", json=body, headers=HEADERS) as response:
            assert (response.status, "You have no attachment" in await response.text()) == (502, True)
        assert [post["text"] for post in await elsewhere.rest()][-1] == "It fits. " * 4 + "It fits."
        assert g.journals() == {}


async def test_without_a_gateway_a_channel_is_opened_to_check_it(tmp_path: Path, elsewhere: Elsewhere) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(configuration(elsewhere))
    checked = await invoke(home, "channels", "check", "--json")
    (found,) = json.loads(checked.output)
    assert (found["name"], found["ok"], found["says"]) == ("lines", True, "Logged in as [31mlines.")
    assert (await invoke(home, "channels", "check", "nobody")).exit_code == 2
    elsewhere.close()
    failed = await invoke(home, "channels", "check")
    assert failed.exit_code == 1
    assert "FAILED" in failed.output
    report = json.loads((await invoke(home, "doctor", "--json")).output)
    (finding,) = next(each["findings"] for each in report if each["check"] == "channels")
    assert finding["what"].startswith("The channel 'lines' is not available: ")
    sent = await invoke(home, "channels", "send", "lines", "kitchen", "x")
    assert sent.exit_code == 2
    assert not (home / "sessions").exists()


async def test_without_channels_that_is_said(tmp_path: Path) -> None:
    tmp_path.joinpath("config.toml").write_text("")
    listed = await invoke(tmp_path, "channels", "list")
    assert "No channel is configured: add a table [channels.NAME]" in listed.output
