"""Which version of each file a session has seen, so that nothing is overwritten that it does not know.

The file tools of one workspace share one `SeenFiles`. It lives in memory: after a restart a file is read again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path
from weakref import WeakValueDictionary

MOST_SEEN = 4096
"""Files remembered, of all sessions together; the one that was used longest ago is forgotten first."""

_shared: WeakValueDictionary[Path, SeenFiles] = WeakValueDictionary()


class SeenFiles:
    """What the sessions have seen of one workspace. `changing` is held while a file is changed, so that no tool changes a
    file between another's reading and writing of it."""

    def __init__(self) -> None:
        self.changing = threading.Lock()
        self._digests: OrderedDict[tuple[str, tuple[str, ...]], bytes] = OrderedDict()
        self._guard = threading.Lock()

    def note(self, session: str, parts: tuple[str, ...], content: bytes) -> None:
        """The session knows this content of the file now."""
        with self._guard:
            self._digests[session, parts] = _digest(content)
            self._digests.move_to_end((session, parts))
            while len(self._digests) > MOST_SEEN:
                self._digests.popitem(last=False)

    def known(self, session: str, parts: tuple[str, ...], content: bytes) -> bool | None:
        """Whether this content is what the session saw last; None if it has seen nothing of the file."""
        with self._guard:
            seen = self._digests.get((session, parts))
        return None if seen is None else seen == _digest(content)


def seen_files(workspace: Path) -> SeenFiles:
    """The one of this workspace, kept as long as one of its tools is."""
    return _shared.setdefault(workspace, SeenFiles())


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()
