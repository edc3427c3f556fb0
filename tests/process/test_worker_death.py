"""Workers that are killed, stopped or late; no job outlives its end."""

from __future__ import annotations

import secrets
import signal
import threading
from typing import Any

import httpx2
import pytest

from rota.sdk import Client
from rota.wire.workers import ExecutionView
from tests.process.cell import Cell, marked, until

pytestmark = pytest.mark.process

FAMILY = """
(env -i setsid sh -c 'trap "" TERM; sleep 601.{mark} & wait' &)
(sh -c 'exec sleep 602.{mark}' &)
sleep 603.{mark}
"""
"""A shell, a grandchild of a new session without environment that is deaf to SIGTERM, its child, an
orphan, and a child."""
FAMILY_SIZE = 5


@pytest.fixture
def mark() -> str:
    """What the command lines of one test's jobs have in them, and no others."""
    return str(secrets.randbelow(10**12))


def family_is_there(mark: str) -> None:
    """Waits for all processes of a job that runs FAMILY."""
    until(lambda: len(marked(mark)) == FAMILY_SIZE, "the whole family")


def family_job(name: str, mark: str, **more: object) -> dict[str, object]:
    script = FAMILY.format(mark=mark)
    return {"name": name, "task": {"kind": "command", "argv": ["sh", "-c", script]}, **more}


def executions(client: Client, job_id: str) -> list[ExecutionView]:
    """Oldest first."""
    return client.executions(job_id=job_id).items[::-1]


def test_a_killed_workers_job_runs_again_under_a_higher_fence(cell: Cell, mark: str) -> None:
    cell.up()
    doomed = cell.worker("doomed")
    client = cell.client()
    first_hangs = f'[ "$ROTA_FENCE" -gt 1 ] || sleep 600.{mark}'
    job = client.submit(cell.witness_job("hard", first_hangs))
    once = client.submit(cell.witness_job("once", "sleep 600", semantics="at_most_once"))
    cell.until_witnessed("hard")
    cell.until_witnessed("once")
    assert marked(mark)
    doomed.kill()
    until(lambda: not marked(mark), "the end of the dead worker's job")
    cell.worker("successor")
    ended = client.wait(job.job_id, timeout_s=30)
    assert (ended.status, ended.attempt, ended.losses) == ("succeeded", 1, 1)
    lost, done = executions(client, job.job_id)
    assert (lost.status, done.status) == ("lost", "succeeded")
    assert lost.fence < done.fence == ended.fence
    assert [int(line.split()[1]) for line in cell.witnessed("hard")] == [lost.fence, done.fence]
    never_again = client.wait(once.job_id, timeout_s=30)
    assert (never_again.status, never_again.reason) == ("failed", "lost")
    assert len(cell.witnessed("once")) == 1


def take(http: httpx2.Client, name: str) -> dict[str, Any]:
    """Leases one execution and names it, as a worker of another language would."""
    spec = {"name": name, "resources": {"cpu": 1}}
    worker = http.post("/workers/register", json=spec).json()["worker_id"]
    poll = {"max": 1, "wait": "1s"}
    orders: list[dict[str, Any]] = until(
        lambda: http.post(f"/workers/{worker}/lease", json=poll).json()["executions"], "an order"
    )
    named = [{"execution_id": orders[0]["execution_id"], "fence": orders[0]["fence"]}]
    beat = http.post(f"/workers/{worker}/heartbeat", json={"executions": named})
    assert beat.json() == {"cancel": [], "lost": []}
    return orders[0]


def test_a_completion_that_comes_too_late_is_refused_and_changes_nothing(cell: Cell) -> None:
    cell.up()
    client, http = cell.client(), cell.http()
    job = client.submit({"name": "late", "task": {"kind": "noop"}})
    slow = take(http, "slow")
    until(lambda: client.job(job.job_id).status == "queued", "the loss of the lease")
    successor = take(http, "successor")
    assert successor["fence"] > slow["fence"]
    for body in (
        {"status": "succeeded", "fence": slow["fence"], "result": "stale"},
        {"status": "succeeded", "fence": successor["fence"], "result": "forged"},
        {"status": "failed", "fence": slow["fence"] + 100},
    ):
        answer = http.post(f"/executions/{slow['execution_id']}/complete", json=body)
        assert answer.status_code == 409, answer.text
    wrong_fence = {"status": "succeeded", "fence": slow["fence"]}
    path = f"/executions/{successor['execution_id']}/complete"
    assert http.post(path, json=wrong_fence).status_code == 409
    assert client.job(job.job_id).status == "running"
    right = {"status": "succeeded", "fence": successor["fence"], "result": "good"}
    assert http.post(path, json=right).status_code == 200
    assert http.post(path, json=right).status_code == 200
    assert http.post(path, json={**right, "status": "failed"}).status_code == 409
    ended = client.job(job.job_id)
    assert (ended.status, ended.result, ended.losses) == ("succeeded", "good", 1)


def test_a_cancelled_job_s_whole_process_tree_ends(cell: Cell, mark: str) -> None:
    cell.up()
    cell.worker("w")
    client = cell.client()
    job = client.submit(family_job("family", mark))
    family_is_there(mark)
    assert client.cancel(job.job_id).status == "cancelling"
    ended = client.wait(job.job_id, timeout_s=30)
    assert ended.status == "cancelled"
    assert not marked(mark)


def test_a_timeout_ends_the_whole_process_tree_and_counts_as_an_attempt(
    cell: Cell, mark: str
) -> None:
    cell.up()
    cell.worker("w")
    client = cell.client()
    job = client.submit(family_job("slow", mark, timeout="1s"))
    family_is_there(mark)
    ended = client.wait(job.job_id, timeout_s=30)
    assert (ended.status, ended.reason, ended.attempt) == ("failed", "timeout", 1)
    assert [run.status for run in executions(client, job.job_id)] == ["timed_out"]
    assert not marked(mark)


def test_a_killed_agent_leaves_no_process_of_its_jobs(cell: Cell, mark: str) -> None:
    cell.up()
    worker = cell.worker("w")
    cell.client().submit(family_job("orphans", mark))
    family_is_there(mark)
    worker.kill()
    until(lambda: not marked(mark), "the end of all its processes")


def test_sigterm_lets_the_running_job_finish_and_takes_no_other(cell: Cell) -> None:
    cell.up()
    worker = cell.worker("leaver", "--concurrency", "1")
    client = cell.client()
    gate = cell.folder / "gate"
    running = client.submit(
        cell.witness_job("running", f"while [ ! -e {gate} ]; do sleep 0.02; done")
    )
    waiting = client.submit(cell.witness_job("waiting"))
    cell.until_witnessed("running")
    worker.signal(signal.SIGTERM)
    until(lambda: client.workers()[0].status == "draining", "a draining worker")
    gate.touch()
    assert worker.wait() == 0
    assert client.job(running.job_id).status == "succeeded"
    assert client.job(waiting.job_id).status == "queued"
    assert [one.status for one in client.workers()] == ["offline"]
    cell.worker("next")
    assert client.wait(waiting.job_id, timeout_s=30).status == "succeeded"
    assert len(cell.witnessed("running")) == len(cell.witnessed("waiting")) == 1


@pytest.mark.chaos
def test_a_job_that_kills_its_worker_every_time_becomes_a_dead_letter(cell: Cell) -> None:
    cell.lease_ttl = "1s"
    cell.up()
    client = cell.client()
    # In a PID namespace a job cannot even see its worker.
    parent = "$(cut -d ' ' -f 4 /proc/{}/stat)"
    script = (
        f"supervisor={parent.format('$PPID')}; kill -9 {parent.format('$supervisor')}; sleep 600"
    )
    job = client.submit(cell.witness_job("poison", script))
    stopped = threading.Event()

    def keep_one_worker() -> None:
        while not stopped.is_set():
            cell.worker("victim", "--isolation", "subreaper").wait(60)

    restarter = threading.Thread(target=keep_one_worker)
    restarter.start()
    try:
        ended = client.wait(job.job_id, timeout_s=60)
        assert (ended.status, ended.reason, ended.attempt) == ("failed", "lost", 1)
        assert ended.losses == len(cell.witnessed("poison"))
        assert [dead.job_id for dead in client.dead_letters().items] == [job.job_id]
    finally:
        stopped.set()
        for worker in cell.workers:
            worker.signal(signal.SIGTERM)
        restarter.join()
