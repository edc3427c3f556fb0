"""What the end of an execution teaches: how long its name runs, what it takes, what it lacked."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rota.core.inputs import Completion
from rota.core.memory.cells import JobEntry
from rota.core.model import Execution, ExecutionState, Instant, Millis, RuntimeStats, Terms
from rota.core.order.kinds import TermsEntry
from rota.core.place.fitness import infeasible_reasons
from rota.core.tables import SchedulerState

_MIB = 1 << 20
_EXECUTION_SUCCEEDED = ExecutionState.SUCCEEDED


def learn_runtimes(
    t: SchedulerState, terms: Terms, ended: Sequence[tuple[Execution, Completion]], now: Instant
) -> None:
    """Executions of such jobs were reported to have ended, one after the other."""
    runs: list[Millis] = []
    is_news = False
    for execution, done in ended:
        ran = _runtime_of(execution, now)
        if execution.state is _EXECUTION_SUCCEEDED:
            runs.append(ran)
        if done.used is not None:
            is_news |= t.runtime_estimates.usages.learn(terms, done.used, ran, now)
    if runs:
        is_news |= t.runtime_estimates.learn(terms, runs)
    if is_news:
        _write_runtime(t, terms)


def learn_one_runtime(
    t: SchedulerState, kind: TermsEntry, execution: Execution, now: Instant
) -> None:
    """The same of one that went well, was not measured, and did not say how long it would run."""
    ran = now - execution.claimed_at if execution.behind is None else _runtime_of(execution, now)
    if t.runtime_estimates.learn_one(kind.name, ran):
        _write_runtime(t, kind.terms)


def _runtime_of(execution: Execution, now: Instant) -> Millis:
    """A prefetched one has waited on its worker, which teaches nothing."""
    began_at = execution.claimed_at if execution.behind is None else execution.started_at
    return now - (execution.claimed_at if began_at is None else began_at)


def _write_runtime(t: SchedulerState, terms: Terms) -> None:
    key = (terms.tenant, terms.name)
    t.changeset.runtimes[key] = RuntimeStats(
        *key, t.runtime_estimates.recent(key), t.runtime_estimates.usages.record(key)
    )


def restore_runtime(t: SchedulerState, known: RuntimeStats, now: Instant) -> None:
    """What was learned before a restart."""
    if known.recent:
        t.runtime_estimates.restore(known)
    if known.usage is not None:
        t.runtime_estimates.usages.restore((known.tenant, known.name), known.usage, now)


def raise_memory_request(t: SchedulerState, job: JobEntry, done: Completion | None) -> None:
    """A job that ran out of memory and is tried again asks for more, if it was told to."""
    terms = job.spec.terms
    if done is None or done.used is None or not done.used.out_of_memory:
        return
    if terms.retry.memory_factor <= 1:
        return
    memory = _more_memory(t, terms, done.used.memory_peak or 0)
    if memory > terms.needs.resources.memory:
        resources = replace(terms.needs.resources, memory=memory)
        terms = replace(terms, needs=replace(terms.needs, resources=resources))
        t.set_spec(job, replace(job.spec, terms=terms, revision=job.spec.revision + 1))


def _more_memory(t: SchedulerState, terms: Terms, peak: int) -> int:
    """So many times what it asked for, or took; no more than it may, nor than any worker has.

    Asking for more than there is anywhere would be the end of it.
    """
    asked = terms.needs.resources.memory
    wanted = -(-round((asked or peak) * terms.retry.memory_factor) // _MIB) * _MIB
    if terms.retry.memory_max is not None:
        wanted = min(wanted, terms.retry.memory_max)
    if not asked:
        return wanted
    return min(wanted, _largest_for(t, terms) or wanted)


def _largest_for(t: SchedulerState, terms: Terms) -> int:
    """The most memory of a worker that could run it otherwise; 0: there is none."""
    needs = terms.needs
    rest = replace(needs, resources=replace(needs.resources, memory=0))
    return max(
        (
            machine.capacity.memory
            for machine in t.fleet.machines.values()
            if machine.workers and not infeasible_reasons(terms.queue, rest, machine)
        ),
        default=0,
    )
