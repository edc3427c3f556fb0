"""The calls about how much is needed: workers for what waits, and what jobs really take."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api.cell import autoscale, reports, simulations
from rota.api.document import plan_examples
from rota.api.door.roles import Rule
from rota.api.jobs.downloads import OCTETS
from rota.api.routes import Operation
from rota.wire.autoscale import AutoscaleView
from rota.wire.limits import TRACE_BYTES_MAX
from rota.wire.reports import WasteView
from rota.wire.simulations import SimulationSpec, SimulationView, TraceQuery

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
    Operation(
        method="POST",
        path="/simulations",
        summary="Run the past once more under other policies",
        handle=simulations.simulate,
        tag="Planning",
        rule=Rule.OPERATE,
        body=SimulationSpec,
        answer=SimulationView,
        repeatable=True,
        description="The jobs that ran and were submitted in this time, up to 20,000, with the "
        "scheduler of the server under virtual time, in a process of its own that has half a "
        "minute. Nothing is changed or stored. One at a time; a larger study is for "
        "`rota history export` and `rota simulate`.",
        examples={"body": plan_examples.SIMULATION_SPEC, "answer": plan_examples.SIMULATION},
    ),
    Operation(
        method="POST",
        path="/simulations/trace",
        summary="Run a trace under several policies",
        handle=simulations.simulate_trace,
        tag="Planning",
        rule=Rule.OPERATE,
        query=TraceQuery,
        body=bytes,
        takes=OCTETS,
        reads_body=True,
        body_bytes_max=TRACE_BYTES_MAX,
        answer=SimulationView,
        repeatable=True,
        description="The body is a log in Standard Workload Format, a workflow of WfCommons, or "
        "what `rota history export` wrote, up to 16 MiB, packed with gzip or not. It runs on the "
        "machines that are asked for; else on those that it names; else on workers like those of "
        "now. `recorded` needs a trace that says when jobs started. Of more than 20,000 jobs the "
        "first are run. As above, nothing is changed or stored, and one runs at a time.",
        examples={"body": plan_examples.TRACE, "answer": plan_examples.TRACED},
    ),
)
