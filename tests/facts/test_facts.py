"""Facts over a real log on disk: stored, visible to those who may see them, explained, and never lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from plugins.api.fact_values import FactDraft, FactOrigin, FactsUnavailable, NoSuchFact
from plugins.api.memory_settings import FactKeys
from plugins.facts.fact_events import FactForgotten, FactsDistilled, FactsDropped, FactsExtracted
from plugins.facts.facts import Facts
from plugins.facts.persons_facts import PersonsFacts
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from sessions.store.protocols import LONGEST_LINE, Log, Position
from tests.facts.samples import NOW, fact

RUST = FactDraft(content="Ann's favourite language is Rust", type="preference", importance=0.8)
PORT = FactDraft(content="The API runs on port 3000")
FROM = FactOrigin(session="20261121-031241-7k2m9q", seq=4)


class Home:
    """A folder with a log of facts; `days` is how late it is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.days = 0.0
        self.keys = FactKeys()
        self.workspace = root / "workspace"

    def now(self) -> datetime:
        return NOW + timedelta(days=self.days)

    @asynccontextmanager
    async def facts(self) -> AsyncIterator[Facts]:
        async with Committer() as committer:
            journals = Journals(self.root, self.root / "quarantine", committer)

            async def opener(fold: Callable[[bytes], None]) -> tuple[Log, Position]:
                if not journals.path("facts").exists():
                    return await journals.create("facts"), Position()
                return await journals.open("facts", fold=fold)

            async with Facts(opener, keys=lambda: self.keys, workspace=lambda: self.workspace, now=self.now) as facts:
                yield facts


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def test_what_a_turn_left_is_recalled_and_explained_also_after_a_restart(home: Home) -> None:
    async with home.facts() as facts:
        (kept,) = await facts.extracted(FactsExtracted(session=FROM.session, ordinal=2), [RUST], owner="ann", origin=FROM)
    async with home.facts() as facts:
        (found,) = await facts.recall("What is my favourite language?", "ann")
        assert found.fact == kept
        story = await facts.events_of(kept.id[:8], "ann")
        assert story.exists
        assert story.fact.origin == FROM
        assert [type(each.event) for each in story.events] == [FactsExtracted]


async def test_a_turn_is_extracted_once_whatever_is_found_the_second_time(home: Home) -> None:
    async with home.facts() as facts:
        assert await facts.extracted(FactsExtracted(session="s", ordinal=1), owner="ann", origin=None) == ()
        assert await facts.extracted(FactsExtracted(session="s", ordinal=1), [RUST], owner="ann", origin=FROM) == ()
        assert await facts.listed("ann") == []


async def test_nobody_is_told_another_persons_facts(home: Home) -> None:
    async with home.facts() as facts:
        (anns,) = await facts.extracted(FactsExtracted(session="s", ordinal=1), [RUST], owner="ann", origin=FROM)
        (all_,) = await facts.write([PORT], "ann")
        assert [each.fact for each in await facts.recall("language port", "bob")] == [all_]
        assert await facts.listed("bob") == [all_]
        assert await facts.listed(None) == [anns, all_]
        for asked in (facts.forget(anns.id, "bob", owner="bob"), facts.pin(anns.id, "bob", owner="bob")):
            with pytest.raises(NoSuchFact):
                await asked
        with pytest.raises(NoSuchFact):
            await facts.events_of(anns.id, "bob")


async def test_a_group_is_told_nobodys_own_facts(home: Home) -> None:
    async with home.facts() as facts:
        await facts.write([RUST], "ann", owner="ann")
        (all_,) = await facts.write([PORT], "operator")
        (there,) = await PersonsFacts(facts, "ann", group=True).listed()
        assert there.id == all_.id
        assert len(await PersonsFacts(facts, "ann", group=False).listed()) == 2
        assert [each.fact.id for each in await facts.recall("language port", "")] == [all_.id]


async def test_another_workspace_hides_the_facts_of_this_one_and_coming_back_shows_them(home: Home) -> None:
    async with home.facts() as facts:
        (here,) = await facts.write([PORT], "ann")
        home.workspace = home.root / "elsewhere"
        assert await facts.recall("port", "ann") == []
        assert await facts.listed("ann") == []
        home.workspace = home.root / "workspace"
        assert [each.fact for each in await facts.recall("port", "ann")] == [here]


async def test_what_was_forgotten_is_not_recalled_and_its_story_is_still_told(home: Home) -> None:
    async with home.facts() as facts:
        (kept,) = await facts.write([PORT], "ann", owner="ann")
        await facts.forget(kept.id[:6], "ann", owner="ann")
        assert await facts.recall("port", "ann") == []
        story = await facts.events_of(kept.id, "ann")
        assert not story.exists
        assert story.fact.content == PORT.content
        assert isinstance(story.events[-1].event, FactForgotten)
        with pytest.raises(NoSuchFact, match="There is no fact"):
            await facts.forget(kept.id, "ann", owner="ann")


async def test_an_id_of_any_length_that_no_fact_has_is_refused_in_a_short_sentence(home: Home) -> None:
    async with home.facts() as facts:
        for refused in (facts.events_of("a:" * 100_000, "ann"), facts.forget("a:" * 100_000, "ann", owner="ann")):
            with pytest.raises(NoSuchFact) as said:
                await refused
            assert len(str(said.value)) < 100


async def test_clear_empties_the_daily_log_of_its_person_alone(home: Home) -> None:
    async with home.facts() as facts:
        await facts.extracted(FactsExtracted(session="s", ordinal=1), [PORT], owner="ann", origin=None)
        (bobs,) = await facts.extracted(FactsExtracted(session="t", ordinal=1), [PORT], owner="bob", origin=None)
        (stays,) = await facts.write([RUST], "ann", owner="ann")
        assert await facts.clear("ann", owner="ann") == 1
        assert await facts.listed(None) == [bobs, stays]
        assert await facts.clear("ann", owner="ann") == 0


async def test_daily_facts_past_their_time_are_gone_though_nobody_has_dropped_them_yet(home: Home) -> None:
    async with home.facts() as facts:
        old, pinned = await facts.extracted(FactsExtracted(session="s", ordinal=1), [PORT, RUST], owner="ann", origin=None)
        await facts.pin(pinned.id, "ann", owner="ann")
        home.days = 30.5
        assert [fact.id for fact in await facts.listed("ann")] == [pinned.id]
        assert [fact.id for fact in facts.listed_if_open("ann") or ()] == [pinned.id]
        assert await facts.recall("port", "ann") == []
        assert not (await facts.events_of(old.id, "ann")).exists
        with pytest.raises(NoSuchFact):
            await facts.pin(old.id, "ann", owner="ann")
        assert await facts.clear("ann", owner="ann") == 0
        home.keys = FactKeys(retention_days=60)
        assert [fact.id for fact in await facts.listed("ann")] == [old.id, pinned.id]


async def test_what_is_past_its_time_is_dropped_for_good_by_tidying_up(home: Home) -> None:
    async with home.facts() as facts:
        (old,) = await facts.extracted(FactsExtracted(session="s", ordinal=1), [PORT], owner="ann", origin=None)
        home.days = 30.5
        await facts.drop_expired()
        await facts.drop_expired()
        home.keys = FactKeys(retention_days=60)
        assert await facts.listed("ann") == []
        (gone,) = [
            each.event for each in (await facts.events_of(old.id, "ann")).events if isinstance(each.event, FactsDropped)
        ]
        assert gone.why == "retention"


async def test_beyond_the_cap_the_least_important_leave_and_one_more_pin_is_refused(home: Home) -> None:
    home.keys = FactKeys(cap=2)
    async with home.facts() as facts:
        for number in range(3):
            await facts.write(
                [FactDraft(content=f"number {number} of {'abc'[number] * 9}", importance=0.5 + number / 10)], "ann"
            )
        kept = await facts.listed("ann")
        assert [fact.importance for fact in kept] == [0.6, 0.7]
        for fact in kept:
            assert (await facts.pin(fact.id, "ann", owner="ann")).pinned
        (extra,) = await facts.extracted(FactsExtracted(session="s", ordinal=1), [PORT], owner="", origin=None)
        assert (await facts.pin(extra.id, "ann", owner="ann")).pinned  # a daily one takes no place
        await facts.write([PORT], "ann")
        assert [fact.id for fact in await facts.listed("ann", "longterm")] == [fact.id for fact in kept]


async def test_distilled_facts_are_not_taken_again_and_what_they_supersede_is_worth_less(home: Home) -> None:
    async with home.facts() as facts:
        (old,) = await facts.write([FactDraft(content="The team uses MySQL", type="decision", importance=0.9)], "ann")
        daily = await facts.extracted(
            FactsExtracted(session="s", ordinal=1), [FactDraft(content="We move to PostgreSQL")], owner="", origin=None
        )
        made = FactDraft(content="PostgreSQL replaced MySQL here", type="decision", importance=0.9)
        (new,) = await facts.distilled(daily, [made], [(old.id, 0)])
    async with home.facts() as facts:
        book = await facts.book()
        assert book.undistilled() == []
        assert book.facts[old.id].importance == 0.45
        assert (await facts.recall("MySQL", "ann"))[0].fact.id == new.id
        happened = (await facts.events_of(old.id, "ann")).events[-1].event
        assert isinstance(happened, FactsDistilled)
        assert happened.superseded[0].newer == new.id


async def test_a_fact_is_told_in_the_place_of_the_daily_ones_that_it_was_made_of_and_is_forgotten_with_them(
    home: Home,
) -> None:
    async with home.facts() as facts:
        event = FactsExtracted(session="s", ordinal=1)
        daily = await facts.extracted(event, [PORT, RUST], owner="ann", origin=FROM)
        made = [FactDraft(content=each.content, made_of=(each.id,)) for each in daily]
        port, rust = await facts.distilled(daily, made)
        assert port.origin == FROM
        assert [each.fact.id for each in await facts.recall("port", "ann")] == [port.id]
        await facts.forget(port.id, "ann", owner="ann")
        assert await facts.recall("port", "ann") == []
        await facts.forget(daily[1].id, "ann", owner="ann")
    async with home.facts() as facts:
        assert await facts.listed("ann") == []
        assert isinstance((await facts.events_of(rust.id, "ann")).events[-1].event, FactForgotten)


async def test_what_is_superseded_is_so_with_the_daily_facts_behind_it(home: Home) -> None:
    async with home.facts() as facts:
        java = FactDraft(content="Ann's favourite language is Java", importance=0.8)
        daily = await facts.extracted(FactsExtracted(session="s", ordinal=1), [java], owner="ann", origin=FROM)
        (old,) = await facts.distilled(daily, [FactDraft(content="Ann likes Java best", made_of=(daily[0].id,))])
        later = await facts.extracted(FactsExtracted(session="s", ordinal=2), [RUST], owner="ann", origin=FROM)
        (new,) = await facts.distilled(
            later, [FactDraft(content=RUST.content, importance=0.8, made_of=(later[0].id,))], [(old.id, 0)]
        )
        book = await facts.book()
        assert (book.facts[old.id].importance, book.facts[daily[0].id].importance) == (0.25, 0.4)
        assert [each.fact.id for each in await facts.recall("favourite language", "ann")] == [new.id]
        assert [each.fact.id for each in await facts.recall("Does Ann like a language best?", "ann")] == [new.id]
        await facts.forget(new.id, "ann", owner="ann")
        assert [each.fact.id for each in await facts.recall("Does Ann like Java best?", "ann")] == [old.id]


async def test_what_is_distilled_elsewhere_stays_tied_to_the_workspace_that_it_was_said_in(home: Home) -> None:
    async with home.facts() as facts:
        here = facts.workspace_tag()
        daily = await facts.extracted(FactsExtracted(session="s", ordinal=1), [PORT], owner="ann", origin=FROM)
        home.workspace = home.root / "elsewhere"
        (made,) = await facts.distilled(daily, [FactDraft(content=PORT.content, tags=("api",), made_of=(daily[0].id,))])
        assert made.tags == ("api", here)
        assert await facts.recall("port", "ann") == []


async def test_use_keeps_a_fact_from_going_stale_and_counts_once_for_each_recall(home: Home) -> None:
    async with home.facts() as facts:
        (kept,) = await facts.write([PORT], "ann")
        home.days = 20
        (stale,) = await facts.recall("port", "ann")
        assert stale.staleness < 1
        await facts.used([kept.id, "unknown"], FactOrigin(session="s", seq=7))
        (fresh,) = await facts.recall("port", "ann")
        assert fresh.staleness == 1
        home.days = 40
        await facts.used([kept.id], FactOrigin(session="s", seq=7))
        (again,) = await facts.recall("port", "ann")
        assert again.staleness < 1


async def test_a_damaged_log_is_left_as_it_is_and_empties_nothing(home: Home) -> None:
    async with home.facts() as facts:
        await facts.write([RUST, PORT], "ann")
        await facts.write([FactDraft(content="something else entirely")], "ann")
    path = home.root / "facts.jsonl"
    harmed = path.read_bytes().replace(b"port 3000", b"port 4000")
    path.write_bytes(harmed)
    async with home.facts() as facts:
        for asked in (facts.recall("port", "ann"), facts.write([PORT], "ann")):
            with pytest.raises(FactsUnavailable, match="unavailable because their log is damaged"):
                await asked
        assert "line 2" in facts.problems()[0]
    assert path.read_bytes() == harmed


async def test_a_torn_tail_is_set_aside_and_the_rest_is_there(home: Home) -> None:
    async with home.facts() as facts:
        (kept,) = await facts.write([PORT], "ann")
    path = home.root / "facts.jsonl"
    path.write_bytes(path.read_bytes() + b'{"seq":9,"at":"20')
    async with home.facts() as facts:
        assert await facts.listed("ann") == [kept]


async def test_dedupe_drops_what_is_said_twice_and_names_what_stays(home: Home) -> None:
    async with home.facts() as facts:
        one, two = await facts.write([PORT, RUST], "ann")
        (copy,) = await facts.write([FactDraft(content="the API runs on port 3000.", importance=0.4)], "ann")
        assert await facts.listed("ann") == [one, two]
        assert (await facts.events_of(copy.id, "ann")).events[-1].event == FactsDropped(
            ids=(copy.id,), why="duplicate", kept=(one.id,)
        )
        assert await facts.dedupe() == {}


async def test_more_facts_than_a_line_may_hold_come_in_as_several_events(home: Home) -> None:
    many = [fact(f"{number} " + "长" * 1900, id=str(number), layer="daily") for number in range(600)]
    async with home.facts() as facts:
        await facts.import_facts(many, "operator")
    async with home.facts() as facts:
        assert await facts.listed(None) == many
    lines = (home.root / "facts.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 4
    assert max(map(len, lines)) < LONGEST_LINE


async def test_what_was_forgotten_or_pinned_while_a_model_distilled_stays_as_the_person_left_it(home: Home) -> None:
    async with home.facts() as facts:
        (old,) = await facts.write([FactDraft(content="The team uses MySQL", importance=0.9)], "ann")
        daily = await facts.extracted(FactsExtracted(session="s", ordinal=1), [PORT], owner="", origin=None)
        await facts.pin(old.id, "ann", owner="ann")
        await facts.distilled(daily, [FactDraft(content="PostgreSQL replaced MySQL")], [(old.id, 0), ("gone", 0)])
        assert (await facts.book()).facts[old.id].importance == 0.9
