"""JSON endpoints about the gateway: its health, for its owner, and where texts are stored and which models receive them.

GET /api/health       /status.json, the samples of the last hour, plugins with their failures, tokens by purpose
GET /api/usage        what this month's requests cost: all of them for the owner, else the person's own
GET /api/skills       the skills of the agent `main`, or with `?agent=NAME` of another one
GET /api/skills/{name}                  for the owner: its text or its changes, and the digest of its files
POST /api/skills/{name}/admit, /revoke  for the owner: admit it as `{"digest"}` says, or no more; returns the skills
GET /api/recipients   each model that receives texts of a new session, with its purpose and address
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec
from aiohttp import web

from gateway.auth.people import Admission
from gateway.http.request_bodies import BodyRefused, read_body
from gateway.http.responses import answer, refusal
from gateway.metrics.counters import Counters
from gateway.models.registry import ChosenModel, ModelRegistry
from gateway.models.spending.spending import Spending
from gateway.models.transcription import Transcriber
from gateway.status.instruments import GatewayContext
from gateway.status.last_hour import EVERY, LastHour
from gateway.status.overview import Overview
from gateway.support.errors import ModelUnknown
from plugins.api.chat import HasAddress
from plugins.api.command import CommandFailed, SkillsView
from plugins.host.hooks import Hooks
from plugins.memory.memory import Memory
from plugins.skills.library import SkillLibrary
from plugins.support.workspace import OWNER

BODY_BYTES, BODY_SECONDS = 4096, 30.0
"""The maximum size of a request about skills in bytes, and the seconds for it."""


class HealthEndpoints:
    """The health endpoint. `overview` returns the state of the gateway."""

    def __init__(self, overview: Callable[[], Overview], last_hour: LastHour, counters: Counters, hooks: Hooks) -> None:
        self._overview = overview
        self._last_hour = last_hour
        self._counters = counters
        self._hooks = hooks

    async def health(self, _: web.Request, __: Admission) -> web.StreamResponse:
        """Return all health data."""
        counters = self._counters
        body = {
            "overview": self._overview(),
            "every": EVERY,
            "samples": self._last_hour.samples,
            "plugins": await asyncio.to_thread(self._plugins),  # this may import some
            "provider_errors": [
                {"provider": provider, "kind": kind, "count": count}
                for (provider, kind), count in counters.provider_errors.counts.items()
            ],
            "spent": [
                {"purpose": purpose, "model": model, "direction": direction, "tokens": count}
                for (purpose, model, direction), count in counters.spent.counts.items()
            ],
        }
        return answer(200, body)

    def _plugins(self) -> list[dict[str, Any]]:
        refused = [refusal.plugin for refusal in self._hooks.refused]
        return [self._plugin(name) for name in dict.fromkeys([*self._hooks.plugins, *refused])]

    def _plugin(self, name: str) -> dict[str, Any]:
        """Return what a loaded or rejected plugin provides, its failures, and why parts were rejected."""
        hooks = self._hooks
        there = name in hooks.plugins
        return {
            "name": name,
            "ours": hooks.is_builtin(name),
            "provides": [each for names in hooks.provided(name).values() for each in names] if there else [],
            "failures": {
                hook: count for (plugin, hook), count in self._counters.plugin_failures.counts.items() if plugin == name
            },
            "refused": [refusal.sentence for refusal in hooks.refused if refusal.plugin == name],
        }


class UsageEndpoint:
    """What was spent this month."""

    def __init__(self, spending: Spending) -> None:
        self._spending = spending

    async def usage(self, _: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the report of everybody to the owner, and of oneself to others."""
        person = admission.person.id
        return answer(200, await self._spending.report(None if person == OWNER else person))


Purpose: TypeAlias = Literal["answers", "fallback", "summaries", "facts", "vectors", "transcription"]


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    """A model that receives texts: `name` is `provider:model`. `address` is that of its provider: empty if the texts do not
    leave the gateway's process, None if a plugin's provider does not say."""

    name: str
    purpose: Purpose
    address: str | None


class Recipients:
    """The recipients of one gateway."""

    def __init__(self, models: ModelRegistry, memory: Memory, transcriber: Transcriber, context: GatewayContext) -> None:
        self._models = models
        self._memory = memory
        self._transcriber = transcriber
        self._context = context

    async def recipients(self, _: web.Request, admission: Admission) -> web.StreamResponse:
        """Return all recipients, and the folder for the owner."""
        folder = str(self._context.home.root) if admission.person.id == OWNER else None
        return answer(200, {"folder": folder, "recipients": list(self._all())})

    def _all(self) -> Iterator[Recipient]:
        config = self._context.config
        if (chosen := self._chosen(None)) is not None:
            yield _recipient(chosen, "answers")
            yield from (_recipient(each, "fallback") for each in chosen.fallbacks)
        if config.compaction.enabled and config.compaction.model and (model := self._chosen(config.compaction.model)):
            yield _recipient(model, "summaries")
        facts = config.memory.facts
        if facts.auto_extract and facts.model and (model := self._chosen(facts.model)):
            yield _recipient(model, "facts")
        if (provider := self._memory.provider()) is not None and (name := provider.model()):
            address = provider.address(name) if isinstance(provider, HasAddress) else None
            yield Recipient(name=f"{provider.name}:{name}", purpose="vectors", address=address)

        if (transcribes := self._transcriber.model()) is not None:
            yield Recipient(name=transcribes, purpose="transcription", address=self._transcriber.address())

    def _chosen(self, name: str | None) -> ChosenModel | None:
        try:
            return self._models.choose(name)
        except ModelUnknown:
            return None


def _recipient(model: ChosenModel, purpose: Purpose) -> Recipient:
    address = model.provider.address(model.model) if isinstance(model.provider, HasAddress) else None
    return Recipient(name=model.name, purpose=purpose, address=address)


class _Admitting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    digest: str


class SkillEndpoints:
    """The endpoints for the skills of one agent, for an authenticated person with the rights of a private chat of theirs."""

    def __init__(self, skills: SkillLibrary) -> None:
        self._skills = skills

    async def listed(self, _: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the skills, for others than the owner the admitted ones, and whether the person admits skills."""
        return await self._answered(admission)

    async def show(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Return the text of a skill, or what changed since it was admitted."""
        try:
            return answer(200, await self._view(admission).show(request.match_info["skill"]))
        except CommandFailed as error:
            return refusal(422, "refused", str(error))

    async def admit(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Admit a skill if its files still have the digest that was shown."""
        try:
            wanted = msgspec.json.decode(await read_body(request, BODY_BYTES, BODY_SECONDS), type=_Admitting)
        except BodyRefused as refused:
            return refused.response
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return refusal(400, "bad_request", 'The body must be {"digest": digest}.')
        return await self._answered(admission, self._view(admission).admit(request.match_info["skill"], wanted.digest))

    async def revoke(self, request: web.Request, admission: Admission) -> web.StreamResponse:
        """Admit a skill no more."""
        return await self._answered(admission, self._view(admission).revoke(request.match_info["skill"]))

    async def _answered(self, admission: Admission, change: Awaitable[object] | None = None) -> web.Response:
        try:
            if change is not None:
                await change
            skills = await self._view(admission).listed()
        except CommandFailed as error:
            return refusal(422, "refused", str(error))
        return answer(200, {"skills": skills, "admits": admission.person.id == OWNER})

    def _view(self, admission: Admission) -> SkillsView:
        return self._skills.of_person(admission.person.id, group=False)
