"""What must be kept letter by letter, found in what people, models and tools write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.policies.identifiers import MAX_WORD_CHARACTERS, identifiers, is_named


def found(text: str) -> list[str]:
    return [each.text for each in identifiers(text)]


@pytest.mark.parametrize(
    "identifier",
    [
        "550e8400-e29b-41d4-a716-446655440000",
        "3f9c2ab1",
        "sha256:9b74c9897bac770ffc029102a200c5de",
        "https://wiki.acme.dev/a/b?x=1#part",
        "src/auth/login.ts",
        "./run.sh",
        "~/notes/plan.md",
        "C:\\Users\\ana\\x.txt",
        "/home/jürgen/größe.csv",
        "ana@example.org",
        "10.0.4.17:5432",
        "fe80::1",
        "localhost:8080",
        "staging.acme.dev",
        "v2.3.1",
        "python3.11",
        "numpy==1.26.4",
        "OPS-4412",
        "#123",
        "owner/repo#12",
        "48213",
        "2026-11-21",
        "21.11.2026",
        "2026-11-21T14:30:00Z",
        "14:30",
        "March 3, 2026",
        "3. März 2026",
        "3 de marzo de 2026",
        "$1,200.50",
        "1.200 €",
        "12 EUR",
        "MAX_RETRIES",
        "snake_case",
        "handleWebSocketReconnect",
        "WebSocketServer",
        "ECONNREFUSED",
        "gateway::turn",
        "fetchAll()",
        "--dry-run",
        "p99",
        "+49 170 1234567",
    ],
)
def test_an_identifier_is_found_whole_within_a_sentence(identifier: str) -> None:
    assert found(f"please look at {identifier}, it matters.") == [identifier]
    assert found(f"({identifier})") == [identifier]
    assert identifier in found(f"请看 {identifier}，很重要。")


@pytest.mark.parametrize(
    "text",
    [
        "and/or he/she",
        "e.g. this, i.e. that",
        "20GB in 5ms, 42% of 3x",
        "in 2026",
        "a well-known end-to-end test",
        "don't. Stop!",
        "1 of 7",
    ],
)
def test_plain_words_and_quantities_are_no_identifiers(text: str) -> None:
    assert found(text) == []


def test_names_stand_in_unspaced_scripts_without_a_space() -> None:
    assert found("订单号ABC-123已在2026年11月21日完成，金额500元，见「夜莺计划」。") == [
        "2026年11月21日",
        "500元",
        "夜莺计划",
        "ABC-123",
    ]


def test_the_marks_of_a_formula_are_no_part_of_a_name() -> None:
    assert found(r"\(x_1\) and \[ v_2 \].") == ["x_1", "v_2"]


def test_what_is_marked_as_code_or_as_a_name_is_found() -> None:
    kinds = {
        each.text: each.kind for each in identifiers('`turn` in "Project Nightingale", „Größe“, "utf", `npm run build`')
    }
    assert kinds == {"turn": "exact", "Project Nightingale": "quoted", "Größe": "quoted", "npm run build": "quoted"}


def test_a_phrase_is_not_found_again_by_its_parts() -> None:
    assert found("$1,200.50 by `OPS-4412` and OPS-4412") == ["$1,200.50", "OPS-4412", "OPS-4412"]


def test_an_identifier_is_not_named_by_a_longer_one() -> None:
    assert is_named("#12", "see #12.")
    assert is_named("#12", "see #123 and #12")
    assert not is_named("#12", "see #123")
    assert not is_named("src/a.py", "src/a.pyc")
    assert is_named("订单", "这个订单号")


@given(st.text(alphabet=st.sampled_from([*"aA1/.-_:@#`\"'「」+$€ \n年月é中()"]), max_size=80))
def test_each_stands_where_it_is_said_to(text: str) -> None:
    for each in identifiers(text):
        assert text[each.start : each.start + len(each.text)] == each.text
        assert each.text == each.text.strip() != ""


@pytest.mark.parametrize(
    "bit",
    [
        "x",
        "a.",
        "`",
        "`a",
        "1.",
        "1,",
        "1 ",
        "_a",
        "aB_",
        "::",
        '"A ',
        "a@",
        "+1 23 ",
        "Mar ",
        "中",
        "://",
        "1年",
        "€ ",
        "\\",
    ],
)
def test_hostile_repetitions_are_read_to_their_end(bit: str) -> None:
    """A pattern that goes back over what it has read would not return from a megabyte of these."""
    text = bit * (1_000_000 // len(bit)) + " OPS-4412"
    assert found(text)[-1] == "OPS-4412"
    assert all(len(each) <= MAX_WORD_CHARACTERS for each in found(text[:10_000]))
