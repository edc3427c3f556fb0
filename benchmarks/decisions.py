"""Decisions for each processor second of the scheduler alone: no journal, no HTTP, no clock.

One decision is a completion, the release of what it held, the choice of the next job, its
placement, and the arrival of another job, so that the backlog stays as long as it was. Each is a
turn of its own; the last row has many in a turn, as a server under load has. Only turns count, not
the making of what happens in them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

from benchmarks.fleet import Fleet
from benchmarks.new_process import in_new_process
from benchmarks.table import Row, Scale, count
from rota.processes.event_loop import YOUNG_MAX, use_large_pages

WORKERS = (10, 1_000, 5_000)
WAITING = (10_000, 100_000, 1_000_000)
IN_A_TURN = 100
CROWD = (10_000, 100_000, 50, 32)
"""(workers, waiting, tenants, shapes): a cell that many share, and one thing more of each below."""
CROWDS = {
    "1,000 waiting": (10_000, 1_000, 50, 32),
    "1,000,000 waiting": (10_000, 1_000_000, 50, 32),
    "1,000 tenants": (10_000, 100_000, 1_000, 32),
    "256 shapes": (10_000, 100_000, 50, 256),
    "50,000 workers": (50_000, 100_000, 50, 32),
}


def measure(scale: Scale) -> Iterator[Row]:
    """Measures every fleet size with every backlog, and the ratio between backlogs."""
    for workers in WORKERS:
        backlogs = scale.of(WAITING, WAITING[:2])
        rates = {n: in_new_process(rates_of, (workers, n, 1), scale) for n in backlogs}
        for waiting, values in rates.items():
            setting = f"{count(workers)} workers, {count(waiting)} waiting"
            aim = "aim: 20,000" if (workers, waiting) == (WORKERS[-1], WAITING[-1]) else ""
            yield Row("decisions", setting, values, "1/s", aim)
        small, large = backlogs[0], backlogs[-1]
        setting = f"{count(workers)} workers, {count(large)} against {count(small)} waiting"
        ratio = max(rates[large]) / max(rates[small])
        yield Row("decisions", setting, [ratio], "ratio", "1: flat in the backlog")
    workers, waiting = WORKERS[-1], scale.of(WAITING[-1], WAITING[0])
    setting = f"{count(workers)} workers, {count(waiting)} waiting, {IN_A_TURN} in a turn"
    values = in_new_process(rates_of, (workers, waiting, IN_A_TURN), scale)
    yield Row("decisions", setting, values, "1/s")
    yield from _many_kinds(scale)


def _many_kinds(scale: Scale) -> Iterator[Row]:
    """Measures decisions with many shapes and tenants."""
    usual = in_new_process(rates_of_many_kinds, scale.of(CROWD, (100, 2_000, 50, 32)), scale)
    costs = [1e6 / rate for rate in usual]
    setting = "10,000 workers, 100,000 waiting, 50 tenants, 32 shapes"
    yield Row("decisions", setting, costs, "us", "aim: 50", less_is_better=True)
    for name, crowd in CROWDS.items() if not scale.quick else ():
        rates = in_new_process(rates_of_many_kinds, crowd, scale)
        ratio = max(usual) / max(rates)
        yield Row("decisions", f"the same with {name}", [ratio], "ratio", less_is_better=True)


def rates_of_many_kinds(crowd: tuple[int, int, int, int], scale: Scale) -> list[float]:
    return _rates(Fleet(*crowd), IN_A_TURN, scale)


def rates_of(setting: tuple[int, int, int], scale: Scale) -> list[float]:
    workers, waiting, in_a_turn = setting
    return _rates(Fleet(workers, waiting), in_a_turn, scale)


def _rates(fleet: Fleet, in_a_turn: int, scale: Scale) -> list[float]:
    fleet.fill()
    # As a server does after it has loaded: the collector looks seldom, and not at what lives long,
    # and that lies on large pages where the system has them.
    gc.set_threshold(YOUNG_MAX)
    gc.collect()
    gc.freeze()
    use_large_pages()
    decisions = scale.of(20_000, 3_000)
    fleet.decide(decisions // 10, in_a_turn)
    rates = []
    for _ in range(scale.repeats):
        before = fleet.spent
        made = fleet.decide(decisions, in_a_turn)
        rates.append(made / (fleet.spent - before))
    return rates
