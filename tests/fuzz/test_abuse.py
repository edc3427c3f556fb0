"""A real server while somebody does their worst: others are answered, and nothing stays behind."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.fuzz.abuse import ABUSES
from tests.fuzz.attack import NOOP, abused, connections, measure_client, memory
from tests.fuzz.raw import Raw
from tests.process.cell import Cell, until

pytestmark = [pytest.mark.process, pytest.mark.slow]

MIB = 1024 * 1024
GROWTH_MAX = 700 * MIB
"""What bodies and answers may take at once, twice: as they came, and as they are worked on."""
OURS = 8
"""Connections of the clients that look."""
CAP = 64
LOG_MAX = 20_000
"""Characters of log that an abuse may cause: a few lines, not one for each request."""
MANY_FILES = 12_000


@pytest.fixture(scope="module")
def attacked_cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cell, int]]:
    """One server with many jobs for all tests, and its memory at the start."""
    with Cell(tmp_path_factory.mktemp("abused")) as one:
        one.up()
        big = {**NOOP, "payload": {"text": "x" * 10_000}}
        for _ in range(2):
            one.client().submit_batch([big] * 500)
        assert set(measure_client(one).statuses) == {200, 201}
        yield one, memory(one)


@pytest.mark.parametrize("name", ABUSES)
def test_others_are_served_while_somebody_does_their_worst(
    attacked_cell: tuple[Cell, int], name: str
) -> None:
    cell, before = attacked_cell
    if name == "idle connections" and resource.getrlimit(resource.RLIMIT_NOFILE)[1] < MANY_FILES:
        pytest.skip("this machine allows a process fewer files than the abuse takes")
    logged = len(cell.server.text())
    with abused(cell, name):
        fared = measure_client(cell)
        assert set(fared.statuses) == {200, 201}
        assert memory(cell) - before < GROWTH_MAX
    until(lambda: connections(cell) <= OURS, "connections that are released")
    log = cell.server.text()[logged:]
    assert "Traceback" not in log
    assert '"error"' not in log
    assert len(log) < LOG_MAX


def test_a_full_house_still_lets_in_who_has_something_to_say(tmp_path: Path) -> None:
    with Cell(tmp_path) as cell:
        cell.up("--connections-max", str(CAP))
        with contextlib.ExitStack() as held:
            for _ in range(3 * CAP):
                held.enter_context(Raw(cell))
            assert set(measure_client(cell, 4).statuses) == {200, 201}
            assert connections(cell) <= CAP
            figures = cell.http().get("/metrics").text
        assert f"rota_connections_max {CAP}.0" in figures
        assert 'rota_connections_turned_away_total{outcome="refused"} 0.0' in figures


def test_a_house_full_of_readers_refuses_the_next_one_in_words(tmp_path: Path) -> None:
    with Cell(tmp_path) as cell:
        cell.up("--connections-max", str(CAP))
        with contextlib.ExitStack() as held:
            for _ in range(CAP):
                reader = held.enter_context(Raw(cell))
                reader.send(reader.head("GET /stream"))
                assert reader.status() == 200
            late = held.enter_context(Raw(cell))
            assert late.status() == 503
        until(lambda: cell.client().ready().status == "ok", "receive_buffer")


def test_more_connections_than_files_are_refused_at_the_start(tmp_path: Path) -> None:
    with Cell(tmp_path) as cell:
        server = cell.begin_up("--connections-max", "1000000")
        until(server.ended, "an end")
        assert "needs a limit of 1000256 open files" in server.text()


def test_a_server_that_may_open_no_more_files_neither_spins_nor_dies(
    tmp_path: Path,
) -> None:
    with Cell(tmp_path) as cell:
        cell.up()
        server = psutil.Process(cell.server.pid)
        allowed = server.num_fds() + 20
        server.rlimit(psutil.RLIMIT_NOFILE, (allowed, server.rlimit(psutil.RLIMIT_NOFILE)[1]))
        with contextlib.ExitStack() as held:
            for _ in range(100):
                held.enter_context(socket.create_connection(("127.0.0.1", cell.port)))
            before = server.cpu_times()
            with contextlib.suppress(psutil.TimeoutExpired):
                server.wait(3)
            after = server.cpu_times()
            assert (after.user + after.system) - (before.user + before.system) < 1.5
        assert cell.client().submit(NOOP).job_id
        assert "Traceback" not in cell.server.text()
