"""Attacks by plugins of others: each place where their code is called, with each way in which it can misbehave.

What is said of broken plugins in one gateway stands in `tests/gateway/test_broken_plugins.py`. Here every behaviour meets
every place. Each time the gateway goes on, somebody else's turn is answered, and nothing that was acknowledged is missing.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.models import call, providers
from gateway.models.call import MOST_TOKENS
from gateway.plugin_runtime import lifecycle
from gateway.support import logs
from plugins.host import loading
from plugins.host.hooks import Hooks
from plugins.providers.local.chat import LocalProvider
from plugins.support import task_leaks
from tests.gateway.gateways import Client, Gateway, gateway
from tests.shelf import Shelf
from tests.waiting import deadline

RAISED = {
    "an error": "raise RuntimeError('broken')",
    "an error without words": "raise Exception",
    "an error that cannot be shown": "raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})()",
    "an error of a megabyte": "raise ValueError('broken' * 200_000)",
    "an end": "raise SystemExit(3)",
    "an interrupt": "raise KeyboardInterrupt('broken')",
    "a cancellation": "import asyncio; raise asyncio.CancelledError('broken')",
    "the end of a generator": "raise GeneratorExit('broken')",
    "the end of an iteration": "raise StopIteration(1)",
    "the end of an asynchronous iteration": "raise StopAsyncIteration",
    "a class of its own": "raise type('Own', (BaseException,), {})('broken')",
    "a group": "raise BaseExceptionGroup('broken', [SystemExit(1), ValueError('x')])",
    "no memory": "raise MemoryError",
    "too deep": "f = lambda: f(); f()",
    "a time-out": "raise TimeoutError('broken')",
    "a pipe": "raise BrokenPipeError(32, 'broken')",
    "a full disk": "raise OSError(28, 'No space left on device')",
    "half of a pair": "raise ValueError('\\ud800 \\x1b[31m\\u202e')",
}

RETURNED = {
    "nothing": "return None",
    "a number": "return 42",
    "a text": "return 'text'",
    "bytes": "return b'x'",
    "objects": "return [object(), None, 42, int]",
    "a list in a list": "a = []; a.append(a); return a",
    "a dictionary": "return {'a': 1}",
    "a million": "return [None] * 1_000_000",
    "what raises when it is seen": "z = lambda *_: 1 / 0; return type('T', (), {'__getattribute__': z, '__iter__': z})()",
    "what raises when it is counted": "z = lambda *_: 1 / 0; return type('L', (list,), {'__len__': z, '__iter__': z})([1])",
    "not a number": "return float('nan')",
    "a huge number": "return 10 ** 400",
    "a mock": "from unittest.mock import MagicMock; return MagicMock()",
}

DECIDING = {
    "register_tools": "",
    "register_commands": "",
    "register_chat_providers": "",
    "register_embedding_providers": "",
    "register_memory_backends": "",
    "register_summarizers": "",
    "register_flushes": "",
    "register_channels": "",
    "propose_prunes": "context, budget, now",
    "plan_compaction": "context, budget, trigger",
}
HEARING = {
    "gateway_started": "context",
    "turn_ended": "turn",
    "before_compaction": "compaction",
    "after_compaction": "compaction",
    "gateway_stopping": "",
}


def in_each_hook(body: str) -> str:
    """A plugin that does this in each hook there is."""
    lines = [f"@hookimpl\ndef {hook}({given}):\n    {body}\n" for hook, given in DECIDING.items()]
    lines += [f"@hookimpl\nasync def {hook}({given}):\n    {body}\n" for hook, given in HEARING.items()]
    return "\n".join(["from exuvia import hookimpl", *lines])


@asynccontextmanager
async def with_plugin(
    root: Path, monkeypatch: pytest.MonkeyPatch, source: str, *, script: list[dict[str, Any]] | None = None, **settings: Any
) -> AsyncIterator[Gateway]:
    """A gateway with a plugin `evil` of this source."""
    monkeypatch.setattr(Hooks.__init__, "__defaults__", (0.5, 0.5))
    monkeypatch.setattr(task_leaks, "GRACE", 0.1)
    monkeypatch.setattr(lifecycle, "STOPPING_SECONDS", 0.5)
    monkeypatch.setattr(providers, "CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(providers, "LAST_SECONDS", 0.2)
    # A module of its own for each: an import that hangs holds the lock of its module's name for ever.
    Shelf(root / "shelf", monkeypatch).install(f"exuvia_evil_{next(_NUMBERS)}", "evil", source)
    terminated = signal.getsignal(signal.SIGTERM)
    wanted = {"plugins.allow": ["evil"], "memory.embedding.provider": "none", **settings}
    try:
        async with gateway(root / "home", settings=wanted, script=script) as g:
            yield g
    finally:
        signal.signal(signal.SIGTERM, terminated)


_NUMBERS = itertools.count()


async def serves(g: Gateway, client: Client) -> None:
    """Somebody else's turn is answered, and so is a command."""
    other = await g.connect()
    async with deadline():
        await other.send("still here", session="other")
        assert (await other.until_event("turn_ended"))["outcome"] == "replied"
        assert await client.command("/status")
    async with g.http.get(f"{g.url}/healthz") as response:
        assert response.status == 200


def kept(g: Gateway) -> list[str]:
    """The texts of all messages in the journals."""
    return [event["text"] for lines in g.journals().values() for event in lines if event["kind"] == "message_received"]


def named(g: Gateway, status: str) -> bool:
    """Return True if `/status` or a journal names the plugin."""
    return "'evil'" in status or any(
        event["kind"] == "plugin_failed" and event["plugin"] == "evil" for lines in g.journals().values() for event in lines
    )


# --- hooks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*RAISED, *RETURNED])
async def test_a_plugin_that_misbehaves_in_every_hook_stops_nothing_and_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = RAISED.get(name) or RETURNED[name]
    async with with_plugin(tmp_path, monkeypatch, in_each_hook(body)) as g:
        client = await g.connect()
        async with deadline():
            assert [await client.chat(text) for text in ("one", "two")] == ["one", "two"]
            await client.command("/compact")
            assert await client.chat("three") == "three"
        await serves(g, client)
        assert named(g, await client.command("/status"))
        assert sorted(text for text in kept(g) if not text.startswith("/")) == ["one", "still here", "three", "two"]


IMPORTS = {
    **dict(RAISED.items()),
    "does not parse": "def (",
    "imports what is not there": "import no_such_module_anywhere",
    "hangs": "import time; time.sleep(3600)",
    "replaces a builtin": "import builtins; raise ImportError('builtins')",
    "is no plugin": "plugin = 42",
    "bytes that are no text": "# \\xff\\nraise ValueError",
    "has a metaclass that raises": "class M(type):\n    def __call__(c): 1 / 0\nclass P(metaclass=M): pass\nP()",
    "begins a loop": "import asyncio; asyncio.run(asyncio.sleep(0)); raise RuntimeError('done')",
    "handles a signal": "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
}


@pytest.mark.parametrize("name", IMPORTS)
async def test_a_plugin_that_cannot_be_imported_is_named_and_skipped(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "IMPORT_SECONDS", 1.0)
    async with with_plugin(tmp_path, monkeypatch, IMPORTS[name]) as g:
        client = await g.connect()
        async with deadline():
            assert await client.chat("one") == "one"
        if name != "is no plugin":  # a module without hooks is one that provides nothing
            assert "'evil' is not used" in await client.command("/status")
        await serves(g, client)


# --- tools ------------------------------------------------------------------------------------------------------------

TOOL = """
from exuvia import ToolDefinition, ToolOutput, hookimpl

class Evil:
    definition = ToolDefinition(name="evil", description="Evil.", parameters={{"type": "object"}})
    repeatable = True
    def __init__(self, context): self.context = context
    async def run(self, arguments, call):
        {body}

@hookimpl
def register_tools(): return [Evil]
"""

OF_TOOLS = {
    **RAISED,
    **RETURNED,
    "another text": "return ToolOutput(text=42)",
    "a text of bytes": "return ToolOutput(text=b'x')",
    "40 MB": "return ToolOutput(text='x' * 40_000_000)",
    "half of a pair in a text": "return ToolOutput(text='\\ud800\\x00')",
    "arguments that are changed": "arguments.clear(); arguments.update(a=object()); return ToolOutput(text='fine')",
    "itself taken away": "Evil.run = None; Evil.definition = None; del self.context; return ToolOutput(text='fine')",
    "tasks left": "import asyncio; "
    "self.t = [asyncio.ensure_future(asyncio.sleep(3600)) for _ in range(100)]; return ToolOutput(text='fine')",
    "its task cancelled": "import asyncio; "
    "asyncio.current_task().cancel(); await asyncio.sleep(0); return ToolOutput(text='fine')",
    "all tasks cancelled but ours": "import asyncio; t = asyncio.ensure_future(asyncio.sleep(9)); t.cancel(); await t",
    "a generator": "return (i for i in range(10))",
    "a coroutine": "import asyncio; c = asyncio.sleep(0); c.close(); return c",
    "a group of tasks": "import asyncio\n"
    "        async with asyncio.TaskGroup() as g:\n            g.create_task(asyncio.sleep(0)); "
    "raise SystemExit(4)",
}


@pytest.mark.parametrize("name", OF_TOOLS)
async def test_a_misbehaving_tool_fails_only_its_call(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"tool": "evil", "arguments": {"a": 1}}
    script: list[dict[str, Any]] = [
        {"calls": [call, {"tool": "read", "arguments": {"path": "."}}]},
        {"text": "after"},
        {"text": "still here"},
    ]
    source = TOOL.format(body=OF_TOOLS[name])
    async with with_plugin(tmp_path, monkeypatch, source, script=script) as g:
        client = await g.connect()
        async with deadline():
            ended = await turn(client)
        (lines,) = g.journals().values()
        returned = [event for event in lines if event["kind"] == "tool_returned"]
        assert ended["outcome"] == "replied"
        assert len(returned) == 2
        assert returned[1]["outcome"] == "returned", "the other tool is not harmed"
        if name in RAISED or (name in RETURNED):
            assert returned[0]["outcome"] in ("failed", "refused")
        assert len(returned[0]["output"]) <= 20_000_000
        await serves(g, client)


# --- providers --------------------------------------------------------------------------------------------------------

PROVIDERS = """
import msgspec
from exuvia import Delta, ModelLimits, Reply, hookimpl

class Settings(msgspec.Struct):
    pass

class Sound:
    name = "evil"
    Settings = Settings
    def __init__(self, context): pass
    async def __aenter__(self): return self
    async def __aexit__(self, *error): pass
    def explain_default(self): return "it is evil"

class Chat(Sound):
    def default_model(self): return "x"
    def limits(self, model): return ModelLimits()
    async def models(self): raise NotImplementedError
    async def discover(self): pass
    async def stream(self, request):
        yield Delta("sound")
        yield Reply(text="sound", model="x", stop="end")

class Embedding(Sound):
    def model(self): return "x"
    def dimensions(self): return 2
    async def embed(self, texts, purpose): return [[1.0, 0.0] for _ in texts]

class EvilChat(Chat):
    {chat}

class EvilEmbedding(Embedding):
    {embedding}

@hookimpl
def register_chat_providers(): return [EvilChat]

@hookimpl
def register_embedding_providers(): return [EvilEmbedding]
"""

ENDING = {name: RAISED[name] for name in ("an error", "an end", "an interrupt", "a cancellation", "a class of its own")}
"""What is raised in each method of a provider: an ordinary error, and all that is no `Exception`."""

METHODS = {
    "__init__": "def __init__(self, context): {body}",
    "__aenter__": "async def __aenter__(self): {body}",
    "__aexit__": "async def __aexit__(self, *error): {body}",
    "default_model": "def default_model(self): {body}",
    "model": "def model(self): {body}",
    "dimensions": "def dimensions(self): {body}",
    "explain_default": "def explain_default(self): {body}",
    "limits": "def limits(self, model): {body}",
    "models": "async def models(self): {body}",
    "discover_server": "async def discover_server(self): {body}",
    "embed": "async def embed(self, texts, purpose): {body}",
}


@asynccontextmanager
async def with_providers(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, chat: str = "pass", embedding: str = "pass"
) -> AsyncIterator[tuple[Gateway, Client]]:
    """Run a gateway in which `auto` chooses the provider `evil`, and which embeds with it; `other` has another model."""
    source = PROVIDERS.format(chat=chat, embedding=embedding)
    monkeypatch.setattr(LocalProvider, "default_model", lambda _: None)
    settings: dict[str, Any] = {"agent.model": "auto", "memory.embedding.provider": "evil"}
    async with with_plugin(root, monkeypatch, source, **settings) as g:
        client = await g.connect()
        (g.home / "workspace" / "MEMORY.md").write_text("Tea is at four.\n")  # nothing is embedded where nothing is indexed
        async with deadline():
            await client.command("/model scripted:echo", session="other")
            yield g, client
            await serves(g, client)


async def turn(client: Client) -> dict[str, Any]:
    """Ask the provider for an answer, and return the end of the turn."""
    await client.send("go")
    return await client.until_event("turn_ended")


@pytest.mark.parametrize("raised", ENDING)
@pytest.mark.parametrize("method", METHODS)
async def test_a_provider_that_raises_in_a_method_is_named_and_stops_nothing(
    method: str, raised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    logs.configure("info", "text")
    body = METHODS[method].format(body=ENDING[raised])
    async with with_providers(tmp_path, monkeypatch, chat=body, embedding=body) as (_, client):
        ended = await turn(client)
        await client.command("/memory search anything")
        status = await client.command("/status")
        if method in ("__init__", "__aenter__", "default_model"):  # nobody is left whom `auto` can choose
            assert (ended["outcome"], ended["error"]["code"]) == ("failed", "no_model")
        else:
            assert ended["outcome"] == "replied"
        if method in ("__init__", "__aenter__"):
            assert "The provider evil could not be opened" in status
        elif method in ("default_model", "model", "dimensions", "explain_default", "limits", "discover_server"):
            assert f"The provider evil failed in {method}: " in status
    if method == "__aexit__":
        assert "provider_not_closed" in capfd.readouterr().err


@pytest.mark.parametrize("returned", RETURNED)
async def test_a_provider_that_returns_wrong_types_is_named_and_stops_nothing(
    returned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = ("default_model", "model", "dimensions", "explain_default", "limits", "models", "discover_server", "embed")
    body = "\n    ".join(METHODS[method].format(body=RETURNED[returned]) for method in named)
    async with with_providers(tmp_path, monkeypatch, chat=body, embedding=body) as (_, client):
        await turn(client)
        await client.command("/model evil:x")
        await turn(client)
        await client.command("/memory search anything")
        assert "The provider evil failed in limits: " in await client.command("/status")


@pytest.mark.parametrize("returned", ["None", "[[None] * 2 for _ in texts]", "['1.0' for _ in texts]", "[[[1.0]]]", "[]"])
async def test_a_provider_with_invalid_vectors_is_named(
    returned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedding = METHODS["embed"].format(body=f"return {returned}")
    async with with_providers(tmp_path, monkeypatch, embedding=embedding) as (_, client):
        await client.command("/memory search anything")
        assert "The provider evil failed in embed: " in await client.command("/status")


@pytest.mark.parametrize("window", ["-1", "0", "1e30", "True", "10**400"])
async def test_a_provider_with_an_absurd_window_is_named_and_its_model_answers(
    window: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = METHODS["limits"].format(body=f"return ModelLimits(window={window})")
    async with with_providers(tmp_path, monkeypatch, chat=chat) as (_, client):
        assert (await turn(client))["outcome"] == "replied"
        status = await client.command("/status")
        assert "The provider evil failed in limits: window is invalid and treated as unknown: Expected" in status


STREAMS = {
    **{f"raises {name}": f"{body}\n        yield" for name, body in RAISED.items()},
    **{f"raises {name} after a piece": f"yield Delta('a'); {body}" for name, body in ENDING.items()},
    **{f"returns {name}": body for name, body in RETURNED.items()},
    **{f"yields {name}": f"yield (lambda: [{body.rpartition('return ')[2]}][0])()" for name, body in RETURNED.items()
       if body.startswith("return ")},
    "an unknown stop": "yield Reply(text='a', model='x', stop='never')",
    "a stop of another type": "yield Reply(text='a', model='x', stop=42)",
    "a text of another type": "yield Reply(text=42, model='x', stop='end')",
    "a piece of another type": "yield Delta(42)",
    "calls of another type": "yield Reply(text='a', model='x', stop='end', calls=[42])",
    "usage of another type": "yield Reply(text='a', model='x', stop='end', usage=42)",
    "a model of another type": "yield Reply(text='a', model=None, stop='end')",
    "no end": "yield Delta('a')",
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
async def test_a_misbehaving_stream_fails_its_turn_with_a_sentence_that_names_the_provider(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "CUT_RETRIES", 0)
    body = f"async def stream(self, request):\n        {STREAMS[name]}"
    if name.startswith("returns"):
        body = body.removeprefix("async ")
    async with with_providers(tmp_path, monkeypatch, chat=body) as (_, client):
        ended = await turn(client)
        assert ended["outcome"] == "failed"
        assert "evil" in ended["error"]["sentence"]
        await client.command("/compact")


async def test_a_huge_usage_is_limited_to_what_one_request_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = (
        "async def stream(self, request):\n        from exuvia import Usage\n"
        "        yield Reply(text='a', model='x', stop='end', usage=Usage(input=10**400, output=2**63))"
    )
    async with with_providers(tmp_path, monkeypatch, chat=body) as (_, client):
        await client.send("go")
        assert all(0 <= count <= MOST_TOKENS for count in (await client.until_event("model_replied"))["usage"].values())
        assert (await client.until_event("turn_ended"))["outcome"] == "replied"
        assert "Model: evil:x" in await client.command("/status")
        await client.send("again")
        assert (await client.until_event("turn_ended"))["outcome"] == "replied"
