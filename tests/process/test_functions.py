"""Functions and requests as jobs, on real workers of a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.cell import Cell, until

pytestmark = pytest.mark.process

SHOP = """
import asyncio, os, time
from rota import App

app = App()

@app.job
def invoice(customer: int) -> str:
    print("writes an invoice")
    return f"invoice {customer}"

@app.job
async def remind(number: int) -> int:
    await asyncio.sleep(0.01)
    return number

@app.job
def hang(mark: str) -> None:
    open(mark, "w").close()
    time.sleep(600)

@app.job
def region() -> str:
    return os.environ["SHOP_REGION"]

def plain(a, b):
    return a * b
"""


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)


def test_functions_of_an_app_and_of_any_module_run_on_its_worker(cell: Cell) -> None:
    cell.up()
    cell.worker("shop", "--app", "shop:app")
    client = cell.client()
    jobs = [client.submit({"name": "invoice", "payload": {"customer": 42}})]
    jobs += [client.submit({"name": "remind", "payload": [number]}) for number in range(20)]
    task = {"kind": "python", "entry": "shop:plain", "args": [6], "kwargs": {"b": 7}}
    jobs.append(client.submit({"name": "any", "task": task}))
    ended = [cell.until_status(client, job.job_id, "succeeded", "failed") for job in jobs]
    assert [job.result for job in ended] == ["invoice 42", *range(20), 42]
    assert client.logs(jobs[0].job_id) == b"writes an invoice\n"
    [worker] = client.workers()
    assert {"fn:invoice", "fn:remind", "fn:hang"} <= set(worker.capabilities)


def test_the_workers_of_up_have_the_app_and_the_variables_it_was_started_with(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_REGION", "north")
    cell.up("--workers", "1", "--app", "shop:app", "--env", "SHOP_REGION")
    client = cell.client()
    job = client.submit({"name": "region"})
    assert cell.until_status(client, job.job_id, "succeeded", "failed").result == "north"


def test_an_unknown_function_waits_until_a_worker_has_it(cell: Cell) -> None:
    cell.up()
    cell.worker("plain")
    client = cell.client()
    until(lambda: client.workers(status=["online"]), "a worker")
    job = client.submit({"name": "invoice", "payload": [7]})
    why = client.why(job.job_id)
    assert (why.status, why.cause.code) == ("queued", "no_function")
    assert "no worker has the function invoice" in why.cause.message
    cell.worker("shop", "--app", "shop:app")
    assert cell.until_status(client, job.job_id, "succeeded").result == "invoice 7"


def test_a_function_that_runs_is_cancelled_and_its_worker_drains(
    cell: Cell, tmp_path: Path
) -> None:
    cell.up()
    worker = cell.worker("shop", "--app", "shop:app")
    client = cell.client()
    mark = tmp_path / "mark"
    job = client.submit({"name": "hang", "payload": [str(mark)]})
    until(mark.exists, "a function that hangs")
    client.cancel(job.job_id)
    ended = cell.until_status(client, job.job_id, "cancelled")
    assert "SIGTERM" in ended.error["message"]
    assert worker.stop() == 0, worker.text()


@pytest.mark.parametrize(
    ("app", "hint"),
    [
        ("nowhere:app", "there is no module nowhere"),
        ("shop:plain", "is not a rota.App but a function"),
        ("shop:missing", "module shop has no missing"),
    ],
)
def test_a_worker_whose_app_cannot_be_imported_stops_and_says_why(
    cell: Cell, app: str, hint: str
) -> None:
    cell.up()
    worker = cell.worker("shop", "--app", app)
    assert worker.wait() == 1
    assert hint in worker.text()


def test_an_http_task_reaches_private_addresses_only_where_the_operator_allows(cell: Cell) -> None:
    cell.up()
    worker = cell.worker("careful")
    client = cell.client()
    ask = {"name": "ping", "task": {"kind": "http", "url": f"{cell.url}/healthz"}}
    refused = cell.until_status(client, client.submit(ask).job_id, "succeeded", "failed")
    assert "127.0.0.1 is a private address" in refused.error["message"]
    worker.stop()
    cell.worker("trusting", "--http-allow", "127.0.0.1")
    answered = cell.until_status(client, client.submit(ask).job_id, "succeeded", "failed")
    assert answered.result["status"] == 200


def test_the_workers_of_up_get_its_http_allow_option(cell: Cell) -> None:
    cell.up("--workers", "1", "--http-allow", "127.0.0.1")
    client = cell.client()
    ask = {"name": "ping", "task": {"kind": "http", "url": f"{cell.url}/healthz"}}
    answered = cell.until_status(client, client.submit(ask).job_id, "succeeded", "failed")
    assert answered.result["status"] == 200
