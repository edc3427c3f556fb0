from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rota.core.jobs.submit import rank_jobs
from rota.core.model import Millis, Terms
from rota.core.policy import DEFAULT, EASY
from tests.core.asking import NOON, job
from tests.core.world import World

SECOND = 1_000


def measure(terms: Terms) -> tuple[Millis, float]:
    return terms.expected_runtime_ms or 0, terms.needs.resources.cpu_milli / 8_000


def task(name: str, seconds: int, *after: str, **asked: Any) -> Any:
    return job(name, runs_ms=seconds * SECOND, after=after, created_at=NOON, **asked)


def test_the_job_that_begins_the_longest_chain_goes_first() -> None:
    jobs = [task("a", 1), task("b", 1), task("c", 2, "a"), task("d", 9, "b"), task("e", 1, "c")]
    jobs.append(task("f", 1, "e", "d"))
    by_order = sorted(
        zip(rank_jobs(jobs, measure), jobs, strict=True), key=lambda pair: pair[0].turn
    )
    assert [one.id for _, one in by_order] == ["b", "d", "a", "c", "e", "f"]


def test_a_graph_is_as_long_as_its_longest_chain_or_as_all_its_work() -> None:
    chain = [task("a", 10), task("b", 20, "a")]
    assert {one.graph_ms for one in rank_jobs(chain, measure)} == {30 * SECOND}
    wide = [task("root", 1), *(task(f"t{n}", 10, "root", cpu=4) for n in range(20))]
    assert {one.graph_ms for one in rank_jobs(wide, measure)} == {100_125}


def test_a_job_outside_of_graphs_keeps_its_place() -> None:
    jobs = [task("first", 1), task("a", 1), task("between", 5), task("b", 9, "a"), task("last", 1)]
    made = rank_jobs(jobs, measure)
    assert [one.turn for one in made] == [0, 1, 3, 2, 4]
    assert [one.graph_ms is None for one in made] == [True, False, True, False, True]


def test_graphs_of_one_batch_are_not_mixed() -> None:
    jobs = [task("a1", 1), task("b1", 50), task("a2", 1, "a1"), task("b2", 50, "b1")]
    assert [one.turn for one in rank_jobs(jobs, measure)] == [0, 2, 1, 3]


@given(st.data())
def test_every_job_goes_before_those_that_wait_for_it(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 12))
    jobs = []
    for number in range(count):
        above = data.draw(st.lists(st.integers(0, number - 1), unique=True)) if number else []
        after = [f"t{up}" for up in above]
        jobs.append(task(f"t{number}", data.draw(st.integers(1, 9)), *after))
    made = dict(zip((one.id for one in jobs), rank_jobs(jobs, measure), strict=True))
    assert sorted(one.turn for one in made.values()) == list(range(count))
    for one in jobs:
        for dependency in one.spec.dependencies:
            assert made[dependency.job_id].turn < made[one.id].turn


def a_graph() -> list[Any]:
    """Two paths to the end, the second of which is the longer."""
    return [
        task("short", 1),
        task("long", 1),
        task("after", 60, "long"),
        task("end", 1, "short", "after"),
    ]


def test_a_worker_takes_the_critical_path_first_also_after_a_restart() -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=1)
    world.submit_all(a_graph())
    world.restart()
    assert world.take() == ["long"]


def test_first_come_first_served_ignores_graphs() -> None:
    world = World(policy=EASY)
    world.register(cpu=1)
    world.submit_all(a_graph())
    assert world.take() == ["short"]


def test_a_small_graph_passes_a_large_one_as_a_short_job_passes_a_long_one() -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=1)
    world.submit_all([task("large", 1), *(task(f"l{n}", 600, "large") for n in range(9))])
    world.submit_all([task("small", 1), task("s1", 1, "small")])
    assert world.take() == ["small"]
