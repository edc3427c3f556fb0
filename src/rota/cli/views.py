"""Defines the columns and facts that people see of jobs, executions, workers, queues, previews."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.cli.render import (
    Column,
    Columns,
    Facts,
    Styled,
    age,
    amount,
    between,
    count,
    local,
    percent,
    short,
    size_text,
    span,
    status_cell,
)
from rota.wire.jobs import DeadlineView, JobView
from rota.wire.queues import LimitsView, QueueView
from rota.wire.schedules import ForeseenView
from rota.wire.workers import AmountView, ExecutionView, WorkerView


def deadline_line(deadline: DeadlineView) -> str:
    """Says by when a job should end, whether it will, and how much time is left."""
    left = span(abs(deadline.slack))
    spare = f"{left} to spare" if deadline.slack >= 0 else f"{left} too late"
    words = deadline.verdict.replace("_", " ")
    return f"by {local(deadline.finish_by)} ({age(deadline.finish_by)}): {words}, {spare}"


JOB_COLUMNS: Columns[JobView] = (
    Column("ID", lambda job: short(job.job_id)),
    Column("NAME", lambda job: job.name, cut=True),
    Column("STATUS", lambda job: status_cell(job.status)),
    Column("QUEUE", lambda job: job.queue, spare=3, cut=True),
    Column("PRIO", lambda job: str(job.priority), spare=5, right=True),
    Column("ATTEMPT", lambda job: f"{job.attempt}/{job.retry.max_attempts}", spare=4, right=True),
    Column("DONE", lambda job: percent(job.progress), spare=6, right=True),
    Column("AGE", lambda job: age(job.created_at), spare=1, right=True),
    Column("RAN", lambda job: _length(job) or "-", spare=2, right=True),
    Column("REASON", lambda job: job.reason or "", spare=7, cut=True),
)
EXECUTION_COLUMNS: Columns[ExecutionView] = (
    Column("ID", lambda one: short(one.execution_id)),
    Column("JOB", lambda one: short(one.job_id)),
    Column("ATTEMPT", lambda one: str(one.attempt), spare=4, right=True),
    Column("FENCE", lambda one: str(one.fence), spare=5, right=True),
    Column("STATUS", lambda one: status_cell(one.status)),
    Column("WORKER", lambda one: short(one.worker_id), spare=3),
    Column("EXIT", lambda one: _exit_code(one) or "-", spare=2, right=True),
    Column("AGE", lambda one: age(one.claimed_at), spare=1, right=True),
    Column("RAN", lambda one: between(one.start_time, one.end_time), right=True),
    Column("REASON", lambda one: one.reason or "", spare=6, cut=True),
)
WORKER_COLUMNS: Columns[WorkerView] = (
    Column("ID", lambda one: short(one.worker_id)),
    Column("NAME", lambda one: one.name, cut=True),
    Column("STATUS", lambda one: status_cell(one.status)),
    Column("JOBS", lambda one: str(len(one.executions)), right=True),
    Column("CPU", lambda one: _used(one.resources.cpu), spare=1, right=True),
    Column("MEMORY", lambda one: _used_bytes(one.resources.memory), spare=3, right=True),
    Column("GPU", lambda one: _used(one.resources.gpu), spare=4, right=True),
    Column("SEEN", lambda one: age(one.last_heartbeat), spare=2, right=True),
    Column("QUEUES", lambda one: _queues(one), spare=5, cut=True),
    Column("CAPABILITIES", lambda one: ", ".join(one.capabilities), spare=6, cut=True),
)
QUEUE_COLUMNS: Columns[QueueView] = (
    Column("QUEUE", lambda one: one.name, cut=True),
    Column("STATE", lambda one: status_cell("paused" if one.paused else "open")),
    Column("PENDING", lambda one: count(one.depth.pending), right=True),
    Column("QUEUED", lambda one: count(one.depth.queued), right=True),
    Column("RUNNING", lambda one: count(one.depth.running + one.depth.cancelling), right=True),
    Column("PRIO", lambda one: str(one.priority), spare=2, right=True),
    Column("WEIGHT", lambda one: amount(one.weight), spare=3, right=True),
    Column(
        "MAX",
        lambda one: "-" if one.max_workers is None else count(one.max_workers),
        spare=1,
        right=True,
    ),
    Column("RATE", lambda one: _rate(one), spare=4, right=True),
)


PREVIEW_COLUMNS: Columns[ForeseenView] = (
    Column("LOCAL", lambda one: with_weekday(one.local)),
    Column("UTC", lambda one: one.at.replace(".000Z", "Z"), spare=1),
    Column("NOTE", lambda one: Styled(one.note, "yellow") if one.note else "", spare=2, cut=True),
)


def with_weekday(local: str) -> str:
    """Writes a local time with its weekday; parts of a second only where there are any."""
    moment = datetime.fromisoformat(local)
    fraction = f".{moment.microsecond // 1000:03}" if moment.microsecond else ""
    return f"{moment:%a %Y-%m-%d %H:%M:%S}{fraction} {local[-6:]}"


def _exit_code(one: ExecutionView) -> str | None:
    return None if one.exit_code is None else str(one.exit_code)


def _queues(worker: WorkerView) -> str:
    return "all" if worker.queues is None else ", ".join(worker.queues)


def _rate(queue: QueueView) -> str:
    limit = queue.rate_limit
    return "-" if limit is None else f"{limit.count}/{span(limit.per)}"


def limits_text(limits: LimitsView) -> str:
    """Writes the limits of the jobs of a queue in a line."""
    return (
        f"{count(limits.processes)} processes, {count(limits.open_files)} open files, "
        f"files of {size_text(limits.file_size)}, a log of {size_text(limits.log_size)}, "
        f"a result of {size_text(limits.result_size)}"
    )


def _used(amounts: AmountView) -> str:
    return f"{amount(amounts.used)} / {amount(amounts.capacity)}"


def _used_bytes(amounts: AmountView) -> str:
    return f"{size_text(amounts.used)} / {size_text(amounts.capacity)}"


def job_facts(job: JobView) -> Facts:
    """Lists everything worth knowing about a job."""
    return [
        ("id", job.job_id),
        ("name", job.name),
        ("status", status_cell(job.status)),
        ("reason", job.reason or None),
        ("task", task_line(job.name, bytes(job.task))),
        ("queue", job.queue),
        ("tenant", job.tenant if job.tenant != "default" else None),
        ("priority", str(job.priority)),
        ("needs", _needs(job)),
        ("affinity", _affinity(job)),
        ("members", _members(job)),
        ("after", ", ".join(f"{d.job_id} ({d.when})" for d in job.dependencies) or None),
        ("attempts", _attempts(job)),
        ("timeout", span(job.timeout) if job.timeout is not None else None),
        ("semantics", job.semantics if job.semantics != "at_least_once" else None),
        ("concurrency", _concurrency(job)),
        ("labels", ", ".join(f"{k}={v}" for k, v in job.labels.items()) or None),
        ("payload", _document(bytes(job.payload), empty=b"{}")),
        *_times(job),
        ("deadline", deadline_line(job.deadline) if job.deadline else None),
        ("worker", job.worker_id),
        ("progress", _progress(job)),
        ("result", _value(job.result)),
        ("error", Styled(text, "red") if (text := _value(job.error)) else None),
    ]


def _members(job: JobView) -> str | None:
    """Counts the members of an array or gang, or names the one of a member."""
    if job.array_id is not None:
        return f"number {job.array_index} of array {job.array_id}"
    if job.gang_id is not None:
        return f"number {job.gang_index} of gang {job.gang_id}"
    group = job.array or job.gang
    if group is None:
        return None
    words = ("queued", "running", "succeeded", "failed", "cancelled")
    counts = [f"{getattr(group, word)} {word}" for word in words if getattr(group, word)]
    if job.array is not None:
        most = job.array.max_parallel
        limit = "" if most is None else f", at most {most} at once"
        return f"array of {job.array.count}{limit}: {', '.join(counts)}"
    assert job.gang is not None
    return f"gang of {job.gang.size}: {', '.join(counts)}"


def _affinity(job: JobView) -> str | None:
    wish = job.affinity
    if wish is None:
        return None
    parts = [f"must have {k}={'|'.join(v)}" for k, v in wish.require.items()]
    parts += [f"prefers {k}={'|'.join(v)}" for k, v in wish.prefer.items()]
    parts += [f"spread over {wish.spread}"] if wish.spread else []
    parts += ["near the previous run"] if wish.near else []
    parts += [f"tolerates {word}" for word in wish.tolerate]
    return ", ".join(parts)


def _times(job: JobView) -> Facts:
    return [
        ("created", f"{local(job.created_at)} ({age(job.created_at)} ago)"),
        ("run at", local(job.run_at) if job.run_at else None),
        ("expires", local(job.expires_at) if job.expires_at else None),
        ("started", local(job.started_at) if job.started_at else None),
        ("finished", local(job.finished_at) if job.finished_at else None),
        ("ran", _length(job)),
    ]


def _length(job: JobView) -> str | None:
    """Tells how long a job ran; None while it waits, but an array or gang goes on meanwhile."""
    waits = job.status in ("pending", "queued") and job.array is None and job.gang is None
    if job.started_at is None or (waits and job.finished_at is None):
        return None
    return between(job.started_at, job.finished_at)


def task_line(name: str, task: bytes) -> str:
    """Writes what a job runs, as one would type it."""
    read = msgspec.json.decode(task)
    if read is None:
        return f"function {name}"
    match read.get("kind"):
        case "command":
            env = "".join(f"{k}={shlex.quote(v)} " for k, v in (read.get("env") or {}).items())
            cwd = f"  (in {read['cwd']})" if read.get("cwd") else ""
            return f"{env}{shlex.join(read['argv'])}{cwd}"
        case "python":
            args = [msgspec.json.encode(one).decode() for one in read["args"]]
            args += [f"{k}={msgspec.json.encode(v).decode()}" for k, v in read["kwargs"].items()]
            return f"{read['entry']}({', '.join(args)})"
        case "http":
            return f"{read['method']} {read['url']}"
        case "bundle":
            return f"bundle {read['bundle_id']}: {shlex.join(read['argv'])}".removesuffix(": ")
        case "container":
            return f"container {read['image']}: {shlex.join(read['argv'])}".removesuffix(": ")
        case kind:
            return str(kind)


def _needs(job: JobView) -> str:
    needs = job.requirements
    parts = [f"{amount(needs.cpu)} cpu"]
    parts += [f"{size_text(needs.memory)} memory"] if needs.memory else []
    parts += [f"{size_text(needs.storage)} storage"] if needs.storage else []
    parts += [f"{amount(needs.gpu)} gpu"] if needs.gpu else []
    parts += [f"{amount(value)} {name}" for name, value in needs.custom.items()]
    parts += needs.capabilities
    return ", ".join(parts)


def _attempts(job: JobView) -> str:
    text = f"{job.attempt} of {job.retry.max_attempts}"
    if job.retry.max_attempts > 1:
        text += f", {job.retry.backoff} from {span(job.retry.delay)}"
    return text + (f", and {job.losses} lost with their worker" if job.losses else "")


def _concurrency(job: JobView) -> str | None:
    limit = job.concurrency
    return None if limit is None else f"{limit.limit} at once of {limit.key}"


def _progress(job: JobView) -> str | None:
    if job.progress is None and not job.message:
        return None
    return f"{percent(job.progress)} {job.message or ''}".strip()


def _value(value: Any) -> str | None:
    if value is None:
        return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _document(text: bytes, *, empty: bytes) -> str | None:
    return None if text in (b"", b"null", empty) else text.decode("utf-8", "replace")


def worker_facts(worker: WorkerView) -> Facts:
    """Lists everything about a worker."""
    has = worker.resources
    return [
        ("id", worker.worker_id),
        ("name", worker.name),
        ("status", status_cell(worker.status)),
        ("last heard", f"{age(worker.last_heartbeat)} ago"),
        ("registered", local(worker.registered_at)),
        ("queues", _queues(worker)),
        ("capabilities", ", ".join(worker.capabilities) or "none"),
        ("labels", ", ".join(f"{k}={v}" for k, v in worker.labels.items()) or "none"),
        ("kept for", ", ".join(worker.only) or "any job"),
        ("cpu", _used(has.cpu)),
        ("memory", _used_bytes(has.memory)),
        ("storage", _used_bytes(has.storage)),
        ("gpu", _used(has.gpu)),
        *((name, _used(amounts)) for name, amounts in has.custom.items()),
        ("running", "\n".join(worker.executions) or "nothing"),
    ]


def execution_facts(one: ExecutionView) -> Facts:
    """Lists everything about an execution."""
    return [
        ("id", one.execution_id),
        ("job", one.job_id),
        ("worker", one.worker_id),
        ("status", status_cell(one.status)),
        ("reason", one.reason or None),
        ("try", f"{one.attempt} (fence {one.fence})"),
        ("claimed", local(one.claimed_at)),
        ("started", local(one.start_time) if one.start_time else None),
        ("ended", local(one.end_time) if one.end_time else None),
        ("ran", between(one.start_time, one.end_time)),
        ("exit code", _exit_code(one)),
        ("usage", _value(one.usage)),
        ("result", _value(one.result)),
        ("error", Styled(text, "red") if (text := _value(one.error)) else None),
        ("artifacts", _artifacts(one.artifacts)),
    ]


def _artifacts(artifacts: Sequence[dict[str, Any]]) -> str | None:
    return (
        "\n".join(f"{a.get('name')} ({size_text(a.get('size') or 0)})" for a in artifacts) or None
    )
