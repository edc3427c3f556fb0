"""Checks an installation that is really there, and says what it found."""

from __future__ import annotations

import secrets

import click

from rota.cli.connect import AT_A_TERMINAL, endpoint_of
from rota.cli.problems import Failure, explain
from rota.sdk import Client
from rota.sdk.errors import RotaError
from rota.sim.live import Trial
from rota.wire.units import Duration

BREATH_S = 0.2


def check_live(url: str, disturb: Duration | None) -> bool:
    """Whether every promise that was tried was kept."""
    endpoint = endpoint_of(url)
    tag = secrets.token_hex(6)
    kept = True
    with Client(endpoint, patience=AT_A_TERMINAL) as client:
        trial = Trial(client, tag)
        click.echo(f"checking {endpoint.shown}; all it makes carries the label rota-verify={tag}")
        try:
            for finding in trial.run(None if disturb is None else _Disturbing(disturb)):
                kept = kept and finding.kept
                word = "ok   " if finding.kept else "FAIL "
                click.echo(
                    f"{word} {finding.promise}" + f": {finding.detail}" * bool(finding.detail)
                )
        except RotaError as error:
            raise Failure(f"the check could not go on: {explain(error, endpoint)}") from error
    click.echo("every promise that was tried was kept" if kept else "a promise was broken")
    return kept


class _Disturbing:
    """Goes on submitting for a while, and lets the operator break things meanwhile."""

    def __init__(self, time: Duration) -> None:
        self._time = time

    def __call__(self, trial: Trial) -> None:
        """A job after the other, under keys, whatever happens to the servers."""
        seconds = self._time.seconds
        click.echo(f"now kill, restart, freeze or cut what you like, for {seconds:g} s ...")
        clock = trial.client.terms.clock
        until = clock.elapsed_s() + seconds
        number = 0
        while clock.elapsed_s() < until:
            trial.submit(f"disturbed-{number}")
            number += 1
            clock.sleep(BREATH_S)
        click.echo(f"{number} jobs were accepted meanwhile; waiting for them")
