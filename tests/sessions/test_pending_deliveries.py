"""Which answers a session owes to the channels of plugins, by its events alone."""

from __future__ import annotations

import msgspec
import pytest

from sessions.events.events import (
    CommandAnswered,
    DeliveryAttempted,
    Event,
    Failure,
    MessageReceived,
    ModelReplied,
    Recorded,
    ReplyDelivered,
    SessionForked,
    TurnEnded,
    TurnOutcome,
    TurnStarted,
)
from sessions.state.reducer import evolve
from sessions.state.transcript import Address, PendingDelivery, Transcript, from_checkpoint, to_checkpoint

KITCHEN = Address(channel="irc", chat="#kitchen")


def message(text: str = "hi", reply_to: str = "#kitchen") -> MessageReceived:
    return MessageReceived(
        id="1", client="ana", sender="owner", channel="irc", chat="private", text=text, attachments=(), reply_to=reply_to
    )


def folded(*events: Event) -> Transcript:
    transcript = Transcript()
    for seq, event in enumerate(events, 1):
        transcript = evolve(transcript, Recorded(seq=seq, at="", turn=1, event=event))
    return transcript


def started(*takes: int) -> TurnStarted:
    return TurnStarted(takes=takes, provider="p", model="m", window=None, reserve=0)


def replied(text: str) -> ModelReplied:
    return ModelReplied(reply=1, model="m", text=text, calls=(), stop="end", usage=None)


def ended(outcome: TurnOutcome, error: Failure | None = None) -> TurnEnded:
    return TurnEnded(outcome=outcome, millis=1, error=error)


def test_the_last_answer_of_a_turn_is_pending_for_its_channel_until_it_is_delivered() -> None:
    turn = (message(), started(1), replied("hello"), ended("replied"))

    owing = folded(*turn)
    paid = folded(*turn, ReplyDelivered(of=3, channel="irc"))

    assert owing.owed == (PendingDelivery(of=3, to=KITCHEN),)
    assert not owing.finished, "the next start has something to do here"
    assert from_checkpoint(to_checkpoint(owing)).owed == owing.owed
    assert (paid.owed, paid.finished) == ((), True)


def test_the_reason_of_a_failed_turn_is_pending() -> None:
    failed = folded(message(), started(1), ended("failed", Failure(code="unreachable", sentence="Nobody there.")))

    assert failed.owed == (PendingDelivery(of=3, to=KITCHEN),)


def test_a_part_that_was_delivered_is_progress_and_an_attempt_is_noted_until_its_result_is_known() -> None:
    turn = (message(), started(1), replied("hello"), ended("replied"))
    part = ReplyDelivered(of=3, channel="irc", receipt="1", chars=3, more=True)
    attempt = DeliveryAttempted(of=3, channel="irc", chars=3)
    (after_one,) = folded(*turn, part).owed
    (attempted,) = folded(*turn, part, attempt).owed
    (refused,) = folded(*turn, part, attempt, DeliveryAttempted(of=3, channel="irc", failed="No.")).owed
    (after_two,) = folded(*turn, part, attempt, ReplyDelivered(of=3, channel="irc", chars=5, files=1, more=True)).owed

    assert after_one == refused == PendingDelivery(of=3, to=KITCHEN, chars=3, parts=1)
    assert attempted == PendingDelivery(of=3, to=KITCHEN, chars=3, parts=1, attempted=True)
    assert after_two == PendingDelivery(of=3, to=KITCHEN, chars=5, delivered_files=1, parts=2)
    assert folded(*turn, part, ReplyDelivered(of=3, channel="irc", chars=5)).owed == ()


def test_the_answer_in_a_group_names_the_message_that_it_answers() -> None:
    turn = (msgspec.structs.replace(message(), chat="group", id="irc:17"), started(1), replied("hello"), ended("replied"))
    assert folded(*turn).owed == (PendingDelivery(of=3, to=KITCHEN, answers="irc:17"),)


@pytest.mark.parametrize("outcome", ["silent", "cancelled"])
def test_a_cancelled_or_silent_turn_has_no_pending_delivery(outcome: TurnOutcome) -> None:
    assert folded(message(), started(1), replied("half"), ended(outcome)).owed == ()


def test_a_message_of_a_client_that_reads_the_log_has_no_pending_delivery() -> None:
    assert folded(message(reply_to=""), started(1), replied("hello"), ended("replied")).owed == ()


def test_the_answer_to_a_command_is_pending() -> None:
    answered = folded(message("/whoami"), CommandAnswered(answers=1, answer="You are owner.", failed=False))

    assert answered.owed == (PendingDelivery(of=2, to=KITCHEN),)


def test_a_fork_has_none_of_its_parents_pending_deliveries() -> None:
    forked = SessionForked(session="fork", key="fork", parent="s", parent_seq=4)

    assert folded(message(), started(1), replied("hello"), ended("replied"), forked).owed == ()
