"""Whatever a model does wrong, at any window and with results of any size: each turn ends, the next message is answered, and
the notes have each section once."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.long_session import THRESHOLDS, StrictModel, long_stage, notes, summary
from gateway.conversations.context.summarization import SMALLEST_ANSWER
from gateway.models.breaker import OPENS_AFTER
from plugins.api.chat import ChatRequest, Delta, StreamPart
from plugins.support.errors import BadAnswer, ContextOverflow, ProviderError, RateLimited, StreamCut, Unreachable
from sessions.state.compaction import budget
from tests.gateway.long_session import assert_sound, lines_of, talk

FAILURES = (Unreachable("No connection."), ContextOverflow("Too long."), RateLimited("Slower."), BadAnswer("Nonsense."))
GARBAGE = ("", "  ", "Summary unavailable.", "NO_REPLY", "word " * 6_000, "## Goals\n\n- 漢字" * 900, "<|im_end|>\x00\u202e")
BESIDE = st.lists(st.one_of(st.none(), st.sampled_from(FAILURES), st.sampled_from(GARBAGE)), min_size=1, max_size=8)
TROUBLE = st.dictionaries(st.integers(0, 60), st.sampled_from([*FAILURES, StreamCut("Cut.")]), max_size=12).filter(
    # With so many failures in a row the breaker opens, and the last turn fails as it should.
    lambda trouble: not any(all(first + n in trouble for n in range(OPENS_AFTER)) for first in trouble)
)


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A window, a tokenizer that counts `factor` times the estimate, the longest result in characters, the model's outputs
    for flushes and summaries in turn (None for a good one), and its `trouble` by the number of the request."""

    window: int
    seed: int
    factor: float
    longest: int
    said: list[Any]
    trouble: dict[int, Any]


STORIES = st.builds(
    Story,
    window=st.sampled_from([4_000, 5_500, 8_000, 32_000, 200_000]),
    seed=st.integers(0, 99),
    factor=st.sampled_from([0.7, 1.0, 1.4, 2.5]),
    longest=st.sampled_from([2_000, 200_000]),
    said=BESIDE,
    trouble=TROUBLE,
)


class BadModel(StrictModel):
    """A model that follows a story."""

    def __init__(self, story: Story) -> None:
        super().__init__(story.window, story.seed, factor=story.factor)
        self.said = story.said
        self.trouble = story.trouble
        self.beside = {"flush": lambda text: self.say(notes(text)), "summary": lambda text: self.say(summary(text))}

    def say(self, well: str) -> str | ProviderError:
        said = self.said[len(self.asked) % len(self.said)]
        return well if said is None else said

    def stream(self, request: ChatRequest) -> AsyncIterator[StreamPart]:
        error = self.trouble.get(len(self.asked)) if request.purpose == "answer" else None
        return self._in_trouble(request, error) if error else super().stream(request)

    async def _in_trouble(self, request: ChatRequest, error: ProviderError) -> AsyncIterator[StreamPart]:
        self.asked.append((request.purpose, 0))
        yield Delta("So it ")
        raise error


@settings(max_examples=25, deadline=None)
@given(STORIES)
async def test_whatever_a_model_does_no_session_is_stuck(story: Story) -> None:
    model = BadModel(story)
    with tempfile.TemporaryDirectory() as folder:
        on = long_stage(Path(folder), model, longest=story.longest)
        async with on.playing():
            await talk(on, 12)
            model.trouble, model.said = {}, [None]
            await on.say("And now?", "last")
        assert_sound(on)
        assert_notes_are_single(Path(folder) / "workspace" / "memory")
    lines = [line for line in lines_of(on) if line["kind"] in {"turn_ended", "context_compacted"}]
    assert lines[-1]["outcome"] == "replied" or lines[-1]["error"]["code"] == "too_many_rounds"
    made = [line for line in lines if line["kind"] == "context_compacted"]
    allowed = budget(story.window, THRESHOLDS)
    assert all(line["tokens_after"] < line["tokens_before"] for line in made)
    # Below `flush_at` where possible; if instructions, tools and notes fill a small window, room for an answer is enough.
    most = max(allowed.flush_at, story.window - SMALLEST_ANSWER)
    assert all(line["tokens_after"] < most for line in made if line["summary"])


def assert_notes_are_single(memory: Path) -> None:
    """Assert that each section's mark occurs once."""
    for note in memory.iterdir() if memory.exists() else ():
        marks = [line for line in note.read_text().splitlines() if line.startswith("<!-- exuvia ")]
        assert len(set(marks)) == len(marks)
