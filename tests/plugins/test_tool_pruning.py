"""The built-in pruning, by its figures."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from plugins.api.pruning import HardClear, PrunedTools, PruningBudget, PruningContext, PruningRules, SoftTrim
from plugins.policies.tool_pruning import is_prunable, propose_prunes
from plugins.testing.contexts import NOON
from sessions.events.messages import AssistantMessage, Message, ToolMessage, UserMessage
from sessions.events.pruning import Edit, Trim
from sessions.state.edit_validation import merge_proposals, validate_edits
from sessions.state.truncation import truncation_note
from sessions.state.view import View
from sessions.state.view_size import CharacterCount

WINDOW = 10_000
ALWAYS = PruningRules(mode="always")


def result(size: int, tool: str = "read", letter: str = "x") -> ToolMessage:
    return ToolMessage(id="call", tool=tool, text=letter * size)


def view(*messages: Message) -> View:
    """A view of these messages, each placed by an event of its own: seq 1, 2, …"""
    whole = View()
    for seq, message in enumerate(messages, 1):
        whole = whole.grown(message, seq)
    return whole


def rounds(*sizes: int, tool: str = "read") -> list[Message]:
    """For each size an assistant message and, behind it, a result of so many characters: at seq 3, 5, … behind the first
    message of a person."""
    messages: list[Message] = [UserMessage(text="go")]
    for size in sizes:
        messages += [AssistantMessage(text=""), result(size, tool)]
    return messages


def after(whole: View, edits: list[Edit]) -> View:
    checked = validate_edits(whole, edits, "test")
    assert checked.refused == ()
    return whole.pruned(merge_proposals(whole, checked.edits))


def context_of(whole: View) -> PruningContext:
    tally = CharacterCount()
    tally.follow(tuple(whole.messages))
    return PruningContext(
        messages=tally.messages,
        sources=tuple(whole.sources),
        sizes=tuple(tally.sizes),
        characters=tally.characters,
        edited=whole.edited,
        asked_at=NOON,
    )


def proposed(whole: View, rules: PruningRules = ALWAYS, *, window: int | None = WINDOW, later: float = 0) -> list[Edit]:
    budget = PruningBudget(window=window, reserve=0, rules=rules)
    return propose_prunes(context_of(whole), budget, NOON + timedelta(seconds=later))


def what(edits: list[Edit]) -> list[tuple[str, int]]:
    return [(type(edit).__name__, edit.of) for edit in edits]


@pytest.mark.parametrize(
    ("mode", "idle", "prunes"),
    [
        ("off", 10_000, False),
        ("always", 0, True),
        ("cache-ttl", 0, False),
        ("cache-ttl", 299.9, False),
        ("cache-ttl", 300, True),
        ("cache-ttl", 86_400, True),
    ],
)
def test_the_mode_decides_when(mode: Any, idle: float, prunes: bool) -> None:
    context = view(*rounds(12_000, 10, 10, 10))
    assert bool(proposed(context, PruningRules(mode=mode), later=idle)) == prunes


def test_without_a_call_there_is_no_cache_that_could_have_gone_cold() -> None:
    context = msgspec.structs.replace(context_of(view(*rounds(12_000, 10, 10, 10))), asked_at=None)
    budget = PruningBudget(window=WINDOW, reserve=0, rules=PruningRules(mode="cache-ttl"))
    assert propose_prunes(context, budget, NOON) == []


@pytest.mark.parametrize(("size", "trimmed"), [(11_967, False), (11_968, True)])
def test_below_three_tenths_of_the_window_nothing_is_pruned(size: int, trimmed: bool) -> None:
    # “go” and three tens beside it: 12,000 is three tenths of four times the window
    context = view(*rounds(size, 10, 10, 10))
    assert bool(proposed(context)) == trimmed


def test_a_window_that_is_not_known_is_never_full() -> None:
    assert proposed(view(*rounds(10**6, 10, 10, 10)), window=None) == []


@pytest.mark.parametrize(("size", "trimmed"), [(4000, False), (4001, True)])
def test_a_result_of_more_than_four_thousand_characters_is_trimmed(size: int, trimmed: bool) -> None:
    context = view(*rounds(size, 10, 10, 10_000))
    expected = [Trim(of=3, head=1500, tail=1500, note=truncation_note(size))] if trimmed else []
    assert proposed(context) == expected


def test_what_is_trimmed_shows_its_first_and_last_characters_and_its_size() -> None:
    text = "a" * 1500 + "m" * 9000 + "z" * 1500
    story: list[Message] = [UserMessage(text="go"), AssistantMessage(text=""), ToolMessage(id="c", tool="read", text=text)]
    context = view(*story, *rounds(10, 10, 12_000)[1:])
    left = after(context, proposed(context)).messages[2].text
    assert left == f"{'a' * 1500}\n...\n{'z' * 1500}\n\n{truncation_note(12_000)}"


@pytest.mark.parametrize(("keep", "pruned"), [(3, [3, 5]), (2, [3, 5, 7]), (5, []), (6, []), (0, [3, 5, 7, 9, 11])])
def test_the_results_behind_the_last_assistant_messages_stay(keep: int, pruned: list[int]) -> None:
    context = view(*rounds(5000, 5000, 5000, 5000, 5000))
    rules = msgspec.structs.replace(ALWAYS, keep_last_assistants=keep, hard_clear=HardClear(enabled=False))
    assert [edit.of for edit in proposed(context, rules)] == pruned


def test_with_fewer_than_three_assistant_messages_nothing_is_pruned() -> None:
    assert proposed(view(*rounds(20_000, 20_000))) == []
    assert proposed(view(*rounds(20_000, 20_000, 10))) == []
    assert what(proposed(view(*rounds(20_000, 10, 10, 10)))) == [("Trim", 3)]


def test_what_stands_before_the_first_message_of_a_person_stays() -> None:
    before: list[Message] = [AssistantMessage(text=""), result(20_000)]
    context = view(*before, *rounds(20_000, 10, 10, 10))
    assert what(proposed(context)) == [("Trim", 5)]
    assert proposed(view(*before, AssistantMessage(text=""), result(9), AssistantMessage(text=""), result(9))) == []


def test_what_people_and_models_wrote_is_never_pruned() -> None:
    context = view(UserMessage(text="x" * 30_000), AssistantMessage(text="x" * 30_000), *[AssistantMessage(text="x")] * 4)
    assert proposed(context) == []


def test_results_are_cleared_oldest_first_until_less_than_half_is_full() -> None:
    cold = PruningRules(mode="cache-ttl")
    context = view(*rounds(*[4000] * 20, 10, 10, 10))  # 80,032 characters, and half of four times the window is 40,000
    edits = proposed(context, cold, window=20_000, later=300)
    # ten clearings of 3,967 characters each leave 40,362; the eleventh makes it less than half
    assert what(edits) == [("Clear", 3 + 2 * n) for n in range(11)]
    assert {edit.note for edit in edits} == {"[Old tool result content cleared]"}
    total = sum(len(message.text) for message in after(context, edits).messages)
    assert total < 40_000 <= total + 3967


@pytest.mark.parametrize(("size", "cleared"), [(2499, False), (2500, True)])
def test_clearing_needs_fifty_thousand_characters_that_can_be_cleared(size: int, cleared: bool) -> None:
    assert bool(proposed(view(*rounds(*[size] * 20, 10, 10, 9000)))) == cleared


def test_what_is_shorter_than_its_placeholder_is_not_cleared_and_a_trim_that_spares_nothing_is_not_made() -> None:
    rules = PruningRules(
        mode="always",
        min_prunable_chars=0,
        soft_trim=SoftTrim(max_chars=100, head_chars=90, tail_chars=90),
        hard_clear_ratio=0.3,
    )
    context = view(*rounds(*[10] * 30, 150, 150, 1000, 10, 10, 10))
    assert what(proposed(context, rules, window=1000)) == [("Trim", 67)]
    assert what(proposed(context, rules, window=250)) == [("Clear", 63), ("Clear", 65), ("Clear", 67)]


def test_what_is_trimmed_first_may_make_clearing_needless() -> None:
    context = view(*rounds(*[10_000] * 6, 10, 10, 10))
    rules = msgspec.structs.replace(ALWAYS, min_prunable_chars=0)
    assert what(proposed(context, rules)) == [("Trim", 3 + 2 * n) for n in range(6)]


def test_where_the_cache_is_warm_enough_is_cleared_for_long() -> None:
    context = view(*rounds(*[4000] * 30, 10, 10, 10))
    edits = proposed(context, window=50_000 // 2)
    left = sum(len(message.text) for message in after(context, edits).messages)
    assert 0.36 * 100_000 < left < 0.4 * 100_000
    assert proposed(after(context, edits), window=50_000 // 2) == []


def test_the_keys_mean_what_they_say() -> None:
    rules = PruningRules(
        mode="always",
        soft_trim_ratio=0.1,
        hard_clear_ratio=0.2,
        min_prunable_chars=100,
        soft_trim=SoftTrim(max_chars=300, head_chars=20, tail_chars=10),
        hard_clear=HardClear(placeholder="[gone]"),
    )
    context = view(*rounds(290, 400, 10, 10, 10))
    assert what(proposed(context, rules, window=1000)) == [("Trim", 5)]
    assert what(proposed(context, rules, window=400)) == [("Clear", 3), ("Trim", 5)]
    (edit, *_) = proposed(context, rules, window=400)
    assert edit.note == "[gone]"
    off = msgspec.structs.replace(rules, hard_clear=HardClear(enabled=False))
    assert what(proposed(context, off, window=400)) == [("Trim", 5)]


@pytest.mark.parametrize(
    ("allow", "deny", "tool", "prunable"),
    [
        ((), (), "read", True),
        (("read",), (), "read", True),
        (("read",), (), "write", False),
        (("re*",), (), "read", True),
        (("*",), ("read",), "read", False),
        (("read",), ("*",), "read", False),
        ((), ("memory_*",), "memory_get", False),
        ((), ("memory_*",), "get_memory", True),
        (("READ",), (), "Read", True),
        ((), ("[ab]", "?"), "a", True),
    ],
)
def test_tools_are_allowed_and_denied_by_name_and_denial_wins(
    allow: tuple[str, ...], deny: tuple[str, ...], tool: str, prunable: bool
) -> None:
    assert is_prunable(tool, PrunedTools(allow=allow, deny=deny)) == prunable
    rules = msgspec.structs.replace(ALWAYS, tools=PrunedTools(allow=allow, deny=deny))
    assert bool(proposed(view(*rounds(20_000, 10, 10, 10, tool=tool)), rules)) == prunable


def test_what_was_pruned_is_not_proposed_again_and_what_was_cut_mildly_is_cut_more() -> None:
    context = view(*rounds(20_000, 20_000, 10, 10, 10))
    once = after(context, proposed(context))
    assert proposed(once) == []
    mild = after(context, [Trim(of=3, head=5000, tail=5000, note=truncation_note(20_000))])
    edits = proposed(mild)
    assert edits == proposed(context)
    assert "20,000" in edits[0].note
