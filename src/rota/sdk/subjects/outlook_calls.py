"""Calls that ask what is to become of jobs: those that wait, and those that nobody submitted."""

from __future__ import annotations

from collections.abc import Sequence

from rota.sdk.calls import Call, JobLike
from rota.wire.units import encode
from rota.wire.why import DryRunBatchView, DryRunView

_DRY = (("dry_run", "true"),)


def dry_run(job: JobLike) -> Call[DryRunView]:
    """What would become of a job; nothing is submitted."""
    return Call("POST", "/jobs", DryRunView, params=_DRY, body=encode(job))


def dry_run_batch(jobs: Sequence[JobLike]) -> Call[DryRunBatchView]:
    """What would become of jobs that are submitted together."""
    body = encode({"jobs": jobs})
    return Call("POST", "/jobs/batch", DryRunBatchView, params=_DRY, body=body)
