"""The channel Matrix in a gateway, against a real Synapse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.channels.matrix_rooms import person, synapse
from tests.channels.test_telegram_gateway import ANSWER, CODE, WORDS
from tests.gateway.gateways import gateway
from tests.servers.synapse_server import PASSWORD, SynapseServer
from tests.waiting import until

__all__ = ["synapse"]

TABLE = """
[channels.matrix]
kind = "matrix"
homeserver = "{url}"
user = "{bot}"
password = "{password}"
people = {{ "{ana}" = "owner" }}
[approvals]
default = "ask"
"""


async def test_a_long_answer_comes_in_order_and_a_reaction_answers_a_question(
    synapse: SynapseServer, tmp_path: Path
) -> None:
    calls: list[dict[str, Any]] = [{"tool": "write", "arguments": {"path": "a.txt", "content": "tea"}}]
    script: list[dict[str, Any]] = [{"text": ANSWER}, {"calls": calls}, {"text": "It is written."}]
    async with person(synapse) as ana, person(synapse, "bot") as bot:
        file = TABLE.format(url=synapse.url, bot=bot.user, password=PASSWORD, ana=ana.user)
        room = await ana.room(bot.user)
        async with gateway(tmp_path / "home", file=file, script=script) as g:
            await ana.say(room, "tea?")
            posts = await ana.posts(room, bot.user, 1)
            while not posts[-1]["content"]["body"].endswith("That is **all**."):
                posts = await ana.posts(room, bot.user, len(posts) + 1)
            bodies = [post["content"]["body"] for post in posts]
            assert [word for body in bodies for word in body.split() if word.startswith("word")] == WORDS.split()
            code = [line for body in bodies for line in body.split("\n") if line.startswith("print(")]
            assert code == CODE.split("\n")
            await ana.say(room, "write a")
            question = (await ana.posts(room, bot.user, len(posts) + 1))[-1]
            assert not (g.home / "workspace" / "a.txt").exists()
            await until(lambda: str(g.journals()).count(question["event_id"]))  # the gateway knows which post it was
            await ana.react(room, question["event_id"], "👍")
            await until((g.home / "workspace" / "a.txt").exists)
            last = [post["content"]["body"] for post in (await ana.posts(room, bot.user, len(posts) + 3))[-2:]]
            assert sorted(last) == ["Approved this time.", "It is written."]
