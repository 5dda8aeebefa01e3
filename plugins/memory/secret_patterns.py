"""What looks like a secret in a text: keys and tokens by the form that their issuers give them, and what is called one."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PATTERNS = {
    "private key": r"-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----",
    "AWS access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})",
    "GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    "Google API key": r"\bAIza[0-9A-Za-z_-]{35}",
    "Stripe key": r"\b[rs]k_live_[0-9A-Za-z]{16,}",
    "model provider's key": r"\bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{20,}",
    "Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "npm or PyPI token": r"\b(?:npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,})",
    "Telegram bot token": r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    "JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "password in an address": r"\b[a-z][a-z0-9+.-]{1,15}://[^\s/:@]{1,64}:[^\s/:@]{3,128}@",
    "password": (
        r"(?i:\b(?:password|passwd|passphrase|passwort|kennwort|api[ _-]?key|secret[ _-]?key|access[ _-]?token"
        r"|auth[ _-]?token|client[ _-]?secret)|密码|密碼|パスワード)[\"'`*]{0,3}\s*(?:[:=：]|\bis\b|\bist\b|是)"
        r"[\s\"'`*：]{0,4}(?P<value>[^\s\"'`,;，。]{8,})"
    ),
}
_COMPILED = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}
_DIGIT = re.compile(r"[0-9]")
_LETTER = re.compile(r"[^\W\d_]")
_REFERENCE = re.compile(r"(?:env|file|credential):|\$|[<{\[(*]|(.)\1{5}")
"""How what stands for a secret begins: a place where it is kept, a variable, a gap to fill in, stars."""


SHORTEST = 11
"""Characters of the shortest line with a secret: `密码:` and eight more."""


def likely_secrets(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a text, counted from 1, on which something looks like a secret, each with the name of what it looks like;
    of several on a line the first in the order above."""
    for number, line in enumerate(text.split("\n"), 1):
        for name, pattern in _COMPILED.items() if len(line) >= SHORTEST else ():
            if any(_is_likely(found) for found in pattern.finditer(line)):
                yield number, name
                break


def _is_likely(found: re.Match[str]) -> bool:
    """A word that follows "password:" is one only if it looks like one: with a digit among its letters, or signs."""
    value = found.groupdict().get("value")
    if value is None:
        return True
    if _REFERENCE.match(value):
        return False
    return bool(_DIGIT.search(value) and _LETTER.search(value)) or sum(not each.isalnum() for each in value) > 1
