"""How much all cells need together, and what their jobs take."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import msgspec
from starlette.responses import Response

from rota.gateway.desk import GatewayRequest
from rota.gateway.fanout import ask_cells, merged_response, missing_cells, usable_responses
from rota.gateway.merge import add_up
from rota.gateway.relay import request_to

View = dict[str, Any]


async def show_autoscale(visit: GatewayRequest) -> Response:
    """Workers of one cell do nothing for another: what each needs is added up."""
    return await _together(visit, join_autoscale)


async def show_waste(visit: GatewayRequest) -> Response:
    """The reports of all cells as one."""
    return await _together(visit, join_waste)


async def _together(visit: GatewayRequest, join: Callable[[list[View]], View]) -> Response:
    cells = visit.context.directory.cells.values()
    tolds = await ask_cells(visit.context, cells, lambda cell: request_to(visit, cell))
    return merged_response(
        join([msgspec.json.decode(told.body) for told in usable_responses(tolds)]),
        missing_cells(tolds),
    )


def join_autoscale(views: list[View]) -> View:
    """Kinds of workers stay apart by cell, and shapes of jobs with them."""
    kinds: list[View] = []
    shapes: dict[str, list[View]] = {}
    for view in views:
        for name, queue in view["queues"].items():
            for shape in queue["shapes"]:
                if shape["kind"] is not None:
                    shape["kind"] += len(kinds)
                shapes.setdefault(name, []).append(shape)
        kinds += view["kinds"]
    whole: View = reduce(add_up, views)
    whole["at"], whole["target"] = views[0]["at"], views[0]["target"]
    whole["kinds"] = kinds
    for name, queue in whole["queues"].items():
        queue["shapes"] = shapes.get(name, [])
    return whole


def join_waste(views: list[View]) -> View:
    """A tenant that has moved may be in two cells."""
    tenants: dict[str, View] = {}
    for one in (one for view in views for one in view["tenants"]):
        known = tenants.get(one["tenant"])
        tenants[one["tenant"]] = one if known is None else add_up(known, one)
    return {
        "since": min(view["since"] for view in views),
        "sums": reduce(add_up, (view["sums"] for view in views)),
        "tenants": sorted(tenants.values(), key=_wasted, reverse=True),
        "items": sorted((i for view in views for i in view["items"]), key=_wasted, reverse=True),
    }


def _wasted(one: View) -> float:
    hours: float = one["sums"]["cpu_hours_wasted"]
    return hours
