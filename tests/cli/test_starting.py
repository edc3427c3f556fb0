"""How `rota server` and `rota up` start: options, storage, a name that is taken, log and end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rota.cli.start import cluster
from rota.cli.start.cluster import refuse_duplicate_name
from rota.cli.start.http_server import EmbeddedServer, Ticks, listen
from rota.cli.start.storage import check_is_ours, open_blobs
from rota.cli.start.up import HttpOptions, server, up
from rota.engine.leadership import CellMember
from rota.store.documents import Node
from rota.store.protocol import StoreError
from rota.store.sqlite.memory import MemoryBlobs, MemoryStore
from tests.cli.conftest import Rota
from tests.engine.rig import until

DAY_MS = 24 * 3600 * 1000
TTL_MS = 3_000


@pytest.mark.parametrize("command", [server, up])
@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ([], 30 * DAY_MS),
        (["--retention", "90d"], 90 * DAY_MS),
        (["--retention", "24h"], DAY_MS),
        (["--retention", "forever"], None),
        (["--retention", "0"], None),
    ],
)
def test_a_length_of_time_or_for_ever(
    command: click.Command, written: list[str], ms: int | None
) -> None:
    assert command.make_context("rota", list(written)).params["retention_ms"] == ms


@pytest.mark.parametrize("written", ["12h", "soon", "-1d"])
def test_less_than_a_day_or_no_length_at_all_is_refused(written: str) -> None:
    with pytest.raises(click.BadParameter):
        server.make_context("rota", ["--retention", written])


def test_the_schema_is_brought_up_to_date_unless_told_otherwise() -> None:
    assert server.make_context("rota", []).params["migrate"] is True
    assert server.make_context("rota", ["--no-migrate"]).params["migrate"] is False


async def test_the_first_storage_is_the_cells_and_another_is_refused_unless_adopted() -> None:
    book, first, second = MemoryStore().objects, MemoryBlobs(), MemoryBlobs()
    await check_is_ours(first, book)
    await check_is_ours(first, book)
    with pytest.raises(click.ClickException, match="one that all servers share") as refused:
        await check_is_ours(second, book)
    assert "--adopt-storage" in refused.value.message
    await check_is_ours(second, book, adopt=True)
    with pytest.raises(click.ClickException):
        await check_is_ours(first, book)


@pytest.mark.parametrize("address", ["{}", "file://{}"])
def test_a_folder_may_be_named_either_way(tmp_path: Path, address: str) -> None:
    assert open_blobs(address.format(tmp_path)).where == f"the folder {tmp_path}"


def test_a_cloud_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(StoreError, match=r"pip install 'rota\[objectstore\]'"):
        open_blobs("s3://bucket")


def test_an_address_of_another_kind_is_refused(rota: Rota) -> None:
    ran = rota("server", "--objects", "ftp://files")
    assert ran.status == 2
    assert "s3://, gs:// or az://" in ran.err


def me(address: str) -> CellMember:
    return CellMember(node="a", address=address, ttl_ms=TTL_MS)


async def speak_on(store: MemoryStore) -> None:
    while True:
        await store.nodes.announce(Node(node="a", address="http://one:7070"))
        await asyncio.sleep(0.05)


async def test_a_name_that_another_server_speaks_under_is_refused() -> None:
    store = MemoryStore()
    speaking = asyncio.create_task(speak_on(store))
    await asyncio.sleep(0)
    with pytest.raises(click.ClickException, match="'a' is in this cell already, at http://one"):
        await refuse_duplicate_name(store, me("http://two:7070"))
    speaking.cancel()
    await asyncio.gather(speaking, return_exceptions=True)


async def test_a_server_that_was_killed_starts_again_at_once() -> None:
    store = MemoryStore()
    await store.nodes.announce(Node(node="a", address="http://one:7070"))
    async with asyncio.timeout(cluster.NODES_POLL_S / 2):
        await refuse_duplicate_name(store, me("http://one:7070"))


async def test_a_name_that_nobody_speaks_under_any_more_is_free() -> None:
    store = MemoryStore()
    await store.nodes.announce(Node(node="a", address="http://one:7070"))
    await refuse_duplicate_name(store, me("http://two:7070"), gone_ms=100)


SAYS = """
import logging, structlog
from rota.processes.process_log import set_up_log
set_up_log()
structlog.get_logger("rota.engine").warning("ours", job_id="j", trace_id="t")
logging.getLogger("some.library").warning("theirs %s", "too")
try:
    1 / 0
except ZeroDivisionError:
    structlog.get_logger().exception("broken")
"""


def said(log_format: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", SAYS],
        env={**os.environ, "ROTA_LOG_FORMAT": log_format},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == ""
    return run.stderr.splitlines()


@pytest.mark.parametrize("log_format", ["json", "auto"])
def test_every_line_is_one_json_object_whoever_wrote_it(log_format: str) -> None:
    ours, theirs, broken = (json.loads(line) for line in said(log_format))
    assert (ours["event"], ours["job_id"], ours["trace_id"]) == ("ours", "j", "t")
    assert (theirs["event"], theirs["logger"], theirs["level"]) == (
        "theirs too",
        "some.library",
        "warning",
    )
    assert "ZeroDivisionError" in broken["exception"]
    assert all(one["timestamp"].endswith("Z") for one in (ours, theirs, broken))


def test_text_is_for_people_and_has_no_colours_in_a_file() -> None:
    lines = said("text")
    assert "[warning  ] ours" in lines[0]
    assert "job_id=j" in lines[0]
    assert "\x1b" not in "".join(lines)


async def nothing(scope: object, receive: object, send: object) -> None:
    """An application that answers nobody."""


async def test_a_server_that_is_told_to_end_does_so_without_waiting_for_its_clock() -> None:
    options = HttpOptions(host="127.0.0.1", port=0)
    embedded = EmbeddedServer(nothing, options, ticks=Ticks(tick_s=3600.0))
    serving = asyncio.create_task(embedded.serve(sockets=[listen("127.0.0.1", 0)]))
    await until(lambda: bool(embedded.server_state.default_headers))
    assert embedded.server_state.default_headers[0][0] == b"date"
    assert not embedded.should_exit
    embedded.should_exit = True
    await asyncio.wait_for(serving, 5)
