"""Server killed or restarted: what it answered stands, and running jobs go on."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from rota.sdk import JobSearch
from tests.process.cell import Cell, shell, until

pytestmark = pytest.mark.process

BATCH = 20


class Stream:
    """A client that submits batch after batch under keys of its own, and repeats nothing."""

    def __init__(self, cell: Cell, number: int) -> None:
        self.acknowledged: dict[str, list[str]] = {}
        self.sent: list[str] = []
        self._http = cell.http()
        self._number = number
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def body(self, key: str) -> dict[str, object]:
        """What a key stands for: a chain, so that half a batch would show."""
        jobs: list[dict[str, object]] = [
            {"name": key, "task": {"kind": "noop"}, "ref": "0", "labels": {"key": key}}
        ]
        for place in range(1, BATCH):
            after = [f"ref:{place - 1}"]
            jobs.append({**jobs[0], "ref": str(place), "dependencies": after})
        return {"jobs": jobs}

    def send(self, http: httpx2.Client, key: str) -> list[str]:
        """The ids that the server answers."""
        headers = {"Idempotency-Key": key}
        answer = http.post("/jobs/batch", json=self.body(key), headers=headers)
        assert answer.status_code == 201, answer.text
        ids: list[str] = answer.json()["job_ids"]
        return ids

    def _run(self) -> None:
        try:
            while True:
                key = f"{self._number}-{len(self.sent)}"
                self.sent.append(key)
                self.acknowledged[key] = self.send(self._http, key)
        except httpx2.TransportError:
            return


def kill_amid_streams(cell: Cell, numbers: range) -> dict[str, list[str]]:
    """Streams against a server that is killed; after its restart every key is sent again."""
    streams = [Stream(cell, number) for number in numbers]
    until(lambda: sum(len(stream.acknowledged) for stream in streams) >= 9, "some batches")
    cell.server.kill()
    cell.up()
    http = cell.http()
    ids_by_key: dict[str, list[str]] = {}
    for stream in streams:
        stream.thread.join()
        for key in stream.sent:
            ids_by_key[key] = stream.send(http, key)
            assert stream.acknowledged.get(key, ids_by_key[key]) == ids_by_key[key]
    return ids_by_key


def test_a_server_killed_amid_a_stream_of_batches_loses_and_repeats_nothing(cell: Cell) -> None:
    cell.up()
    ids_by_key = {**kill_amid_streams(cell, range(3)), **kill_amid_streams(cell, range(3, 6))}
    cell.worker("one")
    client = cell.client()
    answered = sorted(job_id for ids in ids_by_key.values() for job_id in ids)
    client.wait_all(answered, timeout_s=60)
    found = list(client.jobs(JobSearch(limit=1000)))
    assert sorted(job.job_id for job in found) == answered
    whole = Counter(job.labels["key"] for job in found)
    assert whole == dict.fromkeys(ids_by_key, BATCH)
    assert {(job.status, job.attempt) for job in found} == {("succeeded", 1)}


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_runs_on_through_a_restart_of_the_server(cell: Cell, end: int) -> None:
    cell.lease_ttl = "6s"
    cell.up()
    cell.worker("steady")
    client = cell.client()
    gate = cell.folder / "gate"
    waits = f"while [ ! -e {gate} ]; do sleep 0.02; done; echo done"
    job = client.submit(cell.witness_job("through", waits))
    queued = client.submit(cell.witness_job("after", dependencies=[job.job_id]))
    cell.until_witnessed("through")
    cell.until_status(client, job.job_id, "running")
    cell.server.signal(end)
    cell.server.wait()
    cell.up()
    seen = client.job(job.job_id)
    assert (seen.status, seen.fence, seen.losses) == ("running", 1, 0)
    gate.touch()
    ended = client.wait(queued.job_id, timeout_s=30)
    assert ended.status == "succeeded"
    ended = client.job(job.job_id)
    assert (ended.status, ended.attempt, ended.fence, ended.losses) == ("succeeded", 1, 1, 0)
    assert client.logs(job.job_id) == b"done\n"
    assert [line.split()[1] for line in cell.witnessed("through")] == ["1"]


def test_a_job_that_ends_while_the_server_is_away_is_reported_when_it_is_back(cell: Cell) -> None:
    cell.lease_ttl = "6s"
    cell.up()
    cell.worker("patient")
    client = cell.client()
    gate, gone = cell.folder / "gate", cell.folder / "gone"
    waits = f"while [ ! -e {gate} ]; do sleep 0.02; done; touch {gone}"
    job = client.submit(cell.witness_job("alone", waits))
    cell.until_witnessed("alone")
    cell.server.kill()
    gate.touch()
    until(gone.exists, "the end of the job")
    cell.up()
    ended = client.wait(job.job_id, timeout_s=30)
    assert (ended.status, ended.fence, ended.losses) == ("succeeded", 1, 0)
    assert len(cell.witnessed("alone")) == 1


def test_timers_that_came_due_while_the_server_was_away_fire_after_the_restart(cell: Cell) -> None:
    cell.up()
    cell.worker("w")
    client = cell.client()
    soon = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    later = client.submit(cell.witness_job("later", run_at=soon))
    retried = client.submit(
        cell.witness_job(
            "retried", '[ "$ROTA_ATTEMPT" = 2 ]', retry={"max_attempts": 2, "delay": "2s"}
        )
    )
    expires = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    stale = client.submit(shell("true", requirements={"cpu": 900}, expires_at=expires))
    cell.until_status(client, retried.job_id, "pending")
    assert client.job(later.job_id).status == "pending"
    cell.server.kill()
    cell.up()
    client.wait_all([later.job_id, retried.job_id, stale.job_id], timeout_s=30)
    assert client.job(later.job_id).status == "succeeded"
    assert client.job(stale.job_id).status == "expired"
    ended = client.job(retried.job_id)
    assert (ended.status, ended.attempt) == ("succeeded", 2)
    assert len(cell.witnessed("later")) == 1
    assert len(cell.witnessed("retried")) == 2
    executions = client.executions(job_id=retried.job_id).items
    second, first = executions
    waited = datetime.fromisoformat(str(second.claimed_at)) - datetime.fromisoformat(
        str(first.end_time)
    )
    assert waited >= timedelta(seconds=1.7)  # two, less the jitter of a tenth


def test_a_worker_lost_while_the_server_was_away_is_noticed(cell: Cell) -> None:
    cell.up()
    doomed = cell.worker("doomed")
    client = cell.client()
    job = client.submit(cell.witness_job("again", '[ "$ROTA_FENCE" -gt 1 ] || sleep 600'))
    cell.until_witnessed("again")
    cell.server.kill()
    doomed.kill()
    cell.up()
    cell.worker("successor")
    ended = client.wait(job.job_id, timeout_s=30)
    assert (ended.status, ended.attempt, ended.losses) == ("succeeded", 1, 1)
    assert ended.fence > 1


def test_a_stream_resumes_after_a_restart(cell: Cell) -> None:
    cell.up()
    client = cell.client()
    first = client.submit({"name": "one", "task": {"kind": "noop"}})
    events = client.stream(after="0.0")
    seen = next(event for event in events if event.change.id == first.job_id)
    second = client.submit({"name": "two", "task": {"kind": "noop"}})
    cell.server.kill()
    cell.up()
    third = client.submit({"name": "three", "task": {"kind": "noop"}})
    events = cell.client().stream(after=seen.id)
    order = []
    for event in events:
        if event.change.kind == "job":
            order.append(event.change.id)
        if event.change.id == third.job_id:
            break
    assert order == [second.job_id, third.job_id]
