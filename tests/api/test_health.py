"""Readiness with its reasons, losses of records, and calls that need tables that are behind."""

from __future__ import annotations

import pytest

from rota.engine.health import HealthMonitor
from rota.engine.metrics import Metrics
from rota.store.protocol import Loss, Losses, Seq, TablesBehindError
from tests.api.in_process_server import InProcessServer
from tests.stand_in import stand_in

DAY_MS = 24 * 3600 * 1000


def fall_behind(server: InProcessServer, seconds: float) -> None:
    """Has the server's tables be so far behind the journal."""
    server.change(health=HealthMonitor(server.engine, lambda: seconds))


async def test_a_server_with_tables_far_behind_is_not_ready_and_says_why(
    server: InProcessServer,
) -> None:
    fall_behind(server, 9.0)
    await server.ask("GET", "/readyz", expect=200)
    fall_behind(server, 42.0)
    answer = await server.http.get("/readyz", headers={"Authorization": ""})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    problem = answer.json()
    assert problem["reasons"] == ["the tables are 42 s behind the journal"]
    assert problem["detail"] == "not ready: the tables are 42 s behind the journal"
    warnings = (await server.ask("GET", "/cluster", expect=200))["warnings"]
    assert problem["reasons"][0] in warnings
    await server.submit()  # which needs no tables


async def test_a_job_is_told_that_the_tables_are_behind(server: InProcessServer) -> None:
    fall_behind(server, 42.0)
    job = await server.submit()
    why = await server.ask("GET", f"/jobs/{job['job_id']}/why", expect=200)
    assert why["cause"]["code"] == "no_workers"
    assert "tables_behind" in [one["code"] for one in why["others"]]


async def test_a_read_that_needs_tables_that_are_behind_has_a_code_of_its_own(
    server: InProcessServer,
) -> None:
    async def fail(*_: object) -> None:
        raise TablesBehindError("secret")

    server.change(queries=stand_in(server.deps.queries, find_jobs=fail))
    answer = await server.http.get("/jobs")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["type"].endswith("tables_behind")
    assert "secret" not in answer.text
    await server.submit()


async def test_the_cluster_shows_lost_records_and_warns_of_recent_losses(
    server: InProcessServer,
) -> None:
    now = server.engine.clock.now()
    view = await server.ask("GET", "/cluster", expect=200)
    assert (view["lost_records"], view["losses"]) == (0, [])
    await server.store.journal.note_loss(Loss(now - 30 * DAY_MS, 5, Seq(10)))
    await server.store.journal.note_loss(Loss(now, 3, Seq(20)))
    await server.store.journal.note_loss(Loss(now, 0, Seq(30)))
    view = await server.ask("GET", "/cluster", expect=200)
    assert view["lost_records"] == 8
    assert [(one["records"], one["after"]) for one in view["losses"]] == [(5, 10), (3, 20), (0, 30)]
    recent = [one for one in view["warnings"] if "failover of the database lost" in one]
    assert len(recent) == 2
    assert "lost 3 records after record 20" in recent[0]
    assert "an unknown number of records" in recent[1]


@pytest.mark.parametrize("quarantined", [0, 4])
async def test_metrics_show_the_state_of_tables_and_processes(
    server: InProcessServer, quarantined: int
) -> None:
    metrics = server.deps.metrics
    assert isinstance(metrics, Metrics)
    lost = Losses(1, (Loss(1, 7, Seq(1)),))
    server.change(
        metrics=stand_in(metrics, quarantined_jobs=lambda: quarantined, losses=lambda: lost)
    )
    text = (await server.http.get("/metrics")).text
    assert f"rota_quarantined_jobs {quarantined}.0" in text
    assert "rota_lost_records_total 7.0" in text
    assert "rota_projection_lag_seconds 0.0" in text
    assert 'rota_processes{kind="main"} 1.0' in text
