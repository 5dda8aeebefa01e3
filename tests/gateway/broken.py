"""Broken plugins, each with another fault, as installed packages. Each value is the source of a module."""

from __future__ import annotations

TOOL = """
from exuvia import ToolDefinition, ToolOutput, hookimpl

class Broken:
    definition = ToolDefinition(name="{name}", description="Break.", parameters={{"type": "object"}})
    repeatable = True

    def __init__(self, context):
        pass

    async def run(self, arguments, call):
{body}

@hookimpl
def register_tools():
    return [Broken]
"""


def tool(name: str, body: str) -> str:
    """Return a plugin with a tool that runs this."""
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return TOOL.format(name=name, body=lines)


PLUGINS = {
    "at_import": "raise RuntimeError('broken at import')",
    "exits_at_import": "raise SystemExit(3)",
    "at_registration": """
from exuvia import hookimpl

@hookimpl
def register_tools():
    raise KeyboardInterrupt("broken at registration")
""",
    "in_each_hook": """
from exuvia import hookimpl

@hookimpl
def propose_prunes(context, budget, now):
    raise GeneratorExit("broken decision")

@hookimpl
def plan_compaction(context, budget, trigger):
    raise RecursionError("broken plan")

@hookimpl
async def before_compaction(compaction):
    raise MemoryError("broken before")

@hookimpl
async def after_compaction(compaction):
    raise SystemExit("broken after")

@hookimpl
async def gateway_started(context):
    raise KeyboardInterrupt("broken start")

@hookimpl
async def turn_ended(turn):
    raise ValueError("broken end of a turn")

@hookimpl
async def gateway_stopping():
    raise SystemExit("broken stop")
""",
    "hangs": """
import time
from exuvia import hookimpl

@hookimpl
def propose_prunes(context, budget, now):
    time.sleep(3600)
""",
    "hangs_awaiting": """
import asyncio
from exuvia import hookimpl

@hookimpl
async def turn_ended(turn):
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        await asyncio.sleep(1.5)  # it does not end when it is told to
""",
    "wrong_types": """
from exuvia import hookimpl

@hookimpl
def register_commands():
    return "no list"

@hookimpl
def propose_prunes(context, budget, now):
    return 42
""",
    "wrong_colour": """
from exuvia import hookimpl

@hookimpl
async def propose_prunes(context, budget, now):
    return []
""",
    "wrong_arguments": """
from exuvia import hookimpl

@hookimpl
async def turn_ended(tern):
    pass
""",
    "unknown_hook": """
from exuvia import hookimpl

@hookimpl
def register_tool():
    return []
""",
    "duplicate": tool("read", "return ToolOutput(text='mine')"),
    "leaks": tool(
        "leaks",
        """
import asyncio

async def forgotten():
    await asyncio.sleep(3600)

self.task = asyncio.create_task(forgotten())
return ToolOutput(text="leaked")
""",
    ),
    "exits": tool("exits", "import sys\nsys.exit(3)"),
    "interrupts": tool("interrupts", "raise KeyboardInterrupt('broken tool')"),
    "mutates": """
from exuvia import hookimpl

@hookimpl
def propose_prunes(context, budget, now):
    context.messages.clear()

@hookimpl
async def turn_ended(turn):
    turn.outcome = "mine"
""",
    "floods": tool(
        "floods",
        """
import asyncio, logging

def flood():
    for number in range(3000):
        logging.getLogger("exuvia_floods").error("flood %s", number)

await asyncio.to_thread(flood)
return ToolOutput(text="flooded")
""",
    ),
    "huge": tool("huge", "return ToolOutput(text='x' * 40_000_000)"),
    "blocks_the_end": """
import asyncio
from exuvia import EmbeddingProvider, ModelLimits, NoSettings, hookimpl

class Lingering:
    name = "lingering"
    Settings = NoSettings

    def __init__(self, context): pass
    async def __aenter__(self): return self
    async def __aexit__(self, *_): await asyncio.sleep(3600)
    def default_model(self): return None
    def explain_default(self): return "it lingers"
    def limits(self, model): return ModelLimits()
    async def stream(self, request):
        raise SystemExit("broken stream")
        yield

@hookimpl
def register_chat_providers():
    return [Lingering]

@hookimpl
async def gateway_stopping():
    await asyncio.sleep(3600)
""",
    "exits_in_a_command": """
from exuvia import hookimpl

class Leave:
    name, usage, summary, when = "leave", "/leave", "Leave.", "now"

    async def run(self, argument, conversation):
        raise SystemExit("broken command")

@hookimpl
def register_commands():
    return [Leave]
""",
}
