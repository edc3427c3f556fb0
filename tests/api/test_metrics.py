from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from prometheus_client.samples import Sample

from rota.api.limits import METRIC_KINDS_MAX, METRIC_QUEUES_MAX
from rota.api.metrics import HISTOGRAMS, OTHER_QUEUES
from rota.engine.metrics import Metrics
from tests.api.in_process_server import NOOP, InProcessServer

PROMISED = (
    *("rota_jobs_submitted", "rota_jobs_finished", "rota_jobs", "rota_workers", "rota_leader"),
    *("rota_resource_capacity", "rota_resource_used", "rota_fold_lag_seconds", "rota_worker_usage"),
    *("rota_job_wait_seconds", "rota_job_run_seconds", "rota_dispatch_latency_seconds"),
    *("rota_schedule_lateness_seconds", "rota_append_seconds", "rota_append_jobs"),
    *("rota_data_disk_free_bytes", "process_resident_memory_bytes", "process_cpu_seconds"),
)


async def families(server: InProcessServer, accept: str = "*/*") -> dict[str, Metric]:
    """Returns the metrics of a scrape, by name."""
    answer = await server.http.get("/metrics", headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    read = read_openmetrics if "openmetrics" in answer.headers["content-type"] else read_text
    found: Iterator[Metric] = read(answer.text)
    return {one.name.removesuffix("_total"): one for one in found}


async def run_one(server: InProcessServer, **fields: object) -> None:
    """Runs a job from its submission to its end."""
    await server.finish(await server.start(await server.register(), **fields))


@pytest.mark.parametrize("accept", ["*/*", "application/openmetrics-text; version=1.0.0"])
async def test_every_promised_metric_is_there_in_both_formats(
    server: InProcessServer, accept: str
) -> None:
    await run_one(server)
    metrics_by_name = await families(server, accept)
    assert [name for name in PROMISED if name not in metrics_by_name] == []


async def test_every_accept_header_of_a_scraper_is_answered(server: InProcessServer) -> None:
    for accept in ("application/openmetrics-text;version=x", "text/plain;version=9.y", ",;,"):
        answer = await server.http.get("/metrics", headers={"Accept": accept})
        assert answer.status_code == 200, accept


async def test_a_thousand_queues_tenants_and_names_make_no_more_series(
    server: InProcessServer,
) -> None:
    jobs = [
        {
            "name": f"n{i}",
            "queue": f"q{i}",
            "tenant": f"t{i}",
            "task": NOOP,
            "labels": {"l": f"{i}"},
        }
        for i in range(1_000)
    ]
    await server.ask("POST", "/jobs/batch", {"jobs": jobs}, expect=201)
    for i in range(30):
        custom = {f"kind{i}-{j}": 1 for j in range(10)}
        await server.register(f"box{i}", resources={"cpu": 1, "custom": custom})
    metrics_by_name = await families(server)
    series = Counter({name: len(one.samples) for name, one in metrics_by_name.items()})
    assert series["rota_jobs"] == 4 * (METRIC_QUEUES_MAX + 1)
    assert series["rota_autoscale_workers"] == METRIC_QUEUES_MAX + 1
    assert series["rota_resource_capacity"] == METRIC_KINDS_MAX
    assert series.total() < 1_400
    counted = {
        (one.labels["queue"], one.labels["status"]): one.value
        for one in metrics_by_name["rota_jobs"].samples
    }
    assert counted[OTHER_QUEUES, "queued"] == 1_000 - METRIC_QUEUES_MAX
    assert sum(counted.values()) == 1_000


async def test_a_queue_with_a_series_of_its_own_keeps_it(server: InProcessServer) -> None:
    await run_one(server, queue="zz-first")
    more = [{"name": "n", "queue": f"q{i}", "task": NOOP} for i in range(METRIC_QUEUES_MAX + 50)]
    await server.ask("POST", "/jobs/batch", {"jobs": more}, expect=201)
    metrics_by_name = await families(server)
    ended = {one.labels["queue"]: one.value for one in _succeeded(metrics_by_name)}
    assert ended["zz-first"] == 1
    assert sum(ended.values()) == 1


def _succeeded(metrics_by_name: dict[str, Metric]) -> list[Sample]:
    samples = metrics_by_name["rota_jobs_finished"].samples
    return [one for one in samples if one.labels["status"] == "succeeded"]


async def test_a_first_failure_counts_as_an_increase(server: InProcessServer) -> None:
    await server.submit(queue="fresh")
    metrics_by_name = await families(server)
    zero = {"status": "failed", "queue": "fresh"}
    assert [
        one.value for one in metrics_by_name["rota_jobs_finished"].samples if one.labels == zero
    ] == [0]


async def test_a_scrape_costs_the_same_whatever_waits(server: InProcessServer) -> None:
    """Counts calls, not time: job records are never read."""
    job = {"name": "n", "task": NOOP}
    await server.ask("POST", "/jobs/batch", {"jobs": [job] * 10}, expect=201)
    few = await _calls_of_a_scrape(server)
    await server.ask("POST", "/jobs/batch", {"jobs": [job] * 5_000}, expect=201)
    many = await _calls_of_a_scrape(server)
    assert many <= few * 1.2


async def _calls_of_a_scrape(server: InProcessServer) -> int:
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    await families(server)
    sys.setprofile(count)
    try:
        await server.http.get("/metrics")
    finally:
        sys.setprofile(None)
    return calls


def test_histogram_buckets_cover_fast_and_stuck_jobs() -> None:
    histograms = Metrics().histograms()
    assert list(HISTOGRAMS) == [*histograms, "estimate_error_seconds"]  # the calibration's
    for name, one in histograms.items():
        bounds = [bound for bound, _ in one.buckets()]
        assert bounds == sorted(set(bounds))
        assert len(bounds) <= 25, name
        low, high = bounds[0], bounds[-2]
        assert (low, high >= 60) == (0.001, True) or name == "append_jobs", name
