"""`exuvia models list|refresh`: the vendors' own lists, their cache, and who uses it."""

from __future__ import annotations

import asyncio
import io
import json
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from gateway.cli import models
from gateway.cli.main import cli
from gateway.cli.options import Invocation
from gateway.models.model_list_cache import MODELS, cacheable, read_model_lists
from gateway.support.errors import ConfigRefused, ModelUnknown
from gateway.support.home import Home
from plugins.api.models import ModelList, ReportedLimits
from plugins.testing.servers import openai_server
from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import OpenAIServer
from tests.gateway.gateways import EMPTY_MACHINE, NOBODY, gateway
from tests.servers import anthropic_server, gemini_server, ollama_server
from tests.servers.anthropic_server import AnthropicServer
from tests.servers.gemini_server import GeminiServer
from tests.servers.ollama_server import OllamaServer

BIG, TEST = "claude-big-20270101", "claude-test-20260101"


class Vendors:
    """Four vendors that listen, and a home configured with all of them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.anthropic = AnthropicServer()
        self.gemini = GeminiServer()
        self.ollama = OllamaServer(key=ollama_server.KEY)
        self.openai = OpenAIServer()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Vendors]:
        async with AsyncExitStack() as stack:
            stack.enter_context(EMPTY_MACHINE)
            for server in (self.anthropic, self.gemini, self.ollama, self.openai):
                await stack.enter_async_context(server.serving())
            yield self

    def config(self, agent: str = "") -> str:
        """The configuration with all of them; Claude answers."""
        tables = {
            "openai": (self.openai.url, openai_server.KEY, "gpt-test"),
            "anthropic": (self.anthropic.url, anthropic_server.KEY, BIG),
            "gemini": (self.gemini.url, gemini_server.KEY, "gemini-3-test"),
            "ollama": (self.ollama.url, ollama_server.KEY, ollama_server.MODEL),
        }
        text = f'[gateway]\nport = 0\n[agent]\nmodel = "anthropic:{BIG}"\n{agent}\n'
        for name, (url, key, model) in tables.items():
            text += f'[providers.{name}]\nbase_url = "{url}"\napi_key = "{key}"\ndefault_model = "{model}"\n'
        return text

    def told(self) -> Any:
        return json.loads((self.home / "models.json").read_text())

    async def refresh(self, agent: str = "") -> tuple[int, str]:
        return await refresh(self.home, self.config(agent))

    async def listed(self, agent: str = "", *, offline: bool = False) -> tuple[int, dict[str, Any]]:
        """Return the exit code, and the rows by model."""
        code, out = await listed(self.home, self.config(agent), offline=offline, as_json=True)
        return code, {row["model"]: row for provider in json.loads(out) for row in provider["models"]}


@pytest.fixture
def vendors(tmp_path: Path) -> Vendors:
    return Vendors(tmp_path)


async def refresh(home: Path, text: str) -> tuple[int, str]:
    out = io.StringIO()
    (home / "config.toml").write_text(text)
    code = await asyncio.to_thread(models.refresh_models, Invocation(Home(home), home / "config.toml", {}, out))
    return code, out.getvalue()


async def listed(home: Path, text: str, *, offline: bool = False, as_json: bool = False) -> tuple[int, str]:
    out = io.StringIO()
    (home / "config.toml").write_text(text)
    call = Invocation(Home(home), home / "config.toml", {}, out, as_json)
    code = await asyncio.to_thread(models.list_models, call, offline=offline)
    return code, out.getvalue()


# --- refresh ----------------------------------------------------------------------------------------------------------


async def test_what_each_vendor_tells_is_kept_with_its_address_for_the_owner_alone(vendors: Vendors) -> None:
    async with vendors.serving():
        code, out = await vendors.refresh()
        told = vendors.told()
    assert code == 0
    assert {name: each["models"] for name, each in told.items()} == {
        "anthropic": {
            BIG: {"window": 3_000_000, "output": 256_000},
            TEST: {"window": 200_000, "output": 64_000},
        },
        "gemini": {"gemini-3-test": {"window": 2_097_152, "output": 131_072}},
        "ollama": {ollama_server.MODEL: {"window": 8_192}},
    }
    assert told["gemini"]["address"] == vendors.gemini.url
    assert told["gemini"]["at"].endswith("Z")
    assert stat.S_IMODE((vendors.home / "models.json").stat().st_mode) == 0o600
    assert sorted(path.name for path in vendors.home.iterdir()) == ["config.toml", "models.json"]
    assert "anthropic has 2 models and reports the limits of 2.\n" in out
    assert "openai has 1 model and reports no limits.\n" in out
    assert "ollama has 2 models and reports the limits of 1.\n" in out


def test_a_home_that_holds_the_file_is_closed_to_others_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "models.json").write_text("{}")
    tmp_path.chmod(0o755)
    Home(tmp_path).make()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


async def test_a_vendor_that_fails_stops_no_other_and_what_it_told_before_stays(vendors: Vendors) -> None:
    async with vendors.serving():
        await vendors.refresh()
        before = vendors.told()
        vendors.gemini.instead_of_list = Fault(status=500, body=b"{}")
        vendors.anthropic.instead_of_list = Fault(body=b'{"data": [{"id": "claude-new", "max_input_tokens": 500000}]}')
        vendors.ollama.instead_of_list = Fault(body=b"<html>", media="text/html")
        code, out = await vendors.refresh()
    assert code == 1
    assert [line.partition(" could not be asked: ")[0] for line in out.splitlines() if "could not" in line] == [
        "gemini",
        "ollama",
    ]
    assert "The server's list of models is not valid." in out
    assert vendors.told()["gemini"] == before["gemini"]
    assert vendors.told()["anthropic"]["models"] == {"claude-new": {"window": 500_000}}


async def test_where_all_fail_nothing_is_written_and_a_key_is_not_shown(vendors: Vendors) -> None:
    async with vendors.serving():
        for server in (vendors.anthropic, vendors.gemini, vendors.ollama, vendors.openai):
            server.instead_of_list = Fault(status=401, body=anthropic_server.refusal("bad key " + anthropic_server.KEY))
        code, out = await vendors.refresh()
    assert code == 1
    assert len(out.splitlines()) == 4
    assert anthropic_server.KEY not in out
    assert not (vendors.home / "models.json").exists()


async def test_where_nobody_can_be_asked_it_says_so(tmp_path: Path) -> None:
    with EMPTY_MACHINE, pytest.raises(ModelUnknown, match="No configured provider can list its models"):
        await refresh(tmp_path, '[agent]\nmodel = "scripted:echo"\n')
    with pytest.raises(ConfigRefused, match=r"agent\.modle"):
        await refresh(tmp_path, "[agent]\nmodle = 1\n")
    done = CliRunner().invoke(cli, ["models", "refresh", "--home", str(tmp_path / "none")])
    assert (done.exit_code, "There is no home" in done.output) == (2, True)
    assert CliRunner().invoke(cli, ["models", "refresh", "--offline", "--home", str(tmp_path)]).exit_code == 2


COMPATIBLE: dict[str, dict[str, Any]] = {
    "vllm": {"max_model_len": 32_768},
    "groq": {"context_window": 131_072, "max_completion_tokens": 65_536},
    "mistral": {"max_context_length": 262_144},
    "openrouter": {"context_length": 200_000, "top_provider": {"max_completion_tokens": 64_000}},
    "nonsense": {"max_model_len": "many", "context_window": True, "context_length": -1, "top_provider": None},
    "absurd": {"max_model_len": 10**30},
}


async def test_of_compatible_servers_each_tells_in_its_own_words(vendors: Vendors) -> None:
    vendors.openai.models = COMPATIBLE
    async with vendors.serving():
        await vendors.refresh()
    assert vendors.told()["openai"]["models"] == {
        "vllm": {"window": 32_768},
        "groq": {"window": 131_072, "output": 65_536},
        "mistral": {"window": 262_144},
        "openrouter": {"window": 200_000, "output": 64_000},
    }


async def test_a_llama_server_tells_what_it_has_loaded_and_not_what_the_model_could(vendors: Vendors) -> None:
    vendors.openai.models = {"gemma.gguf": {"owned_by": "llamacpp", "meta": {"n_ctx_train": 131_072}}}
    vendors.openai.props = {"default_generation_settings": {"n_ctx": 8_192}}
    async with vendors.serving():
        await vendors.refresh()
    assert vendors.told()["openai"]["models"] == {"gemma.gguf": {"window": 8_192}}


def test_a_list_without_end_is_not_kept_whole() -> None:
    many = {f"m{number}": ReportedLimits(window=1000) for number in range(MODELS + 1)}
    odd = {"": ReportedLimits(window=1000), "n" * 201: ReportedLimits(window=1000), "silent": ReportedLimits()}
    kept = cacheable(ModelList(address="http://x", models=odd | many), "")
    assert len(kept.models) == MODELS
    assert not set(odd) & set(kept.models)


# --- list -------------------------------------------------------------------------------------------------------------


async def test_the_list_says_of_each_figure_where_it_is_from(vendors: Vendors) -> None:
    agent = 'context_windows = { "gemini" = 50000 }\nfallback_models = ["openai:gpt-4.1"]'
    async with vendors.serving():
        await vendors.refresh(agent)
        code, rows = await vendors.listed(agent)
    assert code == 0
    told = {"window_from": "vendor", "output_from": "vendor"}
    big = {"model": f"anthropic:{BIG}", "window": 3_000_000, "output": 256_000, "answers": True, **told}
    assert rows[f"anthropic:{BIG}"] == big
    gemini = rows["gemini:gemini-3-test"]
    assert (gemini["window"], gemini["window_from"], gemini["output_from"]) == (50_000, "configuration", "vendor")
    ollama = rows[f"ollama:{ollama_server.MODEL}"]
    assert (ollama["window"], ollama["window_from"]) == (8_192, "vendor")
    assert (rows["ollama:gone:1b"]["window"], rows["ollama:gone:1b"]["window_from"]) == (16_384, "default")
    assert rows["openai:gpt-test"]["window"] is None
    assert rows["openai:gpt-4.1"]["window"] is None  # of another server nothing is known by the name
    assert "gemini:embedding-test" not in rows


async def test_offline_nobody_is_asked_and_the_list_is_what_was_told_before(vendors: Vendors) -> None:
    async with vendors.serving():
        _, out = await listed(vendors.home, vendors.config(), offline=True)
        assert "anthropic was not asked: its models were never requested.\n" in out
        assert "The vendors have not been asked for limits yet; `exuvia models refresh` does that.\n" in out
        await vendors.refresh()
        asked = len(vendors.anthropic.asked_lists)
        code, out = await listed(vendors.home, vendors.config(), offline=True)
        assert len(vendors.anthropic.asked_lists) == asked
    assert code == 0
    at = vendors.told()["anthropic"]["at"]
    assert f"anthropic was not asked: the list of {at} is shown.\n" in out
    (row,) = (line for line in out.splitlines() if TEST in line)
    assert row.split() == [f"anthropic:{TEST}", "200,000", "vendor", "64,000", "vendor"]


async def test_a_vendor_that_cannot_be_reached_is_said_and_its_models_are_those_of_before(vendors: Vendors) -> None:
    async with vendors.serving():
        await vendors.refresh()
        text = vendors.config()
    with EMPTY_MACHINE:
        code, out = await listed(vendors.home, text)
    assert code == 1
    at = vendors.told()["anthropic"]["at"]
    assert f"anthropic could not be asked, and the list of {at} is shown: 127.0.0.1 cannot be reached" in out
    assert f"anthropic:{TEST}" in out


async def test_figures_that_are_news_are_said_and_not_shown_as_if_they_counted(vendors: Vendors) -> None:
    async with vendors.serving():
        _, out = await listed(vendors.home, vendors.config())
        await vendors.refresh()
        _, later = await listed(vendors.home, vendors.config())
    assert "anthropic reports 2 new limits: `exuvia models refresh` stores them.\n" in out
    assert "does not know" not in later


async def test_a_name_cannot_forge_a_line(vendors: Vendors) -> None:
    vendors.openai.models = {"evil\n\x1b[2Janthropic:claude": {"max_model_len": 1000}}
    async with vendors.serving():
        await vendors.refresh()
        _, out = await listed(vendors.home, vendors.config())
    assert "\x1b" not in out
    assert not any(line.startswith("anthropic:claude ") for line in out.splitlines())


# --- who goes by it ---------------------------------------------------------------------------------------------------


async def status(vendors: Vendors, agent: str = "") -> str:
    async with gateway(vendors.home, file=vendors.config(agent)) as running:
        client = await running.connect()
        await client.chat("hello")
        return await client.command("/status")


async def test_a_start_goes_by_what_was_told_above_the_table_and_below_the_configuration(vendors: Vendors) -> None:
    async with vendors.serving():
        assert "3,000,000" not in await status(vendors)
        await vendors.refresh()
        assert "3,000,000" in await status(vendors)
        assert vendors.anthropic.requests[-1]["max_tokens"] == 3_000_000 // 12
        assert "77,777" in await status(vendors, "context_window = 77777")


async def test_what_another_address_told_is_not_believed(vendors: Vendors) -> None:
    async with vendors.serving():
        await vendors.refresh()
        moved = json.dumps(vendors.told()).replace(vendors.anthropic.url, NOBODY)
        (vendors.home / "models.json").write_text(moved)
        _, rows = await vendors.listed()
    assert rows[f"anthropic:{BIG}"]["window"] is None
    assert rows["gemini:gemini-3-test"]["window_from"] == "vendor"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"anthropic": {}}', b"\xff", b"[" * 100_000, b" " * 5_000_000,
     b'{"anthropic": {"address": "x", "at": "", "models": {"m": {"window": -1}}}}'],
)  # fmt: skip
async def test_a_file_that_cannot_be_used_is_one_warning_and_is_left(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "models.json").write_bytes(content)
    with capture_logs() as logged:
        async with gateway(tmp_path) as running:
            client = await running.connect()
            assert await client.chat("hello") == "hello"
    (warning,) = [entry for entry in logged if entry["event"] == "models_file_ignored"]
    assert (warning["log_level"], str(tmp_path / "models.json") in warning["reason"]) == ("warning", True)
    assert read_model_lists(tmp_path / "models.json")[0] == {}
    assert (tmp_path / "models.json").read_bytes() == content
