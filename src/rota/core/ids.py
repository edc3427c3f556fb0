"""Ids and dice that the core makes itself: both from hashes, so that a replay makes the same."""

from __future__ import annotations

from hashlib import blake2b

from rota.core.model import ExecutionId, Instant, JobId


def execution_id(job_id: JobId, fence: int, now: Instant) -> ExecutionId:
    """A UUIDv7 of the time and a hash of whose execution it is."""
    dice = int.from_bytes(blake2b(f"{job_id}/{fence}".encode(), digest_size=10).digest(), "big")
    value = (now & 0xFFFF_FFFF_FFFF) << 80 | dice
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return ExecutionId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


def fraction(*parts: str | int) -> float:
    """A number in [0, 1) that depends on nothing but `parts`."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") / (1 << 48)
