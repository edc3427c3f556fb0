"""Exactness of `fcfs` and `easy`: every job starts exactly when the textbook algorithm starts it.

If ROTA_TRACES names a folder with the logs, they are compared too, job by job, and with published
metrics.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.simulate.fleet import single_machine_fleet
from rota.simulate.metrics import JobHistory, simulation_metrics
from rota.simulate.trace_readers import read_swf
from rota.simulate.workload import Trace, Work
from tests.simulate import oracle
from tests.simulate.builders import rigid, simulated, starts_s, work

TRACES = os.environ.get("ROTA_TRACES")
needs_traces = pytest.mark.skipif(TRACES is None, reason="ROTA_TRACES names no folder with logs")
TEXTBOOK = {"fcfs": oracle.fcfs, "easy": oracle.easy}
PROCS = 8

PUBLISHED = {
    ("KTH-SP2-1996-2", 100, "fcfs"): (28_481, "389900.7", "7510.73", 1_018_341),
    ("KTH-SP2-1996-2", 100, "easy"): (28_481, "6855.5", "90.82", 262_194),
    ("ALCF-Theta-2022", 4360, "fcfs"): (23_911, "162612.2", "391.36", 817_634),
    ("ALCF-Theta-2022", 4360, "easy"): (23_911, "44663.8", "116.97", 657_662),
    ("Lublin-256-A", 256, "fcfs"): (10_000, "2388443.8", "66502.48", 4_759_976),
    ("Lublin-256-A", 256, "easy"): (10_000, "97156.0", "590.05", 1_029_731),
    ("HPC2N-2002-head", 240, "fcfs"): (3_145, "5627.9", "47.41", 78_517),
    ("HPC2N-2002-head", 240, "easy"): (3_145, "3547.9", "17.06", 81_059),
    ("HPC2N-2002-head", 240, "easy-sjf"): (3_145, "2379", "12.23", 100_188),
    ("KTH-SP2-1996-2", 100, "easy-sjf"): (28_481, "4550", "41.03", 899_063),
    ("Lublin-256-A", 256, "easy-sjf"): (10_000, "59632", "40.56", 9_067_006),
    ("CERIT-wagap-2013", 2176, "fcfs"): (17_898, "1385.1", "9.59", 47_802),
    ("CERIT-wagap-2013", 2176, "easy"): (17_898, "1381.3", "9.02", 53_505),
}
"""(jobs, average wait in seconds, average bounded slowdown, longest wait in seconds)."""


def test_first_come_first_served_lets_no_job_overtake() -> None:
    works = [work(0, 10, 6), work(1, 10, 6), work(2, 1, 1)]
    assert starts_s(simulated(works, PROCS, "fcfs")) == [0, 10, 10]


def test_easy_backfills_jobs_that_end_in_time_or_need_only_free_processors() -> None:
    works = [
        work(0, 10, 6),
        work(1, 10, 6),  # has to wait until 10, and leaves 2 then
        work(2, 8, 1),  # ends in time
        work(3, 50, 1),  # does not, but is content with what is left
        work(4, 50, 2),  # would need more than that
    ]
    assert starts_s(simulated(works, PROCS, "easy")) == [0, 10, 2, 3, 20]


one_job = st.builds(
    lambda gap, run, procs, extra: (gap, run, procs, run + extra),
    st.sampled_from([0, 0, 1, 3, 10]),
    st.integers(1, 20),
    st.integers(1, PROCS),
    st.sampled_from([0, 0, 1, 7, 40]),
)


def arriving(rows: list[tuple[int, int, int, int]]) -> list[Work]:
    """Makes jobs of (seconds after the one before, run, processors, estimate)."""
    works, at = [], 0
    for gap, run, procs, estimate in rows:
        at += gap
        works.append(work(at, run, procs, estimate))
    return works


@pytest.mark.parametrize("policy", list(TEXTBOOK))
@given(rows=st.lists(one_job, min_size=1, max_size=25))
def test_any_jobs_start_when_the_textbook_algorithm_starts_them(
    policy: str, rows: list[tuple[int, int, int, int]]
) -> None:
    works = arriving(rows)
    expected = oracle.starts(rigid(works), PROCS, TEXTBOOK[policy])
    assert list(simulated(works, PROCS, policy).start) == expected


@cache
def log(name: str, procs: int) -> Trace:
    """Reads one of the logs."""
    return read_swf(Path(str(TRACES)) / f"{name}.swf.gz", cpus=procs)


def replayed(name: str, procs: int, policy: str) -> JobHistory:
    """Replays a log under a policy."""
    return simulated(list(log(name, procs)), single_machine_fleet(procs), policy)


@needs_traces
@pytest.mark.slow
@pytest.mark.parametrize(("name", "procs", "policy"), list(PUBLISHED))
def test_a_log_gives_the_published_metrics_and_the_textbook_starts(
    name: str, procs: int, policy: str
) -> None:
    history = replayed(name, procs, policy)
    found = simulation_metrics(history, 1000 * procs)
    jobs, wait, slowdown, longest = PUBLISHED[name, procs, policy]
    assert found.jobs == jobs
    assert f"{found.avg_wait_s:.{len(wait.partition('.')[2])}f}" == wait
    assert f"{found.avg_bounded_slowdown:.2f}" == slowdown
    assert found.max_wait_s == longest
    if policy in TEXTBOOK:
        expected = oracle.starts(rigid(list(log(name, procs))), procs, TEXTBOOK[policy])
        assert list(history.start) == expected
