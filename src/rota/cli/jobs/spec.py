"""Builds the job that the options of `rota submit` describe; asks nobody."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import click

from rota.cli.jobs.tasks import TaskOptions, read_json, run_of
from rota.wire.units import ByteSize, Deadline, Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions(TaskOptions):
    """What was typed."""

    name: str | None = None
    queue: str | None = None
    tenant: str | None = None
    priority: int | None = None
    cpu: float | None = None
    memory: ByteSize | None = None
    storage: ByteSize | None = None
    gpu: float | None = None
    custom: tuple[tuple[str, str], ...] = ()
    capability: tuple[str, ...] = ()
    require: tuple[tuple[str, str], ...] = ()
    prefer: tuple[tuple[str, str], ...] = ()
    spread: str | None = None
    near_previous: bool = False
    place_wait: Duration | None = None
    tolerate: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    run_at: datetime | None = None
    run_in: Duration | None = None
    expires_at: datetime | None = None
    finish_by: Deadline | None = None
    timeout: Duration | None = None
    expected_runtime: Duration | None = None
    preemptible: bool = False
    retries: int | None = None
    backoff: str | None = None
    delay: Duration | None = None
    memory_factor: float | None = None
    memory_max: ByteSize | None = None
    at_most_once: bool = False
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    label: tuple[tuple[str, str], ...] = ()
    payload: str | None = None
    count: int | None = None
    max_parallel: int | None = None
    gang: int | None = None


def terms_of(
    options: SubmitOptions, dependencies: Sequence[Mapping[str, str]], now: datetime
) -> dict[str, Any]:
    """Everything but the name and the task: what is given, and nothing that is not."""
    parts: dict[str, Any] = {
        "queue": options.queue,
        "tenant": options.tenant,
        "priority": options.priority,
        "requirements": _requirements(options),
        "dependencies": list(dependencies),
        "run_at": _run_at(options, now),
        "expires_at": options.expires_at,
        "finish_by": options.finish_by,
        "timeout": options.timeout,
        "expected_runtime": options.expected_runtime,
        "preemptible": options.preemptible or None,
        "retry": _retry(options),
        "affinity": _affinity(options),
        "semantics": "at_most_once" if options.at_most_once else None,
        "concurrency": _concurrency(options),
        "labels": dict(options.label),
        "count": options.count,
        "max_parallel": options.max_parallel,
        "gang": None if options.gang is None else {"size": options.gang},
    }
    terms = _given(parts)
    if options.payload is not None:
        terms["payload"] = read_json(options.payload, "--payload")
    return terms


def _given(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parts.items() if value not in (None, {}, [])}


def _run_at(options: SubmitOptions, now: datetime) -> datetime | None:
    if options.run_in is None:
        return options.run_at
    if options.run_at is not None:
        raise click.UsageError("--at and --in say two different times")
    return now + timedelta(milliseconds=options.run_in.ms)


def job_of(options: SubmitOptions, terms: Mapping[str, Any]) -> dict[str, Any]:
    """The whole job; one that runs a registered function has no task."""
    run = run_of(options)
    if "payload" in run and "payload" in terms:
        raise click.UsageError("--payload and --args or --kwargs both say the arguments")
    if options.name is not None and options.function is None:
        run["name"] = options.name
    elif options.name is not None:
        raise click.UsageError("--function is the job's name already")
    return {**run, **terms}


def _requirements(options: SubmitOptions) -> dict[str, Any]:
    parts = {
        "cpu": options.cpu,
        "memory": options.memory,
        "storage": options.storage,
        "gpu": options.gpu,
        "custom": custom_of(options.custom),
        "capabilities": list(options.capability),
    }
    return _given(parts)


def _affinity(options: SubmitOptions) -> dict[str, Any]:
    parts = {
        "require": _values(options.require),
        "prefer": _values(options.prefer),
        "spread": options.spread,
        "near": "previous" if options.near_previous else None,
        "tolerate": list(options.tolerate),
    }
    wishes = _given(parts)
    if options.place_wait is not None:
        if not wishes.keys() & {"prefer", "spread", "near"}:
            raise click.UsageError("--place-wait needs --prefer, --spread or --near-previous")
        wishes["wait"] = options.place_wait
    return wishes


def _values(pairs: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """The same label twice means either value."""
    values: dict[str, list[str]] = {}
    for label, value in pairs:
        values.setdefault(label, []).append(value)
    return values


def custom_of(pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Amounts of what only this installation knows."""
    return {name: _number(name, value) for name, value in pairs}


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        hint = "'--custom'"
        raise click.BadParameter(f"{name}={value}: {value!r} is no number", param_hint=hint)
    return number


def _retry(options: SubmitOptions) -> dict[str, Any] | None:
    parts = {
        **(retry_of(options.retries, options.backoff, options.delay) or {}),
        "memory_factor": options.memory_factor,
        "memory_max": options.memory_max,
    }
    return _given(parts) or None


def retry_of(
    retries: int | None, backoff: str | None, delay: Duration | None
) -> dict[str, Any] | None:
    """`--retries N` means N tries after the first."""
    parts = {
        "max_attempts": None if retries is None else retries + 1,
        "backoff": backoff,
        "delay": delay,
    }
    return {name: value for name, value in parts.items() if value is not None} or None


def _concurrency(options: SubmitOptions) -> dict[str, Any] | None:
    if options.concurrency_key is None:
        if options.concurrency_limit is not None:
            raise click.UsageError("--concurrency-limit needs a --concurrency-key")
        return None
    limit = options.concurrency_limit
    return {"key": options.concurrency_key, **({} if limit is None else {"limit": limit})}


def split_after(text: str) -> tuple[str, str]:
    """`ID` or `ID:when`."""
    job, colon, when = text.partition(":")
    if colon and when not in ("succeeded", "finished", "failed"):
        raise click.BadParameter(
            f"{when!r}: after a job has succeeded, finished or failed", param_hint="'--after'"
        )
    return job, when or "succeeded"
