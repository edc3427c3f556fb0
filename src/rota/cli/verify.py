"""Simulates a cluster from seeds (`rota verify --seed`), or checks a real installation."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import rota
from rota.cli.connect import TERMINAL_PATIENCE, endpoint_of
from rota.cli.options import NumberRange, duration
from rota.cli.problems import Failure, explain
from rota.wire.formats import Duration

PAUSE_S = 0.2
"""Between two jobs that are submitted while the operator breaks things."""
NO_REPOSITORY = (
    "seeds need Rota's repository: the simulated cluster is among its tests (tests/simtest), not in"
    " the installed package; run this in a checkout of it, or check a real installation with"
    " --live URL"
)


@click.command()
@click.option("--seed", type=click.IntRange(0), help="Simulate this seed.")
@click.option("--seeds", metavar="N..M", help="Simulate all of these seeds.")
@click.option(
    "--for",
    "time",
    type=duration,
    metavar="DURATION",
    help="Simulate as many seeds as fit in this time.",
)
@click.option("--minutes", type=NumberRange(0.1, 600), help="Simulated length of the faults.")
@click.option(
    "--profile", default="all", show_default=True, help="Profile of faults; a wrong name lists all."
)
@click.option("--faults", metavar="1,4-6", help="Only these faults of the simulation.")
@click.option("--acts", metavar="1,4-6", help="Only these user actions of the simulation.")
@click.option("--shrink", is_flag=True, help="Look for a smaller simulation that fails.")
@click.option("--processes", "-j", type=click.IntRange(1), default=1, help="Simulations at once.")
@click.option("--hashes", is_flag=True, help="Print a hash of the trace for each seed.")
@click.option("--live", metavar="URL", help="Check this installation instead.")
@click.option(
    "--disturb", type=duration, metavar="DURATION",
    help="With --live: submit jobs this long while you kill servers or cut connections.",
)  # fmt: skip
@click.pass_context
def verify(ctx: click.Context, /, **given: Any) -> None:
    """Verify Rota's guarantees: simulate a cluster with faults, or check a real one.

    A seed determines the cluster, its users, the faults and every message. The same seed gives the
    same simulation, so a failure can be repeated. Seeds need Rota's repository. Exit 1 if a
    guarantee was violated.
    """
    if given["live"] is not None:
        ctx.exit(0 if _check_live(given["live"], given["disturb"]) else 1)
    ctx.exit(0 if _load_simtest().verify_seeds(given) else 1)


# From seeds


def _load_simtest() -> Any:
    """Loads the simulated cluster, which is outside the package: tests/simtest."""
    root = next((root for root in _roots() if (root / "tests/simtest/command.py").is_file()), None)
    if root is None:
        raise Failure(NO_REPOSITORY)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return import_module("tests.simtest.command")


def _roots() -> Iterator[Path]:
    """Places where a repository may be: around the package, then around the working folder."""
    assert rota.__file__ is not None
    yield from Path(rota.__file__).resolve().parents
    here = Path.cwd()
    yield from (here, *here.parents)


# A real installation


def _check_live(url: str, disturb: Duration | None) -> bool:
    """Checks it and prints each result; whether every promise that was tried was kept."""
    from rota.sdk import Client
    from rota.sdk.errors import RotaError
    from rota.verify.live import LiveCheck

    endpoint = endpoint_of(url)
    tag = secrets.token_hex(6)
    kept = True
    with Client(endpoint, patience=TERMINAL_PATIENCE) as client:
        check = LiveCheck(client, tag)
        click.echo(
            f"checking {endpoint.shown}; all jobs of the check have the label rota-verify={tag}"
        )
        try:
            for result in check.run(None if disturb is None else _Disturbance(disturb)):
                kept = kept and result.kept
                word = "ok   " if result.kept else "FAIL "
                click.echo(f"{word} {result.promise}" + f": {result.detail}" * bool(result.detail))
        except RotaError as error:
            raise Failure(f"the check could not go on: {explain(error, endpoint)}") from error
    click.echo("all guarantees that were checked hold" if kept else "a guarantee was violated")
    return kept


class _Disturbance:
    """Keeps submitting jobs for a while, and lets the operator break things meanwhile."""

    def __init__(self, time: Duration) -> None:
        self._time = time

    def __call__(self, check: Any) -> None:
        """Submits one job after the other, under keys, whatever happens to the servers."""
        seconds = self._time.seconds
        click.echo(
            f"now kill, restart or freeze servers, or cut connections, for {seconds:g} s ..."
        )
        clock = check.client.state.clock
        until = clock.elapsed_s() + seconds
        number = 0
        while clock.elapsed_s() < until:
            check.submit(f"disturbed-{number}")
            number += 1
            clock.sleep(PAUSE_S)
        click.echo(f"{number} jobs were accepted meanwhile; waiting for them")
