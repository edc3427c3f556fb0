"""Looks at the scheduler's memory for those who ask; decides and changes nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rota.core.glance import Explanation, QueueGlance, TenantGlance, WorkerGlance
from rota.core.model import JobId, JobRecord, WorkerId
from rota.core.policy import Policy
from rota.core.scheduler import Scheduler
from rota.engine.ports import Clock


class Looking(ABC):
    """What the engine can tell without a turn."""

    clock: Clock

    @abstractmethod
    def _brain(self) -> Scheduler:
        """The scheduler, or the refusal while there is none to trust."""

    def why(self, job_id: JobId, record: JobRecord | None = None) -> Explanation | None:
        """Why a live job does not run."""
        return self._brain().why(job_id, self.clock.now(), record)

    def progress_of(self, job_id: JobId) -> tuple[float | None, str] | None:
        """The newest progress of a running job."""
        return self._brain().progress_of(job_id)

    def workers(self) -> Sequence[WorkerGlance]:
        """All workers known."""
        return self._brain().workers(self.clock.now())

    def worker(self, worker_id: WorkerId) -> WorkerGlance | None:
        """One of them."""
        return self._brain().worker(worker_id, self.clock.now())

    def queues(self) -> Sequence[QueueGlance]:
        """All queues."""
        return self._brain().queues()

    def policy(self) -> Policy:
        """The policy that holds now."""
        return self._brain().policy

    def tenants(self) -> Sequence[TenantGlance]:
        """All tenants that have jobs or settings."""
        return self._brain().tenants(self.clock.now())
