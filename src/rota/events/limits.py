"""Limits of the event bridge: sizes, batches, retries and how often offsets are saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EVENTS_AT_ONCE = 100
"""Events of a source that go to the server in one call."""
BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Their size together: well below the limit of one call."""
FILES_MAX = 100_000
"""Files of one folder that are remembered: a folder with more is no place for new files."""
PAUSE_S_FIRST = 0.5
"""Pause after the first failure; it doubles each time."""
PAUSE_S_MAX = 60.0
"""The longest such pause."""
SEND_S_MAX = 15.0
"""Time for a webhook's receiver to answer; it should accept first and work later."""
ANSWER_BYTES_MAX = 64 * 1024
"""Bytes read of a receiver's answer; only its status counts."""
OFFSET_EVERY = 50
"""Changes sent between two saved offsets of a sink: after a crash at most so many repeat."""
REDIS_WAIT_MS = 2_000
"""How long one read of a Redis stream waits for messages."""
REDIS_CLAIM_IDLE_MS = 60_000
"""A message that another consumer has not confirmed for so long is taken over."""
BROKER_PREFETCH = 50
"""Messages that a broker delivers before the first of them is acknowledged."""
STEADY_S = 60.0
"""A source or sink that ran for so long before it failed starts again soon: its settings work."""
BROKER_CLOSE_S = 2.0
"""How long closing a broker's connection waits for messages under way: they come again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """Limits of sources and sinks that a test may set otherwise."""

    pause_s_first: float = PAUSE_S_FIRST


EVENT_LIMITS: Final = EventLimits()
"""The limits of a real bridge: the constants above."""
