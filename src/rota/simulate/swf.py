"""Reads the Standard Workload Format: one job a line, 18 numbers, `;` before comments.

Every log is cleaned by the same rule, so that figures compare: processors are those allocated, else
those requested; a job with none, with more than the machine has or without a run time is left out;
the estimate is the requested time, never less than the run time; the first job arrives at 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from rota.core.model import Millis, Terms
from rota.simulate.limits import PROCESSORS_MAX, SPAN_MS_MAX, TRACE_JOBS_MAX
from rota.simulate.reading import Source, TraceError, read_lines
from rota.simulate.workload import ONCE, Trace, Work, cpu_needs

SWF_FIELDS = 18
SWF_TENANTS = {"user": 12, "group": 13, "queue": 15}
"""Which field may say whose job it is."""
_SWF_MACHINE = re.compile(r";\s*Max(Procs|Nodes):\s*(\d{1,12})\s*$")


class SwfJob(NamedTuple):
    """The fields of one job that matter here; -1: unknown."""

    number: str
    submit_s: float
    wait_s: float
    run_s: float
    allocated: int
    requested: int
    requested_s: float
    user: int
    application: int
    tenant: int


def read_swf(source: Source, *, cpus: int | None = None, tenants: str | None = None) -> Trace:
    """The log on a machine of `cpus` processors, or on its own; all jobs are one tenant's or
    those of the user, group or queue that `tenants` names."""
    header: dict[str, int] = {}
    found: list[SwfJob] = []
    for number, text in read_lines(source):
        stripped = text.strip()
        if stripped.startswith(";"):
            if (said := _SWF_MACHINE.match(stripped)) is not None:
                header[said[1]] = int(said[2])
        elif stripped:
            found.append(_parse_swf_job(source, number, stripped.split(), tenants))
            if len(found) > TRACE_JOBS_MAX:
                raise TraceError(source, f"more than {TRACE_JOBS_MAX:,} jobs", number)
    machine = header.get("Procs") or header.get("Nodes")
    kept = _usable_swf_jobs(found, cpus or machine)
    if not kept:
        raise TraceError(source, "no job in it that ever ran and fits the machine")
    first = min(line.submit_s for line in kept)
    works = [_swf_work(line, first, has_tenants=tenants is not None) for line in kept]
    works.sort(key=lambda work: work.submit_ms)  # stable: equals stay in the order of the file
    return Trace(source.name, works, dropped=len(found) - len(kept), processors=machine)


def _parse_swf_job(
    source: Source, number: int, fields: Sequence[str], tenants: str | None
) -> SwfJob:
    if len(fields) < SWF_FIELDS:
        raise TraceError(source, f"{len(fields)} fields, a job has {SWF_FIELDS}", number)

    def value(field: int, most: float) -> float:
        text = fields[field - 1]
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not abs(found) <= most:  # not a number compares as false
            raise TraceError(
                source, f"field {field} is {text[:40]!r}: no number up to {most:g}", number
            )
        return found

    seconds = SPAN_MS_MAX / 1000
    return SwfJob(
        number=fields[0][:40],
        submit_s=value(2, seconds),
        wait_s=value(3, seconds),
        run_s=value(4, seconds),
        allocated=int(value(5, PROCESSORS_MAX)),
        requested=int(value(8, PROCESSORS_MAX)),
        requested_s=value(9, seconds),
        user=int(value(12, PROCESSORS_MAX)),
        application=int(value(14, PROCESSORS_MAX)),
        tenant=int(value(SWF_TENANTS[tenants], PROCESSORS_MAX)) if tenants else -1,
    )


def _swf_processors(line: SwfJob) -> int:
    return line.allocated if line.allocated > 0 else line.requested


def _usable_swf_jobs(found: Sequence[SwfJob], machine: int | None) -> list[SwfJob]:
    most = machine if machine is not None else PROCESSORS_MAX
    return [line for line in found if 0 < _swf_processors(line) <= most and line.run_s > 0]


def _swf_work(line: SwfJob, first_s: float, *, has_tenants: bool) -> Work:
    run_ms = max(1, _swf_ms(line.run_s))
    estimate_ms = max(run_ms, _swf_ms(line.requested_s)) if line.requested_s > 0 else run_ms
    terms = Terms(
        # Who it is of and what it runs is all that a log tells of what a job is.
        name=f"u{line.user}.a{line.application}",
        queue="default",
        tenant=f"t{line.tenant}" if has_tenants else "default",
        priority=0,
        needs=cpu_needs(1000 * _swf_processors(line)),
        retry=ONCE,
        expected_runtime_ms=estimate_ms,
    )
    submit_ms = _swf_ms(line.submit_s - first_s)
    started_ms = submit_ms + _swf_ms(line.wait_s) if line.wait_s >= 0 else None
    return Work(line.number, submit_ms, run_ms, terms, started_ms=started_ms)


def _swf_ms(seconds: float) -> Millis:
    return max(0, round(seconds * 1000))
