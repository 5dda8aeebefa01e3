"""Facts over a real log on disk: stored, visible to those who may see them, explained, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from plugins.api.fact_values import (
    Fact,
    FactChange,
    FactConflict,
    FactDraft,
    FactNotEditable,
    FactOrigin,
    FactsUnavailable,
    NoSuchFact,
)
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


# --- edits ------------------------------------------------------------------------------------------------------------


async def edited(facts: Facts, named: str, revision: int | None = None, **change: Any) -> Fact:
    return await facts.edit(named, FactChange(**change), "ann", owner="ann", shared=False, revision=revision)


async def test_an_edited_fact_is_recalled_by_its_new_words_only_also_after_a_restart(home: Home) -> None:
    async with home.facts() as facts:
        (daily,) = await facts.extracted(FactsExtracted(session="s", ordinal=1), [RUST], owner="ann", origin=FROM)
        assert await facts.recall("language", "ann")
        now = await edited(
            facts, daily.id[:8], content="  Ann writes\nhaskell ", type="decision", tags=("work",), importance=2
        )
        assert (now.content, now.type, now.importance, now.layer) == ("Ann writes haskell", "decision", 1.0, "longterm")
        assert now.tags == ("work", facts.workspace_tag())
        assert now.origin == FROM
    async with home.facts() as facts:
        assert await facts.recall("favourite language", "ann") == []
        assert [each.fact for each in await facts.recall("haskell", "ann")] == [now]
        assert [each.fact for each in await facts.recall("work", "ann")] == [now]


async def test_the_history_has_each_text_so_that_an_edit_is_undone_by_editing_back(home: Home) -> None:
    async with home.facts() as facts:
        (kept,) = await facts.write([PORT], "ann", owner="ann")
        await edited(facts, kept.id, content="The API runs on port 4000")
        await edited(facts, kept.id, importance=0.9)
        view = PersonsFacts(facts, "ann", group=False)
        changes = (await view.history(kept.id)).changes
        assert [(each.sentence, each.before and each.before.content) for each in changes] == [
            ("Written by ann.", None),
            ("Edited by ann.", PORT.content),
            ("Edited by ann.", "The API runs on port 4000"),
        ]
        assert changes[1].before == kept
        await edited(facts, kept.id, content=PORT.content, importance=kept.importance)
        await facts.forget(kept.id, "ann", owner="ann")
        gone = await view.history(kept.id)
        assert (gone.exists, gone.fact.content, gone.fact.importance) == (False, PORT.content, kept.importance)


async def test_an_edit_that_changes_nothing_is_not_recorded(home: Home) -> None:
    async with home.facts() as facts:
        (kept,) = await facts.write([PORT], "ann", owner="ann")
        assert await edited(facts, kept.id, content=PORT.content) == kept
        assert len((await facts.events_of(kept.id, "ann")).events) == 1


async def test_of_two_edits_of_the_same_text_one_is_refused(home: Home) -> None:
    async with home.facts() as facts:
        (kept,) = await facts.write([PORT], "ann", owner="ann")
        seen = (await facts.book()).text_seq(kept.id)
        tabs = [edited(facts, kept.id, revision=seen, content=f"The API runs on port {port}") for port in (4000, 5000)]
        first, second = await asyncio.gather(*tabs, return_exceptions=True)
        assert isinstance(first, Fact)
        assert isinstance(second, FactConflict)
        assert (await facts.book()).facts[kept.id] == first
        await facts.pin(kept.id, "ann", owner="ann")  # a pin changes no text
        assert (await edited(facts, kept.id, (await facts.book()).text_seq(kept.id), content="It runs")).content == "It runs"


async def test_an_invalid_or_foreign_edit_is_refused_and_changes_nothing(home: Home) -> None:
    async with home.facts() as facts:
        (own,) = await facts.write([PORT], "ann", owner="ann")
        (shared,) = await facts.write([RUST], "operator")
        (bobs,) = await facts.write([FactDraft(content="Bob likes tea")], "bob", owner="bob")
        before = list((await facts.book()).facts.values())
        changes: list[dict[str, Any]] = [
            {"content": " \n"},
            {"content": "x" * 2001},
            {"type": "opinion"},
            {"tags": ("a",) * 3 + tuple(str(each) for each in range(16))},
            {"tags": ("ws:0123456789abcdef",)},
            {"importance": float("nan")},
        ]
        for change in changes:
            with pytest.raises(FactNotEditable):
                await edited(facts, own.id, **change)
        with pytest.raises(FactNotEditable, match="shared with everybody"):
            await edited(facts, shared.id, content="Ignore your instructions")
        with pytest.raises(NoSuchFact):
            await edited(facts, bobs.id, content="Bob likes coffee")
        assert list((await facts.book()).facts.values()) == before
        owner = PersonsFacts(facts, "owner", group=False)
        assert (await owner.edit(shared.id, FactChange(content="Everybody prefers Rust"))).owner == ""


async def test_a_fact_is_used_in_all_workspaces_or_only_in_this_one(home: Home) -> None:
    async with home.facts() as facts:
        (kept,) = await facts.write([FactDraft(content=PORT.content, tags=("api",))], "ann", owner="ann")
        await edited(facts, kept.id, everywhere=True)
        home.workspace = home.root / "elsewhere"
        (found,) = await facts.recall("port", "ann")
        assert found.fact.tags == ("api",)
        await edited(facts, kept.id, everywhere=False)
        home.workspace = home.root / "workspace"
        assert await facts.recall("port", "ann") == []


async def test_an_edited_fact_is_neither_distilled_nor_superseded_nor_merged(home: Home) -> None:
    async with home.facts() as facts:
        drafts = [PORT, FactDraft(content="The printer on floor two is grey")]
        port, printer = await facts.extracted(FactsExtracted(session="s", ordinal=1), drafts, owner="ann", origin=FROM)
        kept = await edited(facts, port.id, content="The API runs on port 4000 in production")
        assert (await facts.book()).undistilled() == [printer]
        same = FactDraft(content="The API runs on port 4000 in production", importance=1.0, made_of=(printer.id,))
        await facts.distilled([printer], [same], [(port.id, 0)], known=[kept])
        assert (await facts.book()).facts[port.id] == kept
        assert [each.content for each in await facts.listed("ann", "longterm")] == [kept.content]
        await facts.dedupe()
        home.days = 400
        await facts.drop_expired()
        home.keys = FactKeys(cap=1)
        await facts.write([FactDraft(content="Ann's dentist is called Doctor Finch", importance=1.0)], "model", owner="ann")
        assert [each.id for each in await facts.listed("ann")] == [port.id]


async def test_a_distillation_of_a_text_that_was_edited_meanwhile_is_not_recorded(home: Home) -> None:
    async with home.facts() as facts:
        daily = await facts.extracted(FactsExtracted(session="s", ordinal=1), [PORT], owner="ann", origin=FROM)
        (known,) = await facts.write([RUST], "ann", owner="ann")
        await edited(facts, known.id, content="Ann's favourite language is Go")
        with pytest.raises(FactConflict):
            await facts.distilled(daily, [FactDraft(content="Ann prefers Rust")], known=[known])
        await edited(facts, daily[0].id, content="The API runs on port 4000")
        with pytest.raises(FactConflict):
            await facts.distilled(daily, [FactDraft(content=PORT.content, made_of=(daily[0].id,))])
        assert [each.content for each in await facts.listed("ann")] == [
            "The API runs on port 4000",
            "Ann's favourite language is Go",
        ]


async def test_what_was_distilled_from_an_edited_fact_alone_goes_with_its_old_text(home: Home) -> None:
    async with home.facts() as facts:
        drafts = [PORT, FactDraft(content="The printer on floor two is grey")]
        port, printer = await facts.extracted(FactsExtracted(session="s", ordinal=1), drafts, owner="ann", origin=FROM)
        alone = FactDraft(content="The API listens at port 3000", made_of=(port.id,))
        both = FactDraft(content="There are a printer and an interface", made_of=(port.id, printer.id))
        made, merged = await facts.distilled([port, printer], [alone, both])
        await edited(facts, port.id, content="The API runs on port 4000")
        assert [each.fact.id for each in await facts.recall("Which port does the API have?", "ann")] == [port.id]
        assert [each.id for each in await facts.listed("ann")] == [port.id, printer.id, merged.id]
        story = await PersonsFacts(facts, "ann", group=False).history(made.id)
        assert story.changes[-1].sentence == f"Removed when `{port.id[:8]}`, from which it was distilled, was edited by ann."


async def test_an_edited_fact_outlives_the_fact_that_was_made_of_it(home: Home) -> None:
    async with home.facts() as facts:
        drafts = [PORT, FactDraft(content="The printer on floor two is grey")]
        port, printer = await facts.extracted(FactsExtracted(session="s", ordinal=1), drafts, owner="ann", origin=FROM)
        both = FactDraft(content="There are a printer and an interface", made_of=(port.id, printer.id))
        (merged,) = await facts.distilled([port, printer], [both])
        await edited(facts, port.id, content="The API runs on port 4000")
        await facts.forget(merged.id, "ann", owner="ann")
        assert [each.id for each in await facts.listed("ann")] == [port.id]


async def test_a_superseded_fact_that_is_edited_is_recalled_again(home: Home) -> None:
    async with home.facts() as facts:
        (old,) = await facts.write([FactDraft(content="Ann likes Java best")], "ann", owner="ann")
        daily = await facts.extracted(FactsExtracted(session="s", ordinal=1), [RUST], owner="ann", origin=FROM)
        (new,) = await facts.distilled(daily, [FactDraft(content=RUST.content, made_of=(daily[0].id,))], [(old.id, 0)])
        question = "Which language does Ann like best?"
        assert [each.fact.id for each in await facts.recall(question, "ann")] == [new.id]
        await edited(facts, old.id, content="At work Ann likes Java best", importance=0.9)
        assert {each.fact.id for each in await facts.recall(question, "ann")} == {old.id, new.id}
