"""Joined reports of several cells: autoscale and waste."""

from __future__ import annotations

from typing import Any

from rota.gateway.endpoints import join_autoscale, join_waste
from tests.gateway.fleet import Gateway


def view(needed: int, queue: str, kind: int | None) -> dict[str, Any]:
    workers = {"online": 1, "idle": 0, "needed": needed, "add": needed - 1, "remove": 0}
    shape = {"jobs": 3, "kind": kind}
    queues = {queue: {"workers": workers, "paused": False, "shapes": [shape]}}
    head = {"at": "2026-01-05T09:00:00.000Z", "target": 300, "workers": dict(workers)}
    return {**head, "queues": queues, "kinds": [{"size": {"cpu": 4}, "workers": workers}]}


def test_needed_workers_add_up_and_worker_types_stay_apart() -> None:
    whole = join_autoscale([view(2, "mail", 0), view(3, "mail", 0), view(4, "other", None)])
    assert whole["target"] == 300
    assert whole["workers"]["needed"] == 9
    assert whole["queues"]["mail"]["workers"]["needed"] == 5
    assert [shape["kind"] for shape in whole["queues"]["mail"]["shapes"]] == [0, 1]
    assert whole["queues"]["other"]["shapes"] == [{"jobs": 3, "kind": None}]
    assert len(whole["kinds"]) == 3


def test_a_tenant_in_two_cells_is_one_in_the_report() -> None:
    def report(hours: float) -> dict[str, Any]:
        sums = {"runs": 1, "cpu_hours_wasted": hours}
        item = {"tenant": "acme", "name": "j", "sums": sums}
        tenants = [{"tenant": "acme", "sums": sums}]
        return {"since": "2026-01-05", "sums": sums, "tenants": tenants, "items": [item]}

    whole = join_waste([report(1.0), report(2.0)])
    assert whole["tenants"] == [{"tenant": "acme", "sums": {"runs": 2, "cpu_hours_wasted": 3.0}}]
    assert [item["sums"]["cpu_hours_wasted"] for item in whole["items"]] == [2.0, 1.0]


async def test_the_gateway_joins_the_reports_of_all_cells(gateway: Gateway) -> None:
    for number in range(6):
        await gateway.submit(f"tenant-{number}")
    whole = await gateway.ask("GET", "/autoscale?target=1h", expect=200)
    assert (whole["jobs"], whole["target"]) == (6, 3600)
    assert (await gateway.ask("GET", "/reports/waste", expect=200))["items"] == []
