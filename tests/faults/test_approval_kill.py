"""Kill -9 at each step of asking, answering and running: the call runs once or not at all, and never unapproved."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.faults.gateway_process import ROOT, GatewayProcess, gateway_process, journals, verify
from tests.gateway.gateways import Client
from tests.gateway.launching import LAUNCHING, launches, launching
from tests.waiting import deadline

DYING = """
import os, signal

from sessions.store.log_writer import LogWriter

WHEN, _, WHAT = os.environ.get("KILL_AT", "").partition(":")
WHAT, _, NTH = WHAT.partition("@")
writers = []
KIND = f'"kind":"{WHAT}"'.encode()
append, advance = LogWriter.append, LogWriter._advance


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def is_it(self, event):
    if event.__struct_config__.tag != WHAT:
        return False
    writers.append(self)
    return len(writers) == int(NTH or 1)


def dying_append(self, event, **options):
    here = is_it(self, event)
    if WHEN == "before" and here:
        die()
    seq = append(self, event, **options)
    if WHEN == "appended" and here:
        die()
    return seq


def dying_advance(self, durable):
    its = len(writers) >= int(NTH or 1) and writers[int(NTH or 1) - 1] is self
    if WHEN == "durable" and its and any(KIND in line for position, line, _ in self._pending if position.offset <= durable):
        die()
    advance(self, durable)


LogWriter.append, LogWriter._advance = dying_append, dying_advance
"""

RUN = """    async def run(self, arguments, call):
"""

DYING_RUN = """    async def run(self, arguments, call):
        if WHEN == "run":
            die()
"""

WROTE = "        log = OutputFile("

DYING_WROTE = """        if WHEN == "ran":
            die()
        log = OutputFile("""

ASKING = ("before:approval_asked", "appended:approval_asked", "durable:approval_asked", "before:turn_parked")
PARKED = ("appended:turn_parked", "durable:turn_parked", "parked")
ANSWERING = ("before:approval_given", "appended:approval_given")
ANSWERED = (
    "durable:approval_given",
    "before:approval_rule_set",
    "appended:approval_rule_set",
    "durable:approval_rule_set",
    "before:tool_called",
    "appended:tool_called",
)
RUNNING = ("durable:tool_called", "run")
RAN = ("ran", "before:tool_returned", "appended:tool_returned", "durable:tool_returned")


def install(shelf: Path, home: Path) -> dict[str, str]:
    """Lay the plugin where an import finds it; returns the environment of the gateway."""
    info = shelf / "launching-1.0.dist-info"
    info.mkdir(parents=True)
    source = LAUNCHING.replace(RUN, DYING_RUN).replace(WROTE, DYING_WROTE)
    (shelf / "launching.py").write_text(DYING + source)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: launching\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[exuvia]\nlaunching = launching\n")
    home.mkdir()
    return {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(shelf)]),
        "EXUVIA__PLUGINS__ALLOW": '["launching"]',
        "EXUVIA__APPROVALS__DEFAULT": '"ask"',
    }


def events(home: Path, kind: str) -> list[dict[str, Any]]:
    return [event for lines in journals(home) for event in lines if event["kind"] == kind]


def rules(home: Path) -> list[str]:
    """The kinds of the lines of the log of rules."""
    path = home / "approvals.jsonl"
    whole = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
    return [json.loads(line)["kind"] for line in whole]


async def until_dead(gateway: GatewayProcess) -> None:
    async with deadline():
        assert await gateway.process.wait() == -signal.SIGKILL, gateway.log.read_text()


async def until_asked(client: Client) -> str:
    """Return the id of the question, also of one that was asked before."""
    while True:
        await client.say("history", id="h", session="main", limit=500)
        frame = await client.until_type("history")
        kinds = {event["kind"]: event for event in frame["events"]}
        if "approval_asked" in kinds:
            return str(kinds["approval_asked"]["approval"])
        await client.say("subscribe", session="main", after=frame["events"][-1]["seq"])
        await client.until_type("event")


async def die_at(home: Path, environment: dict[str, str], point: str) -> str:
    """Let a gateway die at this point; returns the question as far as the person saw it."""
    killed = {} if point == "parked" else {"KILL_AT": point}
    async with (
        gateway_process(home, script=launching("moon"), settings=environment | killed) as gateway,
        aiohttp.ClientSession() as http,
    ):
        client = await gateway.connect(http)
        await client.send("Launch it.", id_="the-message")
        if point == "parked":
            await client.until_event("turn_parked")
            await gateway.kill()
        if point in (*ASKING, *PARKED):
            await until_dead(gateway)
            return ""
        asked = await client.until_event("approval_asked")
        await client.until_event("turn_parked")
        await client.say("approve", id="a", session="main", approval=asked["approval"], decision="approve", scope="always")
        await until_dead(gateway)
        return str(asked["approval"])


@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.parametrize("point", [*ASKING, *PARKED, *ANSWERING, *ANSWERED, *RUNNING, *RAN])
async def test_after_a_kill_at_any_step_the_call_runs_as_it_was_answered(tmp_path: Path, point: str, decision: str) -> None:
    home = tmp_path / "home"
    environment = install(tmp_path / "shelf", home)
    seen = await die_at(home, environment, point)
    was_given = bool(events(home, "approval_given"))
    ran_before = launches(home)
    assert ran_before == (["moon"] if point in RAN else [])
    assert not was_given or point in ("appended:approval_given", *ANSWERED, *RUNNING, *RAN)

    async with gateway_process(home, script=launching("moon"), settings=environment) as gateway:
        async with aiohttp.ClientSession() as http:
            client = await gateway.connect(http)
            await client.send("Launch it.", id_="the-message")  # it may not have been accepted before
            approval = await until_asked(client)
            assert seen in ("", approval), "the button from before is that of the same question"
            # The button from before the crash, pressed after it.
            await client.say("approve", id="b", session="main", approval=approval, decision=decision, scope="once")
            answered = await client.until_answered("b")
            async with deadline():
                while not events(home, "turn_ended"):
                    await client.round_trips()
            await client.round_trips()
        assert await gateway.stop() == 0

    (given,) = events(home, "approval_given")
    asked, called = events(home, "approval_asked"), events(home, "tool_called")
    assert len(asked) == 1
    assert answered["type"] == ("error" if was_given else "accepted"), answered
    assert not was_given or answered["code"] == "conflict"
    approved = given["decision"] == "approve"
    assert approved == (was_given or decision == "approve")
    assert launches(home) == ([] if not approved or point in RUNNING else ["moon"])
    assert len(called) == approved
    assert all(given["seq"] < call["seq"] for call in called)
    (returned,) = events(home, "tool_returned")
    unknown = point in (*RUNNING, *RAN) and point not in ("appended:tool_returned", "durable:tool_returned")
    if unknown:
        assert returned["outcome"] == "unknown"
    elif point != "appended:tool_returned":
        assert returned["outcome"] == ("returned" if approved else "refused")
    # A rule is in force exactly if "always" was the answer that counts.
    in_force = rules(home).count("approval_rule_set") - rules(home).count("approval_rule_revoked")
    assert in_force == (given["scope"] == "always")
    assert await verify(home) == 0


@pytest.mark.parametrize("point", ["durable:approval_given", "before:tool_called"])
async def test_what_changed_between_the_approval_and_the_run_after_a_crash_is_refused(tmp_path: Path, point: str) -> None:
    home = tmp_path / "home"
    environment = install(tmp_path / "shelf", home)
    await die_at(home, environment, point)
    (home / "workspace" / "plan").write_text("mars")
    async with gateway_process(home, script=launching("moon"), settings=environment) as gateway:
        async with deadline():
            while not events(home, "turn_ended"):
                await asyncio.sleep(0.02)
        assert await gateway.stop() == 0
    (returned,) = events(home, "tool_returned")
    assert (returned["outcome"], launches(home)) == ("refused", [])
    assert "has changed since it was approved" in returned["output"]
