"""Seeds of `rota verify`: runs one and explains it, or many and adds them up.

`rota verify` loads this module where the repository is present.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import click

from rota.sdk.clock import SystemClock
from tests.simtest.plan import PROFILES, SimulationPlan, draw, keep
from tests.simtest.run import Shrinking, SimulationResult, run

STORY_LINES = 40


def verify_seeds(given: dict[str, Any]) -> bool:
    """Runs the seeds that the options of `rota verify` name; whether every promise was kept."""
    profile = given["profile"]
    if profile not in PROFILES:
        known = ", ".join(PROFILES)
        raise click.BadParameter(f"one of {known}", param_hint="'--profile'")
    return _run_one(given) if given["seed"] is not None else _run_many(given)


# One


def _run_one(given: dict[str, Any]) -> bool:
    minutes = given["minutes"]
    plan = draw(given["seed"], profile=given["profile"], storm_s=minutes and minutes * 60)
    try:
        plan = keep(plan, faults=given["faults"], actions=given["acts"])
    except ValueError:
        raise click.UsageError("--faults and --acts take numbers such as 1,4-6") from None
    _print_plan(plan)
    with _fixed_time_zone():
        result = run(plan)
        if not result.ok and given["shrink"]:
            click.echo(f"broken: {result.verdicts[0]}; looking for a smaller run ...")
            shrinking = Shrinking(result)
            result = shrinking.go()
            click.echo(f"after {shrinking.tries} tries:")
            _print_plan(result.plan)
    _print_result(result, given["profile"])
    return result.ok


@contextmanager
def _fixed_time_zone() -> Iterator[None]:
    """Sets the time zone to UTC: a run must depend on nothing but its seed."""
    zone = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    try:
        yield
    finally:
        if zone is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = zone


def _print_plan(plan: SimulationPlan) -> None:
    options = plan.options
    click.echo(f"seed {plan.seed}")
    for name in options.__struct_fields__:
        if name != "kinds":
            click.echo(f"  {name:<15} {getattr(options, name)}")
    click.echo(f"  {'users do':<15} {len(plan.actions)} things")
    click.echo(f"  {'goes wrong':<15} {len(plan.faults)} times")
    for fault in plan.faults:
        click.echo(f"    {fault.number:>3}  {fault.at_s:6.2f} s  {fault.kind}, {fault.for_s:.1f} s")


def _print_result(result: SimulationResult, profile: str) -> None:
    click.echo(
        f"{result.jobs} jobs, {result.simulated_s:.0f} simulated seconds,"
        f" {result.counts.get('ask', 0)} requests; trace {result.trace_hash}"
    )
    if result.ok:
        click.echo("every promise was kept")
        return
    for promise, count in Counter(verdict.promise for verdict in result.verdicts).items():
        first = next(one for one in result.verdicts if one.promise == promise)
        more = f" (and {count - 1} more)" if count > 1 else ""
        click.echo(f"BROKEN {promise}: {first.violation.message}{more}")
    click.echo("what was seen of it:")
    for line in result.story[-STORY_LINES:]:
        click.echo(f"  {line}")
    click.echo(f"again: {result.plan.command(profile)}")


# Many


class _Totals:
    """Totals of many runs."""

    def __init__(self, profile: str, *, hashes: bool) -> None:
        self._profile = profile
        self._hashes = hashes
        self._sums: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._simulated_s = 0.0
        self.failed: list[SimulationResult] = []

    def add(self, result: SimulationResult) -> None:
        self._sums.update(seeds=1, jobs=result.jobs, faults=result.counts.get("fault", 0))
        self._simulated_s += result.simulated_s
        self._kinds.update(fault.kind for fault in result.plan.faults)
        if self._hashes:
            click.echo(f"{result.plan.seed} {result.trace_hash}")
        if not result.ok:
            self.failed.append(result)
            command = result.plan.command(self._profile)
            click.echo(f"BROKEN {result.verdicts[0]}\n  again: {command}", err=True)

    def print(self) -> None:
        sums = self._sums
        click.echo(
            f"{sums['seeds']} seeds, {self._simulated_s / 3600:.1f} simulated hours,"
            f" {sums['jobs']} jobs, {sums['faults']} faults of {len(self._kinds)} kinds:"
            f" {len(self.failed)} seeds broke a promise",
            err=self._hashes,
        )


def _run_many(given: dict[str, Any]) -> bool:
    totals = _Totals(given["profile"], hashes=given["hashes"])
    minutes = given["minutes"]
    work = (given["profile"], minutes and minutes * 60)
    clock = SystemClock()
    until = None if given["time"] is None else clock.elapsed_s() + given["time"].seconds
    seeds = _seeds(given["seeds"], endless=until is not None)
    with _fixed_time_zone(), _pool(given["processes"]) as submit:
        under_way: list[Future[SimulationResult]] = []
        for seed in seeds:
            under_way.append(submit(_run_seed, seed, *work))
            if len(under_way) >= 2 * given["processes"]:
                totals.add(under_way.pop(0).result())
            if until is not None and clock.elapsed_s() > until:
                break
        for one in under_way:
            totals.add(one.result())
    totals.print()
    return not totals.failed


def _seeds(text: str | None, *, endless: bool) -> Iterator[int]:
    first, dots, last = (text or "").partition("..")
    if text is None:
        if not endless:
            raise click.UsageError(
                "say which: --seed N, --seeds N..M, --for DURATION or --live URL"
            )
        yield from _seeds_from(secrets.randbelow(1 << 40))
        return
    if not (dots and first.isdigit() and last.isdigit()):
        raise click.BadParameter("such as 1..200", param_hint="'--seeds'")
    yield from range(int(first), int(last) + 1)


def _seeds_from(seed: int) -> Iterator[int]:
    """Yields seeds without an end; each soak begins at another one, so that they add up."""
    while True:
        yield seed
        seed += 1


@contextmanager
def _pool(processes: int) -> Iterator[Any]:
    """Runs seeds in so many processes; with one, in this process."""
    if processes == 1:
        yield _submit_here
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield pool.submit


def _submit_here(function: Any, *args: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(function(*args))
    return future


def _run_seed(seed: int, profile: str, storm_s: float | None) -> SimulationResult:
    return run(draw(seed, profile=profile, storm_s=storm_s))
