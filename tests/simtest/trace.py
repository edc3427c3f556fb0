"""Trace of a run and its hash: runs that are equal to the last message have equal hashes."""

from __future__ import annotations

import hashlib
from collections import Counter, deque

TAIL = 4_000
"""Events that are kept as text, to explain a failure."""


class Trace:
    """Trace that records every event."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=12)
        self.tail: deque[tuple[float, str]] = deque(maxlen=TAIL)
        self.counts: Counter[str] = Counter()

    def note(self, at_s: float, *what: object, unhashed: str = "") -> None:
        """Records one event; the first word is its kind.

        `unhashed` is text for a reader only: names of the program's methods, errors and faults,
        which may be renamed without changing what a cluster does.
        """
        text = " ".join(map(str, what))
        self._digest.update(f"{at_s:.6f} {text}\n".encode())
        self.tail.append((at_s, f"{text} {unhashed}".rstrip()))
        self.counts[str(what[0])] += 1

    def hash(self) -> str:
        return self._digest.hexdigest()
