"""Limits of the event bridges: sizes, page lengths, retries and how often positions are saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EVENTS_AT_ONCE = 100
"""Events of a source that go to the server in one call."""
BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Their size together: well below what one call may carry."""
FILES_MAX = 100_000
"""Files of one folder that are remembered; a folder with more is not an inbox."""
PAUSE_S_FIRST = 0.5
"""Before something that failed is tried again; doubles each time."""
PAUSE_S_MAX = 60.0
"""The longest such pause."""
SEND_S_MAX = 15.0
"""For a receiver of a webhook to answer; it should accept first and work later."""
ANSWER_BYTES_MAX = 64 * 1024
"""Of a receiver's answer that is read at most; only its status counts."""
OFFSET_EVERY = 50
"""Changes sent between two notes of how far a sink has come: after a crash so many are told again
at most."""
REDIS_WAIT_MS = 2_000
"""How long one question to a Redis stream waits for messages."""
REDIS_CLAIM_IDLE_MS = 60_000
"""A message that another consumer took and has not confirmed for so long is taken over."""
BROKER_PREFETCH = 50
"""Messages that a broker hands out before the first of them is confirmed."""
STEADY_S = 60.0
"""What ran for so long before it failed is tried again soon: it was not a bad setting."""
BROKER_CLOSE_S = 2.0
"""What a broker's connection waits for messages under way when it is closed: they come again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """Limits that what listens and tells is given, so that a test can run it with others."""

    pause_s_first: float = PAUSE_S_FIRST


EVENT_LIMITS: Final = EventLimits()
"""The limits of what nobody gave others: the constants above."""
