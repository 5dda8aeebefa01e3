"""Commands in a running gateway: what they report is true, and what they change takes effect."""

from __future__ import annotations

from pathlib import Path

from gateway.conversations.turn import inbox
from plugins.commands.session_commands import MODES
from tests.gateway.gateways import gateway


async def test_usage_is_what_the_provider_counted(tmp_path: Path) -> None:
    async with gateway(tmp_path / "home", script=[{"text": "hello, hello"}] * 2) as running:
        client = await running.connect()
        await client.chat("one")
        await client.chat("two")
        [journal] = running.journals().values()
        counted = [event["usage"] for event in journal if event["kind"] == "model_replied"]
        sums = [f"{sum(usage[name] for usage in counted):,}" for name in ("input", "cached", "output")]
        assert f"| answer | `scripted:script` | {' | '.join(sums)} |" in await client.command("/usage")


async def test_context_names_notes_tools_and_messages(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "workspace").mkdir(parents=True)
    (home / "workspace" / "AGENTS.md").write_text("Speak like a pirate.")
    async with gateway(home) as running:
        client = await running.connect()
        await client.chat("hello there")
        answer = await client.command("/context list")
        assert "| Notes: `AGENTS.md` | 1 |" in answer
        assert "| Tools: `read` | 1 |" in answer
        assert "| Your messages | 1 |" in answer
        assert "hello there" in await client.command("/context detail")
        total = sum(int(row.split("|")[-2].replace(",", "")) for row in answer.splitlines()[4:])
        assert f"**Context**: about {total:,} tokens" in answer
        assert f"- Context: {total:,} " in await client.command("/status")


async def test_a_queue_mode_of_the_session_outlives_a_restart(tmp_path: Path) -> None:
    async with gateway(tmp_path / "home") as running:
        client = await running.connect()
        assert "`collect`" in await client.command("/queue collect")
    async with gateway(tmp_path / "home") as running:
        client = await running.connect()
        [line] = [line for line in (await client.command("/queue")).splitlines() if "(current)" in line]
        assert line.startswith("- `collect`")


async def test_verbose_follows_the_configuration_until_the_session_sets_it(tmp_path: Path) -> None:
    async with gateway(tmp_path / "home", settings={"agent.verbose": True}) as running:
        client = await running.connect()
        assert await client.command("/verbose") == "Verbose is on."
        assert await client.command("/verbose off") == "Verbose is off."
        assert await client.command("/verbose") == "Verbose is off."
        assert await client.command("/verbose default") == "Verbose is on."


def test_the_command_explains_every_mode_there_is() -> None:
    assert tuple(MODES) == inbox.MODES


async def test_clients_are_sent_the_settings_of_a_session_and_the_commands(tmp_path: Path) -> None:
    async with gateway(tmp_path / "home", settings={"agent.verbose": True}) as running:
        client = await running.connect()
        welcome = client.frames[0]
        assert welcome["verbose"] is True
        assert "/queue [followup" in next(c["usage"] for c in welcome["commands"] if c["name"] == "queue")
        await client.chat("hi")
        assert [frame["type"] for frame in client.frames if frame["type"] == "settings"] == []
        await client.say("subscribe", id="s", session="main")
        told = await client.until_type("settings")
        assert (told["id"], told["queue"], told["verbose"]) == ("s", "followup", True)
        await client.command("/verbose off")
        await client.command("/queue steer")
        changes = [frame for frame in client.frames if frame["type"] == "settings"][1:]
        assert [(frame["queue"], frame["verbose"]) for frame in changes] == [("followup", False), ("steer", False)]
