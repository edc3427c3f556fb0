"""The servers of a cell, drawn; and the schema of a store, brought up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.store.sqlite.store import open_sqlite
from rota.wire.service import ClusterView, LagView, LossView, NodeView
from tests.cli.conftest import Rota
from tests.sdk.fake_server import SmallServer

AT = "2026-11-15T10:00:00.000Z"


def node(name: str, role: str, status: str = "up", lag: LagView | None = None) -> NodeView:
    address = f"http://{name}:7070"
    return NodeView(name, address, role, status, "0.1.0", lag or LagView(0, 0), AT, AT)


@pytest.fixture
def shown(server: SmallServer) -> ClusterView:
    """What the server tells of its cell; a test may change it."""
    nodes = [node("a", "leader"), node("b", "follower", lag=LagView(12, 1.5))]
    server.company = ClusterView("a", 7, nodes, "sync-ha")
    return server.company


@pytest.mark.usefixtures("shown")
def test_the_cluster_is_drawn_with_its_leader_and_how_far_others_are_behind(rota: Rota) -> None:
    lines = rota("cluster").out.splitlines()
    assert lines[0].split() == ["leader", "a"]
    assert "sync-ha" in lines[2]
    drawn = {line.split()[0]: line for line in lines[5:]}
    assert "leader" in drawn["a"]
    assert "12 records, 1.5 s" in drawn["b"]


def test_a_cell_without_a_leader_is_shown_as_such(rota: Rota, shown: ClusterView) -> None:
    shown.leader = None
    shown.warnings = ["nobody leads: starting"]
    out = rota("cluster").out
    assert "none: no server leads" in out
    assert "nobody leads: starting" in out
    assert rota("cluster", "--json").json["leader"] is None


def test_lost_records_are_shown_with_the_cluster(rota: Rota, shown: ClusterView) -> None:
    assert "lost" not in rota("cluster").out
    shown.lost_records = 8
    shown.losses = [LossView(5, AT, 10), LossView(3, AT, 20)]
    assert "8 records in 2 failovers, the last at 2026-11-15" in rota("cluster").out
    assert "2 failovers of the database lost 8 records" in rota("doctor").out


def test_the_doctor_fails_for_a_cell_without_a_leader(rota: Rota, shown: ClusterView) -> None:
    shown.leader = None
    ran = rota("doctor", "--json")
    assert ran.status == 1
    (cluster,) = [check for check in ran.json["checks"] if check["name"] == "cluster"]
    assert cluster["verdict"] == "fail"


def test_a_data_directory_is_looked_at_and_brought_up_to_date(rota: Rota, tmp_path: Path) -> None:
    data = tmp_path / "data"
    missing = rota("migrate", "--data", str(data), "--check")
    assert missing.status == 1
    assert "0001_baseline.sql" in missing.out
    assert not data.exists()
    assert rota("migrate", "--data", str(data)).status == 0
    assert "up to date" in rota("migrate", "--data", str(data), "--check").out


async def test_a_data_directory_in_use_is_left_alone(rota: Rota, tmp_path: Path) -> None:
    store = open_sqlite(tmp_path)
    try:
        assert rota("migrate", "--data", str(tmp_path), "--check").status == 0
    finally:
        await store.close()


def test_one_store_must_be_named(rota: Rota) -> None:
    for given in ((), ("--data", "x", "--store", "postgresql://db/rota")):
        ran = rota("migrate", *given)
        assert ran.status == 2
        assert "one of --store" in ran.err
