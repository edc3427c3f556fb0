"""One storm on a cluster, from its first server to the verdict."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

from tests.chaos.cluster import Cluster
from tests.chaos.faults import Faults
from tests.chaos.report import Report, journal_of
from tests.chaos.storm import Havoc, Storm

WORKERS = 3
CLIENTS = 3


class Trial:
    """Load on a cluster, hands on everything in it, and what is said of it in the end."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        seed = int(os.environ.get("ROTA_CHAOS_SEED", seed))
        print(f"again: ROTA_CHAOS_SEED={seed}")  # noqa: T201  (pytest shows it)
        self.cluster = cluster
        self.storm = Storm(cluster, seed, workers=WORKERS, clients=CLIENTS)
        self.dice = self.storm.dice
        history = self.storm.notes.history
        self.faults = Faults(cluster, self.storm.crew, history, self.dice.getrandbits(64))

    def rage(self, *havocs: Havoc, seconds: float | None = None) -> None:
        """For so long; without a time until the plan of the one havoc is done."""
        if seconds is None:
            (havoc,) = havocs
            self.storm.rage_until_done(havoc)
        else:
            self.storm.rage(seconds, *havocs)

    def verdict(self) -> Report:
        """Everything may end; then no promise may be broken."""
        self.storm.settle()
        report = self.report()
        where = self.keep(report)
        print(report.text())  # noqa: T201
        broken = report.broken()
        assert not broken, "\n".join([f"the whole story is in {where}", *broken])
        return report

    def report(self) -> Report:
        """What is known by now."""
        havocs = self.storm.havocs
        deeds = [deed for havoc in havocs for deed in havoc.deeds]
        deeds.sort(key=lambda deed: deed.began)
        report = Report(self.storm.notes.history, journal_of(self.cluster.dsn), deeds)
        for havoc in havocs:
            report.missed.update(havoc.missed)
        return report

    def keep(self, report: Report) -> Path:
        """Writes it all down."""
        self.cluster.backing.keep_log(self.cluster.folder)
        return report.keep(self.cluster.folder, self.cluster.said_by)


@contextmanager
def running(cluster: Cluster, seed: int) -> Iterator[Trial]:
    """All servers are up and one of them leads; if it ends badly, the evidence is kept."""
    with cluster:
        cluster.start_all()
        trial = Trial(cluster, seed)
        try:
            yield trial
        except Exception as error:
            try:
                error.add_note(f"the whole story is in {trial.keep(trial.report())}")
            except (asyncpg.PostgresError, OSError) as away:
                error.add_note(f"and the journal cannot be read: {away}")
            raise
