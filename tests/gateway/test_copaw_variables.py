"""CoPaw's variables: when a gateway compacts because of them, and what is kept, as the model's server sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.config_commands import initial
from gateway.config.keys import CompactionKeys, Sections, load_config
from gateway.config.sources import SHIPPED
from plugins.testing.servers.faulty_server import Json
from plugins.testing.servers.openai_server import KEY, OpenAIServer
from tests.gateway.gateways import gateway

THRESHOLD, KEEP, RATIO = (f"COPAW_MEMORY_COMPACT_{name}" for name in ("THRESHOLD", "KEEP_RECENT", "RATIO"))

WINDOW = 100_000

MESSAGE = "the tide comes in twice a day " * 70
"""About 500 tokens; the server repeats it, so that an exchange has twice as many."""


async def first_compaction(home: Path, **variables: str) -> tuple[Json, list[str]]:
    """Talk until the first compaction. Return its event, and the texts of the next request's messages: the summary, and what
    was kept."""
    async with OpenAIServer().serving() as server:
        settings = {
            "agent.model": "openai:fake",
            "agent.context_window": WINDOW,
            "providers.openai.base_url": server.url,
            "providers.openai.api_key": KEY,
            "compaction.summarizer": "extract",
            "compaction.memory_flush.enabled": False,
            "memory.recall.mode": "off",
            "memory.facts.auto_extract": False,
        }
        async with gateway(home, settings=settings, variables=variables) as running:
            client = await running.connect()
            for turn in range(1, 20):
                await client.chat(f"{turn}: {MESSAGE}")
                (session,) = running.journals().values()
                if made := [event for event in session if event["kind"] == "context_compacted"]:
                    asked = server.requests[-1]["messages"]
                    return made[0] | {"turn": turn}, [message["content"] for message in asked if message["role"] != "system"]
    raise AssertionError("nothing was compacted")


async def test_keep_recent_keeps_so_many_messages_and_not_20000_tokens_more(tmp_path: Path) -> None:
    made, (summary, *kept) = await first_compaction(tmp_path, **{KEEP: "3", THRESHOLD: "3500"})
    assert [text.partition(":")[0] for text in kept] == ["5", "5", "6"]
    assert made["messages"] == 8
    assert "1: the tide" not in summary.partition("\n")[0]


async def test_another_keep_recent_keeps_another_number(tmp_path: Path) -> None:
    made, (_, *kept) = await first_compaction(tmp_path, **{KEEP: "5", THRESHOLD: "3500"})
    assert [text.partition(":")[0] for text in kept] == ["5", "5", "6", "6", "7"]
    assert made["messages"] == 8


async def test_the_threshold_counts_all_messages_but_those_that_are_kept(tmp_path: Path) -> None:
    # 500 tokens each: what could be compacted has 3,000 in the fifth turn and 4,000 in the sixth.
    made, (_, *kept) = await first_compaction(tmp_path, **{THRESHOLD: "3500"})
    assert (made["turn"], len(kept)) == (6, 3)


async def test_the_ratio_is_of_the_window_and_counts_the_same_messages(tmp_path: Path) -> None:
    made, (_, *kept) = await first_compaction(tmp_path, **{RATIO: str(3_500 / WINDOW)})
    assert (made["turn"], len(kept)) == (6, 3)


def figures(folder: Path, text: str = "", **environment: str) -> CompactionKeys:
    path = folder / "config.toml"
    path.write_text(text)
    return load_config(path, environment=environment, overrides={}).compaction


@pytest.mark.parametrize("one", [{THRESHOLD: "100000"}, {KEEP: "3"}, {RATIO: "0.7"}])
def test_with_one_of_them_the_others_have_the_seeds_defaults(one: dict[str, str], tmp_path: Path) -> None:
    theirs = CompactionKeys(threshold_tokens=100_000, ratio=0.7, keep_recent_messages=3, keep_recent_tokens=0)
    assert figures(tmp_path, **one) == theirs


def test_a_file_that_holds_every_default_as_init_writes_it_does_not_change_what_they_mean(tmp_path: Path) -> None:
    assert figures(tmp_path, initial({}), **{KEEP: "3"}) == figures(tmp_path, **{KEEP: "3"})


def test_what_a_file_or_a_variable_says_otherwise_stands(tmp_path: Path) -> None:
    assert figures(tmp_path, "[compaction]\nkeep_recent_tokens = 5000", **{KEEP: "3"}).keep_recent_tokens == 5_000
    assert figures(tmp_path, **{KEEP: "3", "EXUVIA__COMPACTION__KEEP_RECENT_TOKENS": "20000"}).keep_recent_tokens == 20_000
    assert figures(tmp_path, **{KEEP: "3", "EXUVIA__COMPACTION__THRESHOLD_TOKENS": "0"}).threshold_tokens == 0


def test_what_counts_as_a_default_of_the_file_is_one() -> None:
    sections = Sections()
    for keys, value in SHIPPED.items():
        found = sections
        for key in keys:
            found = getattr(found, key)
        assert found == value, keys
