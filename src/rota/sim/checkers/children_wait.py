"""A job starts only when those it depends on have succeeded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rota.sim.checkers.evidence import Broken, Evidence


def check(evidence: Evidence) -> Iterator[Broken]:
    """By the order of the jobs' own words."""
    began: dict[str, int] = {}
    ended: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for place, line in enumerate(evidence.history.lines):
        if line.word == "begin":
            began.setdefault(line.key, place)
        elif line.word == "end":
            ended[line.key][line.fence] = place
    records = {record.key: record for record in evidence.history.records if not record.duplicate}
    for child in records.values():
        for key in child.after:
            if child.key not in began:
                continue
            runs = records[key].runs if key in records else ()
            fences = [run.fence for run in runs if run.status == "succeeded"]
            done = ended[key].get(fences[0]) if fences else None
            if done is None or done > began[child.key]:
                yield Broken(f"{child.key} began before {key} had succeeded", (child.key, key))
