"""Airflow's side: mapped tasks on its local executor; as a program it is all of Airflow.

Settings as its pages on scheduler performance and on mapped tasks say: as many tasks at a time as
pay on two cores, maps as long as asked, a scheduler that hardly sleeps.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import uuid
from pathlib import Path

import psycopg2
import psycopg2.extensions

HOME = Path(os.environ["PEERS_PLACE"]) / "airflow"
DSN = os.environ["PEERS_DSN"]
PORT = os.environ["PEERS_PORT"]
PARSED_S_MAX = 120
WORKFLOWS = 3
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
    "PYTHONPATH": str(Path(__file__).parent),
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": DSN.replace("postgresql://", "postgresql+psycopg2://"),
    "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    "AIRFLOW__CORE__PARALLELISM": "4",
    "AIRFLOW__CORE__MAX_MAP_LENGTH": "100000",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{PORT}/execution/",
    "AIRFLOW__API__PORT": PORT,
    "AIRFLOW__API__HOST": "127.0.0.1",
    "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{PORT}",
    "AIRFLOW__API_AUTH__JWT_SECRET": "only for this measurement, on loopback",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.05",
    "AIRFLOW__SCHEDULER__MAX_TIS_PER_QUERY": "0",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
}
_counting: list[psycopg2.extensions.connection] = []


def prepare() -> None:
    """Creates the tables and installs the workflows."""
    (HOME / "dags").mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("airflow_dags.py"), HOME / "dags")
    from airflow.utils.db import initdb

    initdb()


def _asked(question: str) -> int:
    if not _counting:
        _counting.append(psycopg2.connect(DSN))
        _counting[0].autocommit = True
    with _counting[0].cursor() as cursor:
        cursor.execute(question)
        [[found]] = cursor.fetchall()
    return int(found)


def _start(workflow: str, count: int) -> None:
    from airflow.api.common.trigger_dag import trigger_dag
    from airflow.utils.types import DagRunTriggeredByType

    deadline = time.perf_counter() + PARSED_S_MAX
    while _asked("SELECT count(*) FROM serialized_dag") < WORKFLOWS:
        if time.perf_counter() > deadline:
            raise TimeoutError("the workflows were not read")
        time.sleep(0.1)
    trigger_dag(
        workflow,
        triggered_by=DagRunTriggeredByType.TEST,
        run_id=uuid.uuid4().hex,
        conf={"count": count},
    )


def submit_jobs(kind: str, count: int) -> None:
    _start(kind, count)


def call() -> None:
    _start("pickup", 1)


def recorded() -> int:
    return _asked(
        "SELECT count(*) FROM task_instance WHERE state = 'success' AND task_id IN ('noop', 'spin')"
    )


if __name__ == "__main__":
    os.execvp("airflow", ["airflow", "standalone"])
