"""Recorded placement: a replay keeps labels and affinity of jobs."""

from __future__ import annotations

import json
from pathlib import Path

from rota.core.model import Affinity
from rota.simulate.trace_readers import read_history

AT = "2025-10-09T09:00:00Z"
END = "2025-10-09T09:00:10Z"


def line(name: str, **more: object) -> dict[str, object]:
    return {"job_id": name, "name": name, "submitted_at": AT, "started_at": AT, "finished_at": END,
            **more}  # fmt: skip


def test_labels_and_affinity_are_recorded_and_read(tmp_path: Path) -> None:
    workers = [
        {"resources": {"cpu": 4}, "labels": {"zone": "a", "host": "h1"}},
        {"resources": {"cpu": 4}, "labels": {"zone": "b"}, "only": ["batch"]},
    ]
    affinity = {"require": {"zone": ["b"]}, "spread": "host", "wait": 5, "tolerate": ["batch"]}
    path = tmp_path / "past.jsonl"
    lines = [{"rota_history": 1, "workers": workers}, line("a"), line("b", affinity=affinity)]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    history = read_history(path)
    fleet = history.fleet()
    assert fleet is not None
    first, second = fleet.registrations()
    assert (first.labels, first.only) == ((("host", "h1"), ("zone", "a")), ())
    assert (second.labels, second.only) == ((("zone", "b"),), ("batch",))
    by_name = {work.terms.name: work.terms for work in history}
    needs = by_name["b"].needs
    assert needs.affinity == Affinity(
        require=(("zone", ("b",)),), spread="host", wait_ms=5000, tolerate=("batch",)
    )
    assert by_name["a"].needs.affinity is None
    plain, kept = fleet.machines
    assert plain.could_run("default", by_name["a"].needs)
    assert not plain.could_run("default", needs)
    assert kept.could_run("default", needs)
    assert not kept.could_run("default", by_name["a"].needs)
