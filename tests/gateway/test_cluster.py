"""Several gateways on one PostgreSQL, as processes: relaying, takeover, and what a dead one writes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import msgspec
import psycopg
import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from gateway.auth.relay_tokens import RelayTokens
from gateway.cli.main import cli
from gateway.conversations.channels import reply_delivery
from gateway.conversations.channels.reply_delivery import ReplyDelivery
from gateway.conversations.deletion.deletion_log import ErasureOrdered
from gateway.conversations.deletion.deletions import Deletions
from gateway.conversations.erasure.erasures import Erased, Erasures
from gateway.conversations.routing import removals, subagents, switchboard
from gateway.conversations.routing.person_erasure import PersonErasures
from gateway.conversations.routing.switchboard import Switchboard
from gateway.support.errors import Busy, Conflict, OwnedElsewhere
from plugins.api.channel import OutboundMessage
from sessions.events.errors import StorageFailed
from sessions.events.events import MessageReceived
from sessions.postgres.group_commit import GroupCommitter
from sessions.store.catalog import Name
from tests.faults.gateway_process import ROOT, GatewayProcess, gateway_process, install_tool
from tests.gateway.gateways import TOKEN, Client, gateway, replies_wait
from tests.servers.postgres_server import postgres_server
from tests.waiting import deadline, until


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


@pytest.fixture
def switchboards(monkeypatch: pytest.MonkeyPatch) -> list[Switchboard]:
    """Collect the switchboards of the gateways that a test starts."""
    made: list[Switchboard] = []
    init = Switchboard.__init__

    def note(self: Switchboard, **named: Any) -> None:
        init(self, **named)
        made.append(self)

    monkeypatch.setattr(Switchboard, "__init__", note)
    return made


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@contextlib.asynccontextmanager
async def gateways(
    url: str, folder: Path, count: int = 2, settings: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[list[GatewayProcess]]:
    """Gateways with homes of their own on one database."""
    given = {"EXUVIA__STORE__KIND": '"postgres"', "EXUVIA__STORE__URL": json.dumps(url), **(settings or {})}
    async with contextlib.AsyncExitStack() as stack:
        running = [gateway_process(folder / f"home-{each}", settings=given, **options) for each in range(count)]
        yield list(await asyncio.gather(*map(stack.enter_async_context, running)))


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """The result of a query that somebody else makes."""
    with psycopg.connect(url, autocommit=True, options="-c search_path=exuvia") as connection:
        return connection.execute(query.encode()).fetchall()


def events(url: str, *kinds: str) -> list[dict[str, Any]]:
    """All events of these kinds in the sessions, in the order in which the sessions were created."""
    found = rows(
        url, "SELECT line FROM line JOIN log ON log.id = line.log WHERE store = 'sessions' ORDER BY log.id, line.seq"
    )
    return [event for (line,) in found if (event := json.loads(line))["kind"] in kinds]


def holders(url: str) -> dict[str, str]:
    """The gateway that has each key."""
    return dict(rows(url, "SELECT key, coalesce(holder, '') FROM chat"))


async def post(
    http: aiohttp.ClientSession, to: GatewayProcess, text: str, headers: Mapping[str, str]
) -> tuple[int, str | None]:
    """Send a message over the OpenAI-compatible API, and return the status and the answer's text."""
    body = {"model": "exuvia", "messages": [{"role": "user", "content": text}]}
    given = {"Authorization": f"Bearer {TOKEN}", **headers}
    async with http.post(f"http://127.0.0.1:{to.port}/v1/chat/completions", headers=given, json=body) as answer:
        read = await answer.json()
        return answer.status, read["choices"][0]["message"]["content"] if answer.status == 200 else None


async def test_an_erasure_reaches_a_conversation_that_another_gateway_has(url: str, tmp_path: Path) -> None:
    shared = {"store.kind": "postgres", "store.url": url}
    async with gateway(tmp_path / "a", settings=shared) as one, gateway(tmp_path / "b", settings=shared) as other:
        client = await one.connect()
        await client.chat("the canary sings")
        body, headers = {"session": "main", "message": 2}, {"Authorization": f"Bearer {TOKEN}"}
        async with other.http.post(f"{other.url}/api/erasures", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
        assert not rows(url, "SELECT 1 FROM line WHERE position('canary'::bytea IN line) > 0")
        assert await client.chat("and now?") == "and now?"


@pytest.mark.parametrize("command", ["/delete yes", "/forget conversation yes"])
async def test_a_removal_that_a_gateway_has_confirmed_and_not_begun_is_carried_out_by_another(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    shared = {"store.kind": "postgres", "store.url": url}
    begin, record, attempts = Deletions.begin, Deletions.record, set[Deletions]()
    monkeypatch.setattr(removals, "REQUESTS_SECONDS", 0.05)
    async with gateway(tmp_path / "b", settings=shared) as other:
        async with gateway(tmp_path / "a", settings=shared) as one:
            client = await one.connect()
            await client.chat("the canary sings")

            async def refused(self: Deletions, *_: object, **__: object) -> None:
                attempts.add(self)
                raise StorageFailed("It is full.")

            monkeypatch.setattr(Deletions, "begin", refused)
            monkeypatch.setattr(Deletions, "record", refused)
            assert "as soon as" in await client.command(command)
            await until(lambda: attempts)
        await until(lambda: len(attempts) == 2)  # the gateway that is left tries it too
        monkeypatch.setattr(Deletions, "begin", begin)
        monkeypatch.setattr(Deletions, "record", record)
        await until(lambda: rows(url, "SELECT 1 FROM line WHERE position('deletion_finished'::bytea IN line) > 0"))
        assert not rows(url, "SELECT 1 FROM line WHERE position('canary'::bytea IN line) > 0")
        assert await (await other.connect()).chat("anew") == "anew"


async def test_an_erasure_that_one_gateway_carries_out_is_not_begun_by_another(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = {"store.kind": "postgres", "store.url": url}
    erase_entries, carrying_out, resume = Erasures.erase_entries, Deletions.carrying_out, PersonErasures.resume
    carried_out, waiting, resumed, go_on = list[Erasures](), list[Deletions](), list[PersonErasures](), asyncio.Event()

    async def slow(self: Erasures, order: ErasureOrdered) -> Erased:
        carried_out.append(self)
        await go_on.wait()
        return await erase_entries(self, order)

    def watched(self: Deletions, order: ErasureOrdered) -> contextlib.AbstractAsyncContextManager[None]:
        waiting.append(self)
        return carrying_out(self, order)

    async def to_its_end(self: PersonErasures) -> None:
        await resume(self)
        resumed.append(self)

    monkeypatch.setattr(Erasures, "erase_entries", slow)
    monkeypatch.setattr(PersonErasures, "resume", to_its_end)
    monkeypatch.setattr(Deletions, "carrying_out", watched)
    async with gateway(tmp_path / "a", settings=shared) as one:
        headers = {"Authorization": f"Bearer {TOKEN}"}

        async def erase() -> int:
            async with one.http.post(f"{one.url}/api/erasures", json={"person": "ana"}, headers=headers) as answer:
                return answer.status

        erasing = asyncio.create_task(erase())
        await until(lambda: carried_out)
        async with gateway(tmp_path / "b", settings=shared):
            await until(lambda: len(set(waiting)) == 2)
            go_on.set()
            assert await erasing == 200
            await until(lambda: len(resumed) == 2)
    assert len(set(carried_out)) == 1


async def test_any_gateway_takes_any_client_and_all_see_the_same_events(
    url: str, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    async with gateways(url, tmp_path) as (one, two):
        direct, relayed = await one.connect(http), await two.connect(http)
        assert await direct.chat("one") == "one"
        assert await relayed.chat("two") == "two"
        await direct.until(lambda f: f.get("event", {}).get("kind") == "turn_ended" and f["event"]["turn"] == 2)
        assert [event["text"] for event in events(url, "message_received")] == ["one", "two"]
        assert len(set(holders(url).values())) == 1
        seen = [event["seq"] for _, event in direct.events()]
        assert seen == list(range(seen[0], seen[-1] + 1))
        later = [event["seq"] for _, event in relayed.events()]
        assert later == list(range(later[0], seen[-1] + 1))
        assert [f["text"] for f in relayed.frames if f["type"] == "delta"] == ["two"]

        await relayed.say("history", id="h", session="main", limit=500)
        history = await relayed.until_type("history", id="h")
        assert [event["seq"] for event in history["events"]] == list(range(1, seen[-1] + 1))
        await relayed.say("subscribe", session="main", after=0)
        again = await relayed.until(lambda f: f["type"] == "event" and f["event"]["seq"] == seen[-1])
        assert again["event"]["kind"] == "turn_ended"
        await relayed.send("one", id_="twice")
        await relayed.until_answered("twice")
        await direct.send("one", id_="twice")
        assert (await direct.until_answered("twice"))["duplicate"]
        await relayed.say("subscribe", id="s", session="unknown")
        assert (await relayed.until_type("error", id="s"))["code"] == "unknown_session"
        status = await relayed.command("/status")
        assert re.search(r"^- Cluster: [12] gateways?; this conversation is on \w+\.\w+$", status, re.MULTILINE)


async def test_a_client_that_lists_its_conversations_is_told_once_what_happens_on_the_other_gateways(
    url: str, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    async with gateways(url, tmp_path) as (one, two):
        listing, other, talking = await two.connect(http), await one.connect(http), await one.connect(http)
        for client in (listing, other):
            await client.say("sessions", id="s", follow=True)
            await client.until_type("sessions", id="s")
        told = asyncio.create_task(listing.until_type("session_update", session="news"))
        async with deadline():
            while not told.done():  # from when the gateways are connected
                await talking.chat("more", session="news")
        await talking.chat("the last", session="news")
        last = talking.events("news")[-1][1]
        for client in (listing, other):
            update = await client.until(lambda f: f["type"] == "session_update" and f["event"]["seq"] == last["seq"])
            assert update["event"] == {"seq": last["seq"], "at": last["at"], "kind": "turn_ended", "outcome": "replied"}
            await client.round_trips()
            seqs = [frame["event"]["seq"] for frame in client.frames if frame["type"] == "session_update"]
            assert seqs == sorted(set(seqs))


async def send_as_program(http: aiohttp.ClientSession, to: GatewayProcess, **arguments: Any) -> str:
    """Send a message as programs do over MCP, and return the result's text."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
    params = {"name": "send_message", "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with http.post(f"http://127.0.0.1:{to.port}/mcp", headers=headers, json=body) as answer:
        (content,) = (await answer.json())["result"]["content"]
        return str(content["text"])


async def test_a_turn_is_cancelled_from_another_gateway_where_a_program_has_sent_a_message_meanwhile(
    url: str, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    script = [{"text": "a long answer " * 4000, "delay_ms": 50}, {"text": "the answer to the program"}]
    async with gateways(url, tmp_path, script=script) as (one, two):
        direct, relayed = await one.connect(http), await two.connect(http)
        await direct.send("begin")
        await direct.until_type("delta")
        await relayed.say("subscribe", session="main", after=0)
        await relayed.until_type("delta")
        owner = holders(url)
        assert await send_as_program(http, two, text="first", wait_seconds=0) == "The message was accepted as event 6."
        answered = asyncio.create_task(send_as_program(http, two, text="second"))
        await direct.until(lambda f: f.get("event", {}).get("text") == "second")
        await relayed.say("cancel", session="main")
        assert (await relayed.until_event("turn_ended"))["outcome"] == "cancelled"
        assert (await direct.until_event("turn_ended"))["outcome"] == "cancelled"
        assert await answered == "the answer to the program"
        assert holders(url) == owner
        assert [(event["channel"], event["client"]) for event in events(url, "message_received")[1:]] == [
            ("mcp", "mcp:person owner")
        ] * 2


async def test_after_kill_9_the_turn_is_finished_elsewhere_once_and_clients_see_every_event(
    url: str, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    install_tool(tmp_path / "site")
    script = [{"calls": [{"tool": "stamp", "arguments": {}}]}, {"text": "It may be stamped."}]
    options: dict[str, Any] = {
        "script": script,
        "path": tmp_path / "site",
        "settings": {"STAMP_SECONDS": "600"},
    }
    async with gateways(url, tmp_path, **options) as (one, two):
        direct, relayed = await one.connect(http), await two.connect(http)
        await direct.send("stamp it", id_="m1")
        stamps = tmp_path / "home-0" / "workspace" / "stamps"
        await direct.send("stamp it", session="posted", id_="p1")
        await until(lambda: stamps.exists() and len(stamps.read_text().split()) == 2)
        posted = asyncio.create_task(post(http, two, "stamp it", {"X-Exuvia-Session": "posted", "Idempotency-Key": "p1"}))
        await relayed.say("subscribe", session="main", after=0)
        await relayed.until_event("tool_called")
        await one.kill()
        assert (await relayed.until_event("turn_ended"))["outcome"] == "replied"
        await relayed.send("stamp it", id_="m1")
        assert (await relayed.until_answered("m1"))["duplicate"]
        seen = [event["seq"] for _, event in relayed.events()]
        assert seen == list(range(1, seen[-1] + 1))
        assert await posted == (200, "It may be stamped.")
        assert len(stamps.read_text().split()) == 2
        assert not (tmp_path / "home-1" / "workspace" / "stamps").exists()
    assert [event["outcome"] for event in events(url, "tool_returned", "turn_ended")] == ["unknown", "replied"] * 2


async def test_a_gateway_that_wakes_up_writes_nothing_and_goes_on_as_another(
    url: str, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    script = [{"text": "one two three four five six seven eight nine ten " * 5, "delay_ms": 200}]
    async with gateways(url, tmp_path, script=script) as (one, two):
        direct, relayed = await one.connect(http), await two.connect(http)
        await direct.send("count", id_="m1")
        await direct.until_type("delta")
        before = holders(url)["main"]
        one.process.send_signal(signal.SIGSTOP)
        await until(lambda: holders(url)["main"] not in ("", before))
        await until(lambda: len(events(url, "turn_resumed")) == 1)
        one.process.send_signal(signal.SIGCONT)
        await until(lambda: rows(url, "SELECT count(*) FROM gateway WHERE NOT dead") == [(2,)])
        await direct.until_event("turn_ended")
        seen = [event["seq"] for _, event in direct.events()]
        assert seen == list(range(seen[0], seen[-1] + 1))
        await relayed.say("history", id="h", session="main", limit=500)
        whole = (await relayed.until_type("history", id="h"))["events"]
        assert [event["seq"] for event in whole] == list(range(1, len(whole) + 1))
        assert [event["kind"] for event in whole].count("turn_ended") == 1
        assert isinstance(direct, Client)


async def test_a_gateway_that_stops_hands_over_and_its_clients_go_on_elsewhere(
    url: str, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    async with gateways(url, tmp_path) as (one, two):
        direct, relayed = await one.connect(http), await two.connect(http)
        await direct.chat("one")
        await relayed.say("subscribe", session="main", after=0)
        await relayed.until_event("turn_ended")
        stopping = asyncio.create_task(one.stop())
        assert await direct.closed() == 1012
        last = direct.events()[-1][1]["seq"]
        elsewhere = await two.connect(http)
        await elsewhere.say("subscribe", session="main", after=last)
        assert await elsewhere.chat("two") == "two"
        assert await stopping == 0
        await relayed.until(lambda f: f.get("event", {}).get("kind") == "turn_ended" and f["event"]["turn"] == 2)
        seen = [event["seq"] for _, event in relayed.events()]
        assert seen == list(range(1, seen[-1] + 1))
        assert all(frame["type"] != "error" for each in (direct, relayed, elsewhere) for frame in each.frames)


async def test_a_message_to_a_gateway_of_a_cluster_that_begins_to_stop_is_taken_and_answered_by_the_next_owner(
    url: str, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    settings = {"store.kind": "postgres", "store.url": url}
    async with gateway(tmp_path / "stopping", settings=settings) as stopping, gateways(url, tmp_path, 1) as (other,):
        client = await stopping.connect()
        stopping.daemon.readiness.stop(Busy("The gateway is stopping; try again in a moment."))
        for session in ("main", "main", "new"):
            taken = await client.until_answered(await client.send("hello", session=session))
            assert taken["type"] == "accepted", taken
        stopping.daemon.stop()
        assert await client.closed() == 1012
        elsewhere = await other.connect(http)
        await elsewhere.say("subscribe", session="main", after=0)
        await elsewhere.until_event("turn_ended")


async def test_requests_about_a_conversation_are_answered_by_the_gateway_that_has_it(
    url: str, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Exuvia-Session": "main"}
    async with gateways(url, tmp_path) as (one, two):
        await (await one.connect(http)).chat("one")
        owner = holders(url)["main"]
        for stream in (False, True):
            body = {"model": "exuvia", "stream": stream, "messages": [{"role": "user", "content": f"streamed {stream}"}]}
            place = f"http://127.0.0.1:{two.port}/v1/chat/completions"
            async with http.post(place, headers=headers, json=body) as answer:
                assert answer.status == 200, await answer.text()
                assert f"streamed {stream}".split()[1] in await answer.text()
        assert holders(url) == {"main": owner}
        async with http.get(f"http://127.0.0.1:{two.port}/cluster", headers=headers) as answer:
            status = await answer.json()
        assert [(row["url"], row["held"]) for row in status["gateways"]] == [
            (f"http://127.0.0.1:{one.port}", 1),
            (f"http://127.0.0.1:{two.port}", 0),
        ] or status["gateways"][0]["held"] + status["gateways"][1]["held"] == 1
        assert status["gateway"] in [row["id"] for row in status["gateways"]]
        assert status["problems"] == []
        metrics = ""
        async with deadline():  # a gateway is counted once its beat has been seen
            while "exuvia_cluster_gateways 2" not in metrics:
                async with http.get(f"http://127.0.0.1:{two.port}/metrics", headers=headers) as answer:
                    metrics = await answer.text()
        written = set(re.findall(r"`(exuvia_cluster_\w+)`", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")))
        assert written == set(re.findall(r"^# TYPE (exuvia_cluster_\w+)", metrics, re.MULTILINE))
        for token in ("", "owner:x:1:00", f"owner:{owner}:{int(time.time())}:00"):
            async with http.get(f"http://127.0.0.1:{one.port}/cluster", headers={"X-Exuvia-Relayed": token}) as answer:
                assert answer.status == 401
        handover = {"key": "main", "to": status["gateway"]}
        async with http.post(f"http://127.0.0.1:{one.port}/cluster/handover", headers=headers, json=handover) as answer:
            assert answer.status == 403
    (tmp_path / "home-0" / "config.toml").write_text(f'[store]\nkind = "postgres"\nurl = "{url}"\n')
    with ThreadPoolExecutor(1) as thread:
        shown = thread.submit(CliRunner().invoke, cli, ["cluster", "status", "--home", str(tmp_path / "home-0")]).result()
    assert "2 gateways on this database." in shown.output
    assert "1 conversation, highest epoch 1; last beat" in shown.output


async def test_what_only_one_gateway_can_do_has_the_conversation_handed_over_to_it(
    url: str, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    """A schedule is run by the gateway that has its lease, whoever has the conversation."""
    async with gateways(url, tmp_path) as (one, two):
        direct, other = await one.connect(http), await two.connect(http)
        await direct.chat("one")
        before = holders(url)["main"]
        await other.say("subscribe", session="main", after=0)
        await other.until_event("turn_ended")
        secret = rows(url, "SELECT secret FROM cluster")[0][0]
        (target,) = [id_ for (id_,) in rows(url, "SELECT id FROM gateway WHERE NOT dead") if id_ != before]
        token = RelayTokens(lambda: secret, lambda: "", time.time).issue("owner", before)
        place = f"http://127.0.0.1:{one.port}/cluster/handover"
        async with http.post(place, headers={"X-Exuvia-Relayed": token}, json={"key": "main", "to": target}) as answer:
            assert answer.status == 200, await answer.text()
        assert holders(url) == {"main": target}
        assert await other.chat("two") == "two"
        await direct.until(lambda f: f.get("event", {}).get("kind") == "turn_ended" and f["event"]["turn"] == 2)
        assert await direct.chat("three") == "three"
        seen = [event["seq"] for _, event in direct.events()]
        assert seen == list(range(seen[0], seen[-1] + 1))
        assert holders(url) == {"main": target}


@pytest.mark.parametrize("busy", [False, True])
async def test_a_subagent_that_another_gateway_has_adopted_is_handed_over_and_reports(
    busy: bool, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even while somebody watches it there, and after its turn has ended."""
    monkeypatch.setattr(subagents, "random_suffix", lambda: "child")
    monkeypatch.setattr(subagents, "RETRY_SECONDS", (0.01 if busy else 600.0,))
    monkeypatch.setattr(switchboard, "HAND_OVER_SECONDS", 0.05 if busy else 600.0)
    shared = {"store.kind": "postgres", "store.url": url}
    with replies_wait() as go_on, capture_logs() as logs:
        async with gateway(tmp_path / "a", settings=shared) as one, gateway(tmp_path / "b", settings=shared) as two:
            watching, client = await two.connect(), await one.connect()
            await watching.send("an earlier task", session="main.sub.child")
            await watching.until_event("turn_started")
            if not busy:
                go_on.set()
                await watching.until_event("turn_ended")
            assert "works on it" in await client.command("/spawn Count the books.")
            if busy:
                await until(lambda: any(each["event"] == "subagent_waits" for each in logs))
                assert events(url, "child_ended") == []
                go_on.set()
            await until(lambda: events(url, "child_ended"))
    assert [event["outcome"] for event in events(url, "child_ended")] == ["replied"]
    said = [event["text"] for event in events(url, "message_received")]
    assert said.count("Count the books.") == 1
    assert sum("The subagent main.sub.child has ended." in text for text in said) == 1


async def test_an_idle_conversation_moves_to_the_gateway_of_its_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switchboards: list[Switchboard]
) -> None:
    monkeypatch.setattr(switchboard, "RELAYED_SECONDS", -1.0)
    monkeypatch.setattr(switchboard, "SWEEP_SECONDS", 0.01)
    async with gateway(tmp_path) as running:
        client = await running.connect()
        await client.chat("one")
        board = switchboards[0]
        (chat,) = board._chats.values()
        await client.round_trips()
        assert not chat.dropped
        chat.unwatch(next(iter(chat._watchers)))
        chat.watch(client.frames.clear, relayed=True)
        await until(lambda: not board._chats)


async def test_no_session_begins_under_a_claim_that_was_lost_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switchboards: list[Switchboard]
) -> None:
    """The next incarnation of the gateway may have the conversation already, in another chat."""
    async with gateway(tmp_path) as running:
        client = await running.connect()
        (board,) = switchboards
        answers = [False, True]  # it is lost when the log was created
        with monkeypatch.context() as lost:
            lost.setattr(board._claims, "holds", lambda _: answers.pop())
            refused = await client.until_answered(await client.send("hello"))
        assert (refused["type"], refused["code"]) == ("error", "storage_failed"), refused
        assert not list((tmp_path / "sessions").iterdir())
        assert await client.chat("again") == "again"


async def test_the_conversations_of_a_gateway_that_is_gone_are_opened_several_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switchboards: list[Switchboard]
) -> None:
    all_open, opened = asyncio.Barrier(switchboard.OPENED_AT_ONCE), list[str]()

    class Adopted:
        shared, regained = True, 0

        async def unowned(self) -> AsyncIterator[Name]:
            for number in range(2 * switchboard.OPENED_AT_ONCE):
                yield "owner", f"key-{number}"
            raise StorageFailed("The database went away.")

    async def chat(person: str, key: str, *, create: bool) -> None:
        await all_open.wait()
        opened.append(key)
        raise OwnedElsewhere("", "")

    async with gateway(tmp_path):
        (board,) = switchboards
        monkeypatch.setattr(board, "_claims", Adopted())
        monkeypatch.setattr(board, "chat", chat)
        async with deadline():
            with pytest.raises(StorageFailed):
                await board.resume_all()
        assert set(opened) == {f"key-{number}" for number in range(2 * switchboard.OPENED_AT_ONCE)}
        monkeypatch.undo()


async def test_conversations_are_adopted_although_the_first_attempt_fails_unexpectedly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(switchboard, "REOPEN_SECONDS", (0.01,))
    attempts = list[int]()

    async def resume_all() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("can't start new thread")
        raise asyncio.CancelledError

    async def until_unowned() -> None:
        pass

    board = SimpleNamespace(_claims=SimpleNamespace(until_unowned=until_unowned), resume_all=resume_all)
    with pytest.raises(asyncio.CancelledError):
        await Switchboard.adopt(cast(Switchboard, board))
    assert len(attempts) == 2


async def test_what_could_not_be_opened_is_tried_again_as_soon_as_the_database_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switchboards: list[Switchboard]
) -> None:
    monkeypatch.setattr(switchboard, "REOPEN_SECONDS", (600.0,))
    back, tried = asyncio.Event(), list[tuple[Any, ...]]()

    class Reachable:
        shared, regained = True, 0

        async def until_regained(self, before: int) -> None:
            await back.wait()

    async def attempt(*name: Any, **_: Any) -> None:
        tried.append(name)
        if tried.count(name) == 1:
            raise StorageFailed("The database is away.")
        raise OwnedElsewhere("", "")

    async with gateway(tmp_path):
        (board,) = switchboards
        with monkeypatch.context() as patched:
            patched.setattr(board, "_claims", Reachable())
            patched.setattr(board, "chat", attempt)
            patched.setattr(board, "_restore", attempt)
            await board._resume(("owner", "adopted"))
            failed: Any = SimpleNamespace(name=("owner", "failed"), key="failed", failures=3)
            board.spawn(board._reopen(failed))
            assert tried == [("owner", "adopted")]
            back.set()
            await until(lambda: len(tried) == 4)
        assert Counter(tried) == {("owner", "adopted"): 2, (("owner", "failed"),): 2}
        assert failed.failures == 5


@contextlib.asynccontextmanager
async def asked_in_a_session(
    url: str, home: Path, headers: Mapping[str, str], *, stream: bool = False
) -> AsyncIterator[tuple[asyncio.Event, asyncio.Future[aiohttp.ClientResponse]]]:
    """A gateway of a cluster whose model answers a request in a session, and has given the first word. Yield the event
    that lets the model go on, and the request."""
    body = {"model": "exuvia", "stream": stream, "messages": [{"role": "user", "content": "one two"}]}
    given = {"Authorization": f"Bearer {TOKEN}", "X-Exuvia-Session": "main", **headers}
    with replies_wait() as go_on:
        async with gateway(home, settings={"store.kind": "postgres", "store.url": url}) as running, deadline():
            place = f"{running.url}/v1/chat/completions"
            posted = asyncio.ensure_future(running.http.post(place, headers=given, json=body))
            await until(lambda: events(url, "turn_started"))
            yield go_on, posted


async def test_a_request_in_a_session_that_its_gateway_loses_is_answered_by_the_next_owner_if_it_has_an_id(
    url: str, tmp_path: Path, switchboards: list[Switchboard]
) -> None:
    async with asked_in_a_session(url, tmp_path, {"Idempotency-Key": "m1"}) as (go_on, posted):
        (board,) = switchboards
        board._claims._drop()  # type: ignore[attr-defined]
        go_on.set()
        answer = await posted
        assert answer.status == 200, await answer.text()
        assert (await answer.json())["choices"][0]["message"]["content"].endswith("one two")
        assert answer.headers["X-Exuvia-Duplicate"] == "true"
        assert [event["id"] for event in events(url, "message_received")] == ["m1"]
        assert [event["kind"] for event in events(url, "turn_started", "turn_ended")] == ["turn_started", "turn_ended"]


async def test_a_request_in_a_session_that_its_gateway_loses_is_refused_if_it_has_no_id(
    url: str, tmp_path: Path, switchboards: list[Switchboard]
) -> None:
    async with asked_in_a_session(url, tmp_path, {}) as (_, posted):
        (board,) = switchboards
        board._claims._drop()  # type: ignore[attr-defined]
        answer = await posted
        assert (answer.status, answer.headers["X-Should-Retry"]) == (503, "false")
        assert "Idempotency-Key" in (await answer.json())["error"]["message"]
        assert len(events(url, "message_received")) == 1


async def test_a_response_that_continues_another_is_not_begun_again_in_a_fork_when_its_gateway_loses_it(
    url: str, tmp_path: Path, switchboards: list[Switchboard]
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": "m2"}
    async with gateway(tmp_path, settings={"store.kind": "postgres", "store.url": url}) as running, deadline():
        place, first = f"{running.url}/v1/responses", {"model": "exuvia", "conversation": "main", "input": "one two"}
        async with running.http.post(place, headers=headers | {"Idempotency-Key": "m1"}, json=first) as answer:
            id_ = (await answer.json())["id"]
        with replies_wait():
            body = {"model": "exuvia", "input": "three four", "previous_response_id": id_}
            posted = asyncio.ensure_future(running.http.post(place, headers=headers, json=body))
            await until(lambda: len(events(url, "turn_started")) == 2)
            (board,) = switchboards
            board._claims._drop()  # type: ignore[attr-defined]
            assert (await posted).status == 503
        assert [event["id"] for event in events(url, "message_received")] == ["m1", "m2"]


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "m1"}])
async def test_a_stream_in_a_session_that_its_gateway_loses_ends_with_an_error(
    url: str, tmp_path: Path, switchboards: list[Switchboard], headers: dict[str, str]
) -> None:
    async with asked_in_a_session(url, tmp_path, headers, stream=True) as (_, posted):
        answer = await posted
        while b'"content":"one' not in await answer.content.readuntil(b"\n\n"):
            pass
        (board,) = switchboards
        board._claims._drop()  # type: ignore[attr-defined]
        last = (await answer.text()).split("\n\n")[-2]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "busy"
        assert len(events(url, "message_received")) == 1


async def test_a_claim_without_a_session_is_given_up_after_its_adoption(url: str, tmp_path: Path) -> None:
    """Its owner was killed before a session began."""
    async with gateway(tmp_path, settings={"store.kind": "postgres", "store.url": url}):
        rows(url, "INSERT INTO chat (person, key, unsettled) VALUES ('owner', 'never', true) RETURNING 1")
        await until(lambda: rows(url, "SELECT holder, unsettled, epoch > 0 FROM chat") == [(None, False, True)])


def lose_an_answer(monkeypatch: pytest.MonkeyPatch, wanted: bytes) -> list[bytes]:
    """Let the next commit of a line that contains `wanted` be stored without being confirmed. Returns the line by then."""
    append, lost = GroupCommitter._append, list[bytes]()

    def stored(self: GroupCommitter, connection: Any, batch: Any) -> Any:
        result = append(self, connection, batch)
        if not lost and (found := [line for _, lines in batch for line in lines if wanted in line]):
            lost.extend(found)
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return result

    monkeypatch.setattr(GroupCommitter, "_append", stored)
    return lost


async def test_a_start_keeps_a_conversation_that_goes_on_after_its_deletion_was_recorded_without_an_answer(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = {"store.kind": "postgres", "store.url": url}
    async with gateway(tmp_path / "a", settings=shared) as one:
        client = await one.connect()
        await client.chat("said before")
        lost = lose_an_answer(monkeypatch, b'"kind":"session_deleted"')
        await client.say("delete", id="d", session="main", facts=False)
        assert (await client.until(lambda frame: frame.get("id") == "d"))["code"] == "storage_failed"
        assert lost
        assert await client.chat("said after it") == "said after it"
        async with gateway(tmp_path / "b", settings=shared):
            await until(lambda: rows(url, "SELECT FROM line WHERE line LIKE '%\"kept\":true%'"))
            assert await client.chat("and now") == "and now"
    assert [event["text"] for event in events(url, "message_received")] == ["said before", "said after it", "and now"]


async def test_a_gateway_that_was_declared_dead_posts_no_answer_that_the_next_owner_has_posted(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switchboards: list[Switchboard]
) -> None:
    shared, posts, deliveries = {"store.kind": "postgres", "store.url": url}, list[str](), list[ReplyDelivery]()
    init = ReplyDelivery.__init__

    def note(self: ReplyDelivery, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        deliveries.append(self)

    async def deliver(message: OutboundMessage) -> str:
        posts.append(message.text)
        return "r"

    monkeypatch.setattr(ReplyDelivery, "__init__", note)
    monkeypatch.setattr(reply_delivery, "CLOSED_SECONDS", 0.05)
    monkeypatch.setattr(reply_delivery, "PAUSES", (0.05,))
    pigeon, loft = SimpleNamespace(name="pigeon", deliver=deliver), ("owner", "loft")
    async with gateway(tmp_path / "a", settings=shared), gateway(tmp_path / "b", settings=shared):
        for each in deliveries:  # the channel is not open at first
            each._channel = lambda _: None
        chat = await switchboards[0].chat_here(*loft, channel="pigeon")
        message = MessageReceived(
            id="1",
            client="ana",
            sender="owner",
            channel="pigeon",
            chat="private",
            text="coo",
            attachments=(),
            reply_to="loft",
        )
        await chat.until_durable(await chat.receive(message, None))
        await until(lambda: events(url, "turn_ended") and deliveries[0].waiting())
        switchboards[0]._claims._drop()  # type: ignore[attr-defined]
        assert not deliveries[0].conversations()
        rows(url, "UPDATE chat SET holder = NULL, epoch = epoch + 1 RETURNING 1")
        deliveries[1]._channel = lambda _: pigeon  # type: ignore[assignment, return-value]
        await switchboards[1].chat(*loft, create=False)
        await until(lambda: events(url, "reply_delivered"))
        deliveries[0]._channel = lambda _: pigeon  # type: ignore[assignment, return-value]
        chat = await switchboards[1].chat_here(*loft, channel="pigeon")
        await chat.until_durable(await chat.receive(msgspec.structs.replace(message, id="2", text="coo again"), None))
        await until(lambda: len(events(url, "reply_delivered")) == 2)
    assert posts == ["coo", "coo again"]


async def test_what_the_last_owner_left_unfinished_is_not_emptied_before_it_is_finished(
    url: str, tmp_path: Path, switchboards: list[Switchboard]
) -> None:
    main = ("owner", "main")
    with replies_wait() as go_on:
        async with gateway(tmp_path, settings={"store.kind": "postgres", "store.url": url}) as running:
            client = await running.connect()
            await client.send("unfinished")
            await until(lambda: events(url, "request_sent"))
            await client.socket.close()
            (board,) = switchboards
            board._claims._drop()  # type: ignore[attr-defined]
            await until(lambda: main not in board._chats)
            rows(url, "UPDATE chat SET holder = NULL, epoch = epoch + 1, unsettled = true RETURNING 1")
            with pytest.raises(Conflict, match=r"being taken over|turn is running"):
                async with board.emptied(main):
                    pass
            go_on.set()
            await until(lambda: events(url, "turn_ended"))
            await until(lambda: board._chats[main].idle)
            async with board.emptied(main):
                pass


async def test_a_message_to_a_conversation_that_is_being_unloaded_is_not_accepted(
    url: str, tmp_path: Path, switchboards: list[Switchboard]
) -> None:
    """Its file took a moment to store, for example. Nobody would answer it."""
    async with gateway(tmp_path, settings={"store.kind": "postgres", "store.url": url}) as running:
        client = await running.connect()
        await client.chat("first")
        await client.socket.close()
        (board,) = switchboards
        chat = await board.chat_here("owner", "main", channel="websocket")
        await until(lambda: not chat.subscribers)
        unloading = asyncio.ensure_future(board._unload_if_idle(chat.name, chat))
        while chat.name in board._chats:
            await asyncio.sleep(0)
        message = MessageReceived(
            id="late", client="c", sender="owner", channel="websocket", chat="private", text="late", attachments=()
        )
        with pytest.raises(Busy):
            await chat.receive(message, None)
        await unloading
        chat = await board.chat_here("owner", "main", channel="websocket")
        await chat.until_durable(await chat.receive(message, None))
        await until(lambda: len(events(url, "turn_ended")) == 2)


async def test_a_gateway_without_contact_with_the_database_is_not_ready(
    url: str, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    """A client that has seen more than it has at the next owner is not told that this does not exist."""
    async with gateways(url, tmp_path, count=1) as (one,):
        client = await one.connect(http)
        await client.chat("first")
        ready = f"http://127.0.0.1:{one.port}/readyz"
        name = url.rpartition("/")[2]
        with psycopg.connect(postgres_server().url("postgres"), autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            async with deadline():
                while (await http.get(ready)).status != 503:
                    await asyncio.sleep(0.05)
            await client.say("subscribe", id="behind", session="main", after=999)
            assert (await client.until_type("error", id="behind"))["code"] == "busy"
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await one.ready(http)
        await client.say("subscribe", id="wrong", session="main", after=999)
        assert (await client.until_type("error", id="wrong"))["code"] == "bad_request"
        assert await (await one.connect(http)).chat("again") == "again"
