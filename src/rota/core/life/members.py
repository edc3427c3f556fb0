"""What the members of arrays and gangs have in common: how they are followed, and what told."""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.band import Array, Company, Gang, Member
from rota.core.life import arrays, gangs
from rota.core.memory.cells import JobCell
from rota.core.model import Execution, Instant, JobId, JobState, Limits, Spec
from rota.core.outcome import Order
from rota.core.tables import Tables


def follow_ends(t: Tables, now: Instant) -> None:
    """Bands whose members have ended go on, or end too. That may end others: until all is quiet."""
    while t.bands.due:
        due, t.bands.due = t.bands.due, {}
        for parent in due:
            if parent in t.jobs:
                look_after(t, t.jobs[parent], now)


def look_after(t: Tables, cell: JobCell, now: Instant) -> None:
    """The band goes on, or ends, as its members say; one that has not begun has none."""
    t.bands.due.pop(cell.id, None)
    if cell.life.state not in (JobState.RUNNING, JobState.CANCELLING):
        return
    if isinstance(cell.spec.band, Array):
        arrays.look_after(t, cell, now)
    else:
        gangs.look_after(t, cell, now)


def note_tallies(t: Tables) -> None:
    """At a turn's end: how far each band is that has come further goes into its row."""
    for parent in t.bands.touched:
        cell = t.jobs.get(parent)
        if cell is not None:
            note_tally(t, cell)
    t.bands.touched.clear()


def note_tally(t: Tables, cell: JobCell) -> None:
    """How far the band is goes into its row."""
    mine = t.bands.cells[cell.id]
    t.set_life(cell, replace(cell.life, tally=mine.tally(), progress=mine.ended / mine.size))


def order_for(t: Tables, execution: Execution, spec: Spec, limits: Limits | None) -> Order:
    """What a member's worker is told: the band's own payload, and whom it runs with."""
    band = spec.band
    assert isinstance(band, Member)
    parent = t.jobs[JobId(band.parent)]
    mine = t.bands.cells[parent.id]
    company = Company(band.parent, band.index, mine.size, band.in_gang, mine.hosts)
    return Order(execution, replace(spec, payload=parent.spec.payload), limits, company)


def rejoin(t: Tables, cell: JobCell, now: Instant) -> None:
    """After a load: an array that has begun stands in line for its next member."""
    if isinstance(cell.spec.band, Array):
        arrays.rejoin(t, cell, now)


def keep_slots(t: Tables) -> None:
    """After a load: bands that hold a slot of a key as a whole have it before others line up."""
    for job_id in t.bands.cells:
        cell = t.jobs[job_id]
        runs = cell.life.state in (JobState.RUNNING, JobState.CANCELLING)
        if runs and arrays.holds_key(cell):
            t.keys.restore_holder(cell)


def is_band(cell: JobCell) -> bool:
    """Whether the job stands for others."""
    return isinstance(cell.spec.band, Array | Gang)
