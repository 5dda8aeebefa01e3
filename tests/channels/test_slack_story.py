"""The channel for Slack in a gateway: its story, see `tests.channels.story`, and a long answer."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse
from tests.channels.slack_story import Story
from tests.channels.story import CONFIGURATION, tell
from tests.faults.gateway_process import start_process
from tests.ports import free_port
from tests.servers.slack_blocks import text_of
from tests.waiting import deadline, until

CODE = "\n".join(f"print({number})  # {'x' * 40}" for number in range(300))
WORDS = " ".join(f"word{number}" for number in range(2_000))
ANSWER = f"# Tea\n\n{WORDS}\n\n```python\n{CODE}\n```\n\nThat is all."


async def test_nothing_is_lost_or_done_twice(tmp_path: Path) -> None:
    await tell(Story, tmp_path, messages=60, seed=1)


async def test_a_long_answer_is_posted_in_order_and_its_code_remains_code(tmp_path: Path) -> None:
    assert len(ANSWER) > 30_000
    model, home = OpenAIServer(respond=lambda _: ScriptedResponse(ANSWER)), tmp_path / "home"
    home.mkdir()
    async with model.serving(), Story(tmp_path) as story, aiohttp.ClientSession() as http, deadline():
        (home / "config.toml").write_text(CONFIGURATION.format(url=model.url, key=KEY, channel=story.configuration()))
        gateway = await start_process(home, settings={"EXUVIA__AGENT__MODEL": '"openai:gpt-test"'}, port=free_port())
        try:
            await gateway.ready(http)
            await story.say("C1", "Is there tea?")
            await until(lambda: [post for post in story.slack.posts("C1") if "That is all." in text_of(post)])
        finally:
            await gateway.stop()
    posts = story.slack.posts("C1")
    code = [
        element["elements"][0]["text"]
        for post in posts
        for block in post["blocks"]
        for element in block["elements"]
        if element["type"] == "rich_text_preformatted"
    ]
    assert "\n".join(code) == CODE
    assert len(posts) >= 3
    assert len({post["metadata"]["event_payload"]["id"] for post in posts}) == len(posts)
    assert " ".join(await story.posts("C1")).split()[1:2001] == WORDS.split()
