"""Hostile traces: any file gives a valid workload, or one clear line that names the file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.simulate.trace_readers import TraceError, read_history, read_swf, read_workflow
from rota.simulate.workload import Work

Reader = Callable[[Path], Iterable[Work]]

JOB = b"1 0 -1 5 1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1\n"
KEYS = (
    *("workflow", "tasks", "specification", "execution", "id", "parents", "runtimeInSeconds"),
    *("rota_history", "job_id", "name", "submitted_at", "requirements"),
)
words = st.text('0123456789-+.eE naif;\t\x00é{}[]":,', max_size=30)
texts = st.lists(st.lists(words, max_size=20).map(" ".join), max_size=5).map("\n".join)
numbers = st.one_of(st.integers(-(10**20), 10**20), st.floats(), st.just(-1))
tables = st.lists(st.lists(numbers, min_size=16, max_size=20), min_size=1, max_size=6)
leaves = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.text(max_size=5)), st.floats(allow_nan=False)
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns one file for all examples."""
    return tmp_path_factory.mktemp("traces") / "trace"


def put(path: Path, data: bytes) -> None:
    """Writes a new file: some file systems wait for the disk when one is overwritten."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def problem(read: Reader, path: Path) -> str:
    """Reads the file; returns the error's text, empty for a valid one."""
    try:
        works = list(read(path))
    except TraceError as error:
        return str(error)
    times = [one.submit_ms for one in works]
    assert times == sorted(times)
    assert all(one.run_ms > 0 for one in works)
    assert all(up < place for place, one in enumerate(works) for up in one.parents)
    return ""


def is_clear(text: str, path: Path) -> bool:
    """Whether an error's text is one line that names the file; no text is clear, too."""
    return not text or (text.startswith(str(path)) and "\n" not in text)


@given(text=texts)
def test_any_text_is_read_as_a_log_or_refused_clearly(path: Path, text: str) -> None:
    put(path, text.encode())
    assert is_clear(problem(read_swf, path), path)


@given(rows=tables)
def test_any_numbers_are_read_as_a_log_or_refused_clearly(
    path: Path, rows: list[list[float]]
) -> None:
    put(path, "\n".join(" ".join(map(str, row)) for row in rows).encode())
    assert is_clear(problem(read_swf, path), path)


@given(data=st.binary(max_size=200), cut=st.integers(0, 200))
def test_any_packed_bytes_are_read_as_a_trace_or_refused_clearly(
    path: Path, data: bytes, cut: int
) -> None:
    put(path, gzip.compress(JOB)[:cut] + data)
    assert is_clear(problem(read_swf, path), path)
    assert is_clear(problem(read_history, path), path)
    assert is_clear(problem(read_workflow, path), path)


@given(value=values)
def test_any_json_is_read_as_a_trace_or_refused_clearly(path: Path, value: object) -> None:
    put(path, json.dumps(value).encode())
    assert is_clear(problem(read_workflow, path), path)
    assert is_clear(problem(read_history, path), path)


def test_a_line_without_an_end_is_refused_at_its_limit(path: Path) -> None:
    put(path, gzip.compress(b"1 " * (1 << 20)))
    assert "line 1: longer than" in problem(read_swf, path)


def test_json_that_is_nested_too_deep_is_refused(path: Path) -> None:
    put(path, b'{"workflow": {"tasks": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}")
    assert "not a WfCommons workflow" in problem(read_workflow, path)
