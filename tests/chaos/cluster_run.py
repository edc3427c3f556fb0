"""Chaos run on a cluster, from its start to the check of the guarantees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

from tests.chaos.chaos_run import ChaosRun, FaultInjector
from tests.chaos.cluster import Cluster
from tests.chaos.faults import Faults
from tests.chaos.report import Report, journal_of

WORKERS = 3
CLIENTS = 3


class ClusterRun:
    """Load and faults on a cluster, and the report."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        seed = int(os.environ.get("ROTA_CHAOS_SEED", seed))
        print(f"again: ROTA_CHAOS_SEED={seed}")  # noqa: T201  (pytest shows it)
        self.cluster = cluster
        self.chaos = ChaosRun(cluster, seed, workers=WORKERS, clients=CLIENTS)
        self.rng = self.chaos.rng
        history = self.chaos.notes.history
        self.faults = Faults(cluster, self.chaos.worker_pool, history, self.rng.getrandbits(64))

    def run(self, *injectors: FaultInjector, seconds: float | None = None) -> None:
        """Injects faults for so long; without a time until the only injector's plan is done."""
        if seconds is None:
            (injector,) = injectors
            self.chaos.run_until_done(injector)
        else:
            self.chaos.run(seconds, *injectors)

    def verdict(self) -> Report:
        """Waits until all jobs have ended, and checks the guarantees."""
        self.chaos.settle()
        report = self.report()
        where = self.keep(report)
        print(report.text())  # noqa: T201
        broken = report.broken()
        assert not broken, "\n".join([f"logs and timeline are in {where}", *broken])
        return report

    def report(self) -> Report:
        injectors = self.chaos.injectors
        faults = [fault for injector in injectors for fault in injector.faults]
        faults.sort(key=lambda fault: fault.began)
        report = Report(self.chaos.notes.history, journal_of(self.cluster.dsn), faults)
        for injector in injectors:
            report.missed.update(injector.missed)
        return report

    def keep(self, report: Report) -> Path:
        self.cluster.database_server.keep_log(self.cluster.folder)
        return report.keep(self.cluster.folder, self.cluster.log_of)


@contextmanager
def running(cluster: Cluster, seed: int) -> Iterator[ClusterRun]:
    """Starts the cluster and waits for a leader; on an error, keeps logs and journal."""
    with cluster:
        cluster.start_all()
        run = ClusterRun(cluster, seed)
        try:
            yield run
        except Exception as error:
            try:
                error.add_note(f"logs and timeline are in {run.keep(run.report())}")
            except (asyncpg.PostgresError, OSError) as away:
                error.add_note(f"and the journal cannot be read: {away}")
            raise
