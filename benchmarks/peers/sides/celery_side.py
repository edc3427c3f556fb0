"""Celery's side: a Redis broker in database 0, the results in database 1.

Settings for short tasks as Celery's page on optimizing says: many are prefetched; and what costs
without being asked for (rate limits, events) is off. The pool and its size are in the command line.
"""

from __future__ import annotations

import os
import subprocess
import time

import redis
from celery import Celery
from celery.result import AsyncResult

URL = f"redis://127.0.0.1:{os.environ['PEERS_REDIS_PORT']}"

app = Celery("celery_side", broker=f"{URL}/0", backend=f"{URL}/1")
app.conf.update(
    worker_prefetch_multiplier=128,
    worker_disable_rate_limits=True,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)
results = redis.Redis.from_url(f"{URL}/1")


@app.task
def now() -> int:
    """When it runs."""
    return time.time_ns()


@app.task
def command() -> int:
    """When the program runs."""
    return int(subprocess.run(["date", "+%s%N"], capture_output=True, check=True).stdout)


@app.task
def add(a: int, b: int) -> int:
    """Next to nothing."""
    return a + b


def when() -> int:
    """By a function."""
    return now.delay().get(timeout=60)


def date() -> int:
    """By a function that starts the program: there are no other kinds of task."""
    return command.delay().get(timeout=60)


def pour(count: int) -> list[AsyncResult]:
    """By one producer: a little faster than a group, and than one call after the other."""
    with app.producer_pool.acquire() as producer:
        return [add.apply_async((number, number), producer=producer) for number in range(count)]


def recorded() -> int:
    """Each result is a key."""
    return results.dbsize()


def result(handle: AsyncResult) -> int:
    """From the backend."""
    return handle.get(timeout=60)
