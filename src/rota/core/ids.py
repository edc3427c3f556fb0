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
    """Id of a job's execution. The first one reuses the random digits of the job's id, which saves
    a hash; one digit differs, because both ids may have the same time."""
    if fence == 1 and len(job_id) == _UUID_DIGITS:
        return ExecutionId(_first_front(now, job_id[15:20]) + job_id[20:])
    return ExecutionId(_uuid7(job_id, f"{job_id}/{fence}", now))


def run_id(origin: Origin, now: Instant) -> JobId:
    parent = origin.schedule_id
    return JobId(_uuid7(parent, f"{parent}/{origin.nominal}", now))


def member_id(parent: JobId, index: int) -> JobId:
    """Id of a group's member: next to its group's, and by index, so that one range has all."""
    return JobId(f"{_stem(parent)}{index:06x}")


def members_between(parent: JobId) -> tuple[JobId, JobId]:
    """Bounds of the ids of a group's members: one id before all of them, and one after."""
    stem = _stem(parent)
    return JobId(stem), JobId(f"{stem}~")


def _stem(parent: JobId) -> str:
    """Time and cell of the group, and a hash of its id; six digits are left for the index."""
    digest = blake2b(f"members/{parent}".encode(), digest_size=5).hexdigest()
    cell = f"{parent[15:18]:0>3}"
    return f"{parent[:13]}-7{cell}-{_VARIANT[digest[0]]}{digest[1:4]}-{digest[4:10]}"


def trigger_decision_id(trigger_id: TriggerId, event_key: str, now: Instant) -> TriggerDecisionId:
    return TriggerDecisionId(_uuid7(trigger_id, f"{trigger_id}/{event_key}", now))


def triggered_id(arrival: TriggerDecisionId, now: Instant) -> JobId:
    """Id of the job that a trigger makes."""
    return JobId(_uuid7(arrival, f"job/{arrival}", now))


def _uuid7(parent: str, whose: str, now: Instant) -> str:
    """UUIDv7 of the time, the parent's cell and a hash of `whose`."""
    digest = blake2b(whose.encode(), digest_size=8).hexdigest()
    return f"{_front(now, parent[15:18])}{_VARIANT[digest[0]]}{digest[1:4]}-{digest[4:]}"


@lru_cache(maxsize=16)
def _front(now: Instant, cell: str) -> str:
    """First half of the ids of one turn."""
    time = "%012x" % (now & 0xFFFF_FFFF_FFFF)
    return f"{time[:8]}-{time[8:]}-7{cell:0>3}-"


@lru_cache(maxsize=64)
def _first_front(now: Instant, middle: str) -> str:
    """First half and the variant digit, from the middle of a job's id: cell, dash, variant."""
    return _front(now, middle[:3]) + _OTHER_VARIANT.get(middle[4], "8")


def spill_queue_number(alike: tuple[str, Needs, int, str, int]) -> int:
    """Number of the spill queue for alike jobs: 63 bits, not 0. It is stored: it never changes."""
    queue, needs, *rest = alike
    plain = (needs.resources, needs.capabilities)
    # Jobs without affinity and copies are hashed as before these existed: their queues are stored.
    asked = plain if needs == Needs(*plain) else needs
    encoded = msgspec.msgpack.encode((queue, asked, *rest))
    return (int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big") >> 1) or 1


def fraction(*parts: str | int) -> float:
    """Number in [0, 1) that depends on nothing but `parts`."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") / (1 << 48)
