"""The time that a question names."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.memory.search.periods import Period, asks_when, mentions_time, named_period

TODAY = date(2026, 11, 21)  # a Saturday


@pytest.mark.parametrize(
    ("question", "period"),
    [
        ("What did Ana paint in May 2023?", Period(year=2023, month=5)),
        ("What happened on 5 July?", Period(month=7, day=5)),
        ("What happened on July 5th, 2023?", Period(year=2023, month=7, day=5)),
        ("the 3rd of october 2024", Period(year=2024, month=10, day=3)),
        ("notes of 2023-05-08", Period(year=2023, month=5, day=8)),
        ("notes of 2023-05", Period(year=2023, month=5)),
        ("Where was she in 2022?", Period(year=2022)),
        ("Was war im März 2025?", Period(year=2025, month=3)),
        ("le 14 juillet 2024", Period(year=2024, month=7, day=14)),
        ("el 2 de mayo de 2025", Period(year=2025, month=5, day=2)),
        ("2023年5月说了什么？", Period(year=2023, month=5)),
        ("5月8日の会議", Period(month=5, day=8)),
        ("what did we decide yesterday", Period(first=date(2026, 11, 20), last=date(2026, 11, 20))),
        ("last week's plan", Period(first=date(2026, 11, 9), last=date(2026, 11, 15))),
        ("last month", Period(year=2026, month=10)),
        ("two months ago", Period(year=2026, month=9)),
        ("上个月的预算", Period(year=2026, month=10)),
        ("去年", Period(year=2025)),
        ("May I open the window?", None),
        ("What may be wrong?", None),
        ("How do they march?", None),
        ("What is on port 2023x?", None),
        ("Which colour?", None),
        ("", None),
    ],
)
def test_a_question_names_a_time(question: str, period: Period | None) -> None:
    assert named_period(question, TODAY) == period


@pytest.mark.parametrize(
    "question",
    [
        "When did Ana paint?",
        "and when is the build",
        "Since when do we rent it?",
        "What day is the appointment?",
        "in which year did he move",
        "How long have they been married?",
        "Wann kommt der Klempner?",
        "Quand part le train ?",
        "¿Cuándo llega Ana?",
        "Quando arriva?",
        "Когда он приедет?",
        "会议什么时候开？",
        "ゴミの日はいつ",
        "출장이 언제야?",
    ],
)
def test_a_question_asks_for_a_time(question: str) -> None:
    assert asks_when(question)


@pytest.mark.parametrize(
    "question",
    ["What did she say when she left?", "Who painted it in May?", "How many dogs?", "Whenever", "", "Wo ist das?"],
)
def test_a_question_asks_for_something_else(question: str) -> None:
    assert not asks_when(question)


@pytest.mark.parametrize(
    "text",
    [
        "We moved here two years ago.",
        "(Yesterday!)",
        "The exam is on Friday.",
        "Since March, more or less",
        "It was built in 1998.",
        "at 10:30",
        "um 8 Uhr",
        "Die Prüfung ist nächste Woche – endlich",
        "il y a trois semaines",
        "la semana pasada",
        "в прошлом году",
        "明年三月",
        "毎晩二時に止まる",
        "다음 주 목요일",
    ],
)
def test_a_text_contains_a_time(text: str) -> None:
    assert mentions_time(text)


@pytest.mark.parametrize("text", ["It may rain.", "The port is 8080.", "A ratio of 3:2", "昨 天", "Ana likes tea.", ""])
def test_a_text_contains_no_time(text: str) -> None:
    assert not mentions_time(text)


def test_a_period_has_the_days_that_it_names() -> None:
    assert Period(year=2023, month=5).has(date(2023, 5, 31))
    assert not Period(year=2023, month=5).has(date(2024, 5, 31))
    assert Period(month=7, day=5).has(date(1999, 7, 5))
    assert not Period(first=date(2026, 11, 9), last=date(2026, 11, 15)).has(date(2026, 11, 16))


@given(st.text(), st.dates())
def test_whatever_is_asked_on_whatever_day_a_period_can_be_looked_into(question: str, today: date) -> None:
    assert asks_when(question) in (True, False)
    assert mentions_time(question) in (True, False)
    period = named_period(question, today)
    assert period is None or period.has(today) in (True, False)


@pytest.mark.parametrize("question", ["yesterday", "999 weeks ago", "last week", "999 months ago"])
def test_what_lies_before_all_days_is_no_time(question: str) -> None:
    period = named_period(question, date.min)
    assert period is None or not period.has(date.min)
