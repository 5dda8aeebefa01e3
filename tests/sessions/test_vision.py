"""Which files of a conversation a model is shown, and what it is told of the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions.events.messages import AssistantMessage, Attachment, Message, UserMessage
from sessions.events.vision import JPEG, PNG, TEXT_BYTES, VisionSupport, attachment_visibility, placeholder_line

SIGHT = VisionSupport(
    tokens=lambda width, height: width * height, media=(PNG, JPEG), count=4, total_bytes=100, picture_bytes=60, side=50
)


def picture(size: int = 10, *, width: int = 5, height: int = 4, media: str = PNG, digest: str = "a") -> Attachment:
    return Attachment(sha256=digest * 64, media=media, bytes=size, width=width, height=height, name="p.png")


def said(*attachments: Attachment) -> UserMessage:
    return UserMessage(text="Look!", attachments=attachments)


def forms(messages: list[Message], vision: VisionSupport | None = SIGHT) -> list[str]:
    return [f"{each.form}: {each.why}" if each.why else each.form for each in attachment_visibility(messages, vision, "m:1")]


def test_each_file_is_shown_as_the_model_supports_it_otherwise_with_the_reason() -> None:
    pdf = Attachment(sha256="b" * 64, media="application/pdf", bytes=120_000, name="report.pdf")
    text = Attachment(sha256="c" * 64, media="text/csv", bytes=90)
    messages: list[Message] = [
        said(picture(), pdf, text),
        AssistantMessage(text="I see."),
        said(picture(61), picture(width=51), picture(media="image/gif"), picture(width=0, height=0)),
    ]
    assert forms(messages) == [
        "picture",
        "named: it is neither a picture nor text",
        "text",
        "named: m:1 accepts pictures up to 0.0 MB",
        "named: m:1 accepts pictures up to 50 pixels a side",
        "named: m:1 does not accept image/gif",
        "named: the picture is incomplete",
    ]
    seen = attachment_visibility(messages, SIGHT, "m:1")
    assert [each.at for each in seen] == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (2, 2), (2, 3)]
    assert [each.tokens for each in seen] == [20, 0, 30, 0, 0, 0, 0]
    assert (
        placeholder_line(seen[1])
        == "[attached: report.pdf, application/pdf, 120 kB; not shown: it is neither a picture nor text]"
    )


def test_a_model_without_vision_is_sent_the_names_of_pictures_and_the_text_of_files() -> None:
    text = Attachment(sha256="c" * 64, media="text/plain", bytes=10**9)
    assert forms([said(picture(), text)], None) == ["named: m:1 does not accept pictures", "text"]
    assert attachment_visibility([said(text)], None, "m:1")[0].tokens == TEXT_BYTES // 3


def test_if_there_are_too_many_pictures_the_later_half_is_sent() -> None:
    assert forms([said(picture()) for _ in range(4)]) == ["picture"] * 4
    assert [form[:7] for form in forms([said(picture()) for _ in range(5)])] == ["named: "] * 3 + ["picture"] * 2


@given(st.lists(st.integers(1, 60), max_size=40))
def test_the_limits_hold_the_newest_is_sent_and_earlier_requests_rarely_change(sizes: list[int]) -> None:
    messages: list[Message] = [said(picture(size)) for size in sizes]
    before: set[tuple[int, int]] = set()
    for count in range(len(messages) + 1):
        sent = [each for each in attachment_visibility(messages[:count], SIGHT, "m:1") if each.form == "picture"]
        assert len(sent) <= SIGHT.count
        assert sum(each.attachment.bytes for each in sent) <= SIGHT.total_bytes
        places = {each.at for each in sent}
        if count:
            assert (count - 1, 0) in places
        if before - places:  # something went: then so much that the next few pictures take nothing away
            assert len(places) <= max(1, SIGHT.count // 2)
        before = places
