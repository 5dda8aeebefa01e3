"""The exact tokenizer: its shipped vocabulary, its own process, and the fallback if it cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.models import token_counts
from gateway.models.token_counts import o200k
from tests.waiting import DEADLINE


def test_counts_match_the_published_vocabulary_without_network_access(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):  # where a download would fail
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    texts = {"hello world": 2, "": 0, "<|endoftext|>": 7, "antidisestablishmentarianism": 6, "你好，世界": 3, "\ud800": 1}
    assert o200k(list(texts), patience=DEADLINE) == list(texts.values())


def test_counting_ends_at_its_timeout() -> None:
    assert o200k(["a"], patience=0.01) is None


def test_a_text_that_cannot_be_counted_has_no_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert o200k(["x" * (token_counts.CHARACTERS + 1)]) is None
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert o200k(["a"]) is None
