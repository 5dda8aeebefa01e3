"""Erasures outside of the journals: the logs of the home, of agents and of plugins, closed indexes, and what a person has
left without a conversation."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

import msgspec
import pytest

from gateway.auth.people_log import PEOPLE, PersonChanged, sha256_of
from gateway.conversations.approvals.remembered_rules import RULES, ApprovalRuleSet
from gateway.conversations.channels.pairings import LINKS, AddressLinked, AddressUnlinked
from gateway.conversations.deletion.deletion_log import ErasureOrdered
from gateway.conversations.erasure.erasure_plan import Chosen
from gateway.conversations.erasure.erasures import Erased, Erasures, order_of_person
from gateway.conversations.schedules.recurrence import Once
from gateway.conversations.schedules.schedules import SCHEDULES, OccurrenceDue, OccurrenceHanded, ScheduleSet
from gateway.conversations.shares import SHARES, ConversationShared, SharedSession
from gateway.http.openai.responses.stored_responses import ResponseStored, digest_of
from gateway.models.spending.spending_log import BudgetWarned, RequestCharged, Zones, read_ledgers
from gateway.support.home import Home
from gateway.support.storage import fact_logs, journals_in
from gateway.wiring.offline_erasure import open_erasures
from plugins.api.fact_values import Fact, FactOrigin
from plugins.facts.fact_events import FactsOpened, FactsWritten
from sessions.attachments.store import Attachments
from sessions.events.codec import FIRST, encode, encode_line
from sessions.events.errors import StorageFailed
from sessions.events.events import (
    ActionPattern,
    Event,
    MessageReceived,
    ModelReplied,
    Recorded,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)
from sessions.events.messages import Usage, UserMessage
from sessions.files.journals import Journals
from sessions.store.protocols import Lines
from sessions.store.reading import StoredLog
from tests.attacks.test_identity import ANA
from tests.gateway.gateways import TOKEN, gateway
from tests.gateway.test_erasures import exuvia
from tests.servers.postgres_server import postgres_server
from tests.waiting import until


class Logged(msgspec.Struct, frozen=True, tag_field="kind", tag="plugin_logged"):
    entry: object


PERSON, SESSION, OTHER = "zqxjana", "20261120-090000-aaaaaa", "20261121-100000-cccccc"
MARK = b"zqxj"
SAID = "the canary of the message sings zqxjmessage"
KEPT = "kept words about crabs"
AT = "2026-11-20T09:00:00.000Z"
MONTH = "spending-2026-11"


def canary(place: str) -> str:
    return f"the canary of {place} sings zqxj{place.replace(' ', '')}"


def write(path: Path, events: Sequence[msgspec.Struct]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    previous = FIRST
    with path.open("wb") as file:
        for seq, event in enumerate(events, 1):
            line, previous = encode_line(seq, AT, None, event, previous)
            file.write(line)


def write_session(home: Home, session: str, person: str, text: str) -> None:
    said = MessageReceived(
        id=f"m-{session}",
        client="phone",
        sender=person,
        channel="websocket",
        chat="private",
        text=text,
        attachments=(),
    )
    story: list[tuple[int | None, Event]] = [
        (None, SessionOpened(format=1, session=session, key="main", person=person)),
        (None, said),
        (1, TurnStarted(takes=(2,), provider="scripted", model="m", window=100_000, reserve=1000)),
        (1, ModelReplied(reply=1, model="m", text=f"Yes, {text}", calls=(), stop="end", usage=None)),
        (1, TurnEnded(outcome="replied", millis=5)),
    ]
    previous = FIRST
    with (home.sessions / f"{session}.jsonl").open("wb") as file:
        for seq, (turn, event) in enumerate(story, 1):
            line, previous = encode(Recorded(seq=seq, at=AT, turn=turn, event=event), previous)
            file.write(line)


def scheduled(id_: str, person: str, text: str) -> list[msgspec.Struct]:
    made = ScheduleSet(
        schedule=id_, person=person, client="phone", key="main", text=text, rule=Once(at="2036-11-20T09:00:00Z")
    )
    due = OccurrenceDue(schedule=id_, due="2026-11-20T09:00:00Z", text=text, extra=True)
    return [made, due, OccurrenceHanded(schedule=id_, due=due.due, session=SESSION, seq=2)]


def response(id_: str, person: str, text: str, base: str = "") -> ResponseStored:
    messages = (UserMessage(text=text),)
    return ResponseStored(
        id=id_,
        person=person,
        base=base,
        messages=messages,
        answer=messages,
        response={"output": [{"content": [{"text": text}]}]},
        digest=digest_of(person, messages),
    )


def charged(request: str, person: str) -> RequestCharged:
    return RequestCharged(
        request=request,
        person=person,
        agent="main",
        session=SESSION,
        purpose="answer",
        model="m",
        usage=Usage(input=10, output=1),
        micros=1234,
    )


def rule(id_: str, person: str, argument: str) -> ApprovalRuleSet:
    pattern = ActionPattern(argv=("echo", argument))
    return ApprovalRuleSet(
        rule=id_, tool="shell", agent="main", person=person, session=SESSION, approval=id_, pattern=pattern
    )


def write_person(home: Home) -> None:
    """Write what a person leaves without a conversation."""
    added = PersonChanged(person=PERSON, act="added", by="owner", name=canary("name"), token=sha256_of("a"))
    ben = PersonChanged(person="ben", act="added", by=PERSON, name="Ben", token=sha256_of("b"))
    write(home.people, [added, ben])
    linked = AddressLinked(channel="telegram", address="42-zqxj", person=PERSON, by="owner", name=canary("address"))
    moved = [
        AddressLinked(channel="irc", address="shared", person=PERSON, by="owner"),
        AddressLinked(channel="irc", address="shared", person="ben", by=PERSON),
        AddressUnlinked(channel="telegram", address="42-zqxj", by=PERSON),
    ]
    write(home.pairings, [linked, *moved])
    shared = ConversationShared(
        share="x1", person=PERSON, key="zqxj-key", sessions=(SharedSession(session=SESSION, upto=2),), digest="d"
    )
    write(home.shares, [shared, msgspec.structs.replace(shared, share="x2", person="owner", key="main")])
    warned = BudgetWarned(scope=f"person:{PERSON}", period="2026-11", spent=1, cap=1, session=SESSION)
    write(home.root / f"{MONTH}.jsonl", [charged("q1", PERSON), charged("q2", "owner"), warned])
    sign_in = {"number": "n", "key": "k", "browser": canary("browser"), "system": "", "at": 1, "used": 1, "until": 1 << 40}
    home.sign_ins.write_text(json.dumps({PERSON: [sign_in], "owner": [{**sign_in, "number": "o", "browser": "Kept"}]}))
    for workspace in (home.root / "workspace", home.agents / "helper/workspace", home.agents / "gone/workspace"):
        note = workspace / "people" / PERSON / "MEMORY.md"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(canary("own note"))


async def a_home(root: Path) -> Home:
    """Make a home with a canary of a message, and of its person, in each place."""
    home = Home(root)
    home.make()
    write_session(home, SESSION, PERSON, SAID)
    write_session(home, OTHER, "owner", KEPT)
    write(home.root / "schedules.jsonl", [*scheduled("s1", PERSON, SAID), *scheduled("s2", "owner", KEPT)])
    write(home.approvals, [rule("r1", PERSON, SAID), rule("r2", "owner", KEPT)])
    write(
        home.responses, [response("a", PERSON, SAID), response("b", PERSON, "more", base="a"), response("c", "owner", KEPT)]
    )
    write(home.plugins / "diary/log.jsonl", [Logged(entry={"notes": [SAID, KEPT]})])
    for folder in (home.root, home.agents / "helper", home.agents / "gone"):
        own = [fact(SAID, PERSON, origin=2), fact(canary("fact"), PERSON), fact(KEPT, "owner")]
        write(folder / "facts.jsonl", [FactsOpened(format=1), FactsWritten(entries=tuple(own), by="owner")])
        (folder / "memory.sqlite").write_text(SAID)
        (folder / "memory.sqlite-wal").write_text(SAID)
        notes = (home.root / "workspace" if folder == home.root else folder / "workspace") / "people" / PERSON / "memory"
        notes.mkdir(parents=True)
        (notes / "2026-11-20.md").write_text(f"- {KEPT}\n- {SAID}\n")
    attachments = Attachments(home.attachments)
    file = await attachments.store(canary("upload").encode(), PERSON, claimed="text/plain", name="a.txt")
    await attachments.settle(PERSON, (file,))
    return home


def fact(content: str, owner: str, origin: int = 0) -> Fact:
    from_message = FactOrigin(session=SESSION, seq=origin) if origin else None
    return Fact(id=f"{owner}-{len(content)}", content=content, created=AT, source="manual", owner=owner, origin=from_message)


def places(home: Home) -> set[str]:
    """Return the files of a home that have a canary."""
    files = (path for path in home.root.rglob("*") if path.is_file())
    return {path.relative_to(home.root).as_posix() for path in files if MARK in path.read_bytes()}


def check_rest(home: Home) -> None:
    """What was not erased is there, in logs that verify."""
    for path in [*home.root.glob("*.jsonl"), *home.agents.glob("*/*.jsonl"), *home.plugins.glob("*/*.jsonl")]:
        StoredLog(journals_in(path.parent), path.stem).verify()
    assert list(SCHEDULES.read(fact_logs(home))) == ["s2"]
    assert list(RULES.read(fact_logs(home))) == ["r2"]
    for name in ("responses.jsonl", "plugins/diary/log.jsonl", "agents/helper/facts.jsonl", "agents/gone/facts.jsonl"):
        assert KEPT in (home.root / name).read_text()
    assert json.loads((home.plugins / "diary/log.jsonl").read_text())["entry"]["notes"][1] == KEPT


def check_person_is_gone(home: Home) -> None:
    check_rest(home)
    assert places(home) == {"deletions.jsonl"}
    assert list(PEOPLE.read(fact_logs(home)).people) == ["ben"]
    links = LINKS.read(fact_logs(home))
    assert [(link.address, link.person) for link in links.values()] == [("shared", "ben")]
    assert list(SHARES.read(fact_logs(home))) == ["x2"]
    assert "Kept" in home.sign_ins.read_text()
    sums = read_ledgers(fact_logs(home), [date(2026, 11, 1)], Zones(default="UTC"))
    assert {entry.person.split("-")[0] for entry in sums.entries} == {"erased", "owner"}
    assert sums.spent["USD", "all", "2026-11"] == 2 * 1234


async def test_a_message_is_erased_from_the_logs_of_the_home_its_agents_and_its_plugins(tmp_path: Path) -> None:
    home = await a_home(tmp_path)
    assert len(places(home)) == 18
    async with open_erasures(home, home.workspaces(["workspace"])) as erasures:
        receipt = await erasures.erase(PERSON, {SESSION: Chosen(messages=frozenset({2}))}, "owner")
    assert sorted(receipt.logs) == ["approvals.jsonl", "plugins/diary/log.jsonl", "responses.jsonl", "schedules.jsonl"]
    assert '"more"' not in home.responses.read_text()  # it continues what was erased
    assert b"zqxjmessage" not in b"".join(path.read_bytes() for path in home.root.rglob("*") if path.is_file())
    check_rest(home)


async def test_everything_of_a_person_is_erased_and_sums_stay(tmp_path: Path) -> None:
    home = await a_home(tmp_path)
    write_person(home)
    assert len(places(home)) == 26
    (home.channels / "mail").mkdir(parents=True)
    (home.channels / "mail" / "seen.json").write_text("[]")
    done = await asyncio.to_thread(exuvia, "erase", "person", PERSON, "--home", home.root, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert "channels/mail/seen.json" in " ".join(json.loads(done.stdout)["remains"]), "what is not examined is named"
    assert {"people.jsonl", f"{MONTH}.jsonl"} <= set(json.loads(done.stdout)["logs"])
    check_person_is_gone(home)


async def test_a_running_gateway_erases_a_person_whom_it_knows(tmp_path: Path) -> None:
    home = await a_home(tmp_path)
    write_person(home)
    for path in (home.root, home.agents / "helper", home.agents / "gone"):
        for index in path.glob("memory.sqlite*"):
            index.unlink()
    settings = {"memory.embedding.provider": "none", "agents.helper.workspace_access": "ro"}
    async with gateway(home.root, settings=settings) as running:
        owner = {"Authorization": f"Bearer {TOKEN}"}
        theirs = {"Authorization": "Bearer a"}
        async with running.http.get(f"{running.url}/api/usage", headers=theirs) as response:
            assert response.status == 200, await response.text()
        async with running.http.post(f"{running.url}/api/erasures", json={"person": PERSON}, headers=theirs) as response:
            assert response.status == 403
        async with running.http.post(f"{running.url}/api/erasures", json={"person": PERSON}, headers=owner) as response:
            assert response.status == 200, await response.text()
        async with running.http.get(f"{running.url}/api/usage", headers=theirs) as response:
            assert response.status == 401
        check_person_is_gone(home)
        client = await running.connect()
        await client.chat("And now?")
    check_person_is_gone(home)


@pytest.mark.parametrize("erased", [1, 4, 8])
async def test_an_erasure_of_a_person_that_was_interrupted_is_finished_by_the_next_start(
    tmp_path: Path, erased: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = await a_home(tmp_path)
    write_person(home)
    rewrite, calls = Journals.rewrite, itertools.count(1)

    async def failing(self: Journals, session: str, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        if next(calls) == erased:
            raise StorageFailed("The disk is full.")
        await rewrite(self, session, rewritten)

    monkeypatch.setattr(Journals, "rewrite", failing)
    order = order_of_person(PERSON, "owner")
    async with open_erasures(home, home.workspaces(["workspace"])) as erasures:
        with pytest.raises(StorageFailed):
            await erasures.begin_person(order)
    monkeypatch.undo()
    async with gateway(home.root, settings={"memory.embedding.provider": "none"}):
        finished = f'"kind":"erasure_finished","erasure":"{order.erasure}"'.encode()
        await until(lambda: finished in home.deletions.read_bytes())
    check_person_is_gone(home)


async def test_a_turn_that_begins_while_its_person_is_erased_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"text": "It never comes.", "deltas": 3, "delay_ms": 3_600_000}))
    settings = {"agent.model": "scripted:script", "providers.scripted.script": str(script), "people.ana.token": ANA}
    erase_entries, calls = Erasures.erase_entries, itertools.count()
    async with gateway(tmp_path / "home", settings=settings) as running:
        ana = await running.connect(ANA)

        async def meanwhile(self: Erasures, order: ErasureOrdered) -> Erased:
            if next(calls) == 0:
                await ana.send("the last words")
                await ana.until_event("turn_started")
            return await erase_entries(self, order)

        monkeypatch.setattr(Erasures, "erase_entries", meanwhile)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with running.http.post(f"{running.url}/api/erasures", json={"person": "ana"}, headers=headers) as response:
            assert response.status == 200, await response.text()
        assert running.journals() == {}
    assert Home(tmp_path / "home").deletions.read_text().count("erasure_ordered") == 2
    assert Home(tmp_path / "home").deletions.read_text().count("erasure_finished") == 2


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


async def test_everything_of_a_person_is_erased_from_a_database_and_what_is_backed_up_verifies(
    tmp_path: Path, url: str
) -> None:
    home = await a_home(tmp_path / "home")
    write_person(home)
    copied = await asyncio.to_thread(exuvia, "store", "copy", "--from", home.root, "--to", url)
    assert copied.returncode == 0, copied.stdout
    for log in [*home.root.rglob("*.jsonl"), *home.root.rglob("memory.sqlite*")]:
        log.unlink()
    shutil.rmtree(home.attachments)
    home.config.write_text(f'[agent]\nmodel = "scripted:echo"\n[store]\nkind = "postgres"\nurl = "{url}"\n')
    erased = await asyncio.to_thread(exuvia, "erase", "person", PERSON, "--home", home.root, "--yes")
    assert erased.returncode == 0, erased.stderr
    backed = await asyncio.to_thread(exuvia, "backup", tmp_path / "backup", "--home", home.root, "--secrets")
    assert backed.returncode == 0, backed.stderr
    again = Home(tmp_path / "again")
    restored = await asyncio.to_thread(exuvia, "restore", tmp_path / "backup", "--home", again.root)
    assert restored.returncode == 0, restored.stderr
    check_person_is_gone(again)


async def test_a_backup_has_nothing_of_a_person_who_was_erased_after_it(tmp_path: Path) -> None:
    home = await a_home(tmp_path / "home")
    write_person(home)
    backed = await asyncio.to_thread(exuvia, "backup", tmp_path / "backup", "--home", home.root, "--secrets")
    assert backed.returncode == 0, backed.stderr
    erased = await asyncio.to_thread(exuvia, "erase", "person", PERSON, "--home", home.root, "--yes")
    assert erased.returncode == 0, erased.stderr
    restored = await asyncio.to_thread(exuvia, "restore", tmp_path / "backup", "--home", tmp_path / "again")
    assert restored.returncode == 0, restored.stderr
    check_person_is_gone(Home(tmp_path / "again"))
