"""The files of a conversation on their way to a model with vision: read once, sent whole, delaying no answer."""

from __future__ import annotations

import asyncio
import shutil
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.stage import Answer, Model, Stage, breaks, says
from gateway.config.agents import AgentKeys
from gateway.conversations.context.request_attachments import AttachmentRenderer, ConversationFiles
from gateway.models.registry import ModelRegistry
from plugins.api.chat import ChatRequest, StreamPart
from plugins.api.models import ModelLimits
from plugins.support.errors import BadRequest, Unreachable
from sessions.attachments.store import Attachments
from sessions.events.events import AttachmentsWithheld, ModelReplied, RequestSent, TurnEnded
from sessions.events.messages import Attachment, Message, UserMessage
from sessions.events.tokens import TokenFeatures, attachment_features
from sessions.events.vision import VisionSupport, attachment_visibility
from sessions.state.context import Context, Gauge, assemble
from sessions.state.reducer import project
from sessions.state.transcript import Transcript, from_checkpoint, to_checkpoint
from tests.pictures import gif, png
from tests.stories import received

SIGHT = VisionSupport(tokens=lambda width, height: width * height, media=("image/png",))


class Seeing(Model):
    """A model that accepts PNG."""

    def limits(self, model: str) -> ModelLimits:
        return ModelLimits(window=1000, vision=SIGHT)


async def kept(folder: Path, *contents: bytes) -> list[Attachment]:
    attachments = Attachments(folder)
    return [await attachments.store(each, "owner", claimed="", name="") for each in contents]


async def told(stage: Stage, text: str, *attachments: Attachment, id_: str = "m1") -> None:
    """Send a message with files and wait for the turn's end."""
    stage.receive(msgspec.structs.replace(received(text, id_), attachments=attachments))
    await stage.until_settled()


def pictures(request: ChatRequest) -> list[Sequence[Attachment]]:
    return [message.attachments for message in request.context.messages if isinstance(message, UserMessage)]


def refusing(answer: Answer, *refused: Attachment) -> Answer:
    """Return a model that answers only requests without these pictures."""

    def answers(request: ChatRequest) -> AsyncIterator[StreamPart]:
        broken = any(each.sha256 in request.pictures for each in refused)
        return (breaks(BadRequest("Could not process image")) if broken else answer)(request)

    return answers


async def test_a_model_with_vision_is_sent_pictures_and_the_names_of_unsupported_files(tmp_path: Path) -> None:
    one, other = await kept(tmp_path, png(20, 30), gif())
    model = Seeing(says("Nice."))
    stage = Stage(model, attachments=tmp_path)
    async with stage.playing():
        await told(stage, "Look!", one, other)
        await told(stage, "Again.", one, id_="m2")
    first, second = model.requests
    assert pictures(first) == [(one,)]
    assert pictures(second) == [(one,), (one,)]
    assert first.pictures == second.pictures == {one.sha256: b64encode(png(20, 30))}
    (withheld,) = stage.told(AttachmentsWithheld)
    assert [file.sha256 for file in withheld.files] == [other.sha256]
    assert withheld.files[0].sentence.endswith("image/gif, 2×2, 14 bytes: staged:model does not accept image/gif.")
    message = first.context.messages[0]
    assert isinstance(message, UserMessage)
    assert message.text.startswith("Look!\n\n[attached: a file, image/gif, 2×2, 14 bytes; not shown: ")


async def test_a_request_is_measured_with_its_pictures_and_can_be_rebuilt(tmp_path: Path) -> None:
    (one,) = await kept(tmp_path, png(200, 300))
    stage = Stage(Seeing(says("Nice.")), attachments=tmp_path)
    async with stage.playing():
        await told(stage, "Look!", one)
    (sent,) = stage.told(RequestSent)
    shutil.rmtree(tmp_path)
    place = stage.kinds.index("request_sent")
    measured = Gauge().measure(assemble(project(stage.log.written[:place])))
    assert sent.sha256 == measured.sha256
    assert sent.units == measured.units + TokenFeatures(pictures=200 * 300)


async def test_a_picture_that_the_provider_refuses_is_left_out_from_then_on_and_the_person_is_told(tmp_path: Path) -> None:
    good, bad = await kept(tmp_path, png(), png(3, 3))
    model = Seeing(refusing(says("Nice."), bad))
    stage = Stage(model, attachments=tmp_path)
    async with stage.playing():
        await told(stage, "Look!", good)
        await told(stage, "And this?", bad, id_="m2")
        await told(stage, "Well?", id_="m3")
    assert [set(request.pictures) for request in model.requests] == [
        {good.sha256},
        {good.sha256, bad.sha256},
        {good.sha256},
        {good.sha256},
    ]
    assert [ended.outcome for ended in stage.told(TurnEnded)] == ["replied"] * 3
    (withheld,) = stage.told(AttachmentsWithheld)
    assert [file.sha256 for file in withheld.files] == [bad.sha256]
    assert withheld.files[0].sentence.endswith(": staged:model refused it.")


async def test_a_withheld_file_is_reported_once_for_each_model_also_after_a_restart(tmp_path: Path) -> None:
    (one,) = await kept(tmp_path, gif())
    stage = Stage(Seeing(says("Nice.")), attachments=tmp_path)
    async with stage.playing():
        await told(stage, "Look!", one, one)
        await told(stage, "And again.", one, id_="m2")
    assert len(stage.told(AttachmentsWithheld)) == 1
    again = Stage(Seeing(says("Nice.")), attachments=tmp_path, lines=stage.log.written)
    async with again.playing():
        await told(again, "Well?", id_="m3")
    assert len(again.told(AttachmentsWithheld)) == 1
    model = Model(says("Dark."))
    models = ModelRegistry({"staged": model}, AgentKeys(model="staged:blind"))
    blind = Stage(model, attachments=tmp_path, lines=again.log.written, models=models)
    async with blind.playing():
        await told(blind, "Do you see it?", id_="m4")
    assert [(event.model, len(event.files)) for event in blind.told(AttachmentsWithheld)] == [
        ("staged:model", 1),
        ("staged:blind", 1),
    ]


def test_a_checkpoint_knows_the_reported_files() -> None:
    transcript = Transcript(withheld=frozenset({("m", "a" * 64), ("m", "b" * 64)}))
    assert from_checkpoint(to_checkpoint(transcript)) == transcript


async def test_text_streamed_before_a_fallback_began_keeps_its_reply_number(tmp_path: Path) -> None:
    (one,) = await kept(tmp_path, png())
    first, second = Model(breaks(Unreachable("gone"), "I am the first")), Seeing(says("never"))
    providers = {"staged": first, "second": second}
    models = ModelRegistry(providers, AgentKeys(model="staged:first", fallback_models=("second:other",)))
    stage = Stage(first, models=models)
    reading = asyncio.Event()

    class Unread(Attachments):
        async def read(self, digest: str, convert: Callable[[bytes], bytes] = bytes) -> bytes:
            reading.set()
            return await asyncio.Event().wait() and b""

    stage.turn.answering._files = ConversationFiles(AttachmentRenderer(Unread(tmp_path)))
    async with stage.playing():
        stage.receive(msgspec.structs.replace(received("Look!"), attachments=(one,)))
        await reading.wait()
        assert stage.turn.cancel()
        await stage.until_settled()
    assert [(r.reply, r.model, r.text) for r in stage.told(ModelReplied)] == [(1, "first", "I am the first")]


async def test_a_model_that_no_longer_accepts_pictures_still_answers(tmp_path: Path) -> None:
    one, two = await kept(tmp_path, png(), png(3, 3))
    model = Seeing(says("Nice."), refusing(says("Dark."), one, two))
    stage = Stage(model, attachments=tmp_path)
    async with stage.playing():
        await told(stage, "Look!", one)
        await told(stage, "And this?", two, id_="m2")
    assert [len(request.pictures) for request in model.requests] == [1, 2, 1, 0]
    assert [ended.outcome for ended in stage.told(TurnEnded)] == ["replied", "replied"]


async def test_a_request_refused_for_another_reason_withholds_no_picture(tmp_path: Path) -> None:
    (one,) = await kept(tmp_path, png())
    model = Seeing(breaks(BadRequest("No such model.")), breaks(BadRequest("No such model.")), says("Nice."))
    stage = Stage(model, attachments=tmp_path)
    async with stage.playing():
        await told(stage, "Look!", one)
        await told(stage, "Now?", id_="m2")
    assert [len(request.pictures) for request in model.requests] == [1, 0, 1]
    assert [ended.outcome for ended in stage.told(TurnEnded)] == ["failed", "replied"]


async def test_a_picture_is_read_once_and_memory_is_bounded(tmp_path: Path) -> None:
    contents = [png(filling=30_000 + number) for number in range(3)]
    sent = await kept(tmp_path, *contents)
    messages = tuple(UserMessage(text=str(number), attachments=(each,)) for number, each in enumerate(sent))
    showing = AttachmentRenderer(Attachments(tmp_path), kept_bytes=100_000)

    async def show(*numbers: int) -> list[int]:
        """Return the sizes of the loaded pictures."""
        context = Context(instructions="", tools=(), parameters={}, messages=tuple(messages[n] for n in numbers))
        shown = await showing.render(context, attachment_visibility(context.messages, SIGHT, "m"))
        assert showing.size <= 100_000
        return [len(base64) for base64 in shown.pictures.values()]

    first = await show(0, 1)
    shutil.rmtree(tmp_path)
    assert await show(0, 1) == await show(0, 1) == first
    assert await show(2) == []  # it was never read, and now it is gone
    await kept(tmp_path, *contents)
    assert len(await show(2)) == 1
    shutil.rmtree(tmp_path)
    assert len(await show(2)) == 1
    assert await show(0) == []  # the least used one made room


async def test_the_pictures_of_a_context_with_none_cost_nothing(tmp_path: Path) -> None:
    context = Context(instructions="", tools=(), parameters={}, messages=(UserMessage(text="hi"),))
    shown = await AttachmentRenderer(Attachments(tmp_path)).render(
        context, attachment_visibility(context.messages, SIGHT, "m")
    )
    assert shown.context is context


def test_pictures_count_as_such_and_files_shown_as_text_count_as_words() -> None:
    picture = Attachment(sha256="a" * 64, media="image/png", bytes=9, width=30, height=40)
    text = Attachment(sha256="b" * 64, media="text/plain", bytes=300)
    messages: list[Message] = [UserMessage(text="look", attachments=(picture, text))]
    assert attachment_features(attachment_visibility(messages, SIGHT, "m")) == TokenFeatures(pictures=30 * 40, words=100)
    assert attachment_features(attachment_visibility(messages, None, "m")) == TokenFeatures(words=100)
