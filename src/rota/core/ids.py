"""Ids and dice that the core makes itself: both from hashes, so that a replay makes the same."""

from __future__ import annotations

from hashlib import blake2b

from rota.core.events import ArrivalId
from rota.core.model import ExecutionId, Instant, JobId, Origin, TriggerId

_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""A UUID's variant takes two bits of one digit."""


def execution_id(job_id: JobId, fence: int, now: Instant) -> ExecutionId:
    """A UUIDv7 of the time and a hash of whose execution it is."""
    return ExecutionId(_uuid7(f"{job_id}/{fence}", now))


def run_id(origin: Origin, now: Instant) -> JobId:
    """The id of the job that a schedule makes for an instant."""
    return JobId(_uuid7(f"{origin.schedule_id}/{origin.nominal}", now))


def arrival_id(trigger_id: TriggerId, event_key: str, now: Instant) -> ArrivalId:
    """The id of what a trigger makes of an event."""
    return ArrivalId(_uuid7(f"{trigger_id}/{event_key}", now))


def triggered_id(arrival: ArrivalId, now: Instant) -> JobId:
    """The id of the job that a trigger makes."""
    return JobId(_uuid7(f"job/{arrival}", now))


def _uuid7(whose: str, now: Instant) -> str:
    dice = blake2b(whose.encode(), digest_size=10).hexdigest()
    time = f"{now & 0xFFFF_FFFF_FFFF:012x}"
    variant = _VARIANT[dice[3]]
    return f"{time[:8]}-{time[8:]}-7{dice[:3]}-{variant}{dice[4:7]}-{dice[7:19]}"


def fraction(*parts: str | int) -> float:
    """A number in [0, 1) that depends on nothing but `parts`."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") / (1 << 48)
