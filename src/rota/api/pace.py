"""How many records to read at a time: few until their size is known, then as many as will fit."""

from __future__ import annotations

from collections.abc import Iterable

from rota.api.limits import PAGE_BYTES_MAX
from rota.core.model import Execution, JobRecord


class PageSize:
    """Each may carry megabytes, and nearly all of them carry little."""

    def __init__(self, most: int, first: int) -> None:
        """`first` are read before their size is known."""
        self._most = most
        self._first = first
        self._read = 0
        self._bytes = 0

    @property
    def size(self) -> int:
        """Of the next question, if the next ones are like those before."""
        if not self._read:
            return min(self._first, self._most)
        fitting = PAGE_BYTES_MAX * self._read // max(self._bytes, 1)
        return max(1, min(fitting, self._most))

    def record(self, records: Iterable[JobRecord | Execution]) -> None:
        """What came."""
        for one in records:
            self._read += 1
            self._bytes += job_bytes(one) if isinstance(one, JobRecord) else _execution_bytes(one)


def job_bytes(job: JobRecord) -> int:
    """About how many bytes a job brings along."""
    spec, life = job.spec, job.life
    return len(spec.payload) + len(spec.task) + len(life.result or b"") + len(life.error or b"")


def _execution_bytes(one: Execution) -> int:
    return len(one.result or b"") + len(one.error or b"") + len(one.usage or b"")
