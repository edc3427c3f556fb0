"""Ids and pseudo-random numbers made by the core, from hashes, so that a replay makes the same."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import msgspec

from rota.core.model import ExecutionId, Instant, JobId, Needs, Origin, TriggerId
from rota.core.trigger_model import TriggerDecisionId

_UUID_DIGITS = 36
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""A UUID's variant takes two bits of one digit."""
_OTHER_VARIANT = {"8": "9", "9": "8", "a": "b", "b": "a"}


def execution_id(job_id: JobId, fence: int, now: Instant) -> ExecutionId:
    """The id of a job's execution. That of the first ends as its job's does, where a die was cast
    already; but for one digit, for it may have the same time."""
    if fence == 1 and len(job_id) == _UUID_DIGITS:
        return ExecutionId(_first_front(now, job_id[15:20]) + job_id[20:])
    return ExecutionId(_uuid7(job_id, f"{job_id}/{fence}", now))


def run_id(origin: Origin, now: Instant) -> JobId:
    """The id of the job that a schedule makes for an instant."""
    parent = origin.schedule_id
    return JobId(_uuid7(parent, f"{parent}/{origin.nominal}", now))


def member_id(parent: JobId, index: int) -> JobId:
    """The id of a band's member: beside that of its band, and by index, so that a range has all."""
    return JobId(f"{_stem(parent)}{index:06x}")


def members_between(parent: JobId) -> tuple[JobId, JobId]:
    """Ids of which one comes before all members of the band, and the other after them."""
    stem = _stem(parent)
    return JobId(stem), JobId(f"{stem}~")


def _stem(parent: JobId) -> str:
    """The band's own time and cell, and a hash of its id; an index has the last six digits."""
    digest = blake2b(f"members/{parent}".encode(), digest_size=5).hexdigest()
    cell = f"{parent[15:18]:0>3}"
    return f"{parent[:13]}-7{cell}-{_VARIANT[digest[0]]}{digest[1:4]}-{digest[4:10]}"


def trigger_decision_id(trigger_id: TriggerId, event_key: str, now: Instant) -> TriggerDecisionId:
    """The id of what a trigger makes of an event."""
    return TriggerDecisionId(_uuid7(trigger_id, f"{trigger_id}/{event_key}", now))


def triggered_id(arrival: TriggerDecisionId, now: Instant) -> JobId:
    """The id of the job that a trigger makes."""
    return JobId(_uuid7(arrival, f"job/{arrival}", now))


def _uuid7(parent: str, whose: str, now: Instant) -> str:
    """A UUIDv7 of the time, the parent's own cell and a hash of whose it is."""
    digest = blake2b(whose.encode(), digest_size=8).hexdigest()
    return f"{_front(now, parent[15:18])}{_VARIANT[digest[0]]}{digest[1:4]}-{digest[4:]}"


@lru_cache(maxsize=16)
def _front(now: Instant, cell: str) -> str:
    """What all ids of one turn begin with."""
    time = "%012x" % (now & 0xFFFF_FFFF_FFFF)
    return f"{time[:8]}-{time[8:]}-7{cell:0>3}-"


@lru_cache(maxsize=64)
def _first_front(now: Instant, middle: str) -> str:
    """The same and one digit more, for jobs with this amid their ids: cell, dash, variant."""
    return _front(now, middle[:3]) + _OTHER_VARIANT.get(middle[4], "8")


def spill_queue_number(alike: tuple[str, Needs, int, str, int]) -> int:
    """The number of a line of alike jobs in the store: 63 bits, never 0, the same for ever."""
    queue, needs, *rest = alike
    plain = (needs.resources, needs.capabilities)
    # As it was when that was all there is, so that lines of then are found again.
    asked = plain if needs == Needs(*plain) else needs
    encoded = msgspec.msgpack.encode((queue, asked, *rest))
    return (int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big") >> 1) or 1


def fraction(*parts: str | int) -> float:
    """A number in [0, 1) that depends on nothing but `parts`."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") / (1 << 48)
