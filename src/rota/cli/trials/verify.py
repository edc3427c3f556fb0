"""Doubts: the cluster simulated from seeds, or an installation that is really there."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import click

from rota.cli.options import NumberRange, duration
from rota.sdk.clock import SystemClock

if TYPE_CHECKING:
    from rota.sim.run import Result

STORY_LINES = 40


@click.command()
@click.option("--seed", type=click.IntRange(0), help="The run of this seed.")
@click.option("--seeds", metavar="N..M", help="The runs of all of these.")
@click.option("--for", "time", type=duration, metavar="DURATION", help="As many as fit in this.")
@click.option("--minutes", type=NumberRange(0.1, 600), help="Simulated length of the faults.")
@click.option(
    "--profile", default="all", show_default=True, help="Which faults; a wrong name lists them."
)
@click.option("--faults", metavar="1,4-6", help="Only these of the run's faults.")
@click.option("--acts", metavar="1,4-6", help="Only these of what its users do.")
@click.option("--shrink", is_flag=True, help="Look for a smaller run that fails.")
@click.option("--processes", "-j", type=click.IntRange(1), default=1, help="Runs at once.")
@click.option("--hashes", is_flag=True, help="A line a seed: what happened, as one number.")
@click.option("--live", metavar="URL", help="Check this installation instead.")
@click.option(
    "--disturb", type=duration, metavar="DURATION",
    help="With --live: go on for so long, while you kill and cut what you like.",
)  # fmt: skip
@click.pass_context
def verify(ctx: click.Context, /, **given: Any) -> None:
    """Doubt Rota: simulate a cluster and break it, or check one that is there.

    A seed decides everything: the cluster, its users, the faults, every message. The same seed
    gives the same run, so a failure can be repeated. Exit 1 if a promise was broken.
    """
    if given["live"] is not None:
        from rota.cli.trials.verify_live import check_live

        ctx.exit(0 if check_live(given["live"], given["disturb"]) else 1)
    _check_profile(given["profile"])
    if given["seed"] is not None:
        ctx.exit(0 if _one(given) else 1)
    ctx.exit(0 if _many(given) else 1)


def _check_profile(profile: str) -> None:
    from rota.sim.plan import PROFILES

    if profile not in PROFILES:
        known = ", ".join(PROFILES)
        raise click.BadParameter(f"one of {known}", param_hint="'--profile'")


# One


def _one(given: dict[str, Any]) -> bool:
    from rota.sim.plan import draw, keep
    from rota.sim.run import run
    from rota.sim.shrink import Shrinking

    minutes = given["minutes"]
    plan = draw(given["seed"], profile=given["profile"], storm_s=minutes and minutes * 60)
    try:
        plan = keep(plan, faults=given["faults"], acts=given["acts"])
    except ValueError:
        raise click.UsageError("--faults and --acts take numbers such as 1,4-6") from None
    _print_plan(plan)
    with _determined():
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
def _determined() -> Iterator[None]:
    """Nothing of this machine may get into a run: only the seed."""
    zone = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    try:
        yield
    finally:
        if zone is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = zone


def _print_plan(plan: Any) -> None:
    options = plan.options
    click.echo(f"seed {plan.seed}")
    for name in options.__struct_fields__:
        if name != "kinds":
            click.echo(f"  {name:<15} {getattr(options, name)}")
    click.echo(f"  {'users do':<15} {len(plan.acts)} things")
    click.echo(f"  {'goes wrong':<15} {len(plan.faults)} times")
    for fault in plan.faults:
        click.echo(f"    {fault.number:>3}  {fault.at_s:6.2f} s  {fault.kind}, {fault.for_s:.1f} s")


def _print_result(result: Result, profile: str) -> None:
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
        click.echo(f"BROKEN {promise}: {first.broken.says}{more}")
    click.echo("what was seen of it:")
    for line in result.story[-STORY_LINES:]:
        click.echo(f"  {line}")
    click.echo(f"again: {result.plan.command(profile)}")


# Many


class _Tally:
    """What many runs come to."""

    def __init__(self, profile: str, *, hashes: bool) -> None:
        self._profile = profile
        self._hashes = hashes
        self._sums: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._simulated_s = 0.0
        self.failed: list[Result] = []

    def add(self, result: Result) -> None:
        """One more."""
        self._sums.update(seeds=1, jobs=result.jobs, faults=result.counts.get("fault", 0))
        self._simulated_s += result.simulated_s
        self._kinds.update(fault.kind for fault in result.plan.faults)
        if self._hashes:
            click.echo(f"{result.plan.seed} {result.trace_hash}")
        if not result.ok:
            self.failed.append(result)
            command = result.plan.command(self._profile)
            click.echo(f"BROKEN {result.verdicts[0]}\n  again: {command}", err=True)

    def say(self) -> None:
        """The whole of it."""
        sums = self._sums
        click.echo(
            f"{sums['seeds']} seeds, {self._simulated_s / 3600:.1f} simulated hours,"
            f" {sums['jobs']} jobs, {sums['faults']} faults of {len(self._kinds)} kinds:"
            f" {len(self.failed)} seeds broke a promise",
            err=self._hashes,
        )


def _many(given: dict[str, Any]) -> bool:
    tally = _Tally(given["profile"], hashes=given["hashes"])
    minutes = given["minutes"]
    work = (given["profile"], minutes and minutes * 60)
    clock = SystemClock()
    until = None if given["time"] is None else clock.elapsed_s() + given["time"].seconds
    seeds = _seeds(given["seeds"], endless=until is not None)
    with _determined(), _pool(given["processes"]) as submit:
        under_way: list[Future[Result]] = []
        for seed in seeds:
            under_way.append(submit(_run_seed, seed, *work))
            if len(under_way) >= 2 * given["processes"]:
                tally.add(under_way.pop(0).result())
            if until is not None and clock.elapsed_s() > until:
                break
        for one in under_way:
            tally.add(one.result())
    tally.say()
    return not tally.failed


def _seeds(text: str | None, *, endless: bool) -> Iterator[int]:
    first, dots, last = (text or "").partition("..")
    if text is None:
        if not endless:
            raise click.UsageError(
                "say which: --seed N, --seeds N..M, --for DURATION or --live URL"
            )
        yield from _from(secrets.randbelow(1 << 40))
        return
    if not (dots and first.isdigit() and last.isdigit()):
        raise click.BadParameter("such as 1..200", param_hint="'--seeds'")
    yield from range(int(first), int(last) + 1)


def _from(seed: int) -> Iterator[int]:
    """From somewhere new each time, so that nights add up."""
    while True:
        yield seed
        seed += 1


@contextmanager
def _pool(processes: int) -> Iterator[Any]:
    """Runs in processes of their own, or, one at a time, right here."""
    if processes == 1:
        yield _here
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield pool.submit


def _here(function: Any, *args: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(function(*args))
    return future


def _run_seed(seed: int, profile: str, storm_s: float | None) -> Result:
    from rota.sim.plan import draw
    from rota.sim.run import run

    return run(draw(seed, profile=profile, storm_s=storm_s))
