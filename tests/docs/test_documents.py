"""The pages on formats and protocols: complete, exact, and their examples run."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import sys
import types
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from benchmarks.stage import Instrument, Model, Stage, says
from gateway.protocol.client_frames import read_frame
from gateway.protocol.frames import ATTACHMENTS, ClientFrame, SentAttachment, parse
from plugins.api.pruning import PruningRules
from plugins.host.hooks import Hooks
from sessions.events.codec import FIRST, decode, encode, verify
from sessions.events.events import KINDS
from sessions.events.messages import ToolMessage
from sessions.state.context import assemble, canonical, canonical_head
from sessions.state.reducer import project
from sessions.store.protocols import START
from tests.docs.verifier import verify as verify_by_the_page
from tests.docs.view import request_by_the_page
from tests.gateway.gateways import TOKEN, gateway
from tests.stored import stored
from tests.waiting import DEADLINE

DOCS = Path(__file__).parents[2] / "docs"
EVENTS = (DOCS / "events.md").read_text(encoding="utf-8")
WEBSOCKET = (DOCS / "websocket.md").read_text(encoding="utf-8")

Frame = dict[str, Any]


def block(page: str, language: str) -> str:
    """The content of the page's only block in a language."""
    (content,) = re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return str(content)


JOURNAL = block(EVENTS, "jsonl").encode()
LINES = JOURNAL.splitlines(keepends=True)


def table(page: str, heading: str) -> dict[str, str]:
    """The first table below a heading: its first column, without backticks, and the second."""
    section = page.partition(f"{heading}\n")[2]
    rows = re.search(r"(^\|.*\n)+", section, re.MULTILINE)
    assert rows is not None, heading
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[0].splitlines()[2:]]
    return {row[0].strip("`"): row[1] for row in cells}


# --- events -----------------------------------------------------------------------------------------------------------


def test_every_kind_of_event_is_described_and_no_other() -> None:
    assert re.findall(r"^### `(\w+)`$", EVENTS, re.MULTILINE) == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_kind_is_described_and_so_is_whether_it_may_be_missing(kind: str) -> None:
    described = table(EVENTS, f"### `{kind}`")
    form = KINDS[kind]
    optional = form.__struct_fields__[len(form.__struct_fields__) - len(form.__struct_defaults__) :]
    fields = {field.encode_name: field.encode_name in optional for field in msgspec.structs.fields(form)}
    assert {name: "optional" in type_ for name, type_ in described.items()} == fields


def test_the_example_is_a_journal_byte_for_byte() -> None:
    previous = FIRST
    for seq, line in enumerate(LINES, start=1):
        again, digest = encode(decode(line), previous)
        assert (again, verify(line, previous, seq)) == (line, digest)
        previous = digest


def test_the_sums_that_the_page_explains_are_those_of_the_example() -> None:
    explained = EVENTS.partition("In line 1, ")[2].partition("The canonical")[0]
    first, second = (line[-19:-3].decode() for line in LINES[:2])
    assert re.findall(r"`([0-9a-f]{16})`", explained) == [first, first, second]


def test_the_request_of_the_example_has_the_hash_that_its_line_says() -> None:
    shown = block(EVENTS, "json").strip()
    context = assemble(project(LINES[:4]))
    assert b"[" + b",".join([canonical_head(context), *map(canonical, context.messages)]) + b"]" == shown.encode()
    assert hashlib.sha256(shown.encode()).hexdigest() == json.loads(LINES[4])["sha256"]
    assert json.dumps(json.loads(shown), sort_keys=True, separators=(",", ":"), ensure_ascii=False) == shown


def test_the_pages_few_lines_of_python_check_its_example() -> None:
    names: dict[str, Any] = {}
    exec(block(EVENTS, "python"), names)  # our own page
    fits = names["sum_fits"]
    assert fits(LINES[0])
    assert fits(LINES[1], LINES[0][-19:-3])
    assert not fits(LINES[1].replace(b"dich", b"mich"), LINES[0][-19:-3])


@pytest.mark.parametrize(
    ("content", "events", "tail", "wrong"),
    [
        (JOURNAL, 7, 0, None),
        (b"", 0, 0, None),
        (JOURNAL[:-1], 6, len(LINES[-1]) - 1, None),
        (JOURNAL + b"\0" * 512, 7, 512, None),
        (b"".join(LINES[:6]) + LINES[6][:40] + b"\0\0\0\n", 6, 44, None),
        (JOURNAL.replace(b"Hallo!", b"Hello!"), 5, 0, "its sum is wrong"),
        (JOURNAL.replace(b'"millis":477', b'"millis":478'), 6, 0, "its sum is wrong"),
        (b"".join([*LINES[:2], *LINES[3:]]), 2, 0, "its sum is wrong"),
        (b"".join([*LINES[:2], LINES[1], *LINES[2:]]), 2, 0, "its sum is wrong"),
        (b"".join([LINES[0], LINES[2], LINES[1], *LINES[3:]]), 1, 0, "its sum is wrong"),
        (b"".join([*LINES[:2], LINES[2][:50] + b"\0" + LINES[2][51:], *LINES[3:]]), 2, 0, "its sum is wrong"),
        (b"".join([*LINES[:2], b"{}\n", *LINES[3:]]), 2, 0, "it has no sum"),
    ],
)
def test_a_verifier_written_from_the_page_alone_says_what_ours_says(
    tmp_path: Path, content: bytes, events: int, tail: int, wrong: str | None
) -> None:
    assert verify_by_the_page(content) == (events, tail, wrong)
    path = tmp_path / "20261121-031241-7k2m9q.jsonl"
    path.write_bytes(content)
    if wrong is None:
        verified = stored(path).verify()
        assert (verified.events, verified.torn) == (events, tail)
        assert verified.last.offset == len(content) - tail >= START.offset
    else:
        with pytest.raises(Exception, match=f"line {events + 1}:"):
            stored(path).verify()


async def test_a_real_gateways_journal_verifies_by_the_page_and_its_requests_can_be_computed(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    script: list[Frame] = [
        {"text": "Let me look.", "calls": [{"tool": "read", "arguments": {"path": "."}}]},
        {"text": "Ready: “é” 😀"},
    ]
    async with gateway(tmp_path, script=script, settings={"agent.temperature": 0.25}) as g:
        client = await g.connect()
        await client.send("Grüß dich\u2028\t\x7f")
        await client.until_event("turn_ended")
        await client.chat("again")
    (path,) = (tmp_path / "sessions").glob("*.jsonl")
    events, tail, wrong = verify_by_the_page(path.read_bytes())
    assert (tail, wrong) == (0, None)
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    assert len(lines) == events
    sent = [line for line in lines if line["kind"] == "request_sent"]
    assert len(sent) == 3
    assert [request["sha256"] for request in sent] == [hash_by_the_page(lines[: line["seq"] - 1]) for line in sent]


async def test_pruned_requests_can_be_computed_by_the_page() -> None:
    chance = random.Random(7)
    tool = Instrument("tool", lambda: chance.choice("aé日😀") * chance.randint(10, 9000))
    rules = PruningRules(mode="always", min_prunable_chars=1000)
    stage = Stage(Model(*(says("", "tool", "tool"), says("done")) * 20), tool, pruning=rules)
    async with stage.playing():
        for number in range(20):
            await stage.say("go " + "x" * chance.randint(0, 3000), f"m{number}")
    lines = [json.loads(line) for line in stage.log.written]
    assert {edit["how"] for line in lines if line["kind"] == "context_pruned" for edit in line["edits"]} == {"trim", "clear"}
    sent = [line for line in lines if line["kind"] == "request_sent"]
    assert [request["sha256"] for request in sent] == [hash_by_the_page(lines[: line["seq"] - 1]) for line in sent]


async def test_the_page_s_plugin_prunes_what_it_says() -> None:
    plugin = types.ModuleType("plugin")
    exec(block((DOCS / "pruning.md").read_text(encoding="utf-8"), "python"), plugin.__dict__)  # our own page
    hooks = Hooks()
    assert hooks.register("hiding", plugin), hooks.refused
    model = Model(says("", "secrets", "other"), says("I see."), says("Again?"))
    stage = Stage(model, Instrument("secrets", lambda: "s" * 99), Instrument("other"), hooks=hooks)
    async with stage.playing():
        for text in ("go", "and?"):
            await stage.say(text, text)
    shown = [[m.text for m in r.context.messages if isinstance(m, ToolMessage)] for r in model.requests]
    assert shown == [[], ["s" * 99, "done"], ["[hidden]", "done"]]


def hash_by_the_page(lines: list[Frame]) -> str:
    """The hash of a request after these lines, as the page says how to compute it."""
    text = json.dumps(request_by_the_page(lines), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


# --- the websocket ----------------------------------------------------------------------------------------------------

CONVERSATION = [(line[0], json.loads(line[2:])) for line in WEBSOCKET.splitlines() if line.startswith(("→ ", "← "))]


def test_every_frame_of_a_client_and_each_of_its_fields_is_described() -> None:
    described = table(WEBSOCKET, "## From the client")
    section = WEBSOCKET.partition("## From the client\n")[2].partition("\n## ")[0]
    rows = {row.split("|")[1].strip(" `"): row.split("|")[2] for row in section.splitlines() if row.startswith("| `")}
    assert list(described) == [form.__struct_config__.tag for form in get_args(ClientFrame)]
    for form in get_args(ClientFrame):
        cell = rows[form.__struct_config__.tag]
        optional = set(re.findall(r"`(\w+)`\?", cell))
        fields = {field.name: field.required for field in msgspec.structs.fields(form)}
        assert set(re.findall(r"`(\w+)`", cell)) == set(fields)
        assert optional == {name for name, required in fields.items() if not required}, form


def test_every_frame_of_the_example_is_one_of_the_page() -> None:
    for arrow, frame in CONVERSATION:
        if arrow == "→":
            parse(json.dumps(frame))
        else:
            described = table(WEBSOCKET, "## From the gateway")[frame["type"]]
            fields = {name: optional == "" for name, optional in re.findall(r"`(\w+)`(\??)", described)}
            assert {name for name, required in fields.items() if required} <= set(frame) - {"type"} <= set(fields)
            read_frame(json.dumps(frame))
    kinds = {frame["type"] for arrow, frame in CONVERSATION if arrow == "←"}
    assert set(table(WEBSOCKET, "## From the gateway")) - kinds == {"gap", "output", "paused", "reasoning", "session_update"}


def shape(frame: Frame) -> Any:
    """A frame without what differs from one gateway to another: times, ids and numbers that the gateway makes."""
    made = {
        "session_id",
        "at",
        "created",
        "client",
        "provider",
        "model",
        "window",
        "reserve",
        "sha256",
        "tokens",
        "units",
        "usage",
    }
    made |= {"bytes", "parent", "millis", "server", "limits", "tools", "parameters", "message"}
    loose = made | ({"text"} if frame.get("kind") == "instructions_set" else set())
    plain = {name: shape(value) if isinstance(value, dict) else value for name, value in frame.items() if name not in loose}
    for name in ("events", "sessions"):
        if isinstance(plain.get(name), list):
            plain[name] = [shape(each) for each in plain[name]]
    if "commands" in plain:
        plain["commands"] = {name for command in plain["commands"] for name in command}  # the page shows one of them
    return plain


async def test_the_conversation_of_the_page_takes_place_with_a_real_gateway(tmp_path: Path) -> None:
    script = [{"text": "Hello there", "delay_ms": 70}]
    async with gateway(tmp_path, script=script) as g:
        client = await g.connect(token=None)
        session_id = ""
        said = ""
        for arrow, frame in CONVERSATION:
            if arrow == "→":
                given = {"token": TOKEN} if frame["type"] == "hello" else {}
                given |= {"session_id": session_id} if "session_id" in frame else {}
                await client.say(frame.pop("type"), **(frame | given))
                continue
            if frame["type"] == "delta":
                # How an answer is cut into pieces is the provider's and the reader's matter.
                continue
            while (answer := await client.next())["type"] == "delta":
                # Those that come behind their confirmation are previews of nothing.
                if len(said) < len("Hello there"):
                    assert (answer["turn"], answer["reply"], answer["offset"]) == (1, 1, len(said))
                    said += answer["text"]
            session_id = session_id or answer.get("session_id", "")
            assert shape(answer) == shape(frame)
        assert said == "Hello there"


async def test_the_pages_whole_client_gets_an_answer(tmp_path: Path) -> None:
    code = block(WEBSOCKET, "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 28
    program = tmp_path / "client.py"
    program.write_text(code, encoding="utf-8")
    async with gateway(tmp_path / "home", script=[{"text": "Hello back", "delay_ms": 70}]) as g:
        environment = {**os.environ, "EXUVIA_TOKEN": TOKEN, "EXUVIA_URL": f"{g.url}/ws"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(program), "Hello there", env=environment, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
        assert (process.returncode, out) == (0, b"Hello back\n")


# --- attachments ------------------------------------------------------------------------------------------------------

ATTACHMENTS_PAGE = (DOCS / "attachments.md").read_text(encoding="utf-8")


def test_every_field_of_an_attachment_in_a_frame_is_described() -> None:
    fields = [field.name for field in msgspec.structs.fields(SentAttachment)]
    assert list(table(ATTACHMENTS_PAGE, "each is an object with these fields:\n")) == fields
    assert f"up to {ATTACHMENTS} `attachments`" in " ".join(ATTACHMENTS_PAGE.split())


async def test_the_pages_function_sends_a_file_that_a_message_then_names(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(block(ATTACHMENTS_PAGE, "python"), names)  # our own page
    file = tmp_path / "notes.txt"
    file.write_text("Buy milk.")
    async with gateway(tmp_path / "home", settings={"gateway.attachment_bytes": 9}) as g:
        sent = await names["attachment"](file, g.url, TOKEN)
        client = await g.connect()
        await client.say("send", id="1", session="main", text="", attachments=[sent])
        assert "\nBuy milk.\n" in (await client.until_event("model_replied"))["text"]
        file.write_text("Buy bread.")
        with pytest.raises(ValueError, match="9 bytes"):
            await names["attachment"](file, g.url, TOKEN)
