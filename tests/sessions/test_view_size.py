"""How large a view is, message by message, with what the model that is asked makes of its files."""

from __future__ import annotations

import msgspec

from sessions.events.messages import Attachment, Message, Usage, UserMessage
from sessions.events.tokens import TokenFeatures, attachment_features
from sessions.events.vision import VisionSupport, attachment_visibility
from sessions.state.context import Gauge, assemble
from sessions.state.request_sizes import RequestSizes
from sessions.state.transcript import Transcript
from sessions.state.view_size import ViewSize
from tests.stories import view_of

PHOTO = Attachment(sha256="a" * 64, media="image/png", bytes=100, width=1000, height=750, name="p.png")
SIGHT = VisionSupport(tokens=lambda width, height: 85, count=2)


def transcript_of(*messages: Message) -> Transcript:
    return Transcript(view=view_of(messages))


def sizes(transcript: Transcript, vision: VisionSupport | None) -> tuple[int, ...]:
    return ViewSize().sizes(transcript, assemble(transcript), vision).messages


def test_a_picture_costs_the_vendors_tokens_and_none_if_it_is_not_sent() -> None:
    talk = transcript_of(UserMessage(text="Look!"), UserMessage(text="Look!", attachments=(PHOTO,)))
    for vision, tokens in ((SIGHT, 85), (None, 0), (VisionSupport(tokens=lambda width, height: 1000), 1000)):
        plain, pictured = sizes(talk, vision)
        assert pictured - plain == tokens


def test_only_pictures_that_are_sent_count() -> None:
    talk = transcript_of(*(UserMessage(text="Look!", attachments=(PHOTO,)) for _ in range(3)))
    first, *later = sizes(talk, SIGHT)
    assert [each - first for each in later] == [0, 85]


def test_a_view_counted_by_the_provider_has_exactly_that_many_tokens() -> None:
    """A formula that is not the vendor's would add the difference to them: a conversation would be compacted for nothing."""
    talk = transcript_of(UserMessage(text="Look! " * 200, attachments=(PHOTO,)))
    context = assemble(talk)
    units = Gauge().measure(context).units + attachment_features(attachment_visibility(context.messages, SIGHT, ""))
    counts = RequestSizes().after_request(units, "a:x").after_reply(TokenFeatures(), Usage(input=1234), opaque=False)
    talk = msgspec.structs.replace(talk, counts=counts)
    assert ViewSize().sizes(talk, assemble(talk), SIGHT).total == 1234
