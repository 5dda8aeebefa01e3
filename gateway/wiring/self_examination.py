"""`exuvia doctor` inside the running gateway, whose environment has the keys, models and plugins.

POST /api/doctor   the findings of the checks that depend on the environment; with `?offline=1` no provider is asked
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from aiohttp import web

from gateway.auth.people import Admission
from gateway.config.keys import Config
from gateway.conversations.channels.channel_probe import check_opened
from gateway.doctor import home_checks, provider_checks
from gateway.doctor.channel_checks import findings_of
from gateway.doctor.config_check import check
from gateway.doctor.findings import EXAMINE_SECONDS, Finding, Report
from gateway.http.responses import answer
from gateway.status.overview import Overview
from gateway.wiring.app import Application


class SelfExamination:
    """Checks of the gateway that they run in. `overview` returns its state."""

    def __init__(self, gateway: Application, overview: Callable[[], Overview]) -> None:
        self._gateway = gateway
        self._overview = overview

    async def examine(self, request: web.Request, _: Admission) -> web.StreamResponse:
        """Run the checks and return the report."""
        config, hooks = self._gateway.dependencies.settings.current, self._gateway.plugins.hooks
        offline = "offline" in request.query
        overview = self._overview()
        backends = await asyncio.to_thread(hooks.memory_backends)
        search, environment = config.tools.search, config.references.environment
        models, embedding, backend, web_search, channels, configuration = await asyncio.gather(
            _found(self._models(config, offline=offline)),
            _found(provider_checks.check_embedding_provider(self._gateway.models.embeddings, config, offline=offline)),
            _found(asyncio.to_thread(lambda: list(provider_checks.check_memory_backend(config, backends)))),
            _found(provider_checks.check_web_search(search, environment, offline=offline)),
            _found(self._channels(offline=offline)),
            _found(asyncio.to_thread(self._configuration, config)),
        )
        findings = {
            "gateway": _of_overview(overview),
            "configuration": configuration,
            "memory backend": backend,
            "models": models,
            "embedding": embedding,
            "web search": web_search,
            "channels": channels,
        }
        path = config.sources.path
        return answer(200, Report(None if path is None else str(path.absolute()), findings))

    def _models(self, config: Config, *, offline: bool) -> Awaitable[Sequence[Finding]]:
        models = self._gateway.models
        kinds: Mapping[str, object] = self._gateway.plugins.hooks.chat_providers()
        return provider_checks.check_models(models.providers, models.registry, config, kinds, offline=offline)

    async def _channels(self, *, offline: bool) -> Sequence[Finding]:
        """Ask the connected channels as whom they are logged in; the others are problems of the gateway."""
        runner = self._gateway.plugins.channels
        names = [name for name, state in runner.states().items() if state.connection == "connected" and not offline]
        opened = [(name, channel) for name in names if (channel := runner.opened(name)) is not None]
        return findings_of(await asyncio.gather(*(check_opened(name, channel) for name, channel in opened)))

    def _configuration(self, config: Config) -> list[Finding]:
        """Check the files as they are now, with the environment that this gateway was started with."""
        sources, environment = config.sources, config.references.environment
        checked = check(sources.path, environment, sources.overrides, self._gateway.plugins.hooks)
        return list(home_checks.configuration_findings(checked))


def _of_overview(overview: Overview) -> tuple[Finding, ...]:
    refuses = [f"The gateway is not accepting messages: {overview.refuses}"] if overview.refuses else []
    mend = "See `exuvia status` and the gateway's log."
    return tuple(Finding(sentence, mend) for sentence in (*refuses, *overview.troubles))


async def _found(check: Awaitable[Sequence[Finding]]) -> tuple[Finding, ...]:
    """Return the findings of one check; its failure or timeout is a finding too."""
    try:
        async with asyncio.timeout(EXAMINE_SECONDS):
            return tuple(await check)
    except TimeoutError:
        return (Finding(f"The check timed out after {EXAMINE_SECONDS:.0f} s.", "Check the network, or try later."),)
    except Exception as error:
        return (Finding.of_failure(error),)
