"""Says which columns and facts of a job, an execution, a worker or a queue people look at."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from rota.cli.deadlines import deadline_line
from rota.cli.render import Cell, Column, Row, Styled, status_cell
from rota.cli.text import age, amount, between, count, local, percent, short, size, span
from rota.wire.executions import ExecutionView
from rota.wire.jobs import JobView
from rota.wire.queues import LimitsView, QueueView
from rota.wire.workers import AmountView, WorkerView

JOB_COLUMNS = (
    Column("ID"),
    Column("NAME", cut=True),
    Column("STATUS"),
    Column("QUEUE", spare=3, cut=True),
    Column("PRIO", spare=5, right=True),
    Column("TRY", spare=4, right=True),
    Column("DONE", spare=6, right=True),
    Column("AGE", spare=1, right=True),
    Column("RAN", spare=2, right=True),
    Column("REASON", spare=7, cut=True),
)
EXECUTION_COLUMNS = (
    Column("ID"),
    Column("JOB"),
    Column("TRY", spare=4, right=True),
    Column("FENCE", spare=5, right=True),
    Column("STATUS"),
    Column("WORKER", spare=3),
    Column("EXIT", spare=2, right=True),
    Column("AGE", spare=1, right=True),
    Column("RAN", right=True),
    Column("REASON", spare=6, cut=True),
)
WORKER_COLUMNS = (
    Column("ID"),
    Column("NAME", cut=True),
    Column("STATUS"),
    Column("JOBS", right=True),
    Column("CPU", spare=1, right=True),
    Column("MEMORY", spare=3, right=True),
    Column("GPU", spare=4, right=True),
    Column("SEEN", spare=2, right=True),
    Column("QUEUES", spare=5, cut=True),
    Column("CAPABILITIES", spare=6, cut=True),
)
QUEUE_COLUMNS = (
    Column("QUEUE", cut=True),
    Column("STATE"),
    Column("PENDING", right=True),
    Column("QUEUED", right=True),
    Column("RUNNING", right=True),
    Column("PRIO", spare=2, right=True),
    Column("WEIGHT", spare=3, right=True),
    Column("MAX", spare=1, right=True),
    Column("RATE", spare=4, right=True),
)


def job_row(job: JobView, now_ms: int) -> Row:
    """A job in a list."""
    return (
        short(job.job_id),
        job.name,
        status_cell(job.status),
        job.queue,
        str(job.priority),
        f"{job.attempt}/{job.retry.max_attempts}",
        percent(job.progress),
        age(job.created_at, now_ms),
        _length(job, now_ms) or "-",
        job.reason or "",
    )


def execution_row(one: ExecutionView, now_ms: int) -> Row:
    """An execution in a list."""
    return (
        short(one.execution_id),
        short(one.job_id),
        str(one.attempt),
        str(one.fence),
        status_cell(one.status),
        short(one.worker_id),
        "-" if one.exit_code is None else str(one.exit_code),
        age(one.claimed_at, now_ms),
        between(one.start_time, one.end_time, now_ms),
        one.reason or "",
    )


def worker_row(worker: WorkerView, now_ms: int) -> Row:
    """A worker in a list."""
    has = worker.resources
    return (
        short(worker.worker_id),
        worker.name,
        status_cell(worker.status),
        str(len(worker.executions)),
        _used(has.cpu),
        f"{size(has.memory.used)} / {size(has.memory.capacity)}",
        _used(has.gpu),
        age(worker.last_heartbeat, now_ms),
        "all" if worker.queues is None else ", ".join(worker.queues),
        ", ".join(worker.capabilities),
    )


def queue_row(queue: QueueView) -> Row:
    """A queue in a list."""
    depth = queue.depth
    rate = queue.rate_limit
    return (
        queue.name,
        status_cell("paused" if queue.paused else "open"),
        count(depth.pending),
        count(depth.queued),
        count(depth.running + depth.cancelling),
        str(queue.priority),
        amount(queue.weight),
        "-" if queue.max_workers is None else count(queue.max_workers),
        "-" if rate is None else f"{rate.count}/{span(rate.per)}",
    )


def limits_text(limits: LimitsView) -> str:
    """What the jobs of a queue are held to, in a line."""
    return (
        f"{count(limits.processes)} processes, {count(limits.open_files)} open files, "
        f"files of {size(limits.file_size)}, a log of {size(limits.log_size)}, "
        f"a result of {size(limits.result_size)}"
    )


def _used(amounts: AmountView) -> str:
    return f"{amount(amounts.used)} / {amount(amounts.capacity)}"


def job_facts(job: JobView, now_ms: int) -> list[tuple[str, Cell]]:
    """Everything worth knowing about a job; what says nothing is left out."""
    facts: list[tuple[str, Cell | None]] = [
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
        ("tries", _tries(job)),
        ("timeout", span(job.timeout) if job.timeout is not None else None),
        ("semantics", job.semantics if job.semantics != "at_least_once" else None),
        ("concurrency", _concurrency(job)),
        ("labels", ", ".join(f"{k}={v}" for k, v in job.labels.items()) or None),
        ("payload", _document(bytes(job.payload), empty=b"{}")),
        *_times(job, now_ms),
        ("deadline", deadline_line(job.deadline, now_ms) if job.deadline else None),
        ("worker", job.worker_id),
        ("progress", _progress(job)),
        ("result", _value(job.result)),
        ("error", Styled(text, "red") if (text := _value(job.error)) else None),
    ]
    return [(name, value) for name, value in facts if value is not None]


def _members(job: JobView) -> str | None:
    """How many members are where, or of whom it is one."""
    if job.array_id is not None:
        return f"number {job.array_index} of array {job.array_id}"
    if job.gang_id is not None:
        return f"number {job.gang_index} of gang {job.gang_id}"
    band = job.array or job.gang
    if band is None:
        return None
    words = ("queued", "running", "succeeded", "failed", "cancelled")
    counts = [f"{getattr(band, word)} {word}" for word in words if getattr(band, word)]
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


def _times(job: JobView, now_ms: int) -> list[tuple[str, Cell | None]]:
    return [
        ("created", f"{local(job.created_at)} ({age(job.created_at, now_ms)} ago)"),
        ("run at", local(job.run_at) if job.run_at else None),
        ("expires", local(job.expires_at) if job.expires_at else None),
        ("started", local(job.started_at) if job.started_at else None),
        ("finished", local(job.finished_at) if job.finished_at else None),
        ("ran", _length(job, now_ms)),
    ]


def _length(job: JobView, now_ms: int) -> str | None:
    """None for a job that waits, also to be tried again; an array or gang goes on meanwhile."""
    waits = job.status in ("pending", "queued") and job.array is None and job.gang is None
    if job.started_at is None or (waits and job.finished_at is None):
        return None
    return between(job.started_at, job.finished_at, now_ms)


def task_line(name: str, task: bytes) -> str:
    """What a job runs, as one would type it."""
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
    parts += [f"{size(needs.memory)} memory"] if needs.memory else []
    parts += [f"{size(needs.storage)} storage"] if needs.storage else []
    parts += [f"{amount(needs.gpu)} gpu"] if needs.gpu else []
    parts += [f"{amount(value)} {name}" for name, value in needs.custom.items()]
    parts += needs.capabilities
    return ", ".join(parts)


def _tries(job: JobView) -> str:
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


def worker_facts(worker: WorkerView, now_ms: int) -> list[tuple[str, Cell]]:
    """Everything about a worker."""
    has = worker.resources
    facts: list[tuple[str, Cell]] = [
        ("id", worker.worker_id),
        ("name", worker.name),
        ("status", status_cell(worker.status)),
        ("last heard", f"{age(worker.last_heartbeat, now_ms)} ago"),
        ("registered", local(worker.registered_at)),
        ("queues", "all" if worker.queues is None else ", ".join(worker.queues)),
        ("capabilities", ", ".join(worker.capabilities) or "none"),
        ("labels", ", ".join(f"{k}={v}" for k, v in worker.labels.items()) or "none"),
        ("kept for", ", ".join(worker.only) or "any job"),
        ("cpu", _used(has.cpu)),
        ("memory", f"{size(has.memory.used)} / {size(has.memory.capacity)}"),
        ("storage", f"{size(has.storage.used)} / {size(has.storage.capacity)}"),
        ("gpu", _used(has.gpu)),
    ]
    facts += [(name, _used(amounts)) for name, amounts in has.custom.items()]
    facts.append(("running", "\n".join(worker.executions) or "nothing"))
    return facts


def execution_facts(one: ExecutionView, now_ms: int) -> list[tuple[str, Cell]]:
    """Everything about an execution."""
    facts: list[tuple[str, Cell | None]] = [
        ("id", one.execution_id),
        ("job", one.job_id),
        ("worker", one.worker_id),
        ("status", status_cell(one.status)),
        ("reason", one.reason or None),
        ("try", f"{one.attempt} (fence {one.fence})"),
        ("claimed", local(one.claimed_at)),
        ("started", local(one.start_time) if one.start_time else None),
        ("ended", local(one.end_time) if one.end_time else None),
        ("ran", between(one.start_time, one.end_time, now_ms)),
        ("exit code", None if one.exit_code is None else str(one.exit_code)),
        ("usage", _value(one.usage)),
        ("result", _value(one.result)),
        ("error", Styled(text, "red") if (text := _value(one.error)) else None),
        ("artifacts", _artifacts(one.artifacts)),
    ]
    return [(name, value) for name, value in facts if value is not None]


def _artifacts(artifacts: Sequence[dict[str, Any]]) -> str | None:
    return "\n".join(f"{a.get('name')} ({size(a.get('size') or 0)})" for a in artifacts) or None
