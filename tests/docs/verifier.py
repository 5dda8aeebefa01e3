"""A verifier of journals, written from `docs/events.md` alone with nothing but the standard library."""

import json
import sys
from hashlib import blake2b


def verify(content: bytes) -> tuple[int, int, str | None]:
    """Return how many events are whole, the bytes of an unfinished tail, and what is wrong with the next line, if so."""
    lines = content.split(b"\n")
    tail = lines.pop()
    previous = b"exuvia"
    for seq, line in enumerate(lines, start=1):
        last = seq == len(lines) and not tail
        if b"\0" in line and last:
            return seq - 1, len(line) + 1, None
        body, closing = line[:-26], line[-26:]
        if closing[:8] != b',"sum":"' or closing[24:] != b'"}':
            return seq - 1, 0, "it has no sum"
        stated = closing[8:24]
        if blake2b(body, digest_size=8, key=previous).hexdigest().encode() != stated:
            return seq - 1, 0, "its sum is wrong"
        if json.loads(line)["seq"] != seq:
            return seq - 1, 0, "its seq is wrong"
        previous = stated
    return len(lines), len(tail), None


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with open(name, "rb") as file:
            events, unfinished, wrong = verify(file.read())
        print(f"{name}: {events} events, {unfinished} bytes unfinished, {wrong or 'whole'}")  # noqa: T201 - a program
