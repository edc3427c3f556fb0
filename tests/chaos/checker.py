"""Reads what happened and names every broken promise; knows nothing of how it was made to happen.

The evidence is of three kinds: what clients were answered, what the records say at the end, and the
witness file, to which jobs and clients append one line at a time. The kernel orders those lines, so
no clock is needed to say which came first. Times in it are of the machine's boot clock, which all
processes share; they only say how much ran at once, and who was frozen. What the journal itself
must be is in `replay.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

THAW_S = 1.0
"""What wakes with a whole machine may act until its guard has run: no software can prevent that."""
FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the witness file. Words: begin, tick, end; or cancelled, by a client."""

    key: str
    fence: int
    word: str
    at: float = 0.0
    worker: str = ""


@dataclass(frozen=True, slots=True)
class Freeze:
    """A worker whose every process stood still."""

    worker: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Run:
    """One execution, as the records have it."""

    fence: int
    status: str


@dataclass(frozen=True, slots=True)
class Record:
    """One job, as the records have it at the end."""

    job_id: str
    key: str
    status: str
    fence: int = 1
    at_most_once: bool = False
    after: Sequence[str] = ()
    """Keys of the jobs whose success it waits for."""
    runs: Sequence[Run] = ()
    speaks: bool = True
    """Whether its runs write to the witness file."""
    duplicate: bool = False
    """Whether it only says that the same request was accepted under another id."""


@dataclass(slots=True)
class History:
    """Everything that is known of one storm."""

    sent: list[str] = field(default_factory=list)
    """Keys of all jobs that anybody tried to submit."""
    answered: list[tuple[str, str]] = field(default_factory=list)
    """(key, job id) for each submission that was acknowledged, repeats included."""
    seen: list[tuple[str, str]] = field(default_factory=list)
    """(job id, status), in the order in which somebody looked."""
    lines: list[Line] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    freezes: list[Freeze] = field(default_factory=list)
    slots: dict[str, int] = field(default_factory=dict)
    """How many jobs each worker has room for."""


def broken_promises(history: History) -> list[str]:
    """A sentence for each; none if all were kept."""
    by_key = _by_key(history.lines)
    return [
        *_nothing_lost(history),
        *_nothing_made_up(history),
        *_final_is_final(history),
        *(
            broken
            for record in history.records
            for promise in ((_duplicates_rest,) if record.duplicate else PROMISES)
            for broken in promise(record, by_key[record.key])
        ),
        *(
            broken
            for key, lines in by_key.items()
            for broken in _no_overlap(key, lines, history.freezes)
        ),
        *(broken for key, lines in by_key.items() for broken in _cancelled_stays(key, lines)),
        *_children_wait(history),
        *_within_slots(history),
    ]


def _by_key(lines: Iterable[Line]) -> defaultdict[str, list[Line]]:
    by_key: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_key[line.key].append(line)
    return by_key


def _duplicates_rest(record: Record, _lines: Sequence[Line]) -> Iterator[str]:
    """What is only another one's second name never runs."""
    if record.duplicate and record.runs:
        yield f"{record.key} ran as {record.job_id} too, which was said to be a duplicate"


def _nothing_lost(history: History) -> Iterator[str]:
    """Each acknowledged submission is one job: this one, and it has come to an end."""
    ids: defaultdict[str, list[str]] = defaultdict(list)
    second_names = {record.job_id: record.key for record in history.records if record.duplicate}
    for record in history.records:
        if record.duplicate:
            continue
        ids[record.key].append(record.job_id)
        if record.status not in FINAL:
            yield f"{record.key} never ended: it is {record.status}"
    for key, found in ids.items():
        if len(found) > 1:
            yield f"{key} was accepted once and is {len(found)} jobs"
    for key, job_id in history.answered:
        if not ids[key]:
            yield f"{key} was accepted and is lost"
        elif second_names.get(job_id) == key:
            continue
        elif ids[key] != [job_id] and len(ids[key]) == 1:
            yield f"{key} was answered with {job_id} and is {ids[key][0]}"


def _nothing_made_up(history: History) -> Iterator[str]:
    sent = dict.fromkeys(history.sent)
    for record in history.records:
        if record.key not in sent:
            yield f"{record.key} was submitted by nobody"


def _final_is_final(history: History) -> Iterator[str]:
    last: dict[str, str] = {}
    at_the_end = ((record.job_id, record.status) for record in history.records)
    for job_id, status in (*history.seen, *at_the_end):
        before = last.get(job_id, "")
        if before in FINAL and status != before:
            yield f"{job_id} was {before} and became {status}"
        last[job_id] = status


def _fences_grow(record: Record, lines: Sequence[Line]) -> Iterator[str]:
    for before, after in pairwise(record.runs):
        if after.fence <= before.fence:
            yield f"{record.key} has fence {after.fence} after {before.fence}"
    if record.runs and record.fence != record.runs[-1].fence:
        yield f"{record.key} says fence {record.fence}, its last run {record.runs[-1].fence}"


def _runs_were_leased(record: Record, lines: Sequence[Line]) -> Iterator[str]:
    """What was run was given out before, and each time once."""
    leased = [run.fence for run in record.runs]
    began = [line.fence for line in lines if line.word == "begin"]
    for fence in dict.fromkeys(began):
        if fence not in leased:
            yield f"{record.key} ran under fence {fence}, which nobody was given"
        if began.count(fence) > 1:
            yield f"{record.key} ran {began.count(fence)} times under fence {fence}"


def _success_was_run(record: Record, lines: Sequence[Line]) -> Iterator[str]:
    """A success is one run, the last, that came to its end."""
    succeeded = [run.fence for run in record.runs if run.status == "succeeded"]
    if record.status != "succeeded":
        if succeeded:
            yield f"{record.key} succeeded under fence {succeeded[0]} but is {record.status}"
        return
    if len(succeeded) != 1 or record.runs[-1].status != "succeeded":
        yield f"{record.key} succeeded, yet its runs are {[run.status for run in record.runs]}"
    ended = [line.fence for line in lines if line.word == "end"]
    for fence in succeeded:
        if record.speaks and fence not in ended:
            yield f"{record.key} succeeded under fence {fence} without having ended"


def _starts(record: Record, lines: Sequence[Line]) -> Iterator[str]:
    began = sum(line.word == "begin" for line in lines)
    if record.at_most_once and began > 1:
        yield f"{record.key} may start once and started {began} times"
    if record.status in ("skipped", "expired") and began:
        yield f"{record.key} is {record.status}, yet it ran"


def _no_overlap(key: str, lines: Sequence[Line], freezes: Sequence[Freeze]) -> Iterator[str]:
    """Once a later run has written, an earlier one is silent for ever."""
    newest = 0
    for line in lines:
        if line.word == "cancelled":
            continue
        if line.fence < newest and not _thawing(line, freezes):
            yield f"{key}: fence {line.fence} said {line.word!r} after {newest} had begun"
        newest = max(newest, line.fence)


def _thawing(line: Line, freezes: Sequence[Freeze]) -> bool:
    return any(
        freeze.worker == line.worker and freeze.began <= line.at <= freeze.ended + THAW_S
        for freeze in freezes
    )


def _cancelled_stays(key: str, lines: Sequence[Line]) -> Iterator[str]:
    """A client that was told `cancelled` says so in the file: no line may follow."""
    words = [line.word for line in lines]
    if "cancelled" in words and words[-1] != "cancelled":
        yield f"{key} was cancelled and then said {words[-1]!r}"


def _children_wait(history: History) -> Iterator[str]:
    began: dict[str, int] = {}
    ended: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for place, line in enumerate(history.lines):
        if line.word == "begin":
            began.setdefault(line.key, place)
        elif line.word == "end":
            ended[line.key][line.fence] = place
    records = {record.key: record for record in history.records if not record.duplicate}
    for child in history.records:
        if child.key in began:
            for key in child.after:
                done = _success(records, ended, key)
                if done is None or done > began[child.key]:
                    yield f"{child.key} began before {key} had succeeded"


def _within_slots(history: History) -> Iterator[str]:
    """By the jobs' own account no worker ran more at once than it has room for.

    A run that was killed says no end: it is taken to end with its last word, which is early.
    """
    runs: dict[tuple[str, int, str], tuple[float, float]] = {}
    for line in history.lines:
        if line.word != "cancelled":
            run = (line.key, line.fence, line.worker)
            began, _ = runs.get(run, (line.at, line.at))
            runs[run] = (began, line.at)
    moments = [
        moment
        for (_, _, worker), (began, ended) in runs.items()
        for moment in ((began, 1, worker), (ended, -1, worker))
    ]
    at_once: defaultdict[str, int] = defaultdict(int)
    # Of one moment, the ends first: the clock has steps.
    for at, change, worker in sorted(moments):
        at_once[worker] += change
        room = history.slots.get(worker)
        if change > 0 and room is not None and at_once[worker] > room:
            yield f"{worker} has room for {room} and ran {at_once[worker]} at {at:.2f}"


def _success(
    records: Mapping[str, Record], ended: Mapping[str, Mapping[int, int]], key: str
) -> int | None:
    """The place of the line with which the job's successful run ended."""
    if key not in records:
        return None
    fences = [run.fence for run in records[key].runs if run.status == "succeeded"]
    return ended[key].get(fences[0]) if fences else None


PROMISES = (_fences_grow, _runs_were_leased, _success_was_run, _starts)
"""Those about one job and what it wrote."""
