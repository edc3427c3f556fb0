"""What is said of a soak: the shares, and on whom a lost second is blamed."""

from __future__ import annotations

from tests.chaos.availability import START, Availability
from tests.chaos.storm import Deed

BEGAN = 1_000.0


def a_deed(kind: str, began: float, ended: float) -> Deed:
    """A fault, by seconds of the soak."""
    return Deed(kind, "it was", int((BEGAN + began) * 1000), int((BEGAN + ended) * 1000))


def all_but(*lost: int) -> dict[int, None]:
    """The good ones of twenty seconds."""
    return {second: None for second in range(20) if second not in lost}


def test_a_lost_second_is_the_doing_of_the_fault_that_lasted_or_had_just_been_mended() -> None:
    deeds = [a_deed("leader killed", 2.5, 3.0), a_deed("database frozen", 9.5, 11.5)]
    good = {"balanced": all_but(3, 10, 19), START: all_but(2, 3, 4, 10, 11, 12)}
    said = Availability(BEGAN, 20, good, deeds).text()
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert "85.00 % a submit was accepted, balanced (88.24 % of the 17 s" in lines[1]
    assert "70.00 % a job started (76.47 % of the 17 s" in lines[2]
    assert "1 (1.0 each) 3 (3.0 each) 1 leader killed" in lines
    assert "1 (1.0 each) 3 (3.0 each) 1 database frozen" in lines
    assert "1 0 0 nobody's doing" in lines
    assert "at 2 s balanced .x..... start xxx.... leader killed: it was" in lines


def test_a_soak_without_a_fault_blames_nobody() -> None:
    said = Availability(BEGAN, 20, {START: all_but(7)}).text()
    assert "95.00 % a job started" in said
    assert "nobody's doing" in said
