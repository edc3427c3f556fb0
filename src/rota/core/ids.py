"""Ids and dice that the core makes itself: both from hashes, so that a replay makes the same."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from rota.core.model import ExecutionId, Instant, JobId, Needs

_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""A UUID's variant takes two bits of one digit."""


def execution_id(job_id: JobId, fence: int, now: Instant) -> ExecutionId:
    """A UUIDv7 of the time, the job's own cell and a hash of whose execution it is."""
    dice = blake2b(f"{job_id}/{fence}".encode(), digest_size=8).hexdigest()
    time = f"{now & 0xFFFF_FFFF_FFFF:012x}"
    variant = _VARIANT[dice[0]]
    cell = f"{job_id[15:18]:0>3}"
    return ExecutionId(f"{time[:8]}-{time[8:]}-7{cell}-{variant}{dice[1:4]}-{dice[4:16]}")


def line_number(alike: tuple[str, Needs, int, str, int]) -> int:
    """The number of a line of alike jobs in the store: 63 bits, never 0, the same for ever."""
    encoded = msgspec.msgpack.encode(alike)
    return (int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big") >> 1) or 1


def fraction(*parts: str | int) -> float:
    """A number in [0, 1) that depends on nothing but `parts`."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") / (1 << 48)
