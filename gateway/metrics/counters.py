"""The counters and histograms of a gateway. Nothing here is durable: a restart begins at zero."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

from gateway.metrics.prometheus import Counter, Family, Histogram, counter, histogram, histograms
from sessions.events.events import Outcome, TurnOutcome
from sessions.events.messages import Usage

Step: TypeAlias = Literal["durable", "waiting", "first_text", "answer", "tool", "end"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Bucket bounds for what people wait for: from imperceptible to the longest time that a tool may take."""

BRIEF_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Bucket bounds for what should take almost no time: a sync, a late timer."""


ENDED = 1000
"""Number of recent turns that are remembered individually."""


class Counters:
    """All counters and histograms of a gateway. They are updated on the event loop only."""

    def __init__(self) -> None:
        self.messages = Counter()
        self.turns = Counter("outcome", known=get_args(TurnOutcome))
        self.turn_errors = Counter("code")
        self.ended: deque[tuple[float, str]] = deque(maxlen=ENDED)
        """The end of each recent turn that replied or failed, on the meters' clock, with its error code or an empty
        string."""
        self.turn_seconds = Histogram(SECONDS)
        self.steps: dict[Step, Histogram] = {step: Histogram(SECONDS) for step in get_args(Step)}
        self.commands = Counter("outcome", known=("answered", "failed"))
        self.tool_calls = Counter("outcome", known=get_args(Outcome))
        self.tokens = Counter("model", "direction", most=100)  # fifty models, each with two directions
        self.cached_tokens = Counter("model")
        self.spent = Counter("purpose", "model", "direction", most=200)
        self.cost = Counter("purpose", "model", most=200)
        self.embedded = Counter("purpose", "model")
        self.api_requests = Counter("path", "status")
        self.channel_messages = Counter("channel", "outcome", most=200)
        self.channel_replies = Counter("channel", "outcome", most=100)
        self.abandoned: dict[str, tuple[str, str]] = {}
        """The last reply of each channel that was abandoned: its time (RFC 3339, UTC) and the reason."""
        self.provider_errors = Counter("provider", "kind")
        self.plugin_failures = Counter("plugin", "hook")
        self.storage_failures = Counter()
        self.storage_failed: tuple[float, str] | None = None
        """The last failed write of a journal: the time on the meters' clock, and the reason."""
        self.sync_seconds = Histogram(BRIEF_SECONDS)
        self.lag_seconds = Histogram(BRIEF_SECONDS)

    def count_spent(self, purpose: str, model: str, usage: Usage) -> None:
        """Count the tokens that a request for this purpose (`answer`, `flush`, …) spent with a model."""
        self.spent.add(purpose, model, "input", by=usage.input)
        self.spent.add(purpose, model, "output", by=usage.output)
        self.spent.add(purpose, model, "cached", by=usage.cached)

    def count_reply(self, purpose: str, model: str, reported: str, usage: Usage) -> None:
        """Count the tokens of a reply, also under the model that the provider reported."""
        self.tokens.add(reported, "input", by=usage.input)
        self.tokens.add(reported, "output", by=usage.output)
        self.cached_tokens.add(reported, by=usage.cached)
        self.count_spent(purpose, model, usage)

    def count_embedded(self, purpose: str, model: str, tokens: int) -> None:
        """Count the tokens of embedded notes (`note`) or queries (`query`): estimated, since few services report them."""
        self.embedded.add(purpose, model, by=tokens)

    def count_reply_delivery(self, channel: str, at: str, failed: str) -> None:
        """Count a reply that a channel delivered, or did not if `failed` has a reason, at a time (RFC 3339, UTC)."""
        self.channel_replies.add(channel, "abandoned" if failed else "delivered")
        if failed and (channel in self.abandoned or len(self.abandoned) < self.channel_replies.most):
            self.abandoned[channel] = at, failed

    def tokens_of(self, direction: Literal["input", "output"]) -> int:
        """Return the tokens of all models together."""
        return sum(count for (_, way), count in self.tokens.counts.items() if way == direction)

    def families(self) -> Iterable[Family]:
        """Yield all metric families, with names and units by Prometheus' conventions."""
        yield counter("exuvia_messages_total", "Messages and commands received.", self.messages)
        yield counter("exuvia_turns_total", "Turns that ended, by outcome.", self.turns)
        yield counter("exuvia_turn_errors_total", "Turns that ended with an error, by its code.", self.turn_errors)
        yield histogram(
            "exuvia_turn_seconds",
            "From the start of a turn until its end is on the disk.",
            self.turn_seconds,
        )
        yield histograms(
            "exuvia_turn_step_seconds",
            "Steps of a turn: durable (received until on the disk), waiting (received until taken by a turn), first_text and"
            " answer (model asked until its first text, and until its whole answer), tool (one tool call), end (last result"
            " until the end of the turn is on the disk).",
            "step",
            {str(step): observed for step, observed in self.steps.items()},
        )
        yield counter("exuvia_commands_total", "Chat commands that were answered, by outcome.", self.commands)
        yield counter("exuvia_tool_calls_total", "Results of tool calls, by outcome.", self.tool_calls)
        yield counter("exuvia_tokens_total", "Tokens that providers counted; input includes cached.", self.tokens)
        yield counter("exuvia_cached_tokens_total", "Input tokens read from the provider's cache.", self.cached_tokens)
        yield counter("exuvia_spent_tokens_total", "Tokens by what they were spent on; input includes cached.", self.spent)
        yield counter("exuvia_cost_micros_total", "Costs in millionths of the configured currency.", self.cost)
        yield counter("exuvia_embedded_tokens_total", "Estimated tokens that vectors were made of.", self.embedded)
        yield counter("exuvia_api_requests_total", "Requests to the OpenAI endpoint, by path and status.", self.api_requests)
        yield counter("exuvia_channel_messages_total", "Messages that channels received.", self.channel_messages)
        yield counter("exuvia_channel_replies_total", "Posts that channels delivered or never will.", self.channel_replies)
        yield counter("exuvia_provider_errors_total", "Failed requests to model providers, by kind.", self.provider_errors)
        yield counter("exuvia_plugin_failures_total", "Faults in the code of plugins.", self.plugin_failures)
        yield counter("exuvia_storage_failures_total", "Journals that could not be written.", self.storage_failures)
        yield histogram("exuvia_sync_seconds", "Syncs of journals.", self.sync_seconds)
        yield histogram("exuvia_event_loop_lag_seconds", "How late a timer of the event loop ran.", self.lag_seconds)
