"""Reports of availability: shares, and the fault that caused a lost second."""

from __future__ import annotations

from tests.chaos.availability import START, Availability
from tests.chaos.chaos_run import FaultRecord

BEGAN = 1_000.0


def a_fault(kind: str, began: float, ended: float) -> FaultRecord:
    return FaultRecord(kind, "it was", int((BEGAN + began) * 1000), int((BEGAN + ended) * 1000))


def all_but(*lost: int) -> dict[int, None]:
    return {second: None for second in range(20) if second not in lost}


def test_a_lost_second_is_counted_for_the_fault_that_lasted_or_was_just_repaired() -> None:
    faults = [a_fault("leader killed", 2.5, 3.0), a_fault("database frozen", 9.5, 11.5)]
    good = {"balanced": all_but(3, 10, 19), START: all_but(2, 3, 4, 10, 11, 12)}
    text = Availability(BEGAN, 20, good, faults).text()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "85.00 % a submit was accepted, balanced (88.24 % of the 17 s" in lines[1]
    assert "70.00 % a job started (76.47 % of the 17 s" in lines[2]
    assert "1 (1.0 each) 3 (3.0 each) 1 leader killed" in lines
    assert "1 (1.0 each) 3 (3.0 each) 1 database frozen" in lines
    assert "1 0 0 nobody's doing" in lines
    assert "at 2 s balanced .x..... start xxx.... leader killed: it was" in lines


def test_a_soak_without_faults_counts_no_lost_second_for_a_fault() -> None:
    text = Availability(BEGAN, 20, {START: all_but(7)}).text()
    assert "95.00 % a job started" in text
    assert "nobody's doing" in text
