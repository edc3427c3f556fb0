"""Reads a trace of any known kind, which is told by what is in it."""

from __future__ import annotations

from rota.simulate.history import read_history
from rota.simulate.limits import LINE_BYTES_MAX
from rota.simulate.reading import Source, read_beginning
from rota.simulate.swf import read_swf
from rota.simulate.wfcommons import read_workflow
from rota.simulate.workload import Trace

TRACE_FORMATS = (
    "a log in Standard Workload Format, a workflow of WfCommons (JSON),"
    " or what `rota history export` wrote; packed with gzip or not"
)
"""For people who sent something else."""
_HISTORY_FIELD = b'"rota_history"'


def read_trace(source: Source, *, cpus: int | None = None) -> Trace:
    """The jobs of it; of a log those that fit a machine of `cpus` processors, or its own."""
    first, _, _ = read_beginning(source, LINE_BYTES_MAX).lstrip().partition(b"\n")
    if not first.startswith(b"{"):
        return read_swf(source, cpus=cpus)
    return read_history(source) if _HISTORY_FIELD in first else read_workflow(source)
