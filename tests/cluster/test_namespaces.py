"""Traffic is made in a network namespace only if there is no way out of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.cluster.namespaces import refuse_default_route
from benchmarks.process import ROOT


def unshared(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a network namespace of its own."""
    return subprocess.run(["unshare", "--net", *command], check=False, cwd=ROOT, capture_output=True, text=True)


def in_a_namespace(commands: str) -> subprocess.CompletedProcess[str]:
    """Check for a default route in a network namespace of its own, after shell commands that set it up."""
    check = f"{sys.executable} -c 'from benchmarks.cluster.namespaces import refuse_default_route as r; r()'"
    return unshared("sh", "-c", f"{commands}; {check}")


def test_traffic_is_made_in_a_namespace_only_if_it_has_no_default_route() -> None:
    refuse_default_route()  # the machine itself may have one
    made = unshared("ip", "link", "set", "lo", "up")
    if made.returncode:
        pytest.skip(f"network namespaces cannot be made here: {made.stderr.strip()}")
    assert in_a_namespace("ip link set lo up").returncode == 0
    refused = in_a_namespace("ip link set lo up; ip route add default dev lo")
    assert refused.returncode == 1
    assert "This network namespace has a default route" in refused.stderr
