"""The calls about queues and the service itself."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api.cell import cluster, queues, service
from rota.api.customs.paging import PageQuery
from rota.api.document import examples
from rota.api.document import overview_examples as shown
from rota.api.door.roles import Rule
from rota.api.metrics import CONTENT_TYPE
from rota.api.routes import HeaderSpec, Operation
from rota.api.watch import changes, overview, timeline
from rota.wire.overview import AttentionView, HistoryView, SessionView, TimelineView
from rota.wire.queues import CountAnswer, QueuePage, QueueSpec, QueueView
from rota.wire.service import ClusterView, Health, StatsView

QUEUES: Sequence[Operation] = (
    Operation(
        method="GET",
        path="/queues",
        summary="List queues, by name",
        handle=queues.list_queues,
        tag="Queues",
        rule=Rule.READ,
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
        rule=Rule.READ,
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
        rule=Rule.OPERATE,
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
        rule=Rule.OPERATE,
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
        rule=Rule.OPERATE,
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
        rule=Rule.OPERATE,
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
        rule=Rule.OPERATE,
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
        rule=Rule.OPEN,
        anywhere=True,
        answer=Health,
        examples={"answer": {"status": "ok"}},
    ),
    Operation(
        method="GET",
        path="/readyz",
        summary="Can it accept and schedule, or forward?",
        handle=cluster.show_ready,
        tag="Service",
        rule=Rule.OPEN,
        anywhere=True,
        answer=Health,
        description="`role` says whether it leads. A follower is ready when it knows the leader "
        "and could take over.",
        examples={"answer": {"status": "ok", "role": "leader"}},
    ),
    Operation(
        method="GET",
        path="/stats",
        summary="The figures of an overview",
        handle=overview.show_stats,
        tag="Service",
        rule=Rule.READ,
        answer=StatsView,
        examples={"answer": examples.STATS},
    ),
    Operation(
        method="GET",
        path="/stats/history",
        summary="How the figures moved",
        handle=overview.show_history,
        tag="Service",
        rule=Rule.READ_ALL,
        query=overview.HistoryQuery,
        answer=HistoryView,
        description="An hour in steps of 5 s or a day in steps of 2 min, since this leader began. "
        "Kept in memory only: `/metrics` is for the longer view.",
        examples={"answer": {"step": 5, "items": [shown.SAMPLE]}},
    ),
    Operation(
        method="GET",
        path="/attention",
        summary="What needs a person now",
        handle=overview.show_attention,
        tag="Service",
        rule=Rule.READ,
        answer=AttentionView,
        description="Worries of the cluster, silent workers, jobs that fail alike, queues that "
        "grow or are paused, schedules that are late. Looked up every five seconds at most.",
        examples={"answer": {"items": [shown.CONCERN]}},
    ),
    Operation(
        method="GET",
        path="/timeline",
        summary="What ran when and where",
        handle=timeline.show_timeline,
        tag="Service",
        rule=Rule.READ,
        query=timeline.TimelineQuery,
        answer=TimelineView,
        description="Executions that were claimed within the window, or run now; the last hour "
        "unless asked otherwise, 1,000 at most. `reserved` is what workers are kept free for.",
        examples={"answer": shown.TIMELINE},
    ),
    Operation(
        method="GET",
        path="/cluster",
        summary="Who leads, who is there, and how durable an answer is",
        handle=cluster.show_cluster,
        tag="Service",
        rule=Rule.KNOWN,
        anywhere=True,
        answer=ClusterView,
        examples={"answer": examples.CLUSTER},
    ),
    Operation(
        method="GET",
        path="/metrics",
        summary="Figures for Prometheus",
        handle=service.show_metrics,
        tag="Service",
        rule=Rule.READ_ALL,
        anywhere=True,
        gives=CONTENT_TYPE,
        examples={"answer": "rota_jobs_submitted_total 1223.0\n"},
    ),
    Operation(
        method="GET",
        path="/stream",
        summary="Every state change, as server-sent events",
        handle=changes.stream_changes,
        tag="Service",
        rule=Rule.READ,
        anywhere=True,
        query=changes.StreamQuery,
        gives=changes.EVENTS,
        endless=True,
        headers={"Last-Event-ID": HeaderSpec(examples.EVENT_ID, r"^\d{1,18}\.\d{1,18}$")},
        description="Each event's data is one change (kind, id, status, at, …) and its id a place "
        "in the journal. Send the last id as `Last-Event-ID` to go on from there; without it the "
        "stream starts now, and says at once where that is. If what was missed is no longer kept, "
        "the first event is `reset`: read the lists again, then go on. A comment comes every 15 s "
        "when nothing happens; a reader that takes nothing for 30 s is dropped; at most 256 "
        "streams are open (else 429).",
        examples={"answer": examples.EVENTS},
    ),
    Operation(
        method="GET",
        path="/session",
        summary="Who is signed in",
        handle=overview.show_session,
        tag="Service",
        rule=Rule.KNOWN,
        anywhere=True,
        answer=SessionView,
        examples={"answer": shown.SESSION},
    ),
    Operation(
        method="POST",
        path="/session",
        summary="Sign a browser in with a token",
        handle=service.sign_in,
        tag="Service",
        rule=Rule.KNOWN,
        anywhere=True,
        status=204,
        description="Sets an HttpOnly cookie that stands for the token sent.",
    ),
    Operation(
        method="DELETE",
        path="/session",
        summary="Sign this browser out",
        handle=service.sign_out,
        tag="Service",
        rule=Rule.OPEN,
        anywhere=True,
        status=204,
    ),
)
