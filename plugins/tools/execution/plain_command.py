"""Shell text as a plain command: one program with literal arguments, which an approval rule can be about.

Only text that every POSIX shell splits into exactly these words is accepted. Whatever a shell would interpret (operators,
expansions, patterns, assignments, redirections, comments, escapes, keywords) makes a text a script, which is shown in full
and never remembered.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from plugins.support.safe_open import OutsideFolder, open_beneath

_WORD = re.compile(
    r"""
    (?: (?P<bare> [A-Za-z0-9_@%+=:,./-]+ )
      | ' (?P<single> [^'\n\0]* ) '
      | " (?P<double> [^"$`\\!\n\0]* ) "
    )
    """,
    re.X,
)
_BLANKS = re.compile(r"[ \t]+")

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")

KEYWORDS = frozenset(
    (
        *("case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then"),
        *("time", "until", "while"),
    )
)
"""Words that begin or end a compound command if they are not quoted."""

RUNNERS = frozenset(
    (
        *(".", "alias", "builtin", "command", "doas", "env", "eval", "exec", "expect", "find", "nice", "nohup", "parallel"),
        *("setsid", "source", "ssh", "stdbuf", "sudo", "time", "timeout", "trap", "unshare", "watch", "xargs"),
        *(
            "ash",
            "awk",
            "bash",
            "busybox",
            "csh",
            "dash",
            "fish",
            "gawk",
            "ksh",
            "lua",
            "mawk",
            "node",
            "perl",
            "php",
            "ruby",
        ),
        *("sed", "sh", "tcsh", "zsh"),
    )
)
"""Programs that run what their arguments say, so that a remembered beginning of such a command would allow everything."""

SYSTEM = ("/usr/", "/bin/", "/sbin/")
"""The folders of programs that no command can replace."""

_PYTHON = re.compile(r"(?:pypy|python)[0-9.]*")

_NAMES = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")

MAX_NAMES = 256
"""Maximum words of a command that are tried as names of files."""

MAX_DIGESTED_BYTES = 32 * 1024 * 1024
"""Maximum bytes of files that a digest is about."""


def parse(text: str) -> tuple[str, ...]:
    """Return the words of a plain command, empty if the text is anything else."""
    words: list[str] = []
    text = text.strip(" \t\n")
    at = 0
    while at < len(text):
        word, start = "", at
        while match := _WORD.match(text, at):
            word += match["bare"] or match["single"] or match["double"] or ""
            at = match.end()
        first = text[start:at]
        if at == start or (not words and (first in KEYWORDS or _ASSIGNMENT.match(first))):
            return ()
        if not word.isprintable():  # a person must see each character of it
            return ()
        words.append(word)
        if at < len(text):
            blanks = _BLANKS.match(text, at)
            if blanks is None:
                return ()
            at = blanks.end()
    return tuple(words) if words and words[0] else ()


def is_rememberable(argv: tuple[str, ...]) -> bool:
    """Return True if an approval of this command may hold for later ones: its program is the system's, and does one thing
    instead of what an argument says. A program in the workspace can become another one."""
    folder, _, program = argv[0].rpartition("/") if argv else ("", "", "")
    return (
        bool(program)
        and (not folder or f"{folder}/".startswith(SYSTEM))
        and program not in RUNNERS
        and not _PYTHON.fullmatch(program)
    )


def digest_of_files(workspace: Path, folder: str, text: str) -> str:
    """Return a digest of the workspace files that a command names, empty if it names none. Blocks.

    Args:
        workspace: The workspace.
        folder: The folder that the command runs in, relative to the workspace.
        text: The command or script; every word of it may name a file.
    """
    found = sha256()
    named = False
    words = parse(text) or tuple(_NAMES.findall(text))
    for path, content in _contents(workspace, folder, words):
        named = True
        found.update(f"{path}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return found.hexdigest() if named else ""


def _contents(workspace: Path, folder: str, words: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    left = MAX_DIGESTED_BYTES
    for word in list(dict.fromkeys(words))[:MAX_NAMES]:
        path = word if word.startswith("/") else os.path.normpath(os.path.join(folder, word))
        try:
            opened = open_beneath(workspace, path)
        except (OutsideFolder, OSError):
            continue
        try:
            if stat.S_ISREG(os.fstat(opened).st_mode):
                with open(opened, "rb", closefd=False) as file:
                    content = file.read(left)
                left -= len(content)
                yield path, content
        finally:
            os.close(opened)
