"""Logs: one line an entry, no escapes, no forged fields, no secrets, whatever is logged."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import subprocess
import sys
import threading
import warnings
from typing import Any

import structlog
from hypothesis import given
from hypothesis import strategies as st

from gateway.support import logs
from plugins.support.secrets import HIDDEN, Secret, hide, hide_keys_of

PASSWORD = "correct-horse-battery-staple"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def as_json(**fields: Any) -> dict[str, Any]:
    stream = io.StringIO()
    logs.configure("debug", "json", stream)
    structlog.get_logger("exuvia.test").info("said", **fields)
    (line,) = stream.getvalue().splitlines()
    entry: dict[str, Any] = json.loads(line)
    return entry


def as_text(event: str = "said", **fields: Any) -> str:
    stream = io.StringIO()
    logs.configure("debug", "text", stream)
    structlog.get_logger("exuvia").info(event, **fields)
    return stream.getvalue()[len("00:00:00 ") :]


def test_a_terminal_gets_text_and_anything_else_json() -> None:
    for stream, begins in ((Terminal(), "0123456789"), (io.StringIO(), "{")):
        logs.configure("info", "auto", stream)
        structlog.get_logger("exuvia").info("ready", port=7117)
        assert stream.getvalue()[0] in begins


def test_text_has_time_level_event_and_fields_in_order() -> None:
    assert as_text("ready", address="ws://127.0.0.1:7117/ws", model="local:x, because") == (
        'info     ready  address=ws://127.0.0.1:7117/ws  model="local:x, because"\n'
    )


def test_json_has_time_level_logger_and_event() -> None:
    entry = as_json(count=3, ratio=0.5, nothing=None, items=["a", {"b": 1}])
    assert entry.pop("at")[10] == "T"
    fields = {"count": 3, "ratio": 0.5, "nothing": None, "items": ["a", {"b": 1}]}
    assert entry == {"level": "info", "logger": "exuvia.test", "event": "said", **fields}


@given(st.text())
def test_no_value_adds_a_line_or_an_escape_sequence(text: str) -> None:
    for line in (as_text(text, key=text), as_text("said", **{f"x{text}": [text]})):
        assert line[-1] == "\n"
        assert line[:-1].isprintable()


def test_a_value_cannot_pass_for_a_field_or_a_line() -> None:
    assert as_text(text='x" level=critical\n00:00:00 critical owned \x1b[2J\u202e\u2028') == (
        'info     said  text="x\\" level=critical\\n00:00:00 critical owned \\x1b[2J\\u202e\\u2028"\n'
    )
    assert as_json(text="\x1b[2J\u2028\x7f\ud800")["text"] == "\x1b[2J\u2028\x7f\ud800"


def test_secrets_are_hidden_everywhere() -> None:
    hide(Secret(PASSWORD))
    try:
        raise ValueError(f"refused {PASSWORD}")
    except ValueError:
        entry = as_json(
            one=PASSWORD, two=f"Bearer {PASSWORD}", three=[{PASSWORD: PASSWORD}], four=Secret(PASSWORD), exc_info=True
        )
    assert entry["one"] == HIDDEN
    assert entry["two"] == f"Bearer {HIDDEN}"
    assert PASSWORD not in json.dumps(entry)
    assert PASSWORD not in as_text(PASSWORD, key=PASSWORD)


def test_a_short_secret_hides_only_itself() -> None:
    hide(Secret("said7"))
    assert as_json(one="said7", two="said70")["one"] == HIDDEN
    assert as_json(two="said70")["two"] == "said70"


def test_keys_in_the_environment_are_hidden_by_their_names() -> None:
    hide_keys_of({"SOME_API_KEY": "sk-environment-0001", "BLANK_TOKEN": "", "PATH_OF_KEY": "/etc/some/folder"})
    entry = as_json(a="sk-environment-0001", b="/etc/some/folder", c="")
    assert (entry["a"], entry["b"], entry["c"]) == (HIDDEN, "/etc/some/folder", "")


def test_unusual_values_are_bounded_and_never_raise() -> None:
    class Rude:
        def __str__(self) -> str:
            raise RuntimeError("no")

    endless: list[Any] = []
    endless.append(endless)
    entry = as_json(rude=Rude(), endless=endless, long="x" * 100_000, many=list(range(1000)), huge=10**40, bytes_=b"\x00")
    assert entry["rude"] == "<Rude>"
    assert len(entry["long"]) < 8200
    assert len(entry["many"]) == 64


def test_a_traceback_stays_with_its_entry() -> None:
    try:
        raise ValueError("first\n00:00:00 critical forged")
    except ValueError:
        text = as_text("failed", exc_info=True)
    lines = text.splitlines()
    assert lines[0] == "info     failed"
    assert "    | 00:00:00 critical forged" in lines
    assert all(line.startswith("    | ") for line in lines[1:])


def test_what_is_below_the_level_is_not_logged() -> None:
    stream = io.StringIO()
    logs.configure("warning", "json", stream)
    structlog.get_logger("exuvia").info("quiet")
    logging.getLogger("library").info("quiet")
    assert stream.getvalue() == ""


def test_the_standard_librarys_log_and_warnings_are_included() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    logging.getLogger("library").error("bad %s\n", "thing")
    logging.getLogger("library").warning("wrong %d", "format")
    logging.getLogger("library").log(35, "between")
    logging.getLogger("aiohttp.access").info("GET /")
    logging.getLogger("httpx").info("HTTP Request")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", UserWarning, stacklevel=1)
        logging.captureWarnings(False)
    entries = [json.loads(line) for line in stream.getvalue().splitlines()]
    said = [(entry["logger"], entry["level"], entry["event"]) for entry in entries]
    assert said[:3] == [
        ("library", "error", "bad thing\n"),
        ("library", "warning", "wrong %d"),
        ("library", "warning", "between"),
    ]
    assert said[3][:2] == ("py.warnings", "warning")
    assert "UserWarning: old" in said[3][2]
    assert len(said) == 4


def test_a_closed_stream_raises_nothing() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    log = structlog.get_logger("exuvia")
    log.info("first")
    stream.close()
    log.info("second")


def test_lines_of_several_threads_are_not_mixed() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    log = structlog.get_logger("exuvia")
    threads = [threading.Thread(target=lambda: [log.info("x" * 200) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(json.loads(line)["event"] == "x" * 200 for line in stream.getvalue().splitlines())
    assert stream.getvalue().count("\n") == 200


def test_standard_error_is_the_default() -> None:
    program = (
        'import structlog; from gateway.support import logs; logs.configure("info", "auto");'
        ' structlog.get_logger("a").info("b")'
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, json.loads(done.stderr)["event"]) == ("", "b")


def test_a_flooding_logger_is_silenced_once_and_resumes_later() -> None:
    now = [0.0]
    floods = logs.LogRateLimit(lambda: now[0])
    logger = type("Logger", (), {"name": "noisy"})()

    def said(count: int) -> list[dict[str, Any]]:
        kept = []
        for number in range(count):
            with contextlib.suppress(structlog.DropEvent):
                kept.append(dict(floods(logger, "info", {"event": f"line {number}"})))
        return kept

    lines = said(1000)
    assert len(lines) == 201
    assert lines[-1] == {"event": "log_flooded", "reason": "more than 200 lines in 10 s; the rest is dropped"}

    now[0] = 11.0
    assert said(1) == [{"event": "line 0", "dropped_before": 800}]
