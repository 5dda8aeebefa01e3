"""Results of third-party providers are checked: absurd limits become unknown, invalid vectors an error."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import pytest

from gateway.models.guarded_providers import PICTURE_TOKENS, guard_provider
from plugins.api.models import ModelLimits, ModelList, ReportedLimits
from plugins.support.errors import BadAnswer, Unreachable
from sessions.events.vision import VisionSupport

np: Any = import_module("numpy")  # comes with the bundled models, without which `make check` looks at this file

ABSURD = [-5, 0, 255, 1_000_000_001, 10**400, True, 1e30, 4096.0, math.nan, "4096", [4096], object()]

SOUND = VisionSupport(tokens=lambda width, height: width * height // 750, count=3)


class Provider:
    """A provider that returns what the test set."""

    name = "other"

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def limits(self, model: str) -> ModelLimits:
        return self.returned  # type: ignore[no-any-return]

    def dimensions(self) -> int:
        return self.returned  # type: ignore[no-any-return]

    async def models(self) -> ModelList:
        return self.returned  # type: ignore[no-any-return]

    async def embed(self, texts: list[str], purpose: str) -> Any:
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned


class Guarded:
    """A guarded provider, and its reported failures by method."""

    def __init__(self, returned: Any) -> None:
        self.failures: dict[str, str] = {}
        self.provider = guard_provider(Provider, self._report)(returned)

    def _report(self, method: str, reason: str) -> None:
        self.failures[method] = reason


@pytest.mark.parametrize("absurd", ABSURD, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("field", ["window", "output"])
def test_an_absurd_limit_is_unknown_and_reported_and_the_others_apply(field: str, absurd: Any) -> None:
    other = {"window": "output", "output": "window"}[field]
    given: dict[str, Any] = {other: 4096, "small": True}
    guarded = Guarded(ModelLimits(**given, **{field: absurd}))
    assert guarded.provider.limits("x") == ModelLimits(**given)
    assert guarded.failures["limits"].startswith(f"{field} is invalid and treated as unknown: Expected `int")


def test_limits_in_range_are_taken_as_they_are() -> None:
    limits = ModelLimits(window=256, output=1_000_000_000, window_from="table")
    guarded = Guarded(limits)
    assert guarded.provider.limits("x") == limits
    assert guarded.failures == {"limits": ""}


def test_the_pictures_that_a_model_accepts_are_known_and_cost_what_the_provider_says() -> None:
    guarded = Guarded(ModelLimits(window=4096, vision=SOUND))
    limits = guarded.provider.limits("x")
    assert limits.vision is not None
    assert (limits.window, limits.vision.count, limits.vision.tokens(1000, 750)) == (4096, 3, 1000)
    assert guarded.failures == {"limits": ""}


@pytest.mark.parametrize("absurd", [None, -1, 10**30, "many", math.inf, 1 / 3])
def test_a_picture_whose_cost_is_absurd_costs_the_usual(absurd: Any) -> None:
    guarded = Guarded(ModelLimits(vision=VisionSupport(tokens=lambda *_: absurd)))
    vision = guarded.provider.limits("x").vision
    assert vision is not None
    assert vision.tokens(10, 10) == PICTURE_TOKENS
    assert guarded.failures["limits"].startswith("the tokens of a picture are invalid: Expected `int")


@pytest.mark.parametrize("wrong", [{"count": -1}, {"picture_bytes": 0}, {"side": True}, {"media": [42]}, {"tokens": 3}])
def test_a_model_whose_pictures_are_described_wrongly_accepts_none(wrong: dict[str, Any]) -> None:
    guarded = Guarded(ModelLimits(window=4096, vision=VisionSupport(**{"tokens": SOUND.tokens, **wrong})))
    assert guarded.provider.limits("x") == ModelLimits(window=4096)
    assert guarded.failures["limits"].startswith("vision is invalid and treated as unknown: Expected")


@pytest.mark.parametrize("absurd", [-1, True, 1e3, 10**400, None, "384"])
def test_absurd_dimensions_are_unknown(absurd: Any) -> None:
    guarded = Guarded(absurd)
    assert guarded.provider.dimensions() == 0
    assert guarded.failures["dimensions"].startswith("Expected `int")


async def test_a_list_of_models_keeps_those_whose_limits_are_sound() -> None:
    limits: dict[Any, Any] = {"good": ReportedLimits(window=4096), "bad": ReportedLimits(window=-1, output=512)}
    guarded = Guarded(ModelList(address="a", models=limits))
    assert await guarded.provider.models() == ModelList(
        address="a", models={"good": ReportedLimits(window=4096), "bad": ReportedLimits(output=512)}
    )
    assert guarded.failures["models"] == "window is invalid and treated as unknown: Expected `int` >= 256 (model 'bad')"


@pytest.mark.parametrize(
    "wrong",
    [None, {}, ModelList(address=42, models={}), ModelList(address="", models={1: ReportedLimits()}),  # type: ignore[arg-type,dict-item]
     ModelList(address="", models={"x": 4096}), ModelList(address="", models=None)],  # type: ignore[arg-type,dict-item]
)  # fmt: skip
async def test_what_is_no_list_of_models_is_the_providers_failure(wrong: Any) -> None:
    guarded = Guarded(wrong)
    with pytest.raises(BadAnswer, match="The provider other failed in models: "):
        await guarded.provider.models()
    assert guarded.failures["models"]


WRONG: dict[str, Any] = {
    "nothing": None,
    "a text": "ab",
    "bytes": b"12345678",
    "a number": 1.0,
    "a table": {0: [1.0], 1: [1.0]},
    "texts": ["1.0", "2.0"],
    "vectors of texts": [["1.0"], ["2.0"]],
    "vectors of nothing": [[None], [None]],
    "a vector that is missing": [[1.0], None],
    "vectors of vectors": [[[1.0]], [[1.0]]],
    "bytes for vectors": [b"12345678", b"12345678"],
    "one vector for two texts": [[1.0]],
    "three vectors for two texts": [[1.0], [1.0], [1.0]],
    "vectors of different lengths": [[1.0], [1.0, 0.0]],
    "empty vectors": [[], []],
    "zeros": [[0.0], [1.0]],
    "not a number": [[math.nan], [1.0]],
    "infinity": [[1.0], [math.inf]],
    "a huge number": [[10**400], [1.0]],
    "a flat array": np.ones(2),
    "an array of arrays": np.ones((2, 2, 2)),
    "an array of too few": np.ones((1, 4)),
    "an array of objects": np.array([[None], [None]]),
    "an array without shape": np.float32(1),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_what_is_no_vector_for_each_text_is_the_providers_failure(wrong: str) -> None:
    guarded = Guarded(WRONG[wrong])
    with pytest.raises(BadAnswer, match="The provider other failed in embed: "):
        await guarded.provider.embed(["a", "b"], "note")
    assert guarded.failures["embed"]


@pytest.mark.parametrize(
    "sound", [[[1, 2.5], (3.0, True)], np.array([[1, 2.5], [3, 1]], dtype=np.float32), (np.array([1, 2.5]), [3.0, 1.0])]
)
async def test_vectors_of_numbers_are_lists_of_floats(sound: Any) -> None:
    guarded = Guarded(sound)
    assert await guarded.provider.embed(["a", "b"], "note") == [[1.0, 2.5], [3.0, 1.0]]
    assert await Guarded([]).provider.embed([], "note") == []
    assert guarded.failures == {"embed": ""}


async def test_an_error_that_the_provider_raises_properly_is_not_reported_as_a_fault() -> None:
    guarded = Guarded(Unreachable("The server is away."))
    with pytest.raises(Unreachable, match=r"The server is away\."):
        await guarded.provider.embed(["a"], "note")
    assert guarded.failures == {}
