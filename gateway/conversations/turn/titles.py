"""Titles made by a model, in the background, after the first turn of a conversation that was answered.

No turn waits for one: a request for one is cancelled as soon as the next turn starts, and sent again after it. A person's
title is never replaced.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec
import structlog

from gateway.config.settings import Settings
from gateway.models.call import ModelCaller, TextRequest, text_context
from gateway.models.registry import ChosenModel, ModelRegistry
from gateway.support.errors import GatewayError, error_fields, sentence_of
from gateway.support.printable import one_line
from plugins.api.chat import HasAddress
from plugins.policies.languages.prompts import language
from plugins.support.errors import ProviderError
from plugins.support.fencing import quoted
from sessions.events.errors import SessionsError
from sessions.events.events import Recorded, SessionTitled, TurnEnded, TurnStarted
from sessions.events.messages import AssistantMessage, UserMessage
from sessions.state.transcript import Transcript
from sessions.state.truncation import head_and_tail
from sessions.store.recorder import Recorder

OUTPUT_TOKENS = 40
"""The limit of the answer."""

WITHIN = 60.0
"""Seconds that an answer may take."""

SHOWN_BYTES = 1500
"""Maximum bytes of the message, and of its answer, that the model is shown."""

LONGEST = 80
"""Maximum characters of a title."""

TRIES = 2
"""Requests for one session that may fail while the gateway runs."""

AT_ONCE = 2
"""Requests at the same time."""

_LABEL = re.compile(r"^(?:title|titel|titre|título|标题)\s*[:：]\s*", re.IGNORECASE)

log = structlog.get_logger("exuvia.titles")


class TitleMaker:
    """Makes the titles of all conversations, as an async context manager. Leaving it cancels the requests."""

    def __init__(self, settings: Settings, models: ModelRegistry, caller: ModelCaller) -> None:
        self._settings = settings
        self._models = models
        self._caller = caller
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, int] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def opened(self, recorder: Recorder) -> None:
        """Follow an open session, whose title a crash may have prevented."""
        recorder.on_event(lambda recorded: self._on_event(recorder, recorded))
        if recorder.transcript.settled:
            self._begin(recorder)

    def _on_event(self, recorder: Recorder, recorded: Recorded) -> None:
        event = recorded.event
        if isinstance(event, TurnEnded) and event.outcome == "replied":
            self._begin(recorder)
        elif isinstance(event, TurnStarted) and (task := self._tasks.get(recorder.transcript.session)) is not None:
            task.cancel()

    def _begin(self, recorder: Recorder) -> None:
        transcript = recorder.transcript
        session = transcript.session
        if transcript.title is not None or not transcript.turn or not self._settings.current.agent.titles:
            return
        if session in self._tasks or self._failures.get(session, 0) >= TRIES:
            return
        task = self._tasks[session] = asyncio.create_task(self._make(recorder))
        task.add_done_callback(lambda _: self._tasks.pop(session, None))

    async def _make(self, recorder: Recorder) -> None:
        session = recorder.transcript.session
        async with self._room:
            try:
                await self._ask(recorder)
            except (ProviderError, GatewayError) as error:
                self._failures[session] = self._failures.get(session, 0) + 1
                log.warning("title_not_made", session=session, reason=sentence_of(error))
            except SessionsError as error:
                log.info("title_not_recorded", session=session, reason=str(error))  # the session was closed
            except Exception as error:
                self._failures[session] = TRIES
                log.error("title_not_made", session=session, **error_fields(error))

    async def _ask(self, recorder: Recorder) -> None:
        transcript = recorder.transcript
        shown = _beginning(transcript)
        model = self._model(transcript)
        if shown is None or model is None:
            return
        texts = language(self._settings.current.agent.language)
        context = text_context(texts.title, shown)
        request = TextRequest(
            context=msgspec.structs.replace(context, parameters={"max_tokens": OUTPUT_TOKENS}),
            purpose="title",
            session=transcript.session,
            limit=OUTPUT_TOKENS,
            seconds=WITHIN,
        )
        answer = await self._caller.answer(model, request)
        # An empty one is recorded too, so that nobody asks again.
        if recorder.transcript.title is None:
            titled = SessionTitled(title=clean_title(answer.text), by="", model=answer.model, usage=answer.usage)
            await recorder.append_durable(titled)

    def _model(self, transcript: Transcript) -> ChosenModel | None:
        """Return the model to ask: the configured one, or the session's if it does not run in this process."""
        if named := self._settings.current.agent.title_model:
            return self._models.choose(named)
        with suppress(GatewayError):
            model = self._models.choose(transcript.settings.get("model"))
            provider = model.provider
            return model if isinstance(provider, HasAddress) and provider.address(model.model) else None
        return None


def clean_title(answer: str) -> str:
    """Return the title in a model's answer: its first line, without markup, quotation marks and a label."""
    line = next((line for line in answer.splitlines() if line.strip()), "")
    title = _LABEL.sub("", one_line(line, 10 * LONGEST).strip(" #*_`")).strip(" \"'“”„«»*_`").removesuffix(".")
    if len(title) <= LONGEST:
        return title
    cut = title[:LONGEST].rpartition(" ")[0] or title[: LONGEST - 1]
    return f"{cut}…"


def _beginning(transcript: Transcript) -> str | None:
    """Return the first message and the first answer, each between marks; None if there is none."""
    said = next((each.text for each in transcript.messages if isinstance(each, UserMessage) and each.text), "")
    answered = next((each.text for each in transcript.messages if isinstance(each, AssistantMessage) and each.text), "")
    if not said or not answered:
        return None
    pieces = (quoted(head_and_tail(said, SHOWN_BYTES), "person"), quoted(head_and_tail(answered, SHOWN_BYTES), "assistant"))
    return "\n".join(pieces)
