"""JSON endpoint for the gateway's health, for its owner.

GET /api/health   /status.json, the samples of the last hour, plugins with their failures, tokens by purpose
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

from gateway.auth.people import Admission
from gateway.http.responses import answer
from gateway.metrics.counters import Counters
from gateway.status.last_hour import EVERY, LastHour
from gateway.status.overview import Overview
from plugins.host.hooks import Hooks


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
