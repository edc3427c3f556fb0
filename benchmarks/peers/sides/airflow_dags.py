"""Airflow's workflows: one with many mapped tasks, and one with a single start signal."""

from __future__ import annotations

from typing import Any

import start_signal
from airflow.sdk import dag, task

AT_ONCE = 1_000


@task
def plan(**context: Any) -> list[int]:
    return list(range(context["dag_run"].conf["count"]))


@task
def noop(number: int) -> None:
    """Nothing."""


@task
def spin(number: int) -> None:
    start_signal.spin()


@task
def pickup() -> None:
    start_signal.send()


@dag("noop", schedule=None, max_active_tasks=AT_ONCE)
def noops() -> None:
    noop.expand(number=plan())


@dag("spin", schedule=None, max_active_tasks=AT_ONCE)
def spins() -> None:
    spin.expand(number=plan())


@dag("pickup", schedule=None, max_active_runs=AT_ONCE)
def single() -> None:
    pickup()


noops()
spins()
single()
