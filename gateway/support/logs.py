"""Structured logging: readable on a terminal, JSON lines elsewhere, always to stderr, and without secrets.

Log values may contain untrusted text. Each entry stays on one line (continuation lines of a traceback are marked), escape
sequences are neutralised, and a value cannot pass for a field.

The text renderer is not structlog's: that writes line breaks of an event as they are, and a traceback's local variables.
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
_WINDOW_SECONDS, _OWN_LINES, _OTHER_LINES = 10.0, 5000, 200
"""The rate limit's window in seconds, and the lines allowed in it for the gateway's own loggers and for any other."""


def configure(level: Level, form: Format, stream: IO[str] | None = None) -> None:
    """Send all log records, including the standard library's and warnings, to `stream` (default stderr)."""
    stream = stream or sys.stderr
    text = form == "text" or (form == "auto" and stream.isatty())
    structlog.configure(
        processors=[
            LogRateLimit(),
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _sanitized,
            _as_text if text else _as_json,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *names: _LineLogger(stream, *names),
        cache_logger_on_first_use=False,  # the level may be changed while running
    )
    _route_standard_library(_LEVELS[level])


class LogRateLimit:
    """A processor that limits the lines of each logger and counts those that it drops.

    The gateway's own loggers have a higher limit than those of plugins and libraries.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}
        """For each logger, the start of the current window and the lines logged in it."""

    def __call__(self, logger: WrappedLogger, _method: str, entry: EventDict) -> EventDict:
        name, now = logger.name, self._clock()
        began, count = self._windows.get(name, (now, 0))
        most = _OWN_LINES if name.partition(".")[0] == "exuvia" else _OTHER_LINES
        if now - began >= _WINDOW_SECONDS:
            if count > most:
                entry["dropped_before"] = count - most
            began, count = now, 0
        self._windows[name] = began, count + 1
        if count > most:
            raise structlog.DropEvent
        if count == most:
            entry = {
                "event": "log_flooded",
                "reason": f"more than {most} lines in {_WINDOW_SECONDS:g} s; the rest is dropped",
            }
        return entry


class _LineLogger:
    """A logger that writes whole lines, so that lines of several threads do not mix."""

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
    """A handler that passes records of the standard library's logging to structlog."""

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


def _sanitized(logger: WrappedLogger, method: str, entry: EventDict) -> EventDict:
    """Return an entry with plain, bounded values without secrets."""
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
    except Exception:  # __str__ of untrusted code; a log line must not fail
        return f"<{type(value).__name__}>"


def without_secrets(text: str) -> str:
    """Return the text, bounded, with secrets replaced."""
    text = HIDDEN if is_secret(text := str.__str__(text)) else scrubbed(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


def _as_json(_logger: WrappedLogger, _method: str, entry: EventDict) -> str:
    """Return ASCII-only JSON: control characters, separators and surrogates are escaped."""
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
    """Return the text with control characters written as Python escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
