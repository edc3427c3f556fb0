"""What is known of a run, simulated or real: the evidence that checkers judge.

It is of four kinds: what clients were answered, what the records say at the end, the journal, and
the witness: a file to which jobs and clients append one line at a time. Its lines are in the order
in which they were written, so no clock is needed to say which came first. Times are of one clock
that all share; they only say how much ran at once, and who was frozen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rota.store.protocol import JournalRecord

FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")


@dataclass(frozen=True, slots=True)
class WitnessLine:
    """One line of the witness.

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
    """A time in which every process of a worker stood still."""

    worker: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class ObservedExecution:
    """One execution, as the records have it."""

    fence: int
    status: str


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """One job, as the records have it at the end."""

    job_id: str
    key: str
    status: str
    fence: int = 1
    at_most_once: bool = False
    after: Sequence[str] = ()
    """Keys of the jobs whose success it waits for."""
    executions: Sequence[ObservedExecution] = ()
    has_witness: bool = True
    """Whether its executions write to the witness."""
    duplicate: bool = False
    """Whether it only says that the same request was accepted under another id."""
    created_by: str = ""
    """The schedule that created it, if nobody submitted it."""


@dataclass(slots=True)
class History:
    """Everything that is known of one run."""

    sent: list[str] = field(default_factory=list)
    """Keys of all jobs that anybody tried to submit."""
    answered: list[tuple[str, str]] = field(default_factory=list)
    """(key, job id) for each submission that was acknowledged, repeats included."""
    seen: list[tuple[str, str]] = field(default_factory=list)
    """(job id, status), in the order in which somebody looked."""
    missing: list[str] = field(default_factory=list)
    """Jobs that were acknowledged and then not found by somebody who looked."""
    lines: list[WitnessLine] = field(default_factory=list)
    jobs: list[ObservedJob] = field(default_factory=list)
    freezes: list[FreezePeriod] = field(default_factory=list)
    slots: dict[str, int] = field(default_factory=dict)
    """How many jobs each worker can run at once."""
    journal: Sequence[JournalRecord] = ()
    """All that was decided, in order."""


def lines_by_key(lines: Iterable[WitnessLine]) -> defaultdict[str, list[WitnessLine]]:
    """The witness, job by job."""
    by_key: defaultdict[str, list[WitnessLine]] = defaultdict(list)
    for line in lines:
        by_key[line.key].append(line)
    return by_key
