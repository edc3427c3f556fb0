"""History of a run, simulated or real: the evidence that checkers judge.

It has four parts: the answers to clients, the records at the end, the journal, and the witness: a
file to which jobs and clients append one line at a time. Its lines are in the order in which they
were written, so no clock is needed for their order. Times are of one shared clock, and used only
for what ran at once and which machine was frozen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rota.store.protocol import GENESIS, JournalRecord, Loss, Seq

FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")


@dataclass(frozen=True, slots=True)
class WitnessLine:
    """Line of the witness.

    Events: begin, tick and end, by the job itself; killed, by its supervisor; cancelled, by a
    client.
    """

    key: str
    fence: int
    event: str
    at: float = 0.0
    worker: str = ""


@dataclass(frozen=True, slots=True)
class FreezePeriod:
    """Time in which every process of a worker was frozen."""

    worker: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class ObservedExecution:
    """Execution in the records."""

    fence: int
    status: str


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """Job in the records at the end."""

    job_id: str
    key: str
    status: str
    fence: int = 1
    at_most_once: bool = False
    after: Sequence[str] = ()
    """Keys of jobs that must succeed before it, but for those that were deleted."""
    executions: Sequence[ObservedExecution] = ()
    has_witness: bool = True
    """Whether its executions write to the witness."""
    duplicate: bool = False
    """Whether its request was accepted under another id, and this one only refers to it."""
    created_by: str = ""
    """The schedule or array that created it, if no client submitted it."""
    is_group: bool = False
    """Whether it only stands for the jobs of an array or gang, and never runs itself."""
    in_gang: bool = False
    """Whether it runs again, though it succeeded, when the rest of its gang did not."""


@dataclass(frozen=True, slots=True)
class Failover:
    """Failover of the database to a copy that lacked its newest records."""

    kept: Seq
    """The newest record that it kept."""
    jobs: Sequence[str] = ()
    """Ids of the jobs of which lost records and inbox entries said something."""
    keys: Sequence[str] = ()
    """Keys of the jobs that lost records put."""
    fences: Mapping[str, int] = field(default_factory=dict)
    """By job, the highest fence of its executions in lost records."""
    remembered: Seq = GENESIS.seq
    """The newest lost record that a server knew which has run ever since; 0: none."""


@dataclass(slots=True)
class History:
    """History of one run."""

    sent: list[str] = field(default_factory=list)
    """Keys of all jobs that a client tried to submit."""
    answered: list[tuple[str, str]] = field(default_factory=list)
    """(key, job id) for each acknowledged submission, repeats included."""
    seen: list[tuple[str, str]] = field(default_factory=list)
    """(job id, status) in the order in which clients read them."""
    deleted: list[str] = field(default_factory=list)
    """Ids of the jobs that a client asked to delete."""
    missing: list[str] = field(default_factory=list)
    """Acknowledged jobs that a client did not find."""
    lines: list[WitnessLine] = field(default_factory=list)
    jobs: list[ObservedJob] = field(default_factory=list)
    freezes: list[FreezePeriod] = field(default_factory=list)
    slots: dict[str, int] = field(default_factory=dict)
    """Number of jobs that each worker can run at once."""
    journal: Sequence[JournalRecord] = ()
    """All records of the journal, in order."""
    failovers: Sequence[Failover] = ()
    losses: Sequence[Loss] = ()
    """What servers have said to be lost."""


def lines_by_key(lines: Iterable[WitnessLine]) -> defaultdict[str, list[WitnessLine]]:
    """Groups the lines of the witness by job."""
    by_key: defaultdict[str, list[WitnessLine]] = defaultdict(list)
    for line in lines:
        by_key[line.key].append(line)
    return by_key
