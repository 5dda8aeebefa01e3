"""A verifier of journals, written from `docs/events.md` alone with nothing but the standard library."""

import json
import re
import sys
from hashlib import blake2b

CLOSING = re.compile(rb',"sum":"([0-9a-f]{16})"\}\n\Z')


def verify(content: bytes) -> tuple[int, int, str | None]:
    """Return how many lines are whole, the bytes of a torn tail behind them, and what is wrong there if it is damage."""
    previous, good = b"exuvia", 0
    lines = [line + b"\n" for line in content.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    for index, line in enumerate(lines):
        closing, wrong = CLOSING.search(line), None
        if line == b"":
            break
        if not closing:
            wrong = "it has no sum"
        elif blake2b(line[:-27], digest_size=8, key=previous).hexdigest().encode() != closing[1]:
            wrong = "its sum is wrong"
        elif json.loads(line)["seq"] != index + 1:
            wrong = "its seq is wrong"
        if wrong:
            torn = not line.endswith(b"\n") or b"\0" in line
            followed = any(CLOSING.search(later) and b"\0" not in later for later in lines[index + 1 :])
            return (index, len(content) - good, None) if torn and not followed else (index, 0, wrong)
        previous, good = line[-19:-3], good + len(line)
    return len(lines) - 1, 0, None


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with open(name, "rb") as file:
            events, tail, damage = verify(file.read())
        sys.stdout.write(f"{name}: {events} events, {tail} bytes torn, {damage or 'whole'}\n")
