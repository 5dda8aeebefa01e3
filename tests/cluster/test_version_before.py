"""The version that the rehearsed upgrade begins with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.cluster.measured import BEFORE, version_before

AUTHOR = ("-c", "user.name=Ana", "-c", "user.email=ana@example.org")


def test_an_upgrade_begins_with_the_named_commit_or_the_newest_tag_and_says_what_the_repository_lacks(
    tmp_path: Path,
) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *AUTHOR, *arguments], check=True, capture_output=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "The first version.")
    with pytest.raises(LookupError, match=f"has no commit {BEFORE}: fetch its history, or name one with --before"):
        version_before(tmp_path)
    git("tag", "v1")
    git("commit", "-q", "--allow-empty", "-m", "The next one.")
    git("tag", "v2")
    git("commit", "-q", "--allow-empty", "-m", "Not released yet.")
    assert version_before(tmp_path) == "v2"
    assert version_before(tmp_path, "v1") == "v1"
    with pytest.raises(LookupError, match="no commit v3"):
        version_before(tmp_path, "v3")
