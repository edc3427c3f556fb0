"""Submits any number of jobs in batches; `ref:` names of dependencies may cross batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from rota.sdk import calls
from rota.sdk.calls import JobLike
from rota.sdk.request_plan import ClientState, RequestPlan, check_key, fetch
from rota.wire.formats import encode
from rota.wire.jobs import DependencySpec, JobSpec
from rota.wire.limits import BATCH_JOBS_MAX, BODY_BYTES_MAX

BATCH_BYTES_MAX = BODY_BYTES_MAX // 2
"""Size of one request: half of what a server accepts, for proxies that accept less."""
REF = "ref:"


def submit_many(
    state: ClientState,
    jobs: Iterable[JobLike],
    *,
    on_progress: Callable[[int], None] | None = None,
    key: str | None = None,
    jobs_max: int | None = None,
) -> RequestPlan[list[str]]:
    """Submits all jobs and returns their ids in the order given. Reports the total after each
    batch.

    Each batch is all or none; it has as many jobs as a server takes, or `jobs_max` for more
    frequent reports. With a key, the same jobs can be submitted again after a crash: batches that
    succeeded are not submitted twice.
    """
    check_key(key)
    job_ids: list[str] = []
    known: dict[str, str] = {}
    for number, batch in enumerate(_batches(jobs, jobs_max or BATCH_JOBS_MAX)):
        bodies = [resolve_refs(job, known) for job in batch]
        batch_key = None if key is None else f"{key}-{number}"
        answer = yield from fetch(state, calls.submit_batch(bodies), batch_key)
        for job, job_id in zip(batch, answer.job_ids, strict=True):
            if (ref := _ref_of(job)) is not None:
                known[ref] = job_id
        job_ids += answer.job_ids
        if on_progress is not None:
            on_progress(len(job_ids))
    return job_ids


def _batches(jobs: Iterable[JobLike], jobs_max: int) -> Iterator[list[JobLike]]:
    """Cuts the jobs into batches by number and by size."""
    batch: list[JobLike] = []
    size = 0
    for job in jobs:
        length = len(encode(job))
        if batch and (len(batch) >= jobs_max or size + length > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += length
    if batch:
        yield batch


def _ref_of(job: JobLike) -> str | None:
    return job.get("ref") if isinstance(job, Mapping) else getattr(job, "ref", None)


def resolve_refs(job: JobLike, known: Mapping[str, str]) -> JobLike:
    """Replaces each `ref:` of an earlier batch by its id, because a `ref:` is valid in one batch
    only.
    """
    needed = job.get("dependencies") if isinstance(job, Mapping) else job.dependencies
    if not known or not needed:
        return job
    found = [_resolve_dependency(one, known) for one in needed]
    if isinstance(job, JobSpec):
        return msgspec.structs.replace(job, dependencies=found)
    return {**job, "dependencies": found}


def _resolve_dependency(one: Any, known: Mapping[str, str]) -> Any:
    if isinstance(one, DependencySpec):
        return DependencySpec(_resolve_id(one.job_id, known), one.when)
    if isinstance(one, Mapping):
        return {**one, "job_id": _resolve_id(str(one.get("job_id", "")), known)}
    return _resolve_id(str(one), known)


def _resolve_id(text: str, known: Mapping[str, str]) -> str:
    return known.get(text[len(REF) :], text) if text.startswith(REF) else text
