"""Checkers of the promises: they judge runs of deterministic simulation, storms and live checks.

A checker reads a history and yields every violation of its promise. None of the scheduler's code
runs here: its decisions are what is judged.

Why: docs/decisions/0028-deterministic-simulation-and-chaos.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from rota.core.lifecycle import EXECUTION_TRANSITIONS, JOB_TRANSITIONS, JobVerb
from rota.core.model import GroupMember, Life, Semantics
from rota.core.schedule_model import Occurrence
from rota.verify.history import FINAL, FreezePeriod, History, ObservedJob, WitnessLine, lines_by_key
from rota.verify.losses import unsaid, without_lost
from rota.verify.replay import LEASED, ReplayedJournal, replay

WAKING_S = 1.0
"""A job that thaws with its whole machine may act until its supervisor runs: no software can
prevent that."""
HOLDS_LEASE = ("running", "cancelling")
"""States of a job that has a lease."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Violation of a promise."""

    message: str
    about: tuple[str, ...] = ()
    """Keys or ids of the jobs involved."""


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """Violation, with the name of the promise."""

    promise: str
    violation: Violation

    def __str__(self) -> str:
        return f"{self.promise}: {self.violation.message}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of a run: a history, indexed once for all checkers."""

    history: History
    journal: ReplayedJournal
    lines: defaultdict[str, list[WitnessLine]]
    """Lines of the witness, by key."""
    revived: dict[str, None]
    """Keys of the jobs that were retried by hand."""

    @staticmethod
    def of(history: History) -> Evidence:
        journal = replay(history.journal)
        kept = without_lost(history)
        revived = {job.key: None for job in history.jobs if job.job_id in journal.revived}
        return Evidence(kept, journal, lines_by_key(kept.lines), revived)


Checker: TypeAlias = Callable[[Evidence], Iterator[Violation]]


# Jobs: accepted once, never lost


def nothing_lost(evidence: Evidence) -> Iterator[Violation]:
    """An accepted job is never lost but by a loss that was said: it exists, can be found, and ends.

    Judged at the end of a run, when every job has had the time to end.
    """
    history = evidence.history
    known = {job.key: None for job in history.jobs}
    deleted = dict.fromkeys(history.deleted)
    for key, job_id in history.answered:
        if key not in known and job_id not in deleted:
            yield Violation(f"{key} was accepted and is lost", (key,))
    for job_id in history.missing:
        if job_id not in deleted:
            yield Violation(f"{job_id} was accepted and then not found", (job_id,))
    for job in history.jobs:
        if not job.duplicate and job.status not in FINAL:
            yield Violation(f"{job.key} never ended: it is {job.status}", (job.key,))


def losses_are_said(evidence: Evidence) -> Iterator[Violation]:
    """A server that knew a record says so when a failover of the database has lost it."""
    for failover in unsaid(evidence.history):
        message = f"records {failover.kept + 1} to {failover.remembered} were lost without a word"
        yield Violation(message, tuple(failover.keys))


def accepted_once(evidence: Evidence) -> Iterator[Violation]:
    """A request that is repeated under its key is one job, and every answer names that one.

    A second id that a server without a leader gave must be marked as a duplicate, and never run.
    """
    history = evidence.history
    ids: defaultdict[str, list[str]] = defaultdict(list)
    second_ids: dict[str, str] = {}
    for job in history.jobs:
        if job.duplicate:
            second_ids[job.job_id] = job.key
            if job.executions:
                message = f"{job.key} ran as {job.job_id} too, which was marked as a duplicate"
                yield Violation(message, (job.key,))
        elif not job.created_by:
            ids[job.key].append(job.job_id)
    for key, found in ids.items():
        if len(found) > 1:
            yield Violation(f"{key} was accepted once and is {len(found)} jobs", (key,))
    deleted = dict.fromkeys(history.deleted)
    for key, job_id in history.answered:
        if second_ids.get(job_id) == key or len(ids[key]) != 1 or job_id in deleted:
            continue
        if ids[key] != [job_id]:
            yield Violation(f"{key} was answered with {job_id} and is {ids[key][0]}", (key,))


def nothing_made_up(evidence: Evidence) -> Iterator[Violation]:
    """No job exists that no client submitted and no schedule created."""
    sent = dict.fromkeys(evidence.history.sent)
    for job in evidence.history.jobs:
        if job.key not in sent and not job.created_by:
            yield Violation(f"{job.key} exists, and no client submitted it", (job.key,))


def final_is_final(evidence: Evidence) -> Iterator[Violation]:
    """A final state is final: a client that saw one sees it again, through whichever server."""
    last: dict[str, str] = {}
    at_the_end = ((job.job_id, job.status) for job in evidence.history.jobs)
    for job_id, status in (*evidence.history.seen, *at_the_end):
        before = last.get(job_id, "")
        revived = job_id in evidence.journal.revived and before != "succeeded"
        if before in FINAL and status != before and not revived:
            yield Violation(f"{job_id} was {before} and became {status}", (job_id,))
        last[job_id] = status


def legal_moves(evidence: Evidence) -> Iterator[Violation]:
    """Jobs and executions move only as the transition tables say.

    Judged by the journal. Only a manual retry leads out of a final state.
    """
    for move in evidence.journal.job_moves:
        before, after = move.before, move.after
        spec = evidence.journal.specs.get(move.job_id)
        if spec is not None and isinstance(spec.group, GroupMember) and spec.group.in_gang:
            continue  # it begins again with its gang, whatever its end was
        if before is not None and not _is_legal(before, after):
            message = f"job {move.job_id} went from {before.state} to {after.state}"
            yield Violation(f"record {move.seq}: {message}", (move.job_id,))
    for change in evidence.journal.execution_changes:
        if change.before is None or change.after.state == change.before.state:
            continue
        if change.after.state not in EXECUTION_REACHABLE.get(change.before.state, ()):
            moved = f"went from {change.before.state} to {change.after.state}"
            message = f"record {change.seq}: execution {change.after.id} {moved}"
            yield Violation(message, (change.after.job_id,))


def _is_legal(before: Life, after: Life) -> bool:
    if after == before or (after.lives > before.lives and before.state != "succeeded"):
        return True
    if after.state == before.state:
        return after.state not in FINAL
    return after.state in JOB_REACHABLE.get(before.state, ())


def _reachable(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, None]]:
    """Returns the states that a record may show: it has only the last move of a turn."""
    steps: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for source, target in pairs:
        steps[source][target] = None
    reached: dict[str, dict[str, None]] = {}
    for source in list(steps):
        found: dict[str, None] = {}
        pending = list(steps[source])
        while pending:
            state = pending.pop()
            if state not in found:
                found[state] = None
                pending.extend(steps[state])
        reached[source] = found
    return reached


JOB_REACHABLE = _reachable(
    (source, target)
    for (source, verb), target in JOB_TRANSITIONS.items()
    if verb is not JobVerb.REVIVE
)
EXECUTION_REACHABLE = _reachable(
    (source, target) for (source, _), target in EXECUTION_TRANSITIONS.items()
)


# Executions: under a lease, one at a time


def fences_grow(evidence: Evidence) -> Iterator[Violation]:
    """A later execution of a job has a higher fence than any before."""
    for job in evidence.history.jobs:
        key = job.key
        for earlier, later in pairwise(job.executions):
            if later.fence <= earlier.fence:
                yield Violation(f"{key} has fence {later.fence} after {earlier.fence}", (key,))
        if job.executions and job.fence != job.executions[-1].fence:
            message = f"{key} has fence {job.fence}, its last execution {job.executions[-1].fence}"
            yield Violation(message, (key,))
    for change in evidence.journal.execution_changes:
        new = change.after
        if change.before is None and new.fence <= change.newest_fence:
            message = f"job {new.job_id} was given fence {new.fence} after {change.newest_fence}"
            yield Violation(f"record {change.seq}: {message}", (new.job_id,))
    yield from _lost_fences_given(evidence)
    for move in evidence.journal.job_moves:
        if move.before is not None and move.after.fence < move.before.fence:
            message = f"job {move.job_id} went from fence {move.before.fence} back"
            yield Violation(f"record {move.seq}: {message} to {move.after.fence}", (move.job_id,))


def _lost_fences_given(evidence: Evidence) -> Iterator[Violation]:
    """Yields executions that have no higher fence than one which a failover has lost."""
    for failover in evidence.history.failovers:
        for change in evidence.journal.execution_changes:
            new, lost = change.after, failover.fences.get(change.after.job_id, 0)
            if change.before is None and change.seq > failover.kept and new.fence <= lost:
                message = f"job {new.job_id} was given fence {new.fence}, a lost record gave {lost}"
                yield Violation(f"record {change.seq}: {message}", (new.job_id,))


def one_lease(evidence: Evidence) -> Iterator[Violation]:
    """At most one execution of a job holds a lease, and exactly while the job runs."""
    for job in evidence.journal.job_leases:
        message = ""
        if job.leases > 1:
            message = f"job {job.job_id} has {job.leases} leases at once"
        elif bool(job.leases) != (job.state in HOLDS_LEASE):
            message = f"job {job.job_id} is {job.state} with {job.leases} leases"
        if message:
            yield Violation(f"record {job.seq}: {message}", (job.job_id,))


def leased_before_run(evidence: Evidence) -> Iterator[Violation]:
    """Every execution that ran had been leased before, and ran once under its fence."""
    for job in evidence.history.jobs:
        leased = [execution.fence for execution in job.executions]
        began = [line.fence for line in evidence.lines[job.key] if line.event == "begin"]
        for fence in dict.fromkeys(began):
            message = f"{job.key} ran under fence {fence}, which no execution has"
            if fence not in leased and not job.duplicate:
                yield Violation(message, (job.key,))
            if began.count(fence) > 1:
                message = f"{job.key} ran {began.count(fence)} times under fence {fence}"
                yield Violation(message, (job.key,))
    for change in evidence.journal.execution_changes:
        if change.before is None and (change.spec is None or change.life is None):
            job_id = change.after.job_id
            message = f"execution {change.after.id} is of job {job_id}, which was not submitted"
            yield Violation(f"record {change.seq}: {message}", (job_id,))


def success_was_run(evidence: Evidence) -> Iterator[Violation]:
    """A job succeeds by one execution, its last, that reached its end by its witness."""
    for job in evidence.history.jobs:
        if not job.duplicate and not job.is_group:
            yield from _success_of(evidence, job)


def _success_of(evidence: Evidence, job: ObservedJob) -> Iterator[Violation]:
    key = job.key
    succeeded = [one.fence for one in job.executions if one.status == "succeeded"]
    if job.status != "succeeded":
        if succeeded and not job.in_gang:
            message = f"{key} succeeded under fence {succeeded[0]} but is {job.status}"
            yield Violation(message, (key,))
        return
    if (len(succeeded) != 1 and not job.in_gang) or job.executions[-1].status != "succeeded":
        message = f"{key} succeeded, and its executions {[one.status for one in job.executions]}"
        yield Violation(message, (key,))
    ended = [line.fence for line in evidence.lines[key] if line.event == "end"]
    for fence in succeeded:
        if job.has_witness and fence not in ended:
            yield Violation(f"{key} succeeded under fence {fence} without having ended", (key,))


def at_most_once(evidence: Evidence) -> Iterator[Violation]:
    """A job that may start once starts at most once; one that was skipped or expired never starts.

    Judged by the witness, and by the executions in the journal between manual retries.
    """
    for job in evidence.history.jobs:
        if job.key in evidence.revived:
            continue
        began = sum(line.event == "begin" for line in evidence.lines[job.key])
        if job.at_most_once and began > 1:
            message = f"{job.key} may start once and started {began} times"
            yield Violation(message, (job.key,))
        if job.status in ("skipped", "expired") and not job.duplicate and began:
            yield Violation(f"{job.key} is {job.status}, yet it ran", (job.key,))
    started: Counter[tuple[str, int]] = Counter()
    for change in evidence.journal.execution_changes:
        if change.before is not None or change.spec is None or change.life is None:
            continue
        job_id = change.after.job_id
        started[job_id, change.life.lives] += 1
        times = started[job_id, change.life.lives]
        if change.spec.terms.semantics is Semantics.AT_MOST_ONCE and times > 1:
            message = f"job {job_id} may start once and has {times} executions"
            yield Violation(f"record {change.seq}: {message}", (job_id,))


def no_overlap(evidence: Evidence) -> Iterator[Violation]:
    """Once a later execution of a job has acted, an earlier one never acts again."""
    for key, lines in evidence.lines.items():
        newest = 0
        for line in lines:
            if line.event == "cancelled":
                continue
            if line.fence < newest and not _is_waking(line, evidence.history.freezes):
                message = f"{key}: fence {line.fence} wrote {line.event!r} after {newest} had begun"
                yield Violation(message, (key,))
            newest = max(newest, line.fence)


def cancelled_stays(evidence: Evidence) -> Iterator[Violation]:
    """A job never acts again after a client got the answer that it is cancelled.

    The client writes that into the witness: no line of the job may follow it.
    """
    for key, lines in evidence.lines.items():
        cancelled = False
        if key in evidence.revived:
            continue
        for line in lines:
            if line.event == "cancelled":
                cancelled = True
            elif cancelled and not _is_waking(line, evidence.history.freezes):
                yield Violation(f"{key} was cancelled and then wrote {line.event!r}", (key,))
                break


def _is_waking(line: WitnessLine, freezes: Sequence[FreezePeriod]) -> bool:
    """Whether a job on a machine that has just thawed wrote the line: it could not know."""
    return any(
        freeze.worker == line.worker and freeze.began <= line.at <= freeze.ended + WAKING_S
        for freeze in freezes
    )


def children_wait(evidence: Evidence) -> Iterator[Violation]:
    """A job starts only when all that it depends on have succeeded, by the order of the witness,
    unless somebody retried it by hand.
    """
    began: dict[str, int] = {}
    ended: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for place, line in enumerate(evidence.history.lines):
        if line.event == "begin":
            began.setdefault(line.key, place)
        elif line.event == "end":
            ended[line.key][line.fence] = place
    jobs = {job.key: job for job in evidence.history.jobs if not job.duplicate}
    for child in jobs.values():
        for key in child.after:
            if child.key not in began or child.key in evidence.revived:
                continue
            executions = jobs[key].executions if key in jobs else ()
            fences = [one.fence for one in executions if one.status == "succeeded"]
            done = ended[key].get(fences[0]) if fences else None
            if done is None or done > began[child.key]:
                yield Violation(f"{child.key} began before {key} had succeeded", (child.key, key))


# Limits


def within_capacity(evidence: Evidence) -> Iterator[Violation]:
    """No worker runs more than its capacity.

    Judged by the witness of executions at once, and by the journal at every record. A killed
    execution writes no end: it counts as ended with its last line, which is early.
    """
    yield from _ran_at_once(evidence)
    for load in evidence.journal.worker_loads:
        worker = f"record {load.seq}: worker {load.worker_id}"
        if load.capacity is None:
            yield Violation(f"{worker} has executions and is not registered")
            continue
        for kind, amount in load.used.items():
            capacity = load.capacity.get(kind, 0)
            if amount > capacity:
                yield Violation(f"{worker} has {capacity} {kind} and its executions {amount}")


def _ran_at_once(evidence: Evidence) -> Iterator[Violation]:
    executions: dict[tuple[str, int, str], tuple[float, float]] = {}
    for line in evidence.history.lines:
        if line.event != "cancelled":
            execution = (line.key, line.fence, line.worker)
            began, _ = executions.get(execution, (line.at, line.at))
            executions[execution] = (began, line.at)
    moments = [
        moment
        for (_, _, worker), (began, ended) in executions.items()
        for moment in ((began, 1, worker), (ended, -1, worker))
    ]
    at_once: defaultdict[str, int] = defaultdict(int)
    # Ends of the same moment come first: the clock has steps.
    for at, change, worker in sorted(moments):
        at_once[worker] += change
        slots = evidence.history.slots.get(worker)
        if change > 0 and slots is not None and at_once[worker] > slots:
            yield Violation(f"{worker} has {slots} slots and ran {at_once[worker]} at {at:.2f}")


def within_limits(evidence: Evidence) -> Iterator[Violation]:
    """No more jobs of one concurrency key run at once than its limit allows.

    A record may end one execution and begin the next, so each record is judged as a whole.
    """
    running: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    touched: dict[tuple[str, str], None] = {}
    last_seq = 0
    for change in evidence.journal.execution_changes:
        if change.seq != last_seq:
            yield from _over_limit(running, touched, last_seq)
            last_seq, touched = change.seq, {}
        if change.spec is None or change.spec.concurrency is None:
            continue
        group = (change.spec.terms.tenant, change.spec.concurrency.key)
        touched[group] = None
        if change.after.state in LEASED:
            running[group][change.after.id] = change.spec.concurrency.limit
        else:
            running[group].pop(change.after.id, None)
    yield from _over_limit(running, touched, last_seq)


def _over_limit(
    running: defaultdict[tuple[str, str], dict[str, int]],
    touched: dict[tuple[str, str], None],
    seq: int,
) -> Iterator[Violation]:
    for group in touched:
        held = running[group]
        if held and len(held) > max(held.values()):
            message = (
                f"{len(held)} jobs of key {group[1]} run at once, its limit is {max(held.values())}"
            )
            yield Violation(f"record {seq}: {message}")


# The journal


def one_leader(evidence: Evidence) -> Iterator[Violation]:
    """One leader writes the journal at a time: there are no gaps, and no record of an old epoch."""
    for before, after in pairwise(evidence.journal.records):
        if after.seq != before.seq + 1:
            yield Violation(f"record {after.seq} follows {before.seq}")
        if after.epoch < before.epoch:
            yield Violation(f"record {after.seq} is of epoch {after.epoch}, after {before.epoch}")


def tables_equal_journal(evidence: Evidence) -> Iterator[Violation]:
    """Tables at the end equal the journal, job by job, where a journal was kept."""
    if not evidence.journal.records:
        return
    shown = {job.job_id: job.status for job in evidence.history.jobs}
    for job_id, life in evidence.journal.lives.items():
        status = shown.get(job_id, "missing")
        if status != life.state:
            message = f"job {job_id} is {life.state} by the journal and {status} by the tables"
            yield Violation(message, (job_id,))
    for job_id in shown:
        if job_id not in evidence.journal.lives:
            yield Violation(f"job {job_id} is in the tables and not in the journal", (job_id,))


# Schedules


def schedules_fire_once(evidence: Evidence) -> Iterator[Violation]:
    """Every instant of a schedule is decided once, none is left out, and none creates two jobs.

    Judged by the journal; the instants of an interval are counted here, without the scheduler.
    """
    yield from _watermarks_fall(evidence)
    created: Counter[tuple[str, int]] = Counter()
    by_schedule: defaultdict[str, dict[int, Occurrence]] = defaultdict(dict)
    for seq, one in evidence.journal.occurrences:
        by_schedule[one.schedule_id].setdefault(one.nominal, one)
        before = by_schedule[one.schedule_id][one.nominal]
        if one.job_id is not None and before.job_id not in (None, one.job_id):
            message = f"schedule {one.schedule_id} made two jobs at {one.nominal}"
            yield Violation(f"record {seq}: {message}", (one.schedule_id,))
        if one.job_id is not None:
            by_schedule[one.schedule_id][one.nominal] = one
    for spec in evidence.journal.specs.values():
        if spec.origin is not None:
            created[spec.origin.schedule_id, spec.origin.nominal] += 1
    for (schedule_id, nominal), jobs in created.items():
        if jobs > 1:
            message = f"schedule {schedule_id} made {jobs} jobs for {nominal}"
            yield Violation(message, (schedule_id,))
    yield from _instants_left_out(evidence, by_schedule)


def _watermarks_fall(evidence: Evidence) -> Iterator[Violation]:
    for move in evidence.journal.schedule_moves:
        if move.before is not None and move.after.watermark < move.before.watermark:
            message = f"schedule {move.schedule_id} went back to {move.after.watermark}"
            yield Violation(f"record {move.seq}: {message}", (move.schedule_id,))


def _instants_left_out(
    evidence: Evidence, decided: defaultdict[str, dict[int, Occurrence]]
) -> Iterator[Violation]:
    ends = {move.schedule_id: move.after.watermark for move in evidence.journal.schedule_moves}
    for schedule_id, schedule in evidence.journal.schedules.items():
        every_ms = schedule.definition.timetable.interval_ms
        instants = sorted(decided[schedule_id])
        if every_ms is None or not instants or schedule.revision != 1:
            continue
        covered = [(at, decided[schedule_id][at].until or at) for at in instants]
        for at in range(instants[0], ends[schedule_id] + 1, every_ms):
            if not any(first <= at <= last for first, last in covered):
                message = f"schedule {schedule_id} has no record of its instant {at}"
                yield Violation(message, (schedule_id,))


CHECKERS: Mapping[str, Checker] = {
    checker.__name__: checker
    for checker in (
        nothing_lost,
        losses_are_said,
        accepted_once,
        nothing_made_up,
        final_is_final,
        fences_grow,
        leased_before_run,
        success_was_run,
        at_most_once,
        no_overlap,
        cancelled_stays,
        children_wait,
        within_capacity,
        within_limits,
        one_leader,
        legal_moves,
        one_lease,
        tables_equal_journal,
        schedules_fire_once,
    )
}
"""Checkers by the name of the promise, in the order in which violations are reported."""


def judge(history: History, only: Collection[str] = CHECKERS.keys()) -> list[BrokenPromise]:
    """Returns the violations of all promises, or of these."""
    evidence = Evidence.of(history)
    return [BrokenPromise(name, found) for name in only for found in CHECKERS[name](evidence)]


def broken_promises(history: History) -> list[str]:
    """Returns the messages of all violations."""
    return [broken.violation.message for broken in judge(history)]
