"""The gateway in a separate process with a temporary home, started by its command."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.ports import free_port
from benchmarks.process import ROOT, cpu_seconds

TOKEN = "benchmark-0123456789-abcdefghijklmnop"
START_SECONDS = 120.0
POLL_SECONDS = 0.005


class NotReady(Exception):
    """The gateway did not become ready. The message ends with its output."""


class GatewayProcess:
    """A ready gateway. `seconds_to_ready` is the time from the start of the process to the first 200 of `/readyz`, which is
    polled every 5 ms; `cpu_to_ready` is the processor time in seconds until then."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, seconds_to_ready: float) -> None:
        self.pid = process.pid
        self.port = port
        self.seconds_to_ready = seconds_to_ready
        self.cpu_to_ready = cpu_seconds(process.pid)


@contextmanager
def new_home(folder: Path) -> Iterator[Path]:
    """Create a temporary home with a token."""
    home = Path(tempfile.mkdtemp(prefix="exuvia-bench-", dir=folder))
    try:
        (home / "token").write_text(TOKEN + "\n")
        (home / "token").chmod(0o600)
        yield home
    finally:
        shutil.rmtree(home)


@contextmanager
def gateway(home: Path, model_port: int) -> Iterator[GatewayProcess]:
    """Run a gateway on `home` with the fake model.

    Raises:
        NotReady: The gateway does not start.
    """
    port = free_port()
    command = [sys.executable, "-m", "exuvia", "run", "--home", str(home), "--port", str(port)]
    output_file = home / "printed.log"
    with output_file.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=_environment(model_port),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        while not _is_ready(port):
            if process.poll() is not None or time.perf_counter() - began > START_SECONDS:
                raise NotReady(f"{' '.join(command)} did not become ready:\n{output_file.read_text()[-4000:]}")
            time.sleep(POLL_SECONDS)
        yield GatewayProcess(process, port, time.perf_counter() - began)
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def clean_environment() -> dict[str, str]:
    """Return this environment without variables that configure the gateway or disable the bytecode cache of Python."""
    removed = (
        "EXUVIA",
        "OPENAI_",
        "ANTHROPIC_",
        "GEMINI_",
        "OLLAMA_",
        "EMBEDDING_",
        "NOTIFY_SOCKET",
        "LISTEN_",
        "CREDENTIALS_",
        "PYTHONDONTWRITEBYTECODE",
    )
    return {name: value for name, value in os.environ.items() if not name.startswith(removed)}


def _environment(model_port: int) -> dict[str, str]:
    return clean_environment() | {
        "OPENAI_API_KEY": "sk-benchmark",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{model_port}/v1",
        "EXUVIA__AGENT__MODEL": "openai:fake",
    }


def _is_ready(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False
