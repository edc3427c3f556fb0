"""The calls about queues and the service itself."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api import changes, examples, queues, service
from rota.api.metrics import CONTENT_TYPE
from rota.api.paging import PageQuery
from rota.api.routes import Operation
from rota.wire.queues import CountAnswer, QueuePage, QueueSpec, QueueView
from rota.wire.service import ClusterView, Health, StatsView

QUEUES: Sequence[Operation] = (
    Operation(
        method="GET",
        path="/queues",
        summary="List queues, by name",
        handle=queues.list_queues,
        tag="Queues",
        query=PageQuery,
        answer=QueuePage,
        examples={"answer": examples.QUEUES},
    ),
    Operation(
        method="GET",
        path="/queues/{name}",
        summary="Show a queue",
        handle=queues.show_queue,
        tag="Queues",
        answer=QueueView,
        errors=(404,),
        examples={"answer": examples.QUEUE},
    ),
    Operation(
        method="PUT",
        path="/queues/{name}",
        summary="Set a queue's limits",
        handle=queues.put_queue,
        tag="Queues",
        body=QueueSpec,
        answer=QueueView,
        description="Makes the queue if there is none. What is left out goes to its default.",
        examples={"body": examples.QUEUE_SPEC, "answer": examples.QUEUE},
    ),
    Operation(
        method="PATCH",
        path="/queues/{name}",
        summary="Change a queue's limits",
        handle=queues.patch_queue,
        tag="Queues",
        body=QueueSpec,
        answer=QueueView,
        errors=(404,),
        description="What is left out stays; null restores a default.",
        examples={"body": {"max_workers": 5, "rate_limit": None}, "answer": examples.QUEUE},
    ),
    Operation(
        method="POST",
        path="/queues/{name}/pause",
        summary="Start nothing more of a queue",
        handle=queues.pause_queue,
        tag="Queues",
        answer=QueueView,
        errors=(404,),
        examples={"answer": {**examples.QUEUE, "paused": True}},
    ),
    Operation(
        method="POST",
        path="/queues/{name}/resume",
        summary="Let a queue go on",
        handle=queues.resume_queue,
        tag="Queues",
        answer=QueueView,
        errors=(404,),
        examples={"answer": examples.QUEUE},
    ),
    Operation(
        method="POST",
        path="/queues/{name}/purge",
        summary="Cancel all that waits in a queue",
        handle=queues.purge_queue,
        tag="Queues",
        answer=CountAnswer,
        errors=(404,),
        examples={"answer": {"count": 14}},
    ),
)

SERVICE: Sequence[Operation] = (
    Operation(
        method="GET",
        path="/healthz",
        summary="Is the server alive?",
        handle=service.show_alive,
        tag="Service",
        answer=Health,
        open=True,
        examples={"answer": {"status": "ok"}},
    ),
    Operation(
        method="GET",
        path="/readyz",
        summary="Can it accept and schedule?",
        handle=service.show_ready,
        tag="Service",
        answer=Health,
        open=True,
        examples={"answer": {"status": "ok"}},
    ),
    Operation(
        method="GET",
        path="/stats",
        summary="The figures of an overview",
        handle=service.show_stats,
        tag="Service",
        answer=StatsView,
        examples={"answer": examples.STATS},
    ),
    Operation(
        method="GET",
        path="/cluster",
        summary="Who leads, and how durable an answer is",
        handle=service.show_cluster,
        tag="Service",
        answer=ClusterView,
        examples={"answer": examples.CLUSTER},
    ),
    Operation(
        method="GET",
        path="/metrics",
        summary="Figures for Prometheus",
        handle=service.show_metrics,
        tag="Service",
        gives=CONTENT_TYPE,
        examples={"answer": "rota_jobs_submitted_total 1223.0\n"},
    ),
    Operation(
        method="GET",
        path="/stream",
        summary="Every state change, as server-sent events",
        handle=changes.stream_changes,
        tag="Service",
        gives=changes.EVENTS,
        endless=True,
        headers={"Last-Event-ID": examples.EVENT_ID},
        description="Each event's data is one change (kind, id, status, at, …) and its id a place "
        "in the journal. Send the last id as `Last-Event-ID` to go on from there; without it the "
        "stream starts now. If what was missed is no longer kept, the first event is `reset`: "
        "read the lists again, then go on. A comment comes every 15 s when nothing happens; a "
        "reader that takes nothing for 30 s is dropped; at most 256 streams are open (else 429).",
        examples={"answer": examples.EVENTS},
    ),
    Operation(
        method="POST",
        path="/session",
        summary="Sign a browser in with a token",
        handle=service.sign_in,
        tag="Service",
        status=204,
        description="Sets an HttpOnly cookie that stands for the token sent.",
    ),
    Operation(
        method="DELETE",
        path="/session",
        summary="Sign this browser out",
        handle=service.sign_out,
        tag="Service",
        status=204,
        open=True,
    ),
)
