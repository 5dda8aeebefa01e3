"""The settings of one session that a person may change: for commands and for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, get_args

import msgspec

from gateway.config.keys import QueueMode
from gateway.conversations.context.session_models import EFFORT, MODEL, TEMPERATURE, SessionModels
from gateway.models.registry import AUTO, ModelRegistry
from gateway.protocol.frames import SettingName
from gateway.support.errors import SettingRefused
from plugins.api.models import ModelLimits
from plugins.support.suggestions import did_you_mean
from sessions.events.events import SettingChanged
from sessions.store.recorder import Recorder

Value: TypeAlias = str | float | None

QUEUE, VERBOSE = "queue", "verbose"
"""The settings that override `sessions.queue` and, as `on` or `off`, `agent.verbose`."""

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {QUEUE: get_args(QueueMode), VERBOSE: ("on", "off")}


NO_SUCH_CHOICE = "You may not choose this model; `/model` lists those that you may."
"""The reason for refusing a model that a person's role does not have."""


class SessionSettings:
    """The settings of one session. A change counts from the next turn on; a value that is set already is not recorded
    again."""

    def __init__(self, recorder: Recorder, models: SessionModels, registry: ModelRegistry) -> None:
        self._recorder = recorder
        self._models = models
        self._registry = registry

    @property
    def chosen(self) -> Mapping[str, str | float]:
        """The model, the effort and the temperature that the session chose, without those that it did not."""
        chosen = {"model": self._models.choice, "effort": self._models.effort, "temperature": self._models.temperature}
        return {name: value for name, value in chosen.items() if value is not None}

    async def configure(self, name: SettingName, value: Value, person: str) -> None:
        """Change a setting durably; None restores the configured value.

        Raises:
            SettingRefused: The value is not one of those that the setting, or the model, has.
            StorageFailed: It could not be recorded.
        """
        match name:
            case "model":
                await self.choose_model(_text(name, value), person)
            case "effort":
                await self.choose_effort(_text(name, value), person)
            case "temperature":
                await self.choose_temperature(_number(name, value), person)
            case "queue" | "verbose":
                wanted = _text(name, value)
                if wanted is not None and wanted not in _CHOICES[name]:
                    raise SettingRefused(f"{name} is one of {', '.join(_CHOICES[name])}.")
                await self.change(name, wanted, person)

    async def choose_model(self, name: str | None, person: str) -> str:
        """Change the model; None restores the configured one. Returns why this model answers now, and a caveat if its
        provider does not list its models. Raises ModelUnknown or SettingRefused."""
        why = self._registry.choose(name).why
        if name is not None and not self._models.may_choose(name):
            raise SettingRefused(NO_SUCH_CHOICE)
        caveat = await self._caveat(name) if name is not None and name != AUTO else ""
        await self.change(MODEL, name, person)
        return f"{why}{caveat}"

    async def _caveat(self, name: str) -> str:
        provider, _, model = name.partition(":")
        listing = await self._registry.listings.of(provider)
        if listing is not None and listing.names:
            if not listing.has(model):
                near = did_you_mean(model, listing.names, before=f"{provider}:", mark="`") or "."
                raise SettingRefused(f"{provider} has no model {model[:100]!r}{near} `/model {provider}` lists its models.")
            return ""
        if name in self._registry.available():
            return ""
        why = "it does not list its models"
        if listing is not None:
            why = f"its list of models could not be fetched ({listing.failed or 'it is empty'})"
        return f". The model could not be verified: {why}."

    async def choose_effort(self, level: str | None, person: str) -> None:
        """Change the effort; None restores the configured one. Raises SettingRefused, or ModelUnknown without a model."""
        if level is not None:
            name, limits = self._model()
            if not limits.efforts:
                raise SettingRefused(f"{name} has no levels of effort, or they are not known.")
            if level not in limits.efforts:
                raise SettingRefused(f"The levels of effort of {name} are {', '.join(limits.efforts)}.")
        await self.change(EFFORT, level, person)

    async def choose_temperature(self, value: float | None, person: str) -> None:
        """Change the temperature; None restores the configured one. Raises SettingRefused, or ModelUnknown without a
        model."""
        if value is not None:
            name, limits = self._model()
            if limits.temperature is None:
                raise SettingRefused(f"{name} accepts no temperature.")
            low, high = limits.temperature
            if not low <= value <= high:
                raise SettingRefused(f"The temperature of {name} is from {low:g} to {high:g}.")
        await self.change(TEMPERATURE, None if value is None else f"{value:g}", person)

    def _model(self) -> tuple[str, ModelLimits]:
        chosen = self._models.choose()
        return chosen.name, chosen.limits

    async def change(self, name: str, value: str | None, person: str) -> None:
        """Record a valid value durably."""
        if self._recorder.transcript.settings.get(name) != value:
            await self._recorder.append_durable(SettingChanged(name=name, value=value, by=person))


def _text(name: str, value: Value) -> str | None:
    if value is not None and not isinstance(value, str):
        raise SettingRefused(f"The value of {name} is a text.")
    return value


def _number(name: str, value: Value) -> float | None:
    try:
        return msgspec.convert(value, float | None, strict=False)
    except msgspec.ValidationError:
        raise SettingRefused(f"The value of {name} is a number.") from None
