"""Every instant of a schedule is decided once, none is left out, and none makes two jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from rota.core.records.schedules import Occurrence
from rota.sim.checkers.evidence import Broken, Evidence


def check(evidence: Evidence) -> Iterator[Broken]:
    """By the journal; the instants of an interval are counted out here, by hand."""
    yield from _watermarks(evidence)
    made: Counter[tuple[str, int]] = Counter()
    by_schedule: defaultdict[str, dict[int, Occurrence]] = defaultdict(dict)
    for seq, one in evidence.journal.occurrences:
        by_schedule[one.schedule_id].setdefault(one.nominal, one)
        before = by_schedule[one.schedule_id][one.nominal]
        if one.job_id is not None and before.job_id not in (None, one.job_id):
            says = f"schedule {one.schedule_id} made two jobs at {one.nominal}"
            yield Broken(f"record {seq}: {says}", (one.schedule_id,))
        if one.job_id is not None:
            by_schedule[one.schedule_id][one.nominal] = one
    for spec in evidence.journal.specs.values():
        if spec.origin is not None:
            made[spec.origin.schedule_id, spec.origin.nominal] += 1
    for (schedule_id, nominal), jobs in made.items():
        if jobs > 1:
            says = f"schedule {schedule_id} made {jobs} jobs for {nominal}"
            yield Broken(says, (schedule_id,))
    yield from _none_left_out(evidence, by_schedule)


def _watermarks(evidence: Evidence) -> Iterator[Broken]:
    for went in evidence.journal.went:
        if went.before is not None and went.after.watermark < went.before.watermark:
            says = f"schedule {went.schedule_id} went back to {went.after.watermark}"
            yield Broken(f"record {went.seq}: {says}", (went.schedule_id,))


def _none_left_out(
    evidence: Evidence, decided: defaultdict[str, dict[int, Occurrence]]
) -> Iterator[Broken]:
    ends = {went.schedule_id: went.after.watermark for went in evidence.journal.went}
    for schedule_id, schedule in evidence.journal.schedules.items():
        every_ms = schedule.plan.timetable.interval_ms
        instants = sorted(decided[schedule_id])
        if every_ms is None or not instants or schedule.revision != 1:
            continue
        covered = [(at, decided[schedule_id][at].until or at) for at in instants]
        for at in range(instants[0], ends[schedule_id] + 1, every_ms):
            if not any(first <= at <= last for first, last in covered):
                says = f"schedule {schedule_id} has no record of its instant {at}"
                yield Broken(says, (schedule_id,))
