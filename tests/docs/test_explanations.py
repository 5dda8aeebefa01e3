"""docs/why.md and docs/configuration.md: what they say can be done is done."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.config.keys import load_config, provider_settings
from plugins.providers.anthropic.chat import AnthropicSettings
from tests.docs.generated import DOCS
from tests.gateway.gateways import gateway


async def test_what_is_derived_can_be_deleted_as_the_page_says(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with gateway(home) as running:
        client = await running.connect()
        assert await client.chat("The door code is 4711.") == "The door code is 4711."
    (home / "workspace" / "MEMORY.md").write_text("The door code is 4711.\n")
    (story,) = re.findall(r"^```sh\n(.*?)^```$", (DOCS / "why.md").read_text(), re.DOTALL | re.MULTILINE)
    removed, *commands = story.replace("HOME", str(home)).splitlines()
    for file in shlex.split(removed)[1:]:
        Path(file).unlink(missing_ok=True)
    told = []
    for command in commands:
        done = await asyncio.to_thread(CliRunner().invoke, cli, shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
        told.append(done.output)
    assert "main" in told[0]
    assert told[1].startswith("1 notes")


def test_the_example_of_the_configuration_is_accepted(tmp_path: Path) -> None:
    page = (DOCS / "configuration.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "config.toml").write_text(example)
    config = load_config(tmp_path / "config.toml", environment={"MY_ANTHROPIC_KEY": "a-key"}, overrides={})
    assert (config.sessions.queue, config.plugins.allow) == ("steer", ("tides",))
    keys = provider_settings(config, "anthropic", AnthropicSettings).api_key
    assert keys is not None
    assert [key.reveal() for key in keys] == ["a-key"]
    told = re.search(r"`(EXUVIA__SESSIONS__QUEUE_LIMIT)=(\d+)`", page)
    assert told is not None
    assert load_config(None, environment={told[1]: told[2]}, overrides={}).sessions.queue_limit == int(told[2])
