"""Commands in whole conversations: a scripted model runs them through a real gateway, its gate and its sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plugins.http import public_addresses
from plugins.tools.execution import running as commands
from tests.execution.test_command_tools import running_below
from tests.execution.test_network_proxy import Origin, certificate  # noqa: F401 - a fixture
from tests.faults.gateway_process import gateway_process
from tests.gateway.gateways import Client, Frame, gateway
from tests.waiting import deadline, until

ENABLED = {"tools.shell.enabled": True, "tools.python.enabled": True}


def asks(tool: str, **arguments: object) -> dict[str, Any]:
    return {"text": "", "calls": [{"tool": tool, "arguments": arguments}]}


def returned(client: Client) -> list[Frame]:
    return [event for _, event in client.events() if event["kind"] == "tool_returned"]


def run(command: str, folder: Path) -> str:
    """Run a command without a sandbox, and return its output."""
    return subprocess.run(command.split(), cwd=folder, capture_output=True, text=True, check=True).stdout


async def turn(client: Client, text: str = "go on") -> str:
    """Send a message, wait for the end of its turn, and return the last result of a tool."""
    await client.send(text)
    await client.until_event("turn_ended")
    return str(returned(client)[-1]["output"])


def offered(client: Client) -> list[str]:
    last = [event for _, event in client.events() if event["kind"] == "instructions_set"][-1]
    return [tool["name"] for tool in last["tools"]]


def configured(folder: Path, *script: dict[str, Any], more: str = "") -> str:
    story = folder / "story.jsonl"
    story.write_text("".join(json.dumps(line) + "\n" for line in script))
    return f'{more}\n[agent]\nmodel = "scripted:script"\n[providers.scripted]\nscript = "{story}"\n'


async def test_a_model_works_with_files_by_commands(tmp_path: Path) -> None:
    script = [
        asks("shell", command="git init -q . && echo 'print(6 * 8)' > sum.py && ls *.py"),
        asks("python", code="import runpy; runpy.run_path('sum.py')"),
        asks("edit", path="sum.py", old="8", new="7"),
        asks("shell", command="python3 sum.py; false"),
        {"text": "It is 42."},
    ]
    async with gateway(tmp_path, script=script, settings=ENABLED) as running:
        client = await running.connect()
        assert await turn(client) == "42\n[exit code 1]"
        assert [(event["outcome"], event.get("exit_code")) for event in returned(client)] == [
            ("returned", 0),
            ("returned", 0),
            ("returned", None),
            ("returned", 1),
        ]
        assert returned(client)[0]["output"] == "sum.py\n"
        assert offered(client)[-3:] == ["shell", "python", "jobs"]


async def test_a_model_mends_a_fault_in_a_repository(tmp_path: Path) -> None:
    identity = "git -c user.name=Exuvia -c user.email=exuvia@example.org"
    script = [
        asks("shell", command="python3 -B -m unittest -v", folder="project"),
        asks("shell", command="grep -n return sums.py && git status --short", folder="project"),
        asks("edit", path="project/sums.py", old="a - b", new="a + b"),
        asks("shell", command="python3 -B -m unittest", folder="project"),
        asks(
            "shell",
            command=f"git diff --stat && {identity} commit -qam 'Sums are added' && git log --oneline",
            folder="project",
        ),
        asks("shell", command="echo 'touch owned' > .git/hooks/post-commit; git config core.pager x", folder="project"),
        {"text": "It is mended."},
    ]
    project = tmp_path / "workspace" / "project"
    async with gateway(tmp_path, script=script, settings=ENABLED) as running:
        project.mkdir()
        (project / "sums.py").write_text("def add(a, b):\n    return a - b\n")
        (project / "test_sums.py").write_text(
            "import unittest\nfrom sums import add\n\n\nclass Sums(unittest.TestCase):\n"
            "    def test_add(self):\n        self.assertEqual(add(40, 2), 42)\n"
        )
        for command in ("git init -q", "git add .", f"{identity} commit -qm First"):
            run(command, project)
        client = await running.connect()
        await turn(client)
        tested, looked, _, tested_again, committed, attacked = returned(client)
        assert (tested["exit_code"], "38 != 42" in tested["output"]) == (1, True)
        assert (looked["exit_code"], looked["output"]) == (0, "2:    return a - b\n")
        assert (tested_again["exit_code"], tested_again["output"].endswith("OK\n")) == (0, True)
        assert (committed["exit_code"], "Sums are added" in committed["output"]) == (0, True)
        assert attacked["exit_code"] != 0
        assert not (project / ".git" / "hooks" / "post-commit").exists()
    assert run("git log --format=%s", project) == "Sums are added\nFirst\n"


async def test_commands_are_offered_only_when_enabled_from_the_next_turn_on(tmp_path: Path) -> None:
    script = [asks("shell", command="echo ran"), {"text": "So."}] * 3
    async with gateway(tmp_path, file=configured(tmp_path, *script)) as running:
        client = await running.connect()
        assert (await turn(client)).startswith("There is no tool 'shell'; available: read,")
        assert "jobs" not in offered(client)
        (tmp_path / "config.toml").write_text(configured(tmp_path, *script, more="[tools.shell]\nenabled = true"))
        await until(lambda: running.daemon.config.tools.shell.enabled)
        assert await turn(client) == "ran\n"
        assert offered(client)[-2:] == ["shell", "jobs"]
        more = '[tools.shell]\nenabled = true\n[agent]\nworkspace_access = "none"'
        (tmp_path / "config.toml").write_text(configured(tmp_path, *script).replace("[agent]", more))
        await until(lambda: running.daemon.config.agent.workspace_access == "none")
        assert (await turn(client)).startswith("There is no tool 'shell';")


async def test_a_person_is_asked_first_in_the_background_too(tmp_path: Path) -> None:
    script = [asks("shell", command="touch ran", background=True), {"text": "Done."}]
    async with gateway(tmp_path, script=script, settings=ENABLED | {"approvals.default": "ask"}) as running:
        client = await running.connect()
        await client.send("go on")
        asked = await client.until_event("approval_asked")
        await client.until_event("turn_parked")
        assert (asked["what"], asked["detail"]) == ("touch ran", "In the background, for at most 3,600 seconds.")
        assert asked["pattern"] == {"argv": ["touch", "ran"]}
        assert asked["choices"] == ["once", "session", "always"]
        assert await client.command("/stop") == "Stopped."
        assert await client.command("/jobs") == "Nothing runs in the background."
        assert not (tmp_path / "workspace" / "ran").exists()


async def test_an_approved_command_runs_once_and_a_remembered_one_without_a_question(tmp_path: Path) -> None:
    plain, script_text = "tee -a log", "echo x >> log; wc -l < log"
    script = [asks("shell", command=plain), {"text": "So."}] * 2
    script += [asks("shell", command=script_text), {"text": "So."}, asks("shell", command=f"{plain} other"), {"text": "So."}]
    async with gateway(tmp_path, script=script, settings=ENABLED | {"approvals.default": "ask"}) as running:
        client = await running.connect()
        await client.send("go on")
        asked = await client.until_event("approval_asked")
        await client.command(f"/approve {asked['approval']} always")
        await client.until_event("turn_ended")
        assert (await turn(client)) == "(no output)"
        await client.send("go on")
        asked = await client.until_event("approval_asked")
        assert (asked["what"], asked["choices"]) == (script_text, ["once"])
        await client.command(f"/approve {asked['approval']} once")
        await client.until_event("turn_ended")
        assert returned(client)[-1]["output"] == "1\n"
        await client.send("go on")
        asked = await client.until_event("approval_asked")
        assert asked["pattern"] == {"argv": ["tee", "-a", "log", "other"]}
        await client.command(f"/deny {asked['approval']}")
        await client.until_event("turn_ended")
        assert returned(client)[-1]["outcome"] == "refused"
        assert not (tmp_path / "workspace" / "other").exists()


async def test_a_command_whose_script_changes_after_the_approval_is_refused(tmp_path: Path) -> None:
    script = [asks("shell", command="sh run.sh"), {"text": "So."}]
    async with gateway(tmp_path, script=script, settings=ENABLED | {"approvals.default": "ask"}) as running:
        file = tmp_path / "workspace" / "run.sh"
        file.write_text("touch shown\n")
        client = await running.connect()
        await client.send("go on")
        asked = await client.until_event("approval_asked")
        await client.until_event("turn_parked")
        file.write_text("touch replaced\n")
        await client.command(f"/approve {asked['approval']} once")
        await client.until_event("turn_ended")
        assert returned(client)[-1]["outcome"] == "refused"
        assert "has changed since it was approved" in returned(client)[-1]["output"]
        assert not (tmp_path / "workspace" / "replaced").exists()


async def test_a_rule_allows_the_beginning_of_a_command_and_no_script(tmp_path: Path) -> None:
    script = [asks("shell", command="echo one two"), asks("shell", command="echo one; echo two"), {"text": "So."}]
    rule = '[tools.shell]\nenabled = true\n[approvals]\ndefault = "deny"\n[[approvals.rules]]\ntool = "shell"\n'
    file = configured(tmp_path, *script, more=f'{rule}argv = ["echo", "one"]\ndecision = "allow"')
    async with gateway(tmp_path, file=file) as running:
        client = await running.connect()
        await turn(client)
        first, second = returned(client)
        assert (first["outcome"], first["output"], second["outcome"]) == ("returned", "one two\n", "refused")


async def test_stop_ends_a_command_with_all_its_processes(tmp_path: Path) -> None:
    script = [asks("shell", command="(setsid sleep 1000) & echo > begun; sleep 1000"), {"text": "So."}]
    async with gateway(tmp_path, script=script, settings=ENABLED) as running:
        client = await running.connect()
        await client.send("go on")
        await until((tmp_path / "workspace" / "begun").exists)
        assert await client.command("/stop") == "Stopped."
        ended = await client.until_event("turn_ended")
        assert ended["outcome"] == "cancelled"
        assert running_below(tmp_path / "workspace") == []


async def test_jobs_are_listed_and_stopped_by_a_person(tmp_path: Path) -> None:
    script = [
        asks("shell", command="echo one > one; sleep 1000", background=True),
        asks("python", code="import time\ntime.sleep(1000)", background=True),
        {"text": "Started."},
    ]
    async with gateway(tmp_path, script=script, settings=ENABLED) as running:
        client = await running.connect()
        assert await client.command("/jobs") == "Nothing runs in the background."
        await turn(client)
        first, second = (await client.command("/jobs")).splitlines()
        assert first.startswith("1. running: `echo one > one; sleep 1000` (output: `outputs/")
        assert second.startswith("2. running: `import time (and 1 more line)` (output: `outputs/")
        assert (await client.command("/jobs stop 2")).splitlines() == [first, second.replace("running", "stopped")]
        assert await client.command("/jobs stop 7") == "There is no job 7; jobs: 1, 2."
        assert await client.command("/jobs stop all") == "\n".join((first, second)).replace("running", "stopped")
        assert running_below(tmp_path / "workspace") == []


async def test_a_job_ends_with_its_session_although_that_still_answers(tmp_path: Path) -> None:
    script = [
        asks("shell", command="sleep 1000", background=True),
        asks("shell", command="echo > begun; while ! [ -e go ]; do sleep 0.02; done"),
        {"text": "Done."},
    ]
    workspace = tmp_path / "workspace"
    async with gateway(tmp_path, script=script, settings=ENABLED) as running:
        client = await running.connect()
        await client.send("go on")
        await until((workspace / "begun").exists)
        assert "sleep 1000" in str(running_below(workspace))
        assert (await client.command("/new")).startswith("Started a new session")
        await until(lambda: "sleep 1000" not in str(running_below(workspace)))
        assert running_below(workspace) != []
        assert await client.command("/jobs") == "Nothing runs in the background."
        (workspace / "go").touch()
        await client.until_event("turn_ended")


async def test_a_job_that_a_closing_session_starts_ends_with_it(tmp_path: Path) -> None:
    script = [
        asks("shell", command="echo > begun; while ! [ -e go ]; do sleep 0.02; done"),
        asks("shell", command="sleep 1000", background=True),
        {"text": "Done."},
    ]
    workspace = tmp_path / "workspace"
    async with gateway(tmp_path, script=script, settings=ENABLED) as running:
        client = await running.connect()
        await client.send("go on")
        await until((workspace / "begun").exists)
        await client.command("/new")
        (workspace / "go").touch()
        await client.until_event("session_closed")
        assert "Started job 1." in returned(client)[-1]["output"]
        await until(lambda: running_below(workspace) == [])


async def test_a_job_ends_with_the_gateway(tmp_path: Path) -> None:
    script = [asks("shell", command="sleep 1000", background=True), {"text": "Started."}]
    async with gateway(tmp_path, script=script, settings=ENABLED) as running:
        client = await running.connect()
        await turn(client)
        assert running_below(tmp_path / "workspace") != []
    assert running_below(tmp_path / "workspace") == []
    assert list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.parametrize("level", ["auto", "none"])
async def test_a_killed_gateway_leaves_no_process_and_its_jobs_are_said_to_be_gone(level: str, tmp_path: Path) -> None:
    script = [asks("shell", command="(setsid sleep 1000) & sleep 1000", background=True), {"text": "Started."}]
    settings = {
        "EXUVIA__TOOLS__SHELL__ENABLED": "true",
        "EXUVIA__SANDBOX__LEVEL": json.dumps(level),
    }
    async with aiohttp.ClientSession() as http:
        async with gateway_process(tmp_path, script=script, settings=settings) as killed:
            client = await killed.connect(http)
            await turn(client)
            await until(lambda: len(running_below(tmp_path / "workspace")) >= 2)
            os.kill(killed.process.pid, signal.SIGKILL)
            await killed.process.wait()
            await until(lambda: running_below(tmp_path / "workspace") == [])
        async with gateway_process(tmp_path, script=script, settings=settings) as again:
            client = await again.connect(http)
            gone = "1. gone, because the gateway stopped while it ran: `(setsid sleep 1000) & sleep 1000`"
            assert (await client.command("/jobs")).startswith(gone)


async def test_a_command_that_a_crash_interrupts_ends_and_does_not_run_again(tmp_path: Path) -> None:
    script = [asks("shell", command="echo x >> runs; (setsid sleep 1000) & sleep 1000"), {"text": "So."}]
    workspace, settings = tmp_path / "workspace", {"EXUVIA__TOOLS__SHELL__ENABLED": "true"}
    async with aiohttp.ClientSession() as http:
        async with gateway_process(tmp_path, script=script, settings=settings) as killed:
            client = await killed.connect(http)
            await client.send("go on")
            await until(lambda: (workspace / "runs").exists() and (workspace / "runs").read_text() == "x\n")
            os.kill(killed.process.pid, signal.SIGKILL)
            await killed.process.wait()
            await until(lambda: running_below(workspace) == [])
        async with gateway_process(tmp_path, script=script, settings=settings) as again:
            client = await again.connect(http)
            await client.say("subscribe", session="main", after=0)
            result = await client.until_event("tool_returned")
            assert result["outcome"] == "unknown"
            await client.until_event("turn_ended")
        assert (workspace / "runs").read_text() == "x\n"


async def test_a_note_that_a_command_writes_is_found_by_the_memory(tmp_path: Path) -> None:
    script = [
        asks(
            "shell", command="mkdir -p memory; echo 'The password of the lighthouse is Periwinkle.' > memory/2026-11-20.md"
        ),
        {"text": "Noted."},
        asks("memory_search", query="lighthouse Periwinkle"),
        {"text": "Found."},
    ]
    async with gateway(tmp_path, script=script, settings=ENABLED) as running:
        client = await running.connect()
        await turn(client)
        async with deadline():
            while "Periwinkle" not in await client.command("/memory lighthouse"):
                await asyncio.sleep(0.05)
        assert "memory/2026-11-20.md" in await turn(client)


async def test_a_command_reaches_the_hosts_that_are_listed_and_no_other(
    tmp_path: Path,
    certificate: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        if host != "files.example.org":
            raise public_addresses.AddressRefused(f"{host!r} has the address 10.0.0.1, which is not public.")
        return ["127.0.0.1"]

    monkeypatch.setattr(commands, "resolve_public", resolve)
    async with Origin().serving(certificate) as origin:
        authority = (certificate / "ca.pem").read_text()
        listed = [f"files.example.org:{origin.https}", "inside.example.org"]
        url = f"https://files.example.org:{origin.https}/a"
        trust = "ssl.create_default_context(cafile='ca.pem')"
        fetch = f"import ssl, urllib.request as u\nprint(u.urlopen('{url}', context={trust}).read())"
        script = [
            asks("shell", command=f"curl -sS --cacert ca.pem {url}"),
            asks("python", code=fetch),
            asks("shell", command="curl -sS http://inside.example.org/; curl -sS http://other.example.org/"),
            asks(
                "shell",
                command=f"curl -sS --noproxy '*' http://127.0.0.1:{origin.http}/; curl -sS --noproxy '*' http://1.1.1.1/",
            ),
            {"text": "So."},
        ]
        async with gateway(tmp_path, script=script, settings=ENABLED | {"sandbox.network": listed}) as running:
            (tmp_path / "workspace" / "ca.pem").write_text(authority)
            client = await running.connect()
            await turn(client)
            first, second, third, fourth = (event["output"] for event in returned(client))
            assert (first, second) == ("GET /a ", "b'GET /a '\n")
            assert third == (
                "'inside.example.org' has the address 10.0.0.1, which is not public.\n"
                "other.example.org:80 is not in sandbox.network.\n"
                "[network: 'inside.example.org' has the address 10.0.0.1, which is not public.]\n"
                "[network: other.example.org:80 is not in sandbox.network.]"
            )
            assert "exit code 7" in fourth
            assert [each[1] for each in origin.requests] == [url, url]


async def test_an_unconfined_shell_is_said_at_the_start_and_in_the_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with gateway(tmp_path, settings=ENABLED | {"sandbox.level": "none"}) as running:
        sentence = (
            "Commands (shell and python) run unconfined, with all rights of the gateway's user: sandbox.level is none."
        )
        assert sentence in capsys.readouterr().out
        client = await running.connect()
        assert sentence in await client.command("/status")


async def test_output_is_shown_while_a_command_runs(tmp_path: Path) -> None:
    script = [asks("shell", command="echo one; while ! [ -e go ]; do sleep 0.02; done; echo two"), {"text": "So."}]
    async with gateway(tmp_path, script=script, settings=ENABLED) as running:
        client = await running.connect()
        await client.send("go on")
        shown = await client.until_type("output")
        assert (shown["offset"], shown["text"]) == (0, "one\n")
        (tmp_path / "workspace" / "go").touch()
        await client.until_event("turn_ended")
        assert returned(client)[-1]["output"] == "one\ntwo\n"


def test_nothing_is_imported_where_no_command_is_enabled() -> None:
    late = ["plugins.sandbox.process", "plugins.sandbox.detection", "plugins.tools.execution.running"]
    code = f"import gateway.wiring.daemon, sys; print([name for name in {late} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
