"""A gateway whose logs are in PostgreSQL: docs/postgresql.md."""

from __future__ import annotations

import asyncio
import json
import threading
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.cli.sessions import store_commands
from gateway.config.keys import load_config
from gateway.conversations.routing import switchboard
from gateway.support.errors import ConfigRefused
from sessions.attachments.store import Attachments
from sessions.catalog.postgres_catalog import PostgresCatalog
from sessions.events.errors import StorageFailed
from sessions.postgres.connections import Connection
from sessions.postgres.group_commit import GroupCommitter, RowLog
from sessions.postgres.postgres_store import PostgresStore, StoredRowLog
from sessions.postgres.schema import MIGRATIONS
from sessions.store.catalog import SessionRow
from tests.faults.gateway_process import GatewayProcess, gateway_process, install_tool
from tests.gateway.gateways import gateway
from tests.servers.postgres_server import postgres_server
from tests.sessions.journal_files import messages, write_journal
from tests.waiting import deadline, until

DISCONNECT = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


@pytest.fixture(autouse=True)
def waits_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The places that have waited for the database on the event loop: none may while the gateway
    serves. Commands have loops of their own, on other threads."""
    places = list[str]()
    plain = Connection.wait

    def wait(connection: Connection, *arguments: Any, **named: Any) -> Any:
        if asyncio._get_running_loop() is not None and threading.current_thread() is threading.main_thread():
            stack = traceback.format_stack(limit=12)
            if not any("in facts_of" in frame for frame in stack):  # once, before anybody is served
                places.append("".join(stack))
        return plain(connection, *arguments, **named)

    monkeypatch.setattr(Connection, "wait", wait)
    yield places
    assert not places, "\n".join(places)


def settings(url: str) -> dict[str, Any]:
    return {"store.kind": "postgres", "store.url": url}


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """The result of a query that somebody else makes."""
    with psycopg.connect(url, autocommit=True, options="-c search_path=exuvia") as connection:
        return connection.execute(query.encode()).fetchall()


def events(url: str, kind: str) -> list[dict[str, Any]]:
    """All events of a kind in the sessions, in the order in which the sessions were created."""
    found = rows(
        url, "SELECT line FROM line JOIN log ON log.id = line.log WHERE store = 'sessions' ORDER BY log.id, line.seq"
    )
    return [event for (line,) in found if (event := json.loads(line))["kind"] == kind]


def cli_on(home: Path, *arguments: str) -> Result:
    with ThreadPoolExecutor(1) as thread:  # the command has an event loop of its own
        return thread.submit(CliRunner().invoke, cli, [*arguments, "--home", str(home)]).result()


async def test_conversations_continue_after_a_restart_and_no_log_is_in_the_home(tmp_path: Path, url: str) -> None:
    async with gateway(tmp_path, settings=settings(url)) as running:
        client = await running.connect()
        assert await client.chat("one") == "one"
        await client.command("/new")
        assert await client.chat("two") == "two"
        await client.command("/title A talk about numbers")
    async with gateway(tmp_path, settings=settings(url)) as running:
        client = await running.connect()
        assert await client.chat("three") == "three"
        await client.send("two", id_="later")
        await client.until_event("turn_ended")
    assert [event["text"] for event in events(url, "message_received") if not event["text"].startswith("/")] == [
        "one",
        "two",
        "three",
        "two",
    ]
    assert list(tmp_path.rglob("*.jsonl")) == []


async def test_the_catalog_can_be_deleted_and_a_message_sent_twice_is_recognized(tmp_path: Path, url: str) -> None:
    async with gateway(tmp_path, settings=settings(url)) as running:
        client = await running.connect()
        await client.send("once", id_="the-id")
        await client.until_event("turn_ended")
    assert not (tmp_path / "catalog.sqlite").exists()
    rows(url, "WITH rows AS (DELETE FROM session), ids AS (DELETE FROM receipts) DELETE FROM checkpoint RETURNING 1")
    async with gateway(tmp_path, settings=settings(url)) as running:
        client = await running.connect()
        await client.send("once", id_="the-id")
        assert (await client.until_answered("the-id"))["duplicate"] is True
    assert len(events(url, "turn_started")) == 1


async def test_two_agents_see_nothing_of_each_other_in_a_database_and_go_on_after_a_restart(
    tmp_path: Path, url: str
) -> None:
    given = {**settings(url), "agent.model": "scripted:echo", "memory.embedding.provider": "none"}
    for agent in ("main", "work"):
        skill = (
            tmp_path / ("" if agent == "main" else f"agents/{agent}") / "workspace" / "skills" / f"of-{agent}" / "SKILL.md"
        )
        skill.parent.mkdir(parents=True)
        skill.write_text(f"---\nname: of-{agent}\ndescription: A skill of {agent}.\n---\nDo it.\n")
    async with gateway(tmp_path, file="[agents.work]\n", settings=given) as running:
        client = await running.connect()
        assert "with the agent `work`" in await client.command("/agent work", session="office")
        for key, said in (("main", "tea"), ("office", "coffee")):
            assert await client.chat(said, session=key) == said
            assert "Remembered" in await client.command(f"/remember I like {said}", session=key)
            assert "Set for" in await client.command(f"/remind 1h Drink {said}.", session=key)
    async with gateway(tmp_path, file="[agents.work]\n", settings=given) as running:
        client = await running.connect()
        for key, agent, said, other in (("main", "main", "tea", "coffee"), ("office", "work", "coffee", "tea")):
            assert f"agent `{agent}` answers here" in await client.command("/agent", session=key)
            found = await client.command("/memory I like", session=key)
            assert (said in found, other in found) == (True, False)
            skills = await client.command("/skills", session=key)
            assert ("of-main" in skills, "of-work" in skills) == (agent == "main", agent == "work")
            assert f"Drink {said}." in await client.command("/schedule", session=key)
            assert await client.chat("still", session=key) == "still"
    assert list(tmp_path.rglob("*.jsonl")) == []


async def test_the_facts_of_each_agent_are_in_the_database_and_apart(tmp_path: Path, url: str) -> None:
    config = f'[store]\nkind = "postgres"\nurl = "{url}"\n[agents.work]\n'
    home = tmp_path / "home"
    async with gateway(home, file=config):  # makes the tables, and the agent's folder
        pass
    options: dict[str, list[str]] = {"tea": [], "coffee": ["--agent", "work"]}
    for said, of in options.items():
        document = tmp_path / f"{said}.json"
        document.write_text(json.dumps([{"content": f"They like {said}."}]))
        imported = cli_on(home, "memory", "facts", "import", str(document), *of)
        assert imported.exit_code == 0, imported.output
    for said, of in options.items():
        (fact,) = json.loads(cli_on(home, "memory", "facts", "list", "--json", *of).stdout)["facts"]
        assert fact["content"] == f"They like {said}."
        edited = cli_on(home, "memory", "facts", "edit", fact["id"], "--text", f"They like {said} with milk.", *of)
        assert edited.exit_code == 0, edited.output
    assert sorted(rows(url, "SELECT store, name FROM log WHERE name = 'facts'")) == [
        ("agents/work", "facts"),
        ("home", "facts"),
    ]
    assert list(home.rglob("*.jsonl")) == []
    back = tmp_path / "back"
    assert [fault for _, _, fault in copied(url, back).values()] == [""] * len(copied(url, back))
    (back / "config.toml").write_text("[agents.work]\n")
    for said, of in options.items():
        (fact,) = json.loads(cli_on(back, "memory", "facts", "list", "--json", *of).stdout)["facts"]
        assert fact["content"] == f"They like {said} with milk."


async def test_a_lost_connection_ends_no_conversation(tmp_path: Path, url: str) -> None:
    async with gateway(tmp_path, settings=settings(url)) as running:
        client = await running.connect()
        await client.chat("one")
        rows(url, DISCONNECT)
        assert await client.chat("two") == "two"


async def test_a_message_whose_commit_was_not_confirmed_is_recognised_when_it_is_sent_again(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, lost = GroupCommitter._append, list[bytes]()

    def unconfirmed(self: GroupCommitter, connection: Connection, batch: list[tuple[RowLog, list[bytes]]]) -> set[int]:
        stored = append(self, connection, batch)
        if not lost and (found := [line for _, lines in batch for line in lines if b"the second" in line]):
            lost.extend(found)
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return stored

    async with gateway(tmp_path, settings=settings(url)) as running:
        client = await running.connect()
        await client.chat("the first")
        monkeypatch.setattr(GroupCommitter, "_append", unconfirmed)
        await client.send("the second", id_="x")
        assert (await client.until_answered("x"))["type"] == "error"
        assert lost
        other = await running.connect()
        async with deadline():
            while True:
                await other.send("the second", id_="x")
                if (answer := await other.until_answered("x"))["type"] == "accepted":
                    break
                await asyncio.sleep(0.05)
        assert answer["duplicate"]
        await other.chat("the third")
    assert [each["text"] for each in events(url, "message_received")] == ["the first", "the second", "the third"]


@pytest.mark.parametrize("outcome", ["stored", "stored, seen late", "not stored"])
async def test_a_new_whose_commit_was_not_confirmed_begins_one_session_and_the_conversation_stays_in_it(
    outcome: str, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, lost = GroupCommitter._append, list[bytes]()
    current, seen_late = PostgresCatalog.current, list[SessionRow]()

    def unconfirmed(self: GroupCommitter, connection: Connection, batch: list[tuple[RowLog, list[bytes]]]) -> set[int]:
        if lost or not (found := [line for _, lines in batch for line in lines if b'"succeeds":{' in line]):
            return append(self, connection, batch)
        lost.extend(found)
        if outcome != "not stored":
            append(self, connection, batch)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def fails(self: PostgresStore, session: str) -> None:
        raise StorageFailed("The database is away.")

    async def late(self: PostgresCatalog, person: str, key: str) -> SessionRow | None:
        row = await current(self, person, key)
        if row is None or not lost or seen_late:
            return row
        seen_late.append(row)
        return self.chain(row.session)[0]

    monkeypatch.setattr(switchboard, "REOPEN_SECONDS", (0.05,))
    async with gateway(tmp_path, settings=settings(url)) as running:
        client = await running.connect()
        await client.chat("the first")
        with monkeypatch.context() as patched:
            patched.setattr(GroupCommitter, "_append", unconfirmed)
            if outcome != "stored":  # what has become of the commit shows only later
                patched.setattr(PostgresStore, "_discard", fails)
            if outcome == "stored, seen late":
                patched.setattr(PostgresCatalog, "current", late)
            await client.send("/new")
            await client.send("the second", id_="2")
            while (taken := await client.until_answered("2"))["type"] != "accepted":
                await asyncio.sleep(0.02)
                await client.send("the second", id_="2")
            await until(lambda: events(url, "command_answered") and len(events(url, "turn_ended")) == 2)
        assert lost
        assert bool(seen_late) == (outcome == "stored, seen late")
    async with gateway(tmp_path, settings=settings(url)) as running:
        await (await running.connect()).chat("the third")
    successors = [each["session"] for each in events(url, "session_opened") if each.get("succeeds")]
    found = rows(
        url, "SELECT name, line FROM line JOIN log ON log.id = line.log WHERE store = 'sessions' ORDER BY log.id, line.seq"
    )
    said = [(name, event["text"]) for name, line in found if (event := json.loads(line))["kind"] == "message_received"]
    assert said[2:] == [(taken["session_id"], "the second"), (taken["session_id"], "the third")]
    assert successors == [taken["session_id"]]
    (answered,) = events(url, "command_answered")
    assert not answered["failed"]
    assert answered["answer"].startswith("Started a new session" if outcome == "not stored" else "A new session has begun.")


async def test_commands_use_the_database_that_the_configuration_names(tmp_path: Path, url: str) -> None:
    async with gateway(tmp_path, settings=settings(url)) as running:
        client = await running.connect()
        await client.chat("a question")
    (tmp_path / "config.toml").write_text(f'[store]\nkind = "postgres"\nurl = "{url}"\n')
    assert "main" in cli_on(tmp_path, "sessions", "list").stdout
    assert "a question" in cli_on(tmp_path, "sessions", "show", "main").stdout
    assert cli_on(tmp_path, "sessions", "verify").exit_code == 0
    forked = cli_on(tmp_path, "sessions", "fork", "main")
    assert forked.exit_code == 0, forked.output
    assert rows(url, "SELECT count(*) FROM log WHERE store = 'sessions'") == [(2,)]
    async with gateway(tmp_path, settings=settings(url)) as running:
        client = await running.connect()
        assert await client.chat("in the fork", session="main-fork") == "in the fork"


# --- `exuvia store` ---------------------------------------------------------------------------------------------------


def store(*arguments: str) -> Result:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(CliRunner().invoke, cli, ["store", *arguments]).result()


def copied(origin: str | Path, target: str | Path) -> dict[str, tuple[int, int, str]]:
    """Copy, and return the events, the newly copied ones and the fault of each log."""
    result = store("copy", "--from", str(origin), "--to", str(target), "--json")
    assert result.exit_code in (0, 1), result.output
    found = json.loads(result.stdout)
    assert result.exit_code == any(each["fault"] for each in found)
    return {each["log"]: (each["events"], each["new"], each["fault"]) for each in found}


def contents(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*.jsonl")}


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """A home with three sessions, a link, the log of a plugin, and facts of another agent."""
    home = tmp_path / "home"
    async with gateway(home) as running:
        client = await running.connect()
        for session in ("main", "tea", "work"):
            for number in range(4):
                await client.chat(f"{session} {number} ä", session=session)
    write_journal(home, 1, *messages(1, 3))[0].rename(home / "shares.jsonl")
    (home / "plugins" / "one").mkdir(parents=True)
    (home / "plugins" / "one" / "log.jsonl").write_bytes((home / "shares.jsonl").read_bytes())
    (home / "agents" / "work").mkdir(parents=True)
    (home / "agents" / "work" / "facts.jsonl").write_bytes((home / "shares.jsonl").read_bytes())
    return home


async def test_a_home_is_copied_to_a_database_and_back_byte_for_byte(home: Path, url: str, tmp_path: Path) -> None:
    before = contents(home)
    assert len(before) == 7  # with the ledger
    there = copied(home, url)
    assert all(events == new > 0 and not fault for events, new, fault in there.values())
    assert {events for events, new, _ in copied(home, url).values() if new} == set()
    back = tmp_path / "back"
    assert copied(url, back) == there
    assert contents(back) == contents(home) == before
    async with gateway(home, settings=settings(url)) as running:
        client = await running.connect()
        assert await client.chat("in the database", session="tea") == "in the database"
    grown = copied(url, home)
    assert [new > 0 for _, new, _ in grown.values()].count(True) == 2  # a session, and the ledger
    changed = {name for name, content in contents(home).items() if content != before[name]}
    assert {name for name in changed if not name.startswith("spending")} == {
        name for name, content in contents(home).items() if b"in the database" in content
    }


async def test_attachments_are_copied_with_their_owners_and_back(home: Path, url: str, tmp_path: Path) -> None:
    there = Attachments(home / "attachments")
    used = await there.store(b"used", "owner", claimed="text/plain", name="used.txt")
    await there.settle("owner", (used,))
    fresh = await there.store(b"fresh", "Анна", claimed="", name="")
    assert copied(home, url)[used.sha256] == (0, 1, "")
    assert copied(home, url)[used.sha256] == (0, 0, "")
    back = tmp_path / "back"
    copied(url, back)
    expected = {("owner", used, True), ("Анна", fresh, False)}
    assert set(Attachments(back / "attachments").records()) == set(there.records()) == expected
    assert await Attachments(back / "attachments").read(fresh.sha256) == b"fresh"


async def test_an_interrupted_copy_is_continued(home: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = StoredRowLog.append
    monkeypatch.setattr(store_commands, "PAGE_BYTES", 2000)

    def stop(log: StoredRowLog, line: bytes, *, urgent: bool) -> None:
        if b'"seq":9,' in line[:20]:
            raise StorageFailed("The machine stops here.")
        plain(log, line, urgent=urgent)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(StoredRowLog, "append", stop)
        assert "The machine stops here." in {fault for _, _, fault in copied(home, url).values()}
    assert 0 < rows(url, "SELECT min(head) FROM log WHERE store = 'sessions'")[0][0] < 9
    again = copied(home, url)
    assert all(not fault for _, _, fault in again.values())
    assert any(0 < new < events for events, new, _ in again.values())
    found = rows(
        url, "SELECT name, string_agg(line, '' ORDER BY seq) FROM line JOIN log ON log.id = line.log GROUP BY log.id, name"
    )
    by_name = {Path(name).stem: content for name, content in contents(home).items()}
    assert dict(found) == by_name


async def test_nothing_is_copied_while_a_gateway_uses_the_database(home: Path, url: str, tmp_path: Path) -> None:
    async with gateway(tmp_path / "other", settings=settings(url)) as running:
        await (await running.connect()).chat("one")
        refused = await asyncio.to_thread(store, "copy", "--from", str(home), "--to", url)
    assert (refused.exit_code, "Another gateway uses the database test_" in refused.output) == (2, True), refused.output
    assert rows(url, "SELECT count(*) FROM log WHERE store = 'sessions'") == [(1,)]


async def test_a_copy_replaces_no_other_log(home: Path, url: str) -> None:
    copied(home, url)
    (name,) = rows(url, "SELECT name FROM log WHERE store = 'sessions' ORDER BY name LIMIT 1")[0]
    path = home / "sessions" / f"{name}.jsonl"
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(first + b"\n")  # shorter than its copy
    _, _, fault = copied(home, url)[name]
    assert "There is another log of this name in the log" in fault
    assert rows(url, f"SELECT size FROM log WHERE name = '{name}'") == [(len(first) + 1 + len(rest),)]


def test_a_copy_needs_a_home_and_a_database(tmp_path: Path) -> None:
    refused = store("copy", "--from", str(tmp_path), "--to", str(tmp_path / "other"))
    assert (refused.exit_code, "One of --from and --to must be a home" in refused.stderr) == (2, True)


def test_the_check_of_a_database_names_what_breaks_the_promise(tmp_path: Path, url: str) -> None:
    (tmp_path / "config.toml").write_text(f'[store]\nkind = "postgres"\nurl = "{url}"\n')
    checked = cli_on(tmp_path, "store", "check")
    assert checked.exit_code == 1
    assert "PostgreSQL 18" in checked.stdout
    assert f"Tables of version 0 of {len(MIGRATIONS)}. Synchronous standbys: none." in checked.stdout
    assert "The database has no synchronous standby" in checked.stdout
    assert "fsync = off" in checked.stdout
    assert "pooler" not in checked.stdout
    report = json.loads(cli_on(tmp_path, "store", "check", "--json").stdout)["server"]
    assert 0 < report["answer_ms"] < 10_000
    assert abs(report["clock_ms"]) < 10_000
    doctor = json.loads(cli_on(tmp_path, "doctor", "--json").stdout)
    assert "no synchronous standby" in json.dumps(doctor)


def test_a_database_is_checked_before_a_home_is_moved_there(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANNED_URL", url)
    for home in (tmp_path, tmp_path / "none"):
        checked = cli_on(home, "store", "check", "--url", "env:PLANNED_URL")
        assert (checked.exit_code, "The database has no synchronous standby" in checked.stdout) == (1, True)
    refused = cli_on(tmp_path, "store", "check", "--url", "10.0.0.21")
    assert (refused.exit_code, "--url must be postgresql://" in refused.stderr) == (2, True)
    assert not list(tmp_path.iterdir())


def test_the_check_of_files_is_the_doctors(tmp_path: Path) -> None:
    checked = cli_on(tmp_path, "store", "check")
    assert (checked.exit_code, "`exuvia doctor` checks them" in checked.stderr) == (2, True)


def test_the_configuration_says_what_is_not_in_the_database(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[store]\nkind = "postgres"\n')
    with pytest.raises(ConfigRefused, match=r"which needs store\.url"):
        load_config(file, environment={}, overrides={})
    file.write_text('[store]\nkind = "postgres"\nurl = "env:DATABASE_URL"\n')
    config = load_config(file, environment={"DATABASE_URL": "postgresql://me:hunter2222@db/chats"}, overrides={})
    (warning,) = config.warnings
    assert "logs and attachments; notes" in warning
    assert "hunter2222" not in repr(config.store)


async def killed(home: Path, script: list[Mapping[str, Any]], url: str, where: Path) -> list[str]:
    """Kill a gateway while its tool runs; returns the calls that have begun."""
    options = {
        "script": script,
        "path": where,
        "settings": {
            "STAMP_SECONDS": "600",
            "EXUVIA__STORE__KIND": '"postgres"',
            "EXUVIA__STORE__URL": json.dumps(url),
        },
    }
    stamps = home / "workspace" / "stamps"
    async with gateway_process(home, **options) as process, aiohttp.ClientSession() as http:
        client = await process.connect(http)
        await client.send("stamp it", id_="m1")
        await until(lambda: stamps.exists() and stamps.read_text() != "")
        await process.kill()
    return stamps.read_text().split()


async def test_after_kill_9_the_turn_is_finished_and_no_tool_runs_twice(tmp_path: Path, url: str) -> None:
    install_tool(tmp_path / "site")
    home = tmp_path / "home"
    script: list[Mapping[str, Any]] = [
        {"calls": [{"tool": "stamp", "arguments": {}}]},
        {"text": "It may be stamped."},
    ]
    begun = await killed(home, script, url, tmp_path / "site")
    assert len(begun) == 1
    assert [event["kind"] for event in events(url, "turn_ended")] == []
    after = {"EXUVIA__STORE__KIND": '"postgres"', "EXUVIA__STORE__URL": json.dumps(url)}
    async with gateway_process(home, script=script[1:], path=tmp_path / "site", settings=after) as process:
        assert isinstance(process, GatewayProcess)
        await until(lambda: [event["outcome"] for event in events(url, "turn_ended")] == ["replied"])
        assert await process.stop() == 0
    assert (home / "workspace" / "stamps").read_text().split() == begun
    assert [event["outcome"] for event in events(url, "tool_returned")] == ["unknown"]
