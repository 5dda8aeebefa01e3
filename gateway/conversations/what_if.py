"""Past requests sent again, to another model or with other pruning, so that a person compares the answers.

The answer is shown and not kept. `request_repeated` in the conversation's log says what it used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from threading import Event as Flag
from typing import Any, TypeAlias

import msgspec
import structlog

from gateway.config.settings import Settings
from gateway.conversations.context.conversation_config import ConversationConfig
from gateway.conversations.context.pruning import pruning_context
from gateway.conversations.context.request_attachments import AttachmentRenderer
from gateway.conversations.context.session_models import EFFORT, TEMPERATURE
from gateway.conversations.context.session_settings import NO_SUCH_CHOICE
from gateway.conversations.routing.switchboard import Switchboard
from gateway.models.call import ModelCaller, ReplyStream
from gateway.models.fallback import FallbackChain
from gateway.models.registry import ChosenModel, ModelRegistry
from gateway.models.spending.prices import CURRENCY, cost_of, price_of
from gateway.support.errors import Conflict, SettingRefused
from gateway.support.stored_sessions import PastRequest, evolved
from plugins.api.chat import ChatRequest, Reasoning, Reply
from plugins.api.context import Clock
from plugins.api.models import ModelLimits
from plugins.api.pruning import PruningBudget, PruningRules
from plugins.policies.tool_pruning import propose_prunes
from sessions.events.errors import SessionsError
from sessions.events.events import (
    CompactionBegan,
    ContextPruned,
    ModelReplied,
    Recorded,
    RequestRepeated,
    RequestSent,
    StopReason,
)
from sessions.events.messages import Message, ToolMessage, Usage
from sessions.events.tokens import attachment_features
from sessions.events.vision import AttachmentVisibility, attachment_visibility, describe_attachment
from sessions.state import compaction
from sessions.state.context import Context, Gauge, assemble
from sessions.state.edit_validation import merge_proposals
from sessions.state.transcript import Transcript, Unfolding
from sessions.state.truncation import required_trims
from sessions.state.view_size import CharacterCount, text_tokens
from sessions.store.reading import StoredLog

PURPOSE = "what_if"
"""The purpose that providers and counters see."""

PRUNED_BY = "tool_pruning"
"""The author of the built-in pruning's edits in the log."""

MOST_CHANGES = 200
"""The maximum number of changed messages that are listed."""

AT_ONCE = 2
"""Threads that rebuild requests at the same time: the others are for turns."""

STRETCH, PAUSE = 0.004, 0.001
"""Seconds of work and of pause of the thread that reads a journal: it shares the interpreter lock with the event loop."""

log = structlog.get_logger("exuvia.what_if")


class RequestChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is different about a repeated request; what is left out stays as it was. Null removes a parameter."""

    model: str | None = None
    effort: str | msgspec.UnsetType | None = msgspec.UNSET
    temperature: float | msgspec.UnsetType | None = msgspec.UNSET
    pruning: dict[str, Any] | None = None
    """Keys of `[pruning]` that differ from the configuration."""


class ShownCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call in an answer. It does not run."""

    tool: str
    arguments: str


class ShownAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="answer", tag_field="type"):
    """A complete answer. `millis` is the time that it took, `cost` what its tokens cost in `currency`, if that is known."""

    model: str
    text: str
    stop: StopReason
    millis: int
    reasoning: str = ""
    calls: tuple[ShownCall, ...] = ()
    usage: Usage | None = None
    cost: float | None = None
    currency: str = CURRENCY


class ChangedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message whose text differs from that of the past request: its index and its characters `before` and `after`."""

    index: int
    who: str
    tool: str
    before: int
    after: int


class ShownRequest(msgspec.Struct, frozen=True, kw_only=True, tag="request", tag_field="type"):
    """A request that is about to be sent, and its differences from the past one. `tokens` and `before` are the estimated
    sizes of both; `changed` is the number of messages that differ, and `changes` lists the first of them. `withheld` has a
    sentence for each file that the model is not shown."""

    model: str
    sha256: str
    messages: int
    tokens: int
    before: int
    window: int | None
    parameters: dict[str, Any]
    changed: int
    changes: tuple[ChangedMessage, ...]
    withheld: tuple[str, ...]


class TextPiece(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    """A piece of the answer's text."""

    text: str


class ReasoningPiece(msgspec.Struct, frozen=True, tag="reasoning", tag_field="type"):
    """A piece of the model's reasoning."""

    text: str


Shown: TypeAlias = ShownRequest | TextPiece | ReasoningPiece | ShownAnswer
Show: TypeAlias = Callable[[Shown], Awaitable[None]]


class _Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A request that can be sent."""

    context: Context
    visibility: Sequence[AttachmentVisibility]
    shown: ShownRequest


class WhatIf:
    """Sends past requests again.

    Args:
        switchboard: Finds the conversation in whose log the usage is recorded.
        models: The models.
        caller: Calls them.
        renderer: Reads attachments.
        settings: The configuration in force.
        clock: The time.
    """

    def __init__(
        self,
        switchboard: Switchboard,
        models: ModelRegistry,
        *,
        caller: ModelCaller,
        renderer: AttachmentRenderer,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._switchboard = switchboard
        self._models = models
        self._caller = caller
        self._renderer = renderer
        self._settings = settings
        self._config = ConversationConfig(settings, clock)
        self._threads = asyncio.Semaphore(AT_ONCE)

    def rules(self, changes: dict[str, Any]) -> PruningRules:
        """Return the configured rules of pruning with changes; `ttl` is in seconds.

        Raises:
            SettingRefused: A key does not exist, or its value is not valid.
        """
        try:
            configured = msgspec.to_builtins(self._settings.current.pruning, enc_hook=float)
            return msgspec.convert(_merged(configured, changes), PruningRules)
        except msgspec.ValidationError as error:
            raise SettingRefused(f"The pruning policy is not valid: {error}.") from None

    def asked(self, past: PastRequest) -> tuple[str, dict[str, Any]]:
        """Return the `provider:model` that a past request was sent to, and its parameters."""
        return _model_of(past), assemble(past[1]).parameters

    def past_answer(self, stored: StoredLog, past: PastRequest) -> ShownAnswer | None:
        """Return the answer to a past request; None if there was none. Blocks: call it in a thread.

        Raises:
            JournalDamaged, UnknownSession, StorageFailed: The journal cannot be read.
        """
        recorded = past[0]
        for event in stored.events(recorded.seq + 1):
            if isinstance(event.event, RequestSent) and event.event.purpose == "answer":
                return None
            if isinstance(replied := event.event, ModelReplied):
                took = datetime.fromisoformat(event.at) - datetime.fromisoformat(recorded.at)
                return ShownAnswer(
                    model=_model_of(past),
                    text=replied.text,
                    stop=replied.stop,
                    millis=round(took.total_seconds() * 1000),
                    reasoning=replied.reasoning,
                    calls=tuple(ShownCall(tool=call.tool, arguments=call.arguments) for call in replied.calls),
                    usage=replied.usage,
                    cost=self._cost(_model_of(past), replied.usage),
                    currency=self._settings.current.usage.currency,
                )
        return None

    async def ask(
        self, stored: StoredLog, past: PastRequest, change: RequestChange, *, key: str, person: str, show: Show
    ) -> None:
        """Send a past request again with a change, and show the answer while it comes.

        Raises:
            Conflict: The past request cannot be rebuilt exactly, the changed one does not fit the model's window, or the
                conversation's log cannot be written.
            ModelUnknown, SettingRefused: There is no such model, or it does not have a parameter.
            ProviderError: The model did not answer.
            SessionsError: The journal cannot be read or written.
        """
        model = self._chosen(change.model or _model_of(past), person)
        rules = None if change.pruning is None else self.rules(change.pruning)
        stopped = Flag()
        try:
            async with self._threads:
                prepared = await asyncio.to_thread(
                    self._prepared, stored, past, model, change=change, rules=rules, stopped=stopped.is_set
                )
        finally:
            stopped.set()
        current = await self._current_session(key, person)
        repeated = RequestRepeated(
            request=past[0].seq,
            sha256=prepared.shown.sha256,
            tokens=prepared.shown.tokens,
            model=model.name,
            by=person,
            session="" if current == stored.session else stored.session,
        )
        rendered = await self._renderer.render(prepared.context, prepared.visibility)
        request = ChatRequest(
            model=model.model,
            context=rendered.context,
            purpose=PURPOSE,
            session=stored.session,
            pictures=rendered.pictures,
            window=model.window,
            has_fallback=True,  # a person can wait and ask again
        )
        withheld = tuple(f"{describe_attachment(each.attachment)}: {each.why}" for each in rendered.withheld)
        await show(msgspec.structs.replace(prepared.shown, withheld=withheld))
        reply: Reply | None = None
        began = time.monotonic()
        try:
            reply = await self._reply(model, request, prepared.shown.tokens, show)
        finally:
            await self._record(key, person, msgspec.structs.replace(repeated, usage=reply.usage if reply else None))
        await show(self._answer(model, reply, time.monotonic() - began))

    def _chosen(self, name: str, person: str) -> ChosenModel:
        """Return a model that a person may use, without its fallbacks. Raises ModelUnknown, SettingRefused."""
        chosen = self._models.choose(name)
        if not self._models.admits(chosen.name, self._settings.rights_of(person)):
            raise SettingRefused(NO_SUCH_CHOICE)
        return msgspec.structs.replace(chosen, fallbacks=(), choose_again=None)

    async def _current_session(self, key: str, person: str) -> str:
        """Return the session in which the request is recorded. Raises Conflict if nothing can be written to it."""
        chat = await self._switchboard.chat(person, key, create=False)
        if chat is None or chat.current is None or chat.damaged is not None:
            raise Conflict(
                "What this costs could not be recorded, since the conversation's log is damaged; /new starts another."
            )
        return chat.current.session

    def _answer(self, model: ChosenModel, reply: Reply, seconds: float) -> ShownAnswer:
        return ShownAnswer(
            model=model.name,
            text=reply.text,
            stop=reply.stop,
            millis=round(seconds * 1000),
            calls=tuple(ShownCall(tool=call.tool, arguments=call.arguments) for call in reply.calls),
            usage=reply.usage,
            cost=self._cost(model.name, reply.usage),
            currency=self._settings.current.usage.currency,
        )

    async def _reply(self, model: ChosenModel, request: ChatRequest, tokens: int, show: Show) -> Reply:
        """Return the model's reply, whose pieces are shown as they arrive."""
        chain = FallbackChain(model)

        async def ask(each: ChosenModel) -> Reply:
            async with ReplyStream(each, request) as stream:
                async for piece in stream:
                    chain.pin()  # what was shown cannot be taken back
                    await show(ReasoningPiece(piece.text) if isinstance(piece, Reasoning) else TextPiece(piece.text))
            return stream.reply

        return await self._caller.call(chain, ask, lambda _: tokens)

    async def _record(self, key: str, person: str, repeated: RequestRepeated) -> None:
        """Record durably what a request used."""
        try:
            chat = await self._switchboard.chat(person, key, create=False)
            if chat is not None and chat.current is not None:
                await chat.current.recorder.append_durable(repeated)
        except SessionsError as error:
            log.error("usage_not_recorded", session=repeated.session, model=repeated.model, reason=str(error))
            raise

    def _cost(self, name: str, usage: Usage | None) -> float | None:
        provider, _, model = name.partition(":")
        config = self._settings.current
        try:
            price = price_of(self._models.provider(provider), model, config.prices, config.usage.currency)
        except KeyError:
            return None
        return cost_of(price, usage)

    # --- in a thread --------------------------------------------------------------------------------------------------

    def _prepared(
        self,
        stored: StoredLog,
        past: PastRequest,
        model: ChosenModel,
        *,
        change: RequestChange,
        rules: PruningRules | None,
        stopped: Callable[[], bool],
    ) -> _Prepared:
        recorded, transcript = past
        sent, before = recorded.event, assemble(transcript)
        assert isinstance(sent, RequestSent)
        if Gauge().measure(before).sha256 != sent.sha256:
            raise Conflict("This request cannot be sent again: rebuilt from the log, it differs from the one that was sent.")
        if rules is not None:
            reserve = 0 if model.window is None else self._reserve(model.window)
            transcript = pruned_anew(stored, recorded, rules, (model.window, reserve), stopped)
        context = assemble(transcript)
        parameters = changed_parameters(context.parameters, model.name, model.limits, change)
        context = msgspec.structs.replace(context, parameters=parameters)
        visibility = attachment_visibility(context.messages, model.limits.vision, model.name)
        measured = Gauge().measure(context)
        units = measured.units + attachment_features(visibility) if visibility else measured.units
        tokens = transcript.counts.estimate(units, model.name)
        if model.window is not None and tokens > model.window:
            sizes = f"about {tokens:,} tokens, and the window of {model.name} has {model.window:,}"
            raise Conflict(f"The request has {sizes}; choose pruning that shortens it, or another model.")
        changes = [
            _changed(index, *pair)
            for index, pair in enumerate(zip(before.messages, context.messages, strict=True))
            if pair[0].text != pair[1].text
        ]
        return _Prepared(
            context=context,
            visibility=visibility,
            shown=ShownRequest(
                model=model.name,
                sha256=measured.sha256,
                messages=len(context.messages),
                tokens=tokens,
                before=sent.tokens,
                window=model.window,
                parameters=parameters,
                changed=len(changes),
                changes=tuple(changes[:MOST_CHANGES]),
                withheld=(),
            ),
        )

    def _reserve(self, window: int) -> int:
        return window - compaction.budget(window, self._config.compaction.thresholds).compact_at


def pruned_anew(
    stored: StoredLog,
    upto: Recorded,
    rules: PruningRules,
    space: tuple[int | None, int],
    stopped: Callable[[], bool] = lambda: False,
) -> Transcript:
    """Return the transcript before the request `upto` as it would be if the built-in pruning had followed these rules from
    the beginning of the session. The edits of other plugins, and those that keep single messages within the window, stay.

    Args:
        stored: The session's log.
        upto: The `request_sent`.
        rules: The rules.
        space: The window of the model that is asked now, and its reserve.
        stopped: Returns True if the result is no longer needed.

    Raises:
        Conflict: It was stopped.
        JournalDamaged, UnknownSession, StorageFailed: The journal cannot be read.
    """
    transcript, fitted = _refolded(stored, upto.seq - 1, rules, Transcript(), stopped)
    window, reserve = space
    if fitted and transcript.open_turn is not None and window == transcript.open_turn.window:
        return transcript
    if window is not None:
        view = transcript.view
        required = required_trims(view, window, reserve, count_tokens=lambda text: text_tokens(transcript, text))
        transcript = _with_edits(transcript, merge_proposals(view, required))
    return _pruned(transcript, CharacterCount(), upto.at, PruningBudget(window=window, reserve=reserve, rules=rules))


def _refolded(
    stored: StoredLog, upto: int, rules: PruningRules, transcript: Transcript, stopped: Callable[[], bool]
) -> tuple[Transcript, bool]:
    """Return the transcript after the event `upto`, with the rules applied before each request; and True if the next request
    was pruned already, before a compaction that makes it fit."""
    counts, pause, fitted = CharacterCount(), time.perf_counter() + STRETCH, False
    for stored_event in stored.events():
        recorded, event = stored_event, stored_event.event
        if recorded.seq > upto:
            break
        if stopped():
            raise Conflict("The request was stopped.")
        if isinstance(event, ContextPruned):
            others = tuple(edit for edit in event.edits if edit.by != PRUNED_BY)
            recorded = msgspec.structs.replace(recorded, event=ContextPruned(edits=others))
        elif _is_prepared(event) and (turn := transcript.open_turn) is not None:
            if not fitted:
                budget = PruningBudget(window=turn.window, reserve=turn.reserve, rules=rules)
                transcript = _pruned(transcript, counts, recorded.at, budget)
            fitted = isinstance(event, CompactionBegan)
        transcript = evolved(transcript, recorded, lambda unfolding: _unfolded(stored, unfolding, rules, stopped))
        if time.perf_counter() > pause:
            time.sleep(PAUSE)
            pause = time.perf_counter() + STRETCH
    return transcript, fitted


def _is_prepared(event: object) -> bool:
    """Return True if an event is one of those that follow the pruning for a request: a compaction that makes the request
    fit, or the request itself."""
    if isinstance(event, CompactionBegan):
        return event.trigger not in ("overflow", "command", "new")
    return isinstance(event, RequestSent) and event.purpose == "answer"


def _unfolded(stored: StoredLog, unfolding: Unfolding, rules: PruningRules, stopped: Callable[[], bool]) -> Transcript:
    return _refolded(stored, unfolding.until, rules, Transcript(unfolding=unfolding), stopped)[0]


def _pruned(transcript: Transcript, counts: CharacterCount, at: str, budget: PruningBudget) -> Transcript:
    edits = propose_prunes(pruning_context(transcript, counts), budget, datetime.fromisoformat(at))
    return _with_edits(transcript, merge_proposals(transcript.view, edits))


def _with_edits(transcript: Transcript, edits: Sequence[Any]) -> Transcript:
    return msgspec.structs.replace(transcript, view=transcript.view.pruned(tuple(edits))) if edits else transcript


def changed_parameters(was: dict[str, Any], model: str, limits: ModelLimits, change: RequestChange) -> dict[str, Any]:
    """Return the parameters of a repeated request: the chosen ones, and those of the past request that the model has.

    Raises:
        SettingRefused: The model does not have a chosen one.
    """
    parameters = dict(was)
    if parameters.get(EFFORT) not in limits.efforts:
        parameters.pop(EFFORT, None)
    if change.effort is None:
        parameters.pop(EFFORT, None)
    elif change.effort is not msgspec.UNSET:
        if change.effort not in limits.efforts:
            levels = ", ".join(limits.efforts) or "not known"
            raise SettingRefused(f"The levels of effort of {model} are {levels}.")
        parameters[EFFORT] = change.effort
    if change.temperature is None:
        parameters.pop(TEMPERATURE, None)
    elif change.temperature is not msgspec.UNSET:
        if limits.temperature is None:
            raise SettingRefused(f"{model} accepts no temperature.")
        low, high = limits.temperature
        if not low <= change.temperature <= high:
            raise SettingRefused(f"The temperature of {model} is from {low:g} to {high:g}.")
        parameters[TEMPERATURE] = change.temperature
    return parameters


def _model_of(past: PastRequest) -> str:
    """Return the `provider:model` that a past request was sent to."""
    recorded, transcript = past
    assert isinstance(recorded.event, RequestSent)
    return recorded.event.model or (transcript.open_turn.name if transcript.open_turn else "")


def _changed(index: int, before: Message, after: Message) -> ChangedMessage:
    who, tool = str(after.__struct_config__.tag), after.tool if isinstance(after, ToolMessage) else ""
    return ChangedMessage(index=index, who=who, tool=tool, before=len(before.text), after=len(after.text))


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a table with changes, table by table."""
    both = {
        name: _merged(base[name], value)
        for name, value in changes.items()
        if isinstance(value, dict) and isinstance(base.get(name), dict)
    }
    return {**base, **changes, **both}
