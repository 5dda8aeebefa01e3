"""Who may answer a question about a tool call, what they are told, and what is shown where nobody can answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.conversations.channels import channel_runner, reply_delivery
from tests.gateway.elsewhere import LINES, Elsewhere
from tests.gateway.gateways import Client, Frame, Gateway, gateway
from tests.gateway.launching import LAUNCHING, launches, launching
from tests.gateway.test_chat_terminal import chat
from tests.openai_api.asking import client_of
from tests.shelf import Shelf
from tests.waiting import until

BEN = "the-token-of-ben-is-long-enough"


@pytest.fixture
async def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Elsewhere]:
    shelf = Shelf(tmp_path / "shelf", monkeypatch)
    shelf.install("exuvia_lines", "lines", LINES)
    shelf.install("exuvia_launching", "launching", LAUNCHING)
    monkeypatch.setattr(channel_runner, "PAUSES", (0.05,))
    monkeypatch.setattr(reply_delivery, "CLOSED_SECONDS", 0.05)
    service = Elsewhere()
    await service.open()
    yield service
    service.close()


@asynccontextmanager
async def asking(
    home: Path, elsewhere: Elsewhere, *script: Mapping[str, Any], senders: str = "", **settings: Any
) -> AsyncIterator[Gateway]:
    file = (
        f'[plugins]\nallow = ["lines", "launching"]\nsenders = {{ {senders} }}\n[plugins.lines]\nport = {elsewhere.port}\n'
        f'[approvals]\n[people.ben]\ntoken = "{BEN}"\n'
    )
    async with gateway(home, file=file, script=script or launching("moon"), settings=settings) as g:
        yield g


async def question(client: Client, *, session: str = "main") -> Frame:
    """Say something, and return the question about the call."""
    await client.send("Launch it.", session=session)
    asked = await client.until_event("approval_asked")
    await client.until_event("turn_parked")
    return asked


async def approve(client: Client, question: str, **fields: Any) -> Frame:
    """Answer a question by a frame, and return the answer to that."""
    id_ = f"{question}-{len(client.frames)}"
    await client.say("approve", id=id_, **{"session": "main", "approval": question, "decision": "approve", **fields})
    return await client.until_answered(id_)


def events(home: Path, kind: str) -> list[dict[str, Any]]:
    paths = sorted((home / "sessions").glob("*.jsonl"))
    found = [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]
    return [event for event in found if event["kind"] == kind]


# --- the websocket ----------------------------------------------------------------------------------------------------


async def test_the_first_answer_counts_and_a_later_one_is_told_who_was_first(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with asking(tmp_path / "home", elsewhere) as g:
        client, other = await g.connect(), await g.connect()
        approval = (await question(client))["approval"]
        answers = await asyncio.gather(approve(client, approval), approve(other, approval, decision="deny"))
        assert sorted(answer["type"] for answer in answers) == ["accepted", "error"]
        (given,) = events(g.home, "approval_given")
        (accepted,) = (answer for answer in answers if answer["type"] == "accepted")
        (refused,) = (answer for answer in answers if answer["type"] == "error")
        assert (accepted["seq"], refused["code"]) == (given["seq"], "conflict")
        await client.until_event("turn_ended")
        # Also when the call has long returned, and after a restart.
        late = await approve(other, approval)
        assert late["code"] == "conflict"
        assert "by owner (websocket)." in late["message"]
    async with asking(tmp_path / "home", elsewhere) as g:
        assert (await approve(await g.connect(), approval))["code"] == "conflict"
    assert len(launches(tmp_path / "home")) == (given["decision"] == "approve")


async def test_an_answer_is_accepted_once_it_is_durable(tmp_path: Path, elsewhere: Elsewhere) -> None:
    from tests.gateway.gateways import syncs_wait

    async with asking(tmp_path / "home", elsewhere) as g:
        client, other = await g.connect(), await g.connect()
        approval = (await question(client))["approval"]
        with syncs_wait() as go_on:
            await client.say("approve", id="a", session="main", approval=approval, decision="approve")
            await client.round_trips()
            assert not any(frame.get("id") == "a" for frame in client.frames)
            assert launches(g.home) == []
            await other.say("approve", id="b", session="main", approval=approval, decision="deny")
            assert (await other.until_answered("b"))["code"] == "conflict"
            go_on.set()
            assert (await client.until_answered("a"))["type"] == "accepted"
        await client.until_event("turn_ended")
        assert launches(g.home) == ["moon"]


async def test_only_the_person_and_the_owner_may_answer(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with asking(tmp_path / "home", elsewhere) as g:
        owner, ben = await g.connect(), await g.connect(BEN)
        of_owner = (await question(owner))["approval"]
        of_ben = (await question(ben))["approval"]
        assert (await approve(ben, of_owner))["code"] == "unauthorized"
        assert of_owner not in await ben.command("/approvals")
        assert "Only the person who asked" in await ben.command(f"/approve {of_owner}")
        assert of_ben not in await owner.command("/approvals")
        assert (await approve(owner, of_ben, decision="deny"))["type"] == "accepted"
        await ben.until_event("turn_ended")
    assert launches(tmp_path / "home") == []
    (given,) = events(tmp_path / "home", "approval_given")
    assert (given["by"], given["decision"]) == ("owner", "deny")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"approval": "nobody"}, "bad_request"),
        ({"scope": "session"}, "bad_request"),
        ({"scope": "for ever"}, "bad_frame"),
        ({"decision": "perhaps"}, "bad_frame"),
        ({"session": "elsewhere"}, "unknown_session"),
    ],
)
async def test_an_answer_that_fits_no_question_changes_nothing(
    tmp_path: Path, elsewhere: Elsewhere, fields: dict[str, str], code: str
) -> None:
    async with asking(tmp_path / "home", elsewhere, *launching("sun")) as g:
        client = await g.connect()
        approval = (await question(client))["approval"]
        assert (await approve(client, approval, **fields))["code"] == code
        assert (await client.command("/approvals")).count(f"/approve {approval} once") == 1
        assert await client.command("/stop") == "Stopped."
    assert events(tmp_path / "home", "approval_given") == []


async def test_a_question_that_nobody_answers_in_time_is_denied(tmp_path: Path, elsewhere: Elsewhere) -> None:
    settings = {"approvals.expire": "1s"}
    async with asking(tmp_path / "home", elsewhere, **settings) as g:
        client = await g.connect()
        approval = (await question(client))["approval"]
        await client.until_event("turn_ended")
        assert (await approve(client, approval))["code"] == "conflict"
    (given,) = events(tmp_path / "home", "approval_given")
    assert (given["decision"], given["by"], launches(tmp_path / "home")) == ("deny", "", [])


async def test_what_is_invisible_in_a_call_is_written_out_before_it_is_approved(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    hidden = "moon\u202e\U000e0072\x1b[2K\u200b"
    async with asking(tmp_path / "home", elsewhere, *launching(hidden)) as g:
        client = await g.connect()
        asked = await question(client)
        assert asked["what"] == "launch --to moon\\u{202e}\\u{e0072}\\u{1b}[2K\\u{200b}"
        shown = await client.command("/approvals")
        assert shown.count(asked["what"].partition("--to ")[2]) == 2  # the call, and what an approval for longer covers
        assert not any(character in shown for character in "\u202e\U000e0072\x1b\u200b")
        assert (await approve(client, asked["approval"]))["type"] == "accepted"
        await client.until_event("turn_ended")
    assert launches(tmp_path / "home") == [hidden]


# --- commands ---------------------------------------------------------------------------------------------------------


async def test_commands_answer_from_any_conversation_while_the_turn_waits(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with asking(tmp_path / "home", elsewhere) as g:
        client = await g.connect()
        assert await client.command("/approve") == "No question is open."
        first = (await question(client))["approval"]
        await question(client, session="other")
        both = await client.command("/approvals", session="third")
        assert "In the conversation `main`:" in both
        assert "In the conversation `other`:" in both
        assert "2 questions are open; name one" in await client.command("/approve", session="third")
        assert await client.command(f"/deny {first}", session="third") == "Denied."
        assert await client.command("/approve always", session="third") == "Approved always."
        await until(lambda: len(events(g.home, "turn_ended")) == 2)
        rules = await client.command("/approvals")
        assert "exactly the command `launch --to moon`" in rules
        rule = rules.rpartition("revoke ")[2].partition("`")[0]
        assert "you are asked about exactly the command" in await client.command(f"/approvals revoke {rule}")
        assert await client.command("/approvals") == "No question is open, and nothing was approved always."
        assert "You have no rule" in await client.command(f"/approvals revoke {rule}")
    assert launches(tmp_path / "home") == ["moon"]


# --- channels ---------------------------------------------------------------------------------------------------------


async def asked_on(elsewhere: Elsewhere, *, id_: str = "q", **fields: Any) -> dict[str, Any]:
    """Say something on the channel, and return the question that comes back."""
    await elsewhere.say("Launch it.", id_=id_, **fields)
    while "buttons" not in (heard := await elsewhere.hear()):
        pass
    return heard


async def test_a_question_comes_into_its_chat_and_a_button_is_told_what_it_did(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with asking(tmp_path / "home", elsewhere, senders='"lines:ana" = "owner"'):
        asked = await asked_on(elsewhere, room="kitchen")
        approval = asked["buttons"]["Deny"].removeprefix("/deny ")
        assert asked["buttons"] == {
            "Approve this time": f"/approve {approval} once",
            "Approve for this session": f"/approve {approval} session",
            "Approve always": f"/approve {approval} always",
            "Deny": f"/deny {approval}",
        }
        assert all(f"`{command}`" in asked["text"] for command in asked["buttons"].values())
        await elsewhere.say("", id_="one", choice=asked["buttons"]["Approve this time"])
        await elsewhere.until_heard(text="It is done.")
        await elsewhere.say("", id_="two", choice=asked["buttons"]["Deny"])
        answered = f"The question {approval} was already answered. Approved this time by owner (lines)."
        await elsewhere.until_heard(text=answered)
        heard = {line["text"]: line for line in await elsewhere.rest()}
    approved, done = heard["Approved this time."], heard["It is done."]
    assert ("files" in approved, done["files"]) == (False, {"log.txt": "moon reached"})
    assert answered in heard
    assert launches(tmp_path / "home") == ["moon"]


@pytest.mark.parametrize(("emoji", "launched"), [("👍🏽", ["moon"]), ("✅", ["moon"]), ("👎", []), ("❌\ufe0f", [])])
async def test_a_reaction_to_a_question_answers_it(
    tmp_path: Path, elsewhere: Elsewhere, emoji: str, launched: list[str]
) -> None:
    async with asking(tmp_path / "home", elsewhere, senders='"lines:ana" = "owner"') as g:
        asked = await asked_on(elsewhere, room="kitchen")
        post = f"seen {asked['id']}"
        await until(lambda: len(events(g.home, "reply_delivered")) == 1)
        for number, (reaction, to, sender) in enumerate(
            [("🎉", post, "ana"), (emoji, "seen something else", "ana"), (emoji, "", "ana")]
        ):
            await elsewhere.say("", id_=f"r{number}", sender=sender, room="kitchen", reaction=reaction, reacts_to=to)
            assert await elsewhere.until_heard(ok=f"r{number}") == {"ok": f"r{number}", "new": False}
        # Posts of another chat may have the same number, and somebody else may react to this one.
        for id_, room, sender, group in (
            ("hall", "hall", "ana", False),
            ("e1", "hall", "eve", True),
            ("e2", "kitchen", "eve", False),
        ):
            await elsewhere.say("", id_=id_, sender=sender, room=room, reaction=emoji, reacts_to=post, group=group)
            assert await elsewhere.until_heard(ok=id_) == {"ok": id_, "new": False}
        assert not events(g.home, "approval_given")
        await elsewhere.say("", id_="r", room="kitchen", reaction=emoji, reacts_to=post)
        await until(lambda: bool(events(g.home, "turn_ended")))
        await elsewhere.say("", id_="late", room="kitchen", reaction=emoji, reacts_to=post)
        assert await elsewhere.until_heard(ok="late") == {"ok": "late", "new": False}
    assert launches(tmp_path / "home") == launched


async def test_in_a_group_only_who_asked_or_somebody_named_may_answer(tmp_path: Path, elsewhere: Elsewhere) -> None:
    senders = '"lines:*" = "owner", "lines:olga" = "owner"'
    async with asking(tmp_path / "home", elsewhere, *launching("moon"), *launching("moon"), senders=senders) as g:
        kitchen: dict[str, Any] = {"room": "kitchen", "group": True}
        asked = await asked_on(elsewhere, sender="ana", **kitchen)
        button = asked["buttons"]["Approve this time"]
        for room, group in (("kitchen", True), ("bens", False)):
            await elsewhere.say("", id_=f"ben-{room}", sender="ben", choice=button, room=room, group=group)
            refused = await elsewhere.until_heard(room=room)
            assert "Only the person who asked for this, or the owner" in refused["text"]
            await elsewhere.say("/approvals", id_=f"list-{room}", sender="ben", room=room, group=group)
            assert (await elsewhere.until_heard(room=room))["text"].startswith("No question is open")
        await elsewhere.say("", id_="always", sender="ana", choice=asked["buttons"]["Approve always"], **kitchen)
        assert "Only a sender who is named or paired" in (await elsewhere.until_heard(room="kitchen"))["text"]
        assert launches(g.home) == []
        await elsewhere.say("", id_="ana", sender="ana", choice=button, **kitchen)
        await until(lambda: launches(g.home) == ["moon"])

        await until(lambda: len(events(g.home, "turn_ended")) == 1)
        asked = await asked_on(elsewhere, id_="again", sender="ben", **kitchen)
        await elsewhere.say("", id_="olga", sender="olga", choice=asked["buttons"]["Approve this time"], room="olgas")
        await until(lambda: launches(g.home) == ["moon", "moon"])

        # In a group, what waits elsewhere is not shown.
        client = await g.connect()
        await question(client)
        await elsewhere.say("/approvals", id_="olgas", sender="olga", **kitchen)
        assert (
            "No question is open"
            in (await elsewhere.until_heard(room="kitchen", text="No question is open, and nothing was approved always."))[
                "text"
            ]
        )


async def test_a_question_that_was_answered_before_it_could_be_delivered_is_not(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    async with asking(tmp_path / "home", elsewhere, senders='"lines:ana" = "owner"') as g:
        client = await g.connect()
        elsewhere.closes_after("q")
        await elsewhere.say("Launch it.", id_="q")
        await until(lambda: events(g.home, "turn_parked"))
        assert await client.command("/approve") == "Approved this time."
        await until(lambda: events(g.home, "turn_ended"))
        await elsewhere.open()
        await elsewhere.until_heard(text="It is done.")
        assert not [line for line in await elsewhere.rest() if "buttons" in line]
    (delivered,) = (event for event in events(tmp_path / "home", "reply_delivered"))
    assert delivered["of"] == events(tmp_path / "home", "model_replied")[-1]["seq"]


# --- where nobody can answer ------------------------------------------------------------------------------------------


async def test_a_pipe_shows_the_question_and_ends_with_a_code_of_its_own(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with asking(tmp_path / "home", elsewhere, *launching("moon", last="It is done.")) as g:
        code, out, complaints = await chat(g.url, "Launch it.", "--once")
        assert (code, out) == (3, "")
        assert "launch --to moon" in complaints
        assert "A tool call waits for approval" in complaints
        # A message behind the question does not wait either; a command that answers it is followed by the answer.
        assert (await chat(g.url, "Well?", "--once"))[0] == 3
        assert (await chat(g.url, "/approve\n"))[:2] == (0, "Approved this time.\nIt is done.\n")
    assert launches(tmp_path / "home") == ["moon"]


async def test_the_lines_of_a_pipe_can_answer(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with asking(tmp_path / "home", elsewhere, *launching("moon", last="It is done.")) as g:
        assert (await chat(g.url, "Launch it.\n/approve\n"))[:2] == (0, "Approved this time.\nIt is done.\n")


# --- the OpenAI endpoint ----------------------------------------------------------------------------------------------


async def test_a_stream_ends_with_the_question_and_another_message_is_not_accepted(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    async with asking(tmp_path / "home", elsewhere) as g, client_of(g) as client:

        async def say(text: str, **options: Any) -> Any:
            return await client.chat.completions.create(
                model="exuvia",
                messages=[{"role": "user", "content": text}],
                extra_headers={"X-Exuvia-Session": "main", **options.pop("headers", {})},
                **options,
            )

        chunks = [chunk async for chunk in await say("Launch it.", stream=True, headers={"Idempotency-Key": "1"})]
        shown = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert "launch --to moon" in shown
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        again = await say("Launch it.", headers={"Idempotency-Key": "1"})
        assert again.choices[0].message.content == shown
        other = (await say("Are you there?")).choices[0].message.content
        assert other.startswith("This message was not accepted")
        assert other.endswith(shown)
        assert (await say("/compact")).choices[0].message.content == other
        assert "scripted" in (await say("/status")).choices[0].message.content
        pieces = [chunk async for chunk in await say("/approve", stream=True)]
        answered = "".join(chunk.choices[0].delta.content or "" for chunk in pieces if chunk.choices)
        assert answered == "Approved this time.\n\nIt is done."
        assert (await say("Launch it.", headers={"Idempotency-Key": "1"})).choices[0].message.content == "It is done."
    texts = [event["text"] for event in events(tmp_path / "home", "message_received")]
    assert texts == ["Launch it.", "/status", "/approve"]


async def test_a_question_of_a_running_call_does_not_hold_up_a_pipe_or_a_program(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    async with asking(tmp_path / "home", elsewhere, *launching("venus"), *launching("venus")) as g, client_of(g) as client:
        lines = "Launch it.\n/approve\n/approve\n"
        assert (await chat(g.url, lines))[:2] == (0, "Approved this time.\nApproved this time.\nIt is done.\n")

        async def say(text: str) -> str:
            messages = [{"role": "user", "content": text}]
            headers = {"X-Exuvia-Session": "main"}
            answer = await client.chat.completions.create(model="exuvia", messages=messages, extra_headers=headers)
            return str(answer.choices[0].message.content)

        assert "launch --to venus" in await say("Launch it.")
        second = await say("/approve")
        assert second.startswith("Approved this time.\n\n**May `launch` do this?**")
        assert "Is it cool enough?" in second
        assert await say("/approve") == "Approved this time.\n\nIt is done."
    assert launches(tmp_path / "home") == ["venus", "venus"]


# --- the command line -------------------------------------------------------------------------------------------------


def run(*words: str) -> Any:
    done = CliRunner().invoke(cli, ["approvals", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


async def test_the_open_questions_of_all_sessions_and_the_rules_are_listed(tmp_path: Path, elsewhere: Elsewhere) -> None:
    home = tmp_path / "home"
    async with asking(home, elsewhere) as g:
        client, ben = await g.connect(), await g.connect(BEN)
        assert run("list", "--home", str(home)) == "No question is open, and nothing was approved always.\n"
        first = (await question(client))["approval"]
        await client.send(f"/approve {first} always")
        await client.until_event("turn_ended")
        second = (await question(ben))["approval"]
        await ben.send("and then?")
        await ben.until_event("message_received")
        shown = await asyncio.to_thread(run, "list", "--home", str(home))
        listed = json.loads(await asyncio.to_thread(run, "list", "--home", str(home), "--json"))
        assert "main of ben, session" in shown
        assert "launch --to moon" in shown
        assert "approved always: exactly the command `launch --to moon` (owner, agent main" in shown
        assert [(each["person"], each["question"]["approval"]) for each in listed["questions"]] == [("ben", second)]
        assert [(each["person"], each["tool"]) for each in listed["rules"]] == [("owner", "launch")]
        await approve(ben, second, decision="deny")
        await ben.until_event("turn_ended")
        assert json.loads(await asyncio.to_thread(run, "list", "--home", str(home), "--json"))["questions"] == []


RULES = """
[approvals]
rules = [
    { tool = "shell", argv = ["git", "push"], decision = "deny" },
    { tool = "shell", argv = ["git"], decision = "allow" },
    { tool = "fetch", host = "*.example.com", decision = "allow" },
    { tool = "write", path = "drafts/", decision = "allow" },
]
"""


@pytest.mark.parametrize(
    ("words", "decision"),
    [
        (("git push",), "deny: Rule 1 of approvals.rules says deny."),
        (("git push --force origin",), "deny: Rule 1 of approvals.rules says deny."),
        (("git status",), "allow: Rule 2 of approvals.rules says allow."),
        (("git status; rm -r .",), "ask: No rule names this call, and approvals.default is ask."),
        (("rm -r .",), "ask: No rule names this call, and approvals.default is ask."),
        (("--tool", "fetch", "https://www.example.com/x?y"), "allow: Rule 3 of approvals.rules says allow."),
        (("--tool", "fetch", "https://example.org/"), "ask: No rule names this call, and approvals.default is ask."),
        (("--tool", "write", "drafts/a.md"), "allow: Rule 4 of approvals.rules says allow."),
        (("--tool", "read", "x"), "allow: This call needs no approval."),
    ],
)
def test_what_would_be_decided_is_explained(tmp_path: Path, words: tuple[str, ...], decision: str) -> None:
    (tmp_path / "config.toml").write_text(RULES)
    assert run("explain", *words, "--home", str(tmp_path)).strip() == decision
    explained = json.loads(run("explain", *words, "--home", str(tmp_path), "--json"))
    assert f"{explained['decision']}: {explained['because']}" == decision
