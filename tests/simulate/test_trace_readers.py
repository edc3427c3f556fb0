"""Readers of traces: fields, cleaning of logs, and errors for broken files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rota.simulate.trace_readers import (
    RecordedHistory,
    TraceError,
    read_history,
    read_swf,
    read_workflow,
)
from rota.simulate.workload import Trace

HEADER = "; Version: 2.2\n; MaxNodes: 50\n; MaxProcs: 100\n"


def line(number: int, submit: float, run: float, procs: int, **more: Any) -> str:
    """Writes a job in Standard Workload Format."""
    fields: list[Any] = [number, submit, -1, run, procs, -1, -1, -1, -1, *[-1] * 9]
    for name, value in more.items():
        fields[int(name.removeprefix("f")) - 1] = value
    return " ".join(str(field) for field in fields) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def swf(folder: Path, *lines: str, **options: Any) -> Trace:
    """Reads these lines."""
    path = folder / "log.swf"
    path.write_text("".join(lines))
    return read_swf(path, **options)


def shapes(trace: Trace) -> list[tuple[str, int, int, int]]:
    """Returns (label, submit s, run s, cpus) of all jobs."""
    return [
        (w.label, w.submit_ms // 1000, w.run_ms // 1000, w.terms.needs.resources.cpu_milli // 1000)
        for w in trace
    ]


def test_the_first_job_of_a_cleaned_log_arrives_at_zero(folder: Path) -> None:
    trace = swf(folder, HEADER, line(1, 50, 0, 4), line(2, 60, 5, 4), line(3, 75, 6, 8))
    assert shapes(trace) == [("2", 0, 5, 4), ("3", 15, 6, 8)]
    assert (trace.dropped, trace.processors) == (1, 100)


def test_a_job_has_its_allocated_processors_else_those_requested(folder: Path) -> None:
    trace = swf(folder, line(1, 0, 5, 4, f8=9), line(2, 0, 5, -1, f8=9), line(3, 0, 5, -1))
    assert [shape[3] for shape in shapes(trace)] == [4, 9]
    assert trace.dropped == 1


def test_a_job_larger_than_the_machine_is_left_out(folder: Path) -> None:
    lines = (HEADER, line(1, 0, 5, 101), line(2, 0, 5, 100))
    assert [shape[0] for shape in shapes(swf(folder, *lines))] == ["2"]
    assert [shape[0] for shape in shapes(swf(folder, *lines, cpus=200))] == ["1", "2"]


def test_an_estimate_is_never_shorter_than_the_run(folder: Path) -> None:
    trace = swf(folder, line(1, 0, 5, 1), line(2, 0, 5, 1, f9=60), line(3, 0, 5, 1, f9=2))
    assert [one.terms.expected_runtime_ms for one in trace] == [5000, 60_000, 5000]


def test_jobs_are_sorted_by_arrival_and_equal_ones_stay_in_the_order_of_the_file(
    folder: Path,
) -> None:
    trace = swf(folder, line(7, 9, 5, 1), line(8, 3, 5, 1), line(9, 9, 5, 1))
    assert [shape[0] for shape in shapes(trace)] == ["8", "7", "9"]


def test_all_jobs_of_a_log_are_of_one_tenant_unless_a_field_is_named(folder: Path) -> None:
    lines = (line(1, 0, 5, 1, f12=3), line(2, 0, 5, 1, f12=4))
    assert [one.terms.tenant for one in swf(folder, *lines)] == ["default", "default"]
    assert [one.terms.tenant for one in swf(folder, *lines, tenants="user")] == ["t3", "t4"]


def test_a_packed_log_is_read_whatever_its_file_is_named(folder: Path) -> None:
    path = folder / "log.txt"
    path.write_bytes(gzip.compress(line(1, 0, 5, 1).encode()))
    assert len(read_swf(path)) == 1


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("1 2 3\n", r"line 2: 3 fields, a job has 18"),
        (line(1, 0, 5, 1).replace(" 5 ", " five "), r"line 2: field 4 is 'five'"),
        (line(1, 0, 5, 1).replace(" 5 ", " nan "), r"line 2: field 4 is 'nan'"),
        (line(1, 0, 5, 1).replace(" 5 ", " 1e300 "), r"line 2: field 4 is '1e300'"),
        (line(1, 0, 5, 10**30), r"line 2: field 5"),
        ("", r"no job that ran"),
    ],
)
def test_an_error_in_a_log_names_its_line(folder: Path, bad: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        swf(folder, "; a comment\n", bad)


def test_a_packed_log_that_was_cut_off_is_refused(folder: Path) -> None:
    path = folder / "log.swf.gz"
    path.write_bytes(gzip.compress(line(1, 0, 5, 1).encode() * 1000)[:-20])
    with pytest.raises(TraceError, match="cut off"):
        read_swf(path)


def test_a_missing_log_is_refused(folder: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_swf(folder / "nowhere.swf")


# Workflows


def workflow(folder: Path, tasks: Sequence[tuple[str, float, Sequence[str]]]) -> Trace:
    """Reads tasks (id, run time, parents) as WfFormat 1.5."""
    document = {
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [{"id": t, "name": t, "parents": ups} for t, _, ups in tasks]
            },
            "execution": {"tasks": [{"id": t, "runtimeInSeconds": run} for t, run, _ in tasks]},
        },
    }
    path = folder / "graph.json"
    path.write_text(json.dumps(document))
    return read_workflow(path)


def test_tasks_of_a_workflow_arrive_in_topological_order(folder: Path) -> None:
    trace = workflow(
        folder, [("end", 1, ["left", "right"]), ("left", 2, []), ("right", 3.5, ["left"])]
    )
    assert [(one.label, one.run_ms, one.parents) for one in trace] == [
        ("left", 2000, ()),
        ("right", 3500, (0,)),
        ("end", 1000, (0, 1)),
    ]


def test_a_task_without_a_run_time_takes_one_millisecond(folder: Path) -> None:
    assert [one.run_ms for one in workflow(folder, [("a", 0.0, [])])] == [1]


def test_a_workflow_of_the_older_format_is_read(folder: Path) -> None:
    tasks = [
        {"id": "a", "runtimeInSeconds": 2, "parents": [], "coreCount": 2},
        {"id": "b", "runtimeInSeconds": 3, "parents": ["a"], "memoryInBytes": 1024},
    ]
    path = folder / "graph.json"
    path.write_text(json.dumps({"schemaVersion": "1.4", "workflow": {"tasks": tasks}}))
    trace = list(read_workflow(path, with_memory=True))
    assert [one.terms.needs.resources.cpu_milli for one in trace] == [2000, 1000]
    assert [one.terms.needs.resources.memory for one in trace] == [0, 1024]
    assert trace[1].parents == (0,)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([("a", 1, ["b"]), ("b", 1, ["a"])], "a depends on itself, through other jobs"),
        ([("a", 1, ["z"])], "'a' depends on 'z', which does not exist"),
        ([("a", 1, []), ("a", 1, [])], "two tasks are named 'a'"),
        ([("a", -1, [])], "runtimeInSeconds"),
        ([], "no tasks"),
    ],
)
def test_a_graph_that_cannot_be_run_is_refused(
    folder: Path, tasks: list[tuple[str, float, list[str]]], message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        workflow(folder, tasks)


# Recorded history

OPENING = {
    "rota_history": 1,
    "workers": [{"resources": {"cpu": 4, "memory": 1 << 30}, "queues": ["mail"]}],
    "queues": [{"name": "mail", "max_workers": 3, "rate_limit": {"count": 5, "per": 1.5}}],
}


def ran(job_id: str, submitted: str, seconds: int, **more: Any) -> dict[str, Any]:
    """Writes a job that ran on the first of May."""
    return {
        "job_id": job_id,
        "name": "invoice",
        "submitted_at": f"2026-05-01T{submitted}Z",
        "started_at": "2026-05-01T12:00:00Z",
        "finished_at": f"2026-05-01T12:00:{seconds:02}Z",
        **more,
    }


def recorded(folder: Path, *rows: object) -> RecordedHistory:
    """Reads these lines."""
    path = folder / "history.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_history(path)


def test_history_is_replayed_in_the_order_of_arrival(folder: Path) -> None:
    newest_first = (ran("b", "10:00:05", 7), ran("a", "10:00:00", 3, tenant="shop", priority=9))
    trace = recorded(folder, OPENING, *newest_first)
    assert [(one.label, one.submit_ms, one.run_ms) for one in trace] == [
        ("a", 0, 3000),
        ("b", 5000, 7000),
    ]
    first = next(iter(trace)).terms
    assert (first.tenant, first.priority, first.needs.resources.cpu_milli) == ("shop", 9, 1000)


def test_history_has_the_cell_in_which_it_was_recorded(folder: Path) -> None:
    trace = recorded(folder, OPENING, ran("a", "10:00:00", 3))
    fleet = trace.fleet()
    assert fleet is not None
    assert (fleet.workers, fleet.cpu_milli, fleet.machines[0].queues) == (1, 4000, ("mail",))
    (setting,) = trace.settings()
    assert getattr(setting, "rate_limit").per_ms == 1500  # noqa: B009  (a union of all inputs)


def test_dependencies_on_jobs_that_were_not_recorded_are_dropped(folder: Path) -> None:
    later = ran("b", "10:00:00", 7, dependencies=["a", "gone"])
    trace = recorded(folder, OPENING, later, ran("a", "11:00:00", 3))
    assert [(one.label, one.submit_ms, one.parents) for one in trace] == [
        ("a", 3_600_000, ()),
        ("b", 3_600_000, (0,)),
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"rota_history": 2}], "version 2"),
        ([{"hello": 1}], "line 1: not a line of exported history: .*rota_history"),
        ([OPENING, {"job_id": "a"}], "line 2: .*name"),
        (
            [OPENING, ran("a", "10:00:00", 1), ran("a", "10:00:00", 1)],
            "line 3: job a is also in line",
        ),
        ([OPENING, ran("a", "10:00:00", 1, requirements={"cpu": 1e99})], "line 2: .*cpu"),
    ],
)
def test_an_error_in_history_names_its_line(folder: Path, rows: list[object], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        recorded(folder, *rows)


def test_empty_history_is_refused(folder: Path) -> None:
    with pytest.raises(TraceError, match="empty"):
        recorded(folder)
