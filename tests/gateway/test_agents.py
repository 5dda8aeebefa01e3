"""Agents: which one answers, what a session keeps of it, and what a changed configuration does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import cli
from gateway.config.agents import own_workspace
from gateway.config.keys import Config, check_workspaces, load_config
from gateway.config.routes import RouteAddress, explain_route
from gateway.support.errors import ConfigRefused
from gateway.support.home import Home
from tests.gateway.gateways import Gateway, gateway

WORK = "[agents.work]\n"


def configured(path: Path, text: str) -> Config:
    (path / "config.toml").write_text(text)
    return load_config(path / "config.toml", environment={}, overrides={})


def opened(g: Gateway) -> list[tuple[str, str]]:
    """The key and the agent of each session."""
    return [(events[0]["key"], events[0].get("agent", "main")) for events in g.journals().values()]


async def rewrite(g: Gateway, text: str) -> None:
    (g.home / "config.toml").write_text(text)
    await g.daemon.context.settings.until_handled(text)


# --- the configuration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[agents.main]", "agents.main"),
        ("[agents.Work]", "agents.Work"),
        ("[agents.work]\nmodell = 'x'", "agents.work.modell"),
        ("[agents.work]\ntemperature = 'hot'", "agents.work.temperature"),
        ("[agent]\ntemperature = 'hot'\n[agents.work]", "agent.temperature"),
        ("[agents.work.tools]\nallow = 'read'", "agents.work.tools.allow"),
        ("[[routes]]\nchannel = 'telegram'\nagent = 'nobody'", "routes[0].agent"),
        ("[[routes]]\nchannel = '*'\nagent = 'main'\n[[routes]]\nchannel = '*'\nagent = 'main'", "routes[1]"),
        ("[channels.home]\nkind = 'irc'\nagent = 'nobody'", "channels.home.agent"),
    ],
)
def test_a_fault_names_its_key(text: str, key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigRefused) as refused:
        configured(tmp_path, text)
    assert refused.value.key == key
    assert key in str(refused.value)


@pytest.mark.parametrize(
    "workspace", ["workspace", "workspace/inner", "~", "agents/other/workspace", "agents", "agents/work", "."]
)
def test_workspaces_that_overlap_are_refused(workspace: str, tmp_path: Path) -> None:
    place = "{home}" if workspace == "~" else workspace
    text = f"[agents.other]\n[agents.work]\nworkspace = '{place.format(home=tmp_path)}'"
    with pytest.raises(ConfigRefused, match=r"agents\.work\.workspace"):
        check_workspaces(configured(tmp_path, text), tmp_path)


def test_an_agent_inherits_what_it_leaves_out_except_its_workspace(tmp_path: Path) -> None:
    config = configured(
        tmp_path,
        "[agent]\nmodel = 'scripted:echo'\nlanguage = 'zh'\n[skills]\nbudget_tokens = 7\n"
        "[agents.work]\nlanguage = 'en'\n[agents.work.skills]\npinned = ['a']\n",
    )
    work = config.agents["work"]
    assert (work.model, work.language, work.workspace) == ("scripted:echo", "en", "agents/work/workspace")
    assert (work.skills.budget_tokens, work.skills.pinned) == (7, ("a",))


# --- routes -----------------------------------------------------------------------------------------------------------

ROUTES = """
[agents.a]
[agents.b]
[agents.c]
[agents.d]
[agents.e]
[[routes]]
channel = "*"
agent = "a"
[[routes]]
channel = "telegram"
agent = "b"
[[routes]]
channel = "*"
person = "ana"
agent = "c"
[[routes]]
channel = "telegram"
sender = "7"
agent = "d"
[[routes]]
channel = "telegram"
chat = "-100:1"
agent = "e"
"""


@pytest.mark.parametrize(
    ("address", "agent"),
    [
        (RouteAddress(channel="irc", person="owner"), "a"),
        (RouteAddress(channel="telegram", person="owner"), "b"),
        (RouteAddress(channel="telegram", person="ana"), "c"),
        (RouteAddress(channel="telegram", person="ana", sender="7"), "d"),
        (RouteAddress(channel="telegram", person="ana", sender="7", chat="-100:1"), "e"),
        (RouteAddress(channel="irc", person="owner", sender="7", chat="-100:1"), "a"),
    ],
)
def test_the_most_specific_route_wins(address: RouteAddress, agent: str, tmp_path: Path) -> None:
    assert explain_route(configured(tmp_path, ROUTES), address).agent == agent


def test_a_route_is_explained_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text(ROUTES)
    with pytest.raises(SystemExit, match="0"):
        cli(["route", "explain", "telegram:-100:1", "--sender", "7", "--home", str(tmp_path)])
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "e: routes[4] (channel telegram, chat -100:1) is the most specific that matches."
    assert others == [
        "- routes[3] (channel telegram, sender 7) is less specific; it names d.",
        "- routes[1] (channel telegram) is less specific; it names b.",
        "- routes[0] (channel *) is less specific; it names a.",
    ]
    with pytest.raises(SystemExit, match="0"):
        cli(["agents", "list", "--json", "--home", str(tmp_path)])
    listed: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == ["main", "a", "b", "c", "d", "e"]
    assert listed[1]["workspace"] == str(tmp_path / "agents" / "a" / "workspace")


def test_the_command_line_shows_the_memory_and_the_skills_of_an_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text('[memory.embedding]\nprovider = "none"\n[agents.work]\n')
    for agent, note in (("main", "kettle"), ("work", "ledger")):
        place = Home(tmp_path).workspace(own_workspace(agent))
        (place / "skills" / f"{agent}-skill").mkdir(parents=True)
        (place / "MEMORY.md").write_text(f"# Notes\n\nThe {note} is blue.\n")
        (place / "skills" / f"{agent}-skill" / "SKILL.md").write_text(f"---\nname: {agent}-skill\ndescription: x\n---\nx\n")

    def told(*line: str) -> str:
        with pytest.raises(SystemExit):
            cli([*line, "--home", str(tmp_path)])
        return "".join(capsys.readouterr())

    for agent, theirs, others in (("main", "kettle", "ledger"), ("work", "ledger", "kettle")):
        told("memory", "index", "--agent", agent)
        assert theirs in told("memory", "search", theirs, "--agent", agent)
        assert others not in told("memory", "search", others, "--agent", agent)
        assert "(1 of notes)" in told("memory", "status", "--agent", agent)
        assert theirs in told("memory", "show", "MEMORY.md#L3-L3", "--agent", agent)
        listed = told("skills", "list", "--agent", agent)
        assert f"{agent}-skill" in listed
        assert listed.count("-skill") == 1
        told("skills", "add", str(Home(tmp_path).workspace(own_workspace(agent)) / "skills"), "--yes", "--agent", agent)
        assert "admitted" in told("skills", "list", "--agent", agent)
        assert told("memory", "facts", "list", "--agent", agent) == "No facts.\n"
        assert told("memory", "audit", "--agent", agent) == "0 problems in 1 note.\n"
        fact, question = tmp_path / "fact.json", tmp_path / "questions.jsonl"
        fact.write_text(json.dumps([{"id": f"{agent}-1", "content": f"The {theirs} is old."}]))
        assert told("memory", "facts", "import", str(fact), "--agent", agent).startswith("1 fact imported")
        assert "is very old" in told("memory", "facts", "edit", agent, "--text", f"{theirs} is very old", "--agent", agent)
        assert told("memory", "facts", "dedupe", "--agent", agent) == "0 facts removed.\n"
        exported = json.loads(told("memory", "facts", "export", "--agent", agent))["entries"]
        assert [each["content"] for each in exported] == [f"{theirs} is very old"]
        question.write_text(json.dumps({"question": f"the {theirs}", "answers": ["MEMORY.md#L3-L3"]}))
        measured = json.loads(told("memory", "eval", str(question), "--json", "--agent", agent))["ways"][0]
        assert measured["recall@5"] == 1.0
    assert "There is no agent 'nobody'; the agents are main, work." in told("memory", "search", "x", "--agent", "nobody")
    assert not (tmp_path / "agents" / "nobody").exists()


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_main_has_the_same_events_and_files_as_without_agents(tmp_path: Path) -> None:
    requests = []
    for name, text in (("without", ""), ("with", WORK)):
        async with gateway(tmp_path / name, file=text, settings={"agent.model": "scripted:echo"}) as g:
            client = await g.connect()
            await client.chat("hello")
            (events,) = g.journals().values()
            assert "agent" not in events[0]
            requests.append([event["sha256"] for event in events if event["kind"] == "request_sent"])
            assert not (g.home / "agents").exists()
            assert "Agent:" not in await client.command("/status")
    assert requests[0] == requests[1]


async def test_a_changed_route_counts_for_new_sessions_only(tmp_path: Path) -> None:
    routed = f'{WORK}[[routes]]\nchannel = "websocket"\nagent = "work"\n'
    async with gateway(tmp_path, file=WORK, settings={"agent.model": "scripted:echo"}) as g:
        client = await g.connect()
        await client.chat("one")
        await rewrite(g, routed)
        await client.chat("two")
        await client.chat("three", session="other")
        assert sorted(opened(g)) == [("main", "main"), ("other", "work")]
        assert "Started a new session" in await client.command("/new")
        assert sorted(opened(g)) == [("main", "main"), ("main", "work"), ("other", "work")]


async def test_a_chosen_agent_stays_over_new_and_a_restart(tmp_path: Path) -> None:
    settings = {"agent.model": "scripted:echo"}
    async with gateway(tmp_path, file=WORK, settings=settings) as g:
        client = await g.connect()
        assert "with the agent `work`" in await client.command("/agent work")
        await client.command("/new")
        assert await client.chat("who") == "who"
        assert [agent for _, agent in opened(g)] == ["main", "work", "work"]
        assert "- Agent: work" in await client.command("/status")
    async with gateway(tmp_path, file=WORK, settings=settings) as g:
        client = await g.connect()
        assert await client.chat("still") == "still"
        assert "The agent `work` answers here." in await client.command("/agent")


@pytest.mark.parametrize("name", ["nobody", "x" * 20_000, "../work", "work extra", "\u202e", "work"])
async def test_an_agent_that_cannot_be_chosen_changes_nothing(name: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, file="", settings={"agent.model": "scripted:echo"}) as g:
        client = await g.connect()
        answer = await client.command(f"/agent {name}")
        assert answer.startswith("There is no agent")
        assert len(answer) < 500
        assert await client.chat("goes on") == "goes on"
        assert opened(g) == [("main", "main")]


async def test_a_session_whose_agent_was_removed_says_so_and_goes_on_once_it_is_back(tmp_path: Path) -> None:
    settings = {"agent.model": "scripted:echo"}
    async with gateway(tmp_path, file=WORK, settings=settings) as g:
        client = await g.connect()
        await client.command("/agent work")
        await client.chat("before")
        await rewrite(g, "# no agents\n")
        await client.send("lost?")
        ended = await client.until_event("turn_ended")
        assert ended["outcome"] == "failed"
        assert "The agent work of this conversation is not configured any more." in ended["error"]["sentence"]
        await rewrite(g, WORK)
        assert await client.chat("again") == "again"
    async with gateway(tmp_path, file="", settings=settings) as g:  # it is removed while the gateway does not run
        client = await g.connect()
        await client.send("and now?")
        assert "is not configured any more" in (await client.until_event("turn_ended"))["error"]["sentence"]
        await client.command("/new")
        assert await client.chat("with main") == "with main"
        assert [agent for _, agent in opened(g)][-1] == "main"


async def test_tools_of_an_agent_are_those_that_it_may_have(tmp_path: Path) -> None:
    text = '[agents.work.tools]\nallow = ["read", "memory_*"]\ndeny = ["memory_get"]\n'
    async with gateway(tmp_path, file=text, settings={"agent.model": "scripted:echo"}) as g:
        client = await g.connect()
        await client.command("/agent work")
        await client.chat("hello")
        (instructions,) = [event for _, event in client.events() if event["kind"] == "instructions_set"]
        assert sorted(tool["name"] for tool in instructions["tools"]) == ["memory_search", "read"]


async def test_a_deleted_conversation_leaves_the_memory_of_its_agent(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=WORK, settings={"agent.model": "scripted:echo"}) as g:
        client = await g.connect()
        await client.command("/agent work", session="theirs")
        await client.chat("pomegranate", session="theirs")
        await client.say("delete", id="d", session="theirs", facts=False)
        assert (await client.until_type("deleted", id="d"))["removed"]["sessions"] == 2
        assert g.journals() == {}
