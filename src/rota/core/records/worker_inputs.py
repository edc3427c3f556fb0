"""What is asked of a worker, by itself or by somebody who looks after it."""

from __future__ import annotations

from rota.core.model import WorkerId
from rota.core.records.keyed import Idempotent


class Drain(Idempotent, frozen=True, kw_only=True):
    """A worker gets no new work."""

    worker_id: WorkerId


class Resume(Idempotent, frozen=True, kw_only=True):
    """A drained worker gets work again."""

    worker_id: WorkerId


class Deregister(Idempotent, frozen=True, kw_only=True):
    """A worker is gone for good; what it still had is lost."""

    worker_id: WorkerId
