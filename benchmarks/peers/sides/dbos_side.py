"""DBOS's side: workflows in a queue that is polled often; as a program it is the worker."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import start_signal
from dbos import DBOS, DBOSClient

DSN = os.environ["PEERS_DSN"]
AT_ONCE = 8
WORKS = __name__ == "__main__"


def _launch() -> None:
    DBOS(config={"name": "peers", "system_database_url": DSN, "log_level": "ERROR"})

    @DBOS.workflow(name="noop")
    def noop() -> None:
        """Nothing."""

    @DBOS.workflow(name="spin")
    def spin() -> None:
        start_signal.spin()

    @DBOS.workflow(name="pickup")
    def pickup() -> None:
        start_signal.send()

    DBOS.launch()
    DBOS.register_queue("peers", polling_interval_sec=0.05)


def prepare() -> None:
    _launch()
    DBOS.destroy()


_client: list[DBOSClient] = []
_counting: list[psycopg.Connection] = []


def _ours() -> DBOSClient:
    if not _client:
        _client.append(DBOSClient(system_database_url=DSN))
    return _client[0]


def _enqueue(kind: str) -> None:
    _ours().enqueue({"workflow_name": kind, "queue_name": "peers"})


def submit_jobs(kind: str, count: int) -> None:
    """Submits one by one from a few threads, because there is no batch call."""
    _ours()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(_enqueue, [kind] * count))


def call() -> None:
    _enqueue("pickup")


def recorded() -> int:
    if not _counting:
        _counting.append(psycopg.connect(DSN, autocommit=True))
    found = (
        _counting[0]
        .execute(
            "SELECT count(*) FROM dbos.workflow_status"
            " WHERE status = 'SUCCESS' AND name <> 'pickup'"
        )
        .fetchone()
    )
    return int(found[0]) if found else 0


if WORKS:
    _launch()
    threading.Event().wait()
