"""The codes by which unknown senders ask to be admitted.

They are kept in memory only, so that unknown senders leave nothing behind, and in bounded number: while a channel has as
many as it may have, further senders are ignored, since a code that somebody was told must stay valid.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from gateway.conversations.channels.pairings import ChannelAddress

CODE_SECONDS = 3600.0
"""Seconds for which a code is valid, and the same sender is not answered again."""

MOST_REQUESTS = 100
"""Maximum requests of one channel at a time."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Digits and letters that people can tell apart (Crockford's base 32)."""

_AS_TYPED = str.maketrans({"O": "0", "I": "1", "L": "1", "-": "", " ": ""})


class PairingRequest(ChannelAddress, frozen=True, kw_only=True):
    """An unknown sender who wrote to a channel in a private chat.

    Attributes:
        code: The code that admits them, such as `K7QX-9DM2`: forty random bits.
        chat: The channel's name for the private chat; "" if the sender cannot be told anything there.
        thread: The thread of the chat; "" outside of threads.
        expires: The end of its validity on the monotonic clock.
    """

    code: str
    chat: str
    thread: str
    expires: float


class PairingRequests:
    """The requests of all channels that have not expired. `monotonic` returns the seconds of a clock."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._requests: dict[str, dict[str, PairingRequest]] = {}
        """For each channel the requests by address, which is also the order in which they expire."""

    def add(self, *, channel: str, address: str, name: str, chat: str, thread: str = "") -> PairingRequest | None:
        """Return a new request of an unknown sender; None if they have one, or the channel has as many as it may have."""
        requests = self._pending(channel)
        if address in requests or len(requests) >= MOST_REQUESTS:
            return None
        request = PairingRequest(
            code=_new_code(),
            channel=channel,
            address=address,
            name=name,
            chat=chat,
            thread=thread,
            expires=self._monotonic() + CODE_SECONDS,
        )
        self._requests.setdefault(channel, {})[address] = request
        return request

    def is_full(self, channel: str) -> bool:
        """Return True if further unknown senders on a channel are ignored."""
        return len(self._pending(channel)) >= MOST_REQUESTS

    def listed(self) -> list[PairingRequest]:
        """Return all requests, by channel and oldest first."""
        return [request for channel in tuple(self._requests) for request in self._pending(channel).values()]

    def find(self, code: str) -> PairingRequest | None:
        """Return the request with a code as a person typed it; None if there is none, or it has expired."""
        typed = code.upper().translate(_AS_TYPED)
        return next((request for request in self.listed() if request.code.replace("-", "") == typed), None)

    def remove(self, request: PairingRequest) -> None:
        """Remove a request."""
        self._requests.get(request.channel, {}).pop(request.address, None)

    def restore(self, request: PairingRequest) -> None:
        """Add a request again that was removed, unless its sender has another one."""
        requests = {**self._pending(request.channel)}
        requests.setdefault(request.address, request)
        self._requests[request.channel] = dict(sorted(requests.items(), key=lambda each: each[1].expires))

    def seconds_left(self, request: PairingRequest) -> float:
        """Return the seconds until a request expires."""
        return request.expires - self._monotonic()

    def _pending(self, channel: str) -> dict[str, PairingRequest]:
        """Return the requests of a channel after removing those that have expired."""
        requests, now = self._requests.get(channel, {}), self._monotonic()
        while requests and (oldest := next(iter(requests.values()))).expires <= now:
            del requests[oldest.address]
        return requests


def _new_code() -> str:
    digits = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    return f"{digits[:4]}-{digits[4:]}"
