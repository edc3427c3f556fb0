"""Jobs and machines in few words: what a test does not say is the default."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rota.core.commands import NewJob
from rota.core.model import (
    Array,
    Backoff,
    Concurrency,
    Dependency,
    Gang,
    Instant,
    JobId,
    Needs,
    Resources,
    RetryPolicy,
    Semantics,
    Spec,
    Terms,
    When,
)

NOON: Instant = 1_800_000_000_000
"""When every story begins."""
GIB = 1 << 30
SECOND = 1_000
HOUR = 3_600 * SECOND

AT_MOST_ONCE = Semantics.AT_MOST_ONCE


def resources(**amounts: Any) -> Resources:
    """cpu and gpu in whole ones (fractions allowed), memory and storage in bytes."""
    custom = dict(amounts.pop("custom", {}))
    made = Resources(
        cpu_milli=round(amounts.pop("cpu", 0) * 1000),
        memory=amounts.pop("memory", 0),
        storage=amounts.pop("storage", 0),
        gpu_milli=round(amounts.pop("gpu", 0) * 1000),
        custom=tuple(sorted((name, round(amount * 1000)) for name, amount in custom.items())),
    )
    assert not amounts, f"no such resources: {list(amounts)}"
    return made


def dependencies(after: Iterable[Any]) -> tuple[Dependency, ...]:
    """Each an id, or an id and which end of it."""
    return tuple(
        Dependency(JobId(one)) if isinstance(one, str) else Dependency(JobId(one[0]), When(one[1]))
        for one in after
    )


def spec(**asked: Any) -> Spec:
    """A job's spec; one cpu and nothing else unless said otherwise."""
    amounts = {
        kind: asked.pop(kind) for kind in ("memory", "storage", "gpu", "custom") if kind in asked
    }
    needs = Needs(
        resources(cpu=asked.pop("cpu", 1), **amounts),
        tuple(sorted(asked.pop("capabilities", ()))),
        asked.pop("affinity", None),
        asked.get("gang", 1),
    )
    terms = Terms(
        name=asked.pop("name", "test"),
        queue=asked.pop("queue", "default"),
        tenant=asked.pop("tenant", "default"),
        priority=asked.pop("priority", 0),
        needs=needs,
        retry=asked.pop("retry", RetryPolicy()),
        semantics=asked.pop("semantics", Semantics.AT_LEAST_ONCE),
        timeout_ms=asked.pop("timeout_ms", None),
        expected_runtime_ms=asked.pop("runs_ms", None),
        preemptible=asked.pop("preemptible", False),
    )
    key, limit = asked.pop("key", None), asked.pop("limit", 1)
    group = group_of(
        asked.pop("count", None), asked.pop("max_parallel", None), asked.pop("gang", 0)
    )
    made = Spec(
        terms=terms,
        task=b'{"kind":"noop"}',
        created_at=asked.pop("created_at", NOON),
        dependencies=dependencies(asked.pop("after", ())),
        run_at=asked.pop("run_at", None),
        expires_at=asked.pop("expires_at", None),
        concurrency=None if key is None else Concurrency(key, limit),
        labels=tuple(asked.pop("labels", ())),
        finish_by=asked.pop("finish_by", None),
        group=group,
    )
    assert not asked, f"a job has no {list(asked)}"
    return made


def group_of(count: int | None, max_parallel: int | None, gang: int) -> Array | Gang | None:
    """An array of so many, a gang of so many, or neither."""
    if gang:
        return Gang(gang)
    return None if count is None else Array(count, max_parallel)


def job(job_id: str, **asked: Any) -> NewJob:
    """A job to submit."""
    ref = asked.pop("ref", "")
    return NewJob(id=JobId(job_id), spec=spec(**asked), ref=ref)


def retries(count: int, **policy: Any) -> RetryPolicy:
    """So many tries; a fixed second apart and without jitter unless said otherwise."""
    plain = {"backoff": Backoff.FIXED, "delay_ms": SECOND, "jitter": 0.0}
    return RetryPolicy(max_attempts=count, **{**plain, **policy})
