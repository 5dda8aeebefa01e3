"""Budgets under kills: persons send many messages at once, the gateway is killed, and the ledger is compared with the logs.

Each person has a budget that is less than what their messages cost. The figures are what must be zero: how far a person is
above the budget, the difference between the amounts of the ledger and its tokens at their prices, what the logs of the
conversations have and the ledger does not, and reservations that are left.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.figures import Figure, figure
from benchmarks.gateway_process import GatewayProcess, gateway, new_home
from benchmarks.process import serving
from benchmarks.setting import Setting

AT_ONCE = 20
"""Messages of each person in a round, each to a conversation of its own."""

ANSWER, RESERVED = 16, 20
"""Tokens of an answer of the fake model, at a millionth each, and tokens that are reserved for it."""

LONGEST = 0.5
"""The latest time of a kill after the messages of a round were sent, in seconds."""


def run(setting: Setting) -> list[Figure]:
    """Measure one history with a kill in each run but the last."""
    persons, rounds = setting.sessions, setting.runs + 1
    cap = max(RESERVED, rounds * AT_ONCE * ANSWER // 2)
    with serving("model_server") as (_, model_port), new_home(setting.folder) as home:
        (home / "config.toml").write_text("".join(_config(persons, cap)))
        for number in range(rounds):
            with gateway(home, model_port) as running:
                asyncio.run(_round(running, persons, number, killed=number < rounds - 1))
        with gateway(home, model_port) as running:  # charges what the last kills left behind
            asyncio.run(_round(running, 1, rounds, killed=False))
        return _figures(home, cap, f"{persons} persons × {AT_ONCE} turns, {rounds - 1} kills")


def _config(persons: int, cap: int) -> Iterator[str]:
    yield '[agent]\ntitles = false\n[prices."openai:fake"]\ninput = 0.0\noutput = 1.0\n'
    yield f"[usage]\nreserved_output = {RESERVED}\n"
    yield f'[budgets."*"]\nmonth = {cap / 1_000_000:.6f}\n'
    yield from (f'[people.p{number}]\ntoken = "{_token(number)}"\n' for number in range(persons))


def _token(number: int) -> str:
    return f"benchmark-{number:06}-abcdefghijklmnop"


async def _round(running: GatewayProcess, persons: int, number: int, *, killed: bool) -> None:
    """Have all persons send their messages, and kill the gateway meanwhile, or wait until all turns have ended."""
    async with aiohttp.ClientSession() as http:
        turns = [asyncio.create_task(_turns(http, running.port, person, number)) for person in range(persons)]
        if killed:
            await asyncio.sleep(random.uniform(0.05, LONGEST))
            os.kill(running.pid, signal.SIGKILL)
        await asyncio.gather(*turns, return_exceptions=killed)


async def _turns(http: aiohttp.ClientSession, port: int, person: int, number: int) -> None:
    """Send a person's messages of a round, and wait until their turns have ended."""
    headers = {"Authorization": f"Bearer {_token(person)}"}
    async with http.ws_connect(f"ws://127.0.0.1:{port}/ws", headers=headers) as socket:
        for key in range(AT_ONCE):
            await socket.send_json({"type": "send", "id": f"{number}-{key}", "session": f"k{key}", "text": "Hello."})
        waiting = {f"{number}-{key}" for key in range(AT_ONCE)}
        accepted: dict[tuple[str, int], str] = {}
        async for message in socket:
            frame = json.loads(message.data)
            if frame["type"] == "accepted":
                accepted[frame["session_id"], frame["seq"]] = frame["id"]
            event = frame.get("event", {})
            for seq in event.get("takes", ()):
                if (id_ := accepted.get((frame["session_id"], seq))) is not None:
                    accepted[frame["session_id"], -event["turn"]] = id_
            if event.get("kind") == "turn_ended":
                waiting.discard(accepted.get((frame["session_id"], -event["turn"]), ""))
            if not waiting:
                return
    raise ConnectionError("The gateway closed the connection.")


def _figures(home: Path, cap: int, name: str) -> list[Figure]:
    ledger = [line for path in home.glob("spending-*.jsonl") for line in _lines(path)]
    charged = [line for line in ledger if line["kind"] == "request_charged"]
    spent, answered = Counter[str](), Counter[str]()
    for line in charged:
        spent[line["person"]] += line["micros"]
    for path in (home / "sessions").glob("*.jsonl"):
        first, *others = _lines(path)
        answered[first["person"]] += sum(line["usage"]["output"] for line in others if line["kind"] == "model_replied")
    settled = {line["request"] for line in ledger if line["kind"] in ("request_charged", "request_released")}
    left = {line["request"] for line in ledger if line["kind"] == "request_reserved"} - settled
    measured = {
        "most above a budget": max((amount - cap for amount in spent.values()), default=0),
        "ledger, against its tokens at their prices": abs(sum(spent.values()) - sum(map(_priced, charged))),
        "answered in the logs, not in the ledger": max((answered[each] - spent[each] for each in answered), default=0),
        "charged twice": len(charged) - len({line["request"] for line in charged}),
        "reservations left": len(left),
    }
    lines = [figure("budgets", f"{name}: requests charged", "", [len(charged)])]
    return lines + [
        figure("budgets", f"{name}: {what}", "", [max(0, amount)], holds=amount <= 0) for what, amount in measured.items()
    ]


def _priced(line: dict[str, Any]) -> int:
    used, rate = line["usage"], line["rate"]
    return int((used["input"] * rate["input"] + used["output"] * rate["output"] + 500_000) // 1_000_000)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]
