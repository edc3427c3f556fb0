"""The calls about how much is needed: workers for what waits, and what jobs really take."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api import autoscale, plan_examples, reports
from rota.api.roles import Rule
from rota.api.routes import Operation
from rota.wire.autoscale import AutoscaleView
from rota.wire.reports import WasteView

PLANNING: Sequence[Operation] = (
    Operation(
        method="GET",
        path="/autoscale",
        summary="How many workers would clear what waits",
        handle=autoscale.show_autoscale,
        tag="Planning",
        rule=Rule.READ_ALL,
        query=autoscale.AutoscaleQuery,
        answer=AutoscaleView,
        errors=(404,),
        description="Enough workers to run all that waits for one within `target`, to go on with "
        "what runs, and to keep up with what comes. What a pause, a limit or a quota holds back "
        "asks for nobody. `workers.needed` is a number of replicas: read it by the path "
        "`workers.needed` or `queues.NAME.workers.needed`.",
        examples={"answer": plan_examples.AUTOSCALE},
    ),
    Operation(
        method="GET",
        path="/reports/waste",
        summary="What jobs asked for and what they took",
        handle=reports.show_waste,
        tag="Planning",
        rule=Rule.READ,
        query=reports.WasteQuery,
        answer=WasteView,
        description="By name, the most wasteful first: sums over whole days, and quantiles of "
        "the last few hundred runs whose workers measured them. `suggestion` is what to ask for "
        "instead.",
        examples={"answer": plan_examples.WASTE},
    ),
)
