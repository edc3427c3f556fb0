"""What happened, as one number: two runs that are the same to the last message have the same."""

from __future__ import annotations

import hashlib
from collections import Counter, deque

TAIL = 4_000
"""Happenings that are kept as text, for whoever wants to know how it came to this."""


class Trace:
    """Takes note of every happening."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=12)
        self.tail: deque[tuple[float, str]] = deque(maxlen=TAIL)
        self.counts: Counter[str] = Counter()

    def note(self, at_s: float, *what: object) -> None:
        """One happening; the first word says of what kind."""
        text = " ".join(map(str, what))
        self._digest.update(f"{at_s:.6f} {text}\n".encode())
        self.tail.append((at_s, text))
        self.counts[str(what[0])] += 1

    def hash(self) -> str:
        """The number."""
        return self._digest.hexdigest()
