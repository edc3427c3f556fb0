"""Requests made up from the OpenAPI document: the server keeps to it, and never fails.

The shortest run sends every example; the slow one goes through every corner of every schema, one by
one; the long one adds chance, and chains of calls that hand each other ids.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.cell import Cell, until

pytest.importorskip("schemathesis", reason="make fuzz installs it")

ROOT = Path(__file__).parents[2]
REPLACED = "positive_data_acceptance,negative_data_rejection"
"""The checks of tests/fuzz/checks.py ask these where they apply."""
SHORT_SEED = 1
LONG_EXAMPLES = 60
SHORT_CHAINS = 20
LONG_CHAINS = 300
"""Each follows the document's links: what one call made is asked about, changed and removed."""
CHAINS = ("--phases", "stateful", "--mode", "positive")
ENDLESS = "/stream"
"""Each look at it lasts seconds, so it has a test of its own."""


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[Cell]:
    """A server with short polls, so that they do not slow the run."""
    with Cell(tmp_path, lease_ttl="1s") as one:
        one.up()
        yield one


def an_execution(cell: Cell) -> str:
    """The id of an execution, which no single call creates."""
    http = cell.http()
    http.post("/jobs", json={"name": "fuzzed", "task": {"kind": "noop"}})
    spec = {"name": "fuzzer", "resources": {"cpu": 4}}
    worker = http.post("/workers/register", json=spec).json()["worker_id"]
    path, poll = f"/workers/{worker}/lease", {"max": 1, "wait": "1s"}
    orders = until(lambda: http.post(path, json=poll).json()["executions"], "an order")
    return str(orders[0]["execution_id"])


def fuzz(cell: Cell, seed: int, *more: str) -> str:
    """Runs schemathesis and returns its output; findings are in the assertion's message."""
    config = cell.folder / "schemathesis.toml"
    config.write_text(f'[parameters]\n"path.execution_id" = "{an_execution(cell)}"\n')
    args = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config)),
        *("run", f"{cell.url}/openapi.json", "--header", f"Authorization: Bearer {cell.token}"),
        *("--exclude-checks", REPLACED, "--seed", str(seed), "--no-color"),
        # Not several threads: Python 3.11 breaks when two of them parse source at once.
        *("--workers", "1", *more),
    ]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    hooks = "tests.fuzz.chains" if CHAINS[1] in more else "tests.fuzz.checks"
    env = {"PYTHONPATH": path, "SCHEMATHESIS_HOOKS": hooks}
    done = subprocess.run(
        args, cwd=cell.folder, env={**os.environ, **env}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"seed {seed}\n{done.stdout[-20_000:]}\n{done.stderr[-2_000:]}"
    assert_unharmed(cell)
    return done.stdout


def assert_unharmed(cell: Cell) -> None:
    """Checks that the server had no internal error and can load everything again."""
    assert "Traceback" not in cell.server.text()
    assert '"error"' not in cell.server.text()
    cell.server.kill()
    cell.up()
    assert cell.client().ready().status == "ok"


@pytest.mark.process
def test_every_example_of_the_document_is_as_it_says(cell: Cell) -> None:
    fuzz(cell, SHORT_SEED, "--phases", "examples", "--exclude-path", ENDLESS)


@pytest.mark.process
@pytest.mark.slow
def test_every_corner_of_the_document_is_as_it_says(cell: Cell) -> None:
    fuzz(cell, SHORT_SEED, "--phases", "coverage", "--exclude-path", ENDLESS)


@pytest.mark.fuzz
def test_the_stream_is_as_the_document_says(cell: Cell) -> None:
    fuzz(cell, SHORT_SEED, "--phases", "examples,coverage", "--include-path", ENDLESS)


def seed_of_this_run() -> int:
    return int(os.environ.get("ROTA_FUZZ_SEED", secrets.randbelow(1_000_000_000)))


@pytest.mark.fuzz
def test_chance_finds_no_fault(cell: Cell) -> None:
    examples = ("--max-examples", str(LONG_EXAMPLES), "--exclude-path", ENDLESS)
    fuzz(cell, seed_of_this_run(), "--phases", "fuzzing", *examples)


@pytest.mark.process
@pytest.mark.slow
def test_chains_of_calls_find_no_fault(cell: Cell) -> None:
    chains = ("--max-examples", str(SHORT_CHAINS), "--exclude-path", ENDLESS)
    fuzz(cell, SHORT_SEED, *CHAINS, *chains)


@pytest.mark.fuzz
def test_many_chains_of_calls_find_no_fault(cell: Cell) -> None:
    chains = ("--max-examples", str(LONG_CHAINS), "--exclude-path", ENDLESS)
    fuzz(cell, seed_of_this_run(), *CHAINS, *chains)
