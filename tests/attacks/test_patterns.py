"""No text makes a regular expression of the project slow: `re` holds the interpreter, so all conversations would stop."""

from __future__ import annotations

import re
import signal

import msgspec
import pytest
from pygments.lexers import JavascriptLexer  # type: ignore[import-untyped]
from pygments.token import String  # type: ignore[import-untyped]

from tests.attacks import measuring
from tests.attacks.measuring import ROOT, measured, processor_time
from tests.attacks.patterns import PACKAGES, Pattern

_STATIC = ROOT / "gateway/http/console/static"
_SCRIPTS = sorted(path for path in _STATIC.rglob("*.js") if _STATIC / "vendor" not in path.parents)


def _refused(package: str, given: list[Pattern] | None = None) -> list[str]:
    """Return the patterns that are too slow, of a package or of those given."""
    tried, refused = measured("tests.attacks.patterns", package, msgspec.json.encode(given or []))
    assert len(tried) == len(given) if given else len(tried) > 5
    return refused


def _in_scripts() -> list[Pattern]:
    """Every regular expression in our scripts, as Python writes it."""
    found = []
    for path in (*_SCRIPTS, *sorted((ROOT / "plugins").rglob("*.mjs"))):
        for kind, literal in JavascriptLexer().get_tokens(path.read_text()):
            if kind is String.Regex:
                source, _, flags = literal[1:].rpartition("/")
                source = re.sub(r"\(\?<(?![=!])", "(?P<", source.replace(r"\p{M}", "[\u0300-\u036f]"))
                source = source.replace("[^]", r"[\s\S]")
                source = re.sub(r"\\p\{[LNPS]\}", r"\\w", source)
                source = re.sub(r"\\u\{([0-9a-f]+)\}", lambda code: f"\\U{code[1]:0>8}", source)
                methods = ("match",) if "y" in flags else ("search",)
                found.append(
                    Pattern(path.name, source, (re.M if "m" in flags else 0) | (re.I if "i" in flags else 0), methods)
                )
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_every_pattern_takes_a_long_string_of_anything_in_linear_time(package: str) -> None:
    assert _refused(package) == []


def test_every_pattern_in_javascript_takes_a_long_string_of_anything_in_linear_time() -> None:
    """In Python, whose engine optimises the least: which of them a browser saves from being slow is the browser's affair."""
    patterns = _in_scripts()
    assert len(patterns) > 15
    assert _refused("-", patterns) == []


def test_the_console_builds_no_pattern_from_strings() -> None:
    """It would not be found."""
    assert [path.name for path in _SCRIPTS if "RegExp" in path.read_text()] == []


ONCE_SLOW = (
    r"\[[0-9a-f]{8}\] .+#L[0-9]+-L[0-9]+(?: \(.*\))?:$",
    r"(#{1,6})\s+(.+?)\s*#*\s*$",
    r"[?？؟]\W*$",
    r"remember \s+ that \b \W* \s* (?P<what> \S .* ) $",
    r"(?:((?:19|20)\d\d)\s*[年년]\s*)?(?:(\d{1,2})\s*[月월])?(?:\s*(\d{1,2})\s*[日号일])?",
    r"(?m)^\s*(?:[-*+•]|\d+[.)、]) *\S",
    r"[*_`#>|~]+|!?\[|\]\([^)]*\)",
    r"(a+)+$",
    r"(?:a|a)*b",
    r"a+b",
    r"(\w+)\s\1!",
    r"(?=.*x)a",
)


def test_patterns_that_are_slow_for_some_text_are_detected() -> None:
    """The first seven were the project's own."""
    patterns = [Pattern(source, source, re.VERBOSE if " \\s" in source else 0) for source in ONCE_SLOW]
    refused = _refused("-", patterns)
    assert [line for line in ONCE_SLOW if not any(msgspec.json.encode(line).decode() in each for each in refused)] == []


def test_linear_patterns_are_not_reported() -> None:
    linear = [r"(?<!a)a++b", r"(?m)^[^\S\n]{0,3}#{1,6} [^\n]*", r"[?？؟][^\w?？؟]*+$", r"\d{1,9}(?:\.\d{1,3})?s", r"\s+"]
    assert _refused("-", [Pattern(source, source) for source in linear]) == []


def test_the_clock_is_exact_while_a_timer_is_set() -> None:
    """Otherwise the slowest strings, which are kept for the next size, are chosen by chance."""
    assert min(processor_time(range, 0, 60) for _ in range(50)) > 0


def test_a_timer_that_fires_just_after_the_call_says_too_slow_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measuring process ended with a traceback once, because the signal came between the call and stopping the timer."""

    def at_the_last_moment(timer: int, seconds: float) -> None:
        if not seconds and not fired:
            fired.append(timer)
            signal.raise_signal(signal.SIGPROF)

    fired = list[int]()
    before = signal.signal(signal.SIGPROF, measuring._late)
    try:
        monkeypatch.setattr("signal.setitimer", at_the_last_moment)
        assert processor_time(range, 0, 60) == float("inf")
    finally:
        signal.signal(signal.SIGPROF, before)
    assert fired
