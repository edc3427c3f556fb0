"""Airflow's workflows: a task for each number up to what the run asks for; and one that rings."""

from __future__ import annotations

from typing import Any

import bell
from airflow.sdk import dag, task

AT_ONCE = 1_000


@task
def plan(**context: Any) -> list[int]:
    """What the mapped task is run for."""
    return list(range(context["dag_run"].conf["count"]))


@task
def noop(number: int) -> None:
    """Nothing."""


@task
def spin(number: int) -> None:
    """A millisecond of work."""
    bell.spin()


@task
def ring() -> None:
    """Says that it runs."""
    bell.ring()


@dag("noop", schedule=None, max_active_tasks=AT_ONCE)
def noops() -> None:
    """Many that do nothing."""
    noop.expand(number=plan())


@dag("spin", schedule=None, max_active_tasks=AT_ONCE)
def spins() -> None:
    """Many that work."""
    spin.expand(number=plan())


@dag("ring", schedule=None, max_active_runs=AT_ONCE)
def rings() -> None:
    """One that is waited for."""
    ring()


noops()
spins()
rings()
