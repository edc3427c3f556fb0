"""What is known of a run, simulated or real: the evidence that checkers judge.

It is of four kinds: what clients were answered, what the records say at the end, the journal, and
the witness, to which jobs and clients add one line at a time. The lines are in the order in which
they were written, so no clock is needed to say which came first. Times in them are of one clock
that all share; they only say how much ran at once, and who was frozen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rota.store.protocol import JournalRecord

FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the witness.

    Words: begin, tick and end, by the job itself; killed, by its guard; cancelled, by a client.
    """

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
    """Whether its runs write to the witness."""
    duplicate: bool = False
    """Whether it only says that the same request was accepted under another id."""
    made_by: str = ""
    """What made it, if nobody submitted it: a schedule."""


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
    lines: list[Line] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    freezes: list[Freeze] = field(default_factory=list)
    slots: dict[str, int] = field(default_factory=dict)
    """How many jobs each worker has room for."""
    journal: Sequence[JournalRecord] = ()
    """All that was decided, in order."""


def lines_by_key(lines: Iterable[Line]) -> defaultdict[str, list[Line]]:
    """The witness, job by job."""
    by_key: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_key[line.key].append(line)
    return by_key
