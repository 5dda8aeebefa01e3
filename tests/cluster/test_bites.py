"""The checker bites: what happens here has no findings, and has some with each defect that it is there to find."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from benchmarks.cluster.checker import check
from benchmarks.cluster.gateways import DATABASE, Cluster
from benchmarks.cluster.history import History
from benchmarks.cluster.persons import Person, Watcher
from benchmarks.cluster.postgres_pair import PostgresPair
from benchmarks.cluster.run import collect, prepare, script
from benchmarks.cluster.tcp_proxy import Passage
from benchmarks.websocket_client import ConnectionClosed
from tests.cluster.defects import DEFECT
from tests.waiting import deadline, until

Story = Callable[[Cluster, History], Awaitable[None]]


async def findings(
    folder: Path, story: Story, *, defect: str = "none", synchronous: bool = True, gateways: int = 1
) -> set[str]:
    """The kinds of findings after a story of a person who talks to the first gateway."""
    with PostgresPair(synchronous=synchronous, durable=False) as pair:
        pair.create_database(DATABASE)
        settings = {DEFECT: defect}
        module = "tests.cluster.defects"
        async with Cluster(pair, folder, gateways, script=script(50), settings=settings, module=module) as cluster:
            prepare(cluster.url)
            history = History()
            try:
                async with deadline():
                    await story(cluster, history)
                    await cluster.stop()
            except TimeoutError:
                pytest.fail("".join(f"{each.name}:\n{each.log.read_text()[-6000:]}\n" for each in cluster.gateways))
            return {finding.partition(":")[0] for finding in check(history, collect(history, cluster))}


def one_person(cluster: Cluster, history: History) -> Person:
    """A person who talks to the first gateway."""
    return Person("p", "main", [cluster.gateways[0].door.port], history, random.Random(1))


async def sent_again(cluster: Cluster, history: History) -> None:
    """A message is sent again after a restart: its acknowledgement may have been lost."""
    person = one_person(cluster, history)
    await person.say(0, "Hello.")
    await person.say(1, "Call the tool.")
    await restart(cluster)
    await person.attempt("p-1", "Call the tool.")
    await person.say(2, "Goodbye.")


async def cut_off_and_killed(cluster: Cluster, history: History) -> None:
    """A message is sent while nothing reaches the database, and the gateway is killed."""
    person = one_person(cluster, history)
    await person.say(0, "Hello.")
    cluster.gateways[0].link(Passage.SWALLOWED)
    await person.attempt("p-1", "Is this kept?")
    await cluster.gateways[0].kill()
    cluster.gateways[0].link(Passage.OPEN)
    await restart(cluster)
    await person.say(2, "Call the tool.")


async def failed_over(cluster: Cluster, history: History) -> None:
    """Messages are sent while the standby is frozen; then the primary is gone, and the standby has what it had written."""
    person = one_person(cluster, history)
    await person.say(0, "Hello.")
    pair = cluster.pair
    pair.server(pair.standby).freeze()
    attempts = [await person.attempt(f"p-{number}", "Is this kept?") for number in (1, 2)]
    pair.server(pair.primary).kill()
    await asyncio.to_thread(pair.restart_standby)
    await asyncio.to_thread(pair.promote)
    for number, attempt in enumerate(attempts, 1):
        if attempt.outcome is None:
            await person.say(number, "Is this kept?")
    await person.attempt("p-3", "Call the tool.")  # a gateway that misses what it has acknowledged refuses it


async def frozen_and_woken(cluster: Cluster, history: History) -> None:
    """A gateway is stopped while messages are on their way to it; the others open its conversations, and it continues."""
    frozen, other, _ = cluster.gateways
    choice = random.Random(1)
    persons = [Person(f"p{n}", f"k{n}", [frozen.door.port], history, choice) for n in range(6)]
    watchers = [Watcher(f"w{n}", f"k{n}", [other.door.port], history, choice) for n in range(6)]
    for person in persons:
        await person.say(0, "Hello.")
    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(watcher.watch()) for watcher in watchers]
        await until(lambda: all(watcher.session for watcher in watchers))
        frozen.freeze()
        for person in persons:
            person.reader.send(type="send", id="late", session=person.reader.key, text="Is this kept?")
        while opened_again(cluster.url) < len(persons):
            await asyncio.sleep(0.05)
        frozen.wake()
        for person in persons:
            with suppress(TimeoutError, ConnectionClosed):
                await person.reader.answer("late")
        for task in watching:
            task.cancel()


def opened_again(url: str) -> int:
    """Count the logs of sessions that were opened after they were created."""
    with psycopg.connect(url, options="-c search_path=exuvia", target_session_attrs="read-write") as connection:
        (count,) = connection.execute("SELECT count(*) FROM log WHERE store = 'sessions' AND epoch > 0").fetchone() or (0,)
    return int(count)


async def restart(cluster: Cluster) -> None:
    gateway = cluster.gateways[0]
    await gateway.kill()
    await cluster.start(gateway)
    await gateway.ready()


STORIES: dict[str, Story] = {"receipts": sent_again, "early": cut_off_and_killed}


@pytest.mark.parametrize("defect", STORIES)
async def test_a_defect_is_found_and_the_same_story_without_it_is_sound(defect: str, tmp_path: Path) -> None:
    sound, broken = tmp_path / "sound", tmp_path / "broken"
    sound.mkdir()
    broken.mkdir()
    assert await findings(sound, STORIES[defect]) == set()
    assert {"lost", "doubled", "moved"} & await findings(broken, STORIES[defect], defect=defect)


async def test_an_earlier_epoch_writes_nothing_unless_it_is_not_checked(tmp_path: Path) -> None:
    sound, broken = tmp_path / "sound", tmp_path / "broken"
    sound.mkdir()
    broken.mkdir()
    assert await findings(sound, frozen_and_woken, gateways=3, defect="late") == set()
    assert "epoch" in await findings(broken, frozen_and_woken, gateways=3, defect="epoch")


@pytest.mark.parametrize("synchronous", [True, False])
async def test_a_failover_loses_what_was_acknowledged_only_without_synchronous_replication(
    synchronous: bool, tmp_path: Path
) -> None:
    found = await findings(tmp_path, failed_over, synchronous=synchronous)
    assert ("lost" in found) is not synchronous
    assert synchronous is not bool(found)
