"""Logs for operators: readable on a terminal, JSON lines elsewhere, always on stderr, never with a secret in them.

What is logged may hold text of strangers. One entry stays one line (a traceback's lines are marked), escapes do not reach a
terminal, and a value cannot pass for a field.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from time import monotonic
from typing import IO, Any, Literal, TypeAlias

import structlog
from structlog.typing import EventDict, WrappedLogger

from plugins.support.secrets import HIDDEN, is_secret, scrubbed

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Format: TypeAlias = Literal["auto", "text", "json"]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LONGEST = 8192
"""Characters of one value."""
_DEEPEST = 4
_MOST = 64
"""Entries of one list or table."""
_WHILE, _OURS_MOST, _OTHERS_MOST = 10.0, 5000, 200
"""Seconds, and how many lines a logger of the house and one of anybody else may say in them."""


def configure(level: Level, form: Format, stream: IO[str] | None = None) -> None:
    """Send everything that is logged, the standard library's and warnings too, to `stream` (stderr)."""
    stream = stream or sys.stderr
    text = form == "text" or (form == "auto" and stream.isatty())
    structlog.configure(
        processors=[
            LogRateLimit(),
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _harmless,
            _as_text if text else _as_json,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *names: _Lines(stream, *names),
        cache_logger_on_first_use=False,  # the level may be changed while running
    )
    _route_standard_library(_LEVELS[level])


class LogRateLimit:
    """Lets so many lines of one logger through in a while; what is more is counted and not written. Ours say much where much
    happens; a stranger that says more than that is of no use to anybody."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}
        """Of each logger, when the present while began and how many lines it has said in it."""

    def __call__(self, logger: WrappedLogger, _method: str, entry: EventDict) -> EventDict:
        name, now = logger.name, self._clock()
        began, count = self._said.get(name, (now, 0))
        most = _OURS_MOST if name.partition(".")[0] == "exuvia" else _OTHERS_MOST
        if now - began >= _WHILE:
            if count > most:
                entry["dropped_before"] = count - most
            began, count = now, 0
        self._said[name] = began, count + 1
        if count > most:
            raise structlog.DropEvent
        if count == most:
            entry = {"event": "log_flooded", "reason": f"more than {most} lines in {_WHILE:g} s; the rest is dropped"}
        return entry


class _Lines:
    """Writes finished lines, each in one piece, so that those of threads do not mix."""

    def __init__(self, stream: IO[str], name: str = "exuvia") -> None:
        self._stream = stream
        self.name = name

    def msg(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # The terminal is gone or the pipe closed. There is nowhere left to say so, and no turn may fail of it.
            return

    debug = info = warning = error = critical = exception = msg


class _FromStandardLibrary(logging.Handler):
    """Takes what libraries log into the same stream, in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # a library's wrong format string is no reason to lose what it said
            message = str(record.msg)
        level = max((number for number in (10, 20, 30, 40, 50) if number <= record.levelno), default=10)
        structlog.get_logger(record.name).log(level, message, **({"exc_info": record.exc_info} if record.exc_info else {}))


def _route_standard_library(level: int) -> None:
    logging.basicConfig(handlers=[_FromStandardLibrary()], level=level, force=True)
    logging.captureWarnings(True)
    logging.getLogger("aiohttp.access").disabled = True
    for chatty in ("httpx", "httpcore", "asyncio", "watchfiles"):
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))


# --- processors -------------------------------------------------------------------------------------------------------


def _harmless(logger: WrappedLogger, method: str, entry: EventDict) -> EventDict:
    """Values that can be written without surprise: plain, bounded, without secrets."""
    shown = {str(key): _plain(value, _DEEPEST) for key, value in entry.items()}
    level, event = shown.pop("level"), str(shown.pop("event", ""))
    return {"level": level, "logger": logger.name, "event": event, **shown}


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and value.bit_length() < 64):
        return value
    if isinstance(value, str):
        return without_secrets(value)
    if depth and isinstance(value, Mapping):
        return {without_secrets(str(k)): _plain(v, depth - 1) for k, v in list(value.items())[:_MOST]}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [_plain(v, depth - 1) for v in list(value)[:_MOST]]
    try:
        return without_secrets(str(value))
    except Exception:  # a stranger's __str__; a log line must not fail
        return f"<{type(value).__name__}>"


def without_secrets(text: str) -> str:
    """The text, bounded, with every secret in it replaced."""
    text = HIDDEN if is_secret(text := str.__str__(text)) else scrubbed(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


def _as_json(_logger: WrappedLogger, _method: str, entry: EventDict) -> str:
    """ASCII only: every control character, separator and surrogate is an escape of JSON's own."""
    at = datetime.now().astimezone().isoformat(timespec="milliseconds")
    return json.dumps({"at": at, **entry}, ensure_ascii=True).replace("\x7f", "\\u007f")


def _as_text(_logger: WrappedLogger, _method: str, entry: EventDict) -> str:
    at = datetime.now().astimezone().strftime("%H:%M:%S")
    level, name, event = entry.pop("level"), entry.pop("logger"), entry.pop("event")
    trace = str(entry.pop("exception", ""))
    fields = "".join(f"  {_escaped(key)}={_quoted(value)}" for key, value in entry.items())
    source = "" if name == "exuvia" else f"{name.removeprefix('exuvia.')}: "
    first = f"{at} {level:<8} {_escaped(source)}{_escaped(event)}{fields}"
    return "\n".join([first, *(f"    | {_escaped(line)}" for line in trace.split("\n") if trace)])


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    plain = text and text.isprintable() and not set(text) & set(' "=\\')
    return text if plain else '"' + _escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escaped(text: str) -> str:
    """The text with what a terminal would act on written as Python writes it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
